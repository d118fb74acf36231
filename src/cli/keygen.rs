//! `reversi keygen`: a key pair for signing. Must not know what will be signed.
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use reversi_proto::ledger::note::key_from_seed;

use super::failure::Failure;
use super::out::{Out, tell};

/// Makes an Ed25519 key pair: PATH.key (private) and PATH.pub.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints the public key as a verifier key (name+hash+key), which is what somebody else pins.
Files that exist are never overwritten.

Examples:
  reversi keygen keys/mf
  reversi keygen keys/ledger --name ledger.example.com > ledger.vkey")]
pub(super) struct KeygenArgs {
    /// Where the two files go, without their endings
    path: PathBuf,
    /// The name under which the key signs
    #[arg(long, default_value = "reversi")]
    name: String,
}

pub(super) fn run(args: &KeygenArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let (private, public) = (with_end(&args.path, ".key"), with_end(&args.path, ".pub"));
    for file in [&private, &public] {
        if file.symlink_metadata().is_ok() {
            let text = "exists and is not overwritten: choose another path, or move it away";
            return Err(Failure::Input(format!("{} {text}", file.display())));
        }
    }
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)
        .map_err(|error| Failure::Internal(format!("the system gives no random bytes: {error}")))?;
    let key = key_from_seed(&args.name, &seed).map_err(|error| Failure::Usage(format!("--name: {error}")))?;
    if let Some(folder) = args.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| Failure::io("made", folder, &error))?;
    }
    write_new(&private, &key.private, 0o600)?;
    write_new(&public, &key.public, 0o644)?;
    out.line(key.verifier.to_string())?;
    out.flush()?;
    tell!("the private key is in {}: keep it; the public one is in {}", private.display(), public.display());
    Ok(ExitCode::SUCCESS)
}

/// The path with something added to its name; `keys/mf.v2` keeps its own ending.
fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| Failure::io("written", path, &error))
}
