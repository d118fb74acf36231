//! What can be typed, as one golden text (`UPDATE_GOLDEN=1` writes it anew), and how a wrong command line ends.
use std::fmt::Write as _;
use std::path::Path;

use crate::program::{command, reversi, said};

const COMMANDS: &[&str] = &[
    "",
    "runs",
    "runs list",
    "runs show",
    "runs plan",
    "runs rollback",
    "runs report",
    "runs approve",
    "runs resolve",
    "approvals",
    "approvals list",
    "approvals show",
    "approvals approve",
    "approvals deny",
    "approvals withdraw",
    "approvals revoke",
    "approvals break-glass",
    "approvals review",
    "approvals watch",
    "approvals reviews",
    "halt",
    "resume",
    "halts",
    "status",
    "login",
    "logout",
    "whoami",
    "keys",
    "keys create",
    "keys list",
    "keys revoke",
    "keys rotate",
    "groups",
    "groups list",
    "groups set",
    "groups delete",
    "delegations",
    "delegations list",
    "delegations add",
    "delegations end",
    "reload",
    "ledger",
    "ledger export",
    "ledger checkpoint",
    "verify",
    "doctor",
    "validate",
    "schema",
    "lint",
    "test",
    "keygen",
    "completions",
];

#[test]
fn the_help_of_every_command_is_what_it_was() {
    let mut text = String::new();
    for name in COMMANDS {
        let help = reversi(name.split_whitespace().chain(["--help"])).exits(0);
        assert_eq!(help.err, "", "{name}");
        // Commands that other modules bring are not this text's business.
        let own = |line: &&str| !["  serve ", "  demo ", "  connector "].iter().any(|other| line.starts_with(other));
        let lines: Vec<&str> = help.out.lines().filter(own).collect();
        writeln!(text, "$ reversi {name} --help\n{}\n", lines.join("\n").trim_end()).unwrap();
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden/help.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(text == expected, "the help changed; UPDATE_GOLDEN=1 accepts it:\n{text}");
}

#[test]
fn every_command_shows_an_example() {
    for name in COMMANDS.iter().filter(|name| !name.is_empty()) {
        let help = reversi(name.split_whitespace().chain(["--help"])).exits(0).out;
        let examples = help.lines().filter(|line| line.trim_start().starts_with("reversi ") || line.contains("(umask"));
        assert!(examples.count() > 0, "{name} shows no example");
    }
}

#[test]
fn a_wrong_command_line_is_64_and_says_so_on_stderr() {
    for args in [
        &["frobnicate"][..],
        &["verify"],
        &["verify", "x", "--frobnicate"],
        &["runs", "show", "no spaces please"],
        &["runs", "rollback", "r", "--steps", "1", "--to-step", "2"],
        &["runs", "rollback", "r", "--dry-run", "--wait"],
        &["runs", "resolve", "r", "1", "perhaps", "--note", "x"],
        &["runs", "resolve", "r", "1", "failed"],
        &["keys", "create", "--role", "emperor", "--actor", "x"],
        &["approvals", "list", "--status", "perhaps"],
        &["approvals", "approve"],
        &["approvals", "revoke", "apr_00000000"],
        &["approvals", "watch", "--interval", "0"],
        &["runs", "approve", "r", "no spaces please"],
        &["halt"],
        &["halt", "x", "--scope", "planet:earth"],
        &["resume", "--scope", "run:"],
        &["groups", "set", "finance"],
        &["delegations", "add", "--to", "x", "--until", "2026-10-14T00:00:00Z"],
        &["delegations", "end", "dlg_1"],
        &["keys", "revoke", "short"],
        &["completions", "cmd.exe"],
    ] {
        let said = reversi(args).exits(64);
        assert_eq!(said.out, "", "{args:?}");
        assert!(said.err.starts_with("error: "), "{args:?}: {}", said.err);
    }
}

#[test]
fn nothing_typed_is_a_question_for_help() {
    let said = reversi([""; 0]).exits(64);
    assert!(said.err.contains("Usage: reversi"), "{}", said.err);
}

#[test]
fn the_version_is_on_stdout() {
    assert_eq!(reversi(["--version"]).exits(0).out, format!("reversi {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = reversi(["completions", shell]).exits(0);
        assert!(script.out.contains("rollback") && script.out.contains("require-checkpoint"), "{shell}");
        assert_eq!(script.err, "");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    use std::process::Stdio;
    let mut child = command(["completions", "zsh"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
}

#[test]
fn a_closed_pipe_does_not_make_a_failed_check_a_success() {
    use std::process::Stdio;
    let folder = tempfile::tempdir().unwrap();
    let (bad, warned) = (folder.path().join("bad.yaml"), folder.path().join("warned.yaml"));
    std::fs::write(&bad, "tool: t").unwrap();
    std::fs::write(&warned, "{tool: t, effect: idempotent, permission: p}").unwrap();
    let (bad, warned) = (bad.to_str().unwrap(), warned.to_str().unwrap());
    for (args, code) in [
        (&["validate", bad][..], 1),
        (&["validate", bad, "--json"], 1),
        (&["validate", warned], 0),
        (&["lint", warned, "--strict"], 1),
        (&["lint", warned], 0),
        (&["test", bad, "-m", warned], 1),
        (&["validate"], 64),
        (&["test", "nowhere.yaml"], 1),
    ] {
        // Ends of pipes that nobody reads: what is written there fails, on stdout and on stderr.
        let unread = || std::io::pipe().map(|(_, writer)| Stdio::from(writer)).unwrap();
        let status = command(args).stdout(unread()).stderr(unread()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn pipes_get_no_colours_even_if_asked() {
    let told = said(command(["validate", "manifests"]).env("TERM", "xterm-256color").env("CLICOLOR", "1"));
    assert!(!told.out.contains('\u{1b}'), "{told:?}");
}
