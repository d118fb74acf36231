//! The operator's command line: what there is to type, and which module answers. stdout is data, stderr the rest. An
//! edge like HTTP: it translates, and must not see storage or decide anything.
mod api;
mod approval_text;
mod approvals;
mod completions;
mod doctor;
mod failure;
mod halt;
mod keygen;
mod keys;
mod ledger;
mod lint;
mod login;
mod mistakes;
mod out;
mod people;
mod profile;
mod progress;
mod reload;
mod render;
mod rollback;
mod runs;
mod schema;
mod status;
mod terminal;
mod test;
mod trust;
mod validate;
mod verify;
mod watch;
mod when;
mod wire;
mod wire_people;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use failure::{Failure, exit};
use out::Out;

const AFTER: &str = "\
Exit codes: 0 ok, 1 the check failed or the input is bad, 64 the command line is wrong, 70 internal error.
Commands that talk to a daemon find its address and a key on the command line (--url, --key-file), else in the \
environment (REVERSI_URL, REVERSI_KEY), else in the profile that `reversi login` keeps.";

/// Decides, journals and undoes what AI agents do with tools.
#[derive(Debug, Parser)]
#[command(name = "reversi", version, after_help = AFTER, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(crate::serve::ServeArgs),
    Runs(runs::RunsArgs),
    Approvals(approvals::ApprovalsArgs),
    Halt(halt::HaltArgs),
    Resume(halt::ResumeArgs),
    Halts(halt::HaltsArgs),
    Status(status::StatusArgs),
    Login(login::LoginArgs),
    Logout(login::LogoutArgs),
    Whoami(login::WhoamiArgs),
    Keys(keys::KeysArgs),
    Groups(people::GroupsArgs),
    Delegations(people::DelegationsArgs),
    Reload(reload::ReloadArgs),
    Ledger(ledger::LedgerArgs),
    Verify(verify::VerifyArgs),
    Doctor(doctor::DoctorArgs),
    Validate(validate::ValidateArgs),
    Schema(schema::SchemaArgs),
    Lint(lint::LintArgs),
    Test(test::TestArgs),
    Keygen(keygen::KeygenArgs),
    Completions(completions::CompletionsArgs),
    Demo(crate::demo::DemoArgs),
    /// Runs one of Reversi's own MCP servers.
    Connector {
        #[command(subcommand)]
        which: Connector,
    },
}

#[derive(Debug, Subcommand)]
enum Connector {
    Fs(crate::connector::FsArgs),
}

/// Everything between the process's arguments and its exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to tell if the terminal is gone.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::OK });
        }
    };
    let mut out = Out::stdout();
    let done = dispatch(cli.command, &mut out).and_then(|code| out.flush().map(|()| code));
    match done {
        Ok(code) => code,
        Err(failure) if failure.is_unread() => out.unread(),
        Err(failure) => failure.report(),
    }
}

fn dispatch(command: Command, out: &mut Out) -> Result<ExitCode, Failure> {
    match command {
        Command::Serve(args) => block_on(crate::serve::serve(args)),
        Command::Runs(args) => runs::run(args, out),
        Command::Approvals(args) => approvals::run(&args, out),
        Command::Halt(args) => halt::halt(&args, out),
        Command::Resume(args) => halt::resume(&args, out),
        Command::Halts(args) => halt::halts(&args, out),
        Command::Status(args) => status::run(&args, out),
        Command::Login(args) => login::login(&args, out),
        Command::Logout(args) => login::logout(&args, out),
        Command::Whoami(args) => login::whoami(&args, out),
        Command::Keys(args) => keys::run(&args, out),
        Command::Groups(args) => people::groups(&args, out),
        Command::Delegations(args) => people::delegations(&args, out),
        Command::Reload(args) => reload::run(&args, out),
        Command::Ledger(args) => ledger::run(args, out),
        Command::Verify(args) => verify::run(&args, out),
        Command::Doctor(args) => doctor::run(&args, out),
        Command::Validate(args) => validate::run(&args, out),
        Command::Schema(args) => schema::run(&args, out),
        Command::Lint(args) => lint::run(&args, out),
        Command::Test(args) => test::run(&args, out),
        Command::Keygen(args) => keygen::run(&args, out),
        Command::Completions(args) => completions::run(&args, out),
        Command::Demo(args) => block_on(crate::demo::demo(args)),
        Command::Connector { which: Connector::Fs(args) } => {
            crate::connector::run(args.into())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Runs one of the commands that are programs of their own.
fn block_on(program: impl Future<Output = anyhow::Result<ExitCode>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Internal(format!("the runtime can't be started: {error}")))?;
    Ok(runtime.block_on(program)?)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
