//! `reversi ledger`: takes the ledger and its checkpoints out of a daemon. Must not verify them: that is `verify`.
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use reversi_proto::ids::Seq;

use super::api::{Api, ServerArgs};
use super::failure::Failure;
use super::out::{Out, tell};
use super::progress;

/// Exports the ledger and its checkpoints.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  reversi ledger checkpoint --fresh > ledger.note
  reversi ledger export -o ledger.jsonl
  reversi verify ledger.jsonl --checkpoint ledger.note --trust \"$(cat reversi-data/keys/ledger.pub)\""
)]
pub(super) struct LedgerArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    command: LedgerCommand,
}

#[derive(Debug, Subcommand)]
enum LedgerCommand {
    /// Writes all records, one line each, as they stand in the ledger.
    #[command(after_help = "\
Examples:
  reversi ledger export -o ledger.jsonl
  reversi ledger export --from 1000 | grep undo.attempted")]
    Export {
        /// Write to this file, whole or not at all, instead of stdout
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Begin with this record
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        from: Seq,
    },
    /// Prints the newest signed checkpoint.
    #[command(after_help = "Example:\n  reversi ledger checkpoint --fresh > ledger.note")]
    Checkpoint {
        /// Sign one over everything that is there now
        #[arg(long)]
        fresh: bool,
    },
}

pub(super) fn run(args: LedgerArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.server)?;
    match args.command {
        LedgerCommand::Export { output: Some(file), from } => {
            if file.exists() && !file.is_file() {
                return Err(Failure::Usage(format!("{} is no file; leave -o out for stdout", file.display())));
            }
            let (folder, written) = (folder_of(&file), |error: &std::io::Error| Failure::io("written", &file, error));
            let mut aside = tempfile::NamedTempFile::new_in(folder).map_err(|error| written(&error))?;
            let mut writer = BufWriter::new(aside.as_file_mut());
            let records = export(&api, from, |bytes| writer.write_all(bytes).map_err(|error| written(&error)))?;
            writer.flush().map_err(|error| written(&error))?;
            drop(writer);
            keep(aside, &file).map_err(|error| written(&error))?;
            tell!("{records} records were written to {}", file.display());
        }
        LedgerCommand::Export { output: None, from } => {
            let records = export(&api, from, |bytes| out.bytes(bytes))?;
            out.flush()?;
            tell!("{records} records");
        }
        LedgerCommand::Checkpoint { fresh } => {
            let note = api.text(&format!("/ledger/checkpoint?fresh={fresh}"))?;
            out.bytes(note.as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Hands on the lines, and counts them.
fn export(api: &Api, from: Seq, mut on: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<usize, Failure> {
    let spinner = progress::spinner("exporting");
    let (mut records, mut last) = (0, b'\n');
    api.stream(&format!("/ledger/records?from={from}"), |bytes| {
        records += bytes.split(|byte| *byte == b'\n').count() - 1;
        last = bytes.last().copied().unwrap_or(last);
        spinner.set_message(format!("exporting: {records} records"));
        on(bytes)
    })?;
    spinner.finish_and_clear();
    if last == b'\n' {
        return Ok(records);
    }
    Err(Failure::Unreachable("the export broke off within a record: ask again".to_owned()))
}

pub(super) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Readable as any file that is made, and in place as a whole.
pub(super) fn keep(aside: tempfile::NamedTempFile, file: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    let mode = 0o666 & !umask.bits();
    aside.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
    aside.as_file().sync_all()?;
    let written: File = aside.persist(file).map_err(|error| error.error)?;
    drop(written);
    File::open(folder_of(file))?.sync_all()
}
