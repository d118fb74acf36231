//! The daemon's own process: the check before a start, refusals to start, and reloads by signal and by command.
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use reversi::demo::daemon::{Daemon, Setting, Stage};
use rustix::process::{Pid, Signal, kill_process};

use crate::ledger::arg;
use crate::program::{Said, command, reversi, said};

const ONE: &str = "{tool: a, effect: read_only, permission: x}\n";
const TWO: &str = "- {tool: a, effect: read_only, permission: y}\n- {tool: b, effect: read_only, permission: x}\n";
const BROKEN: &str = "tool: a\nefect: read_only\npermission: x y\n";

fn serve(folder: &Path, more: &[&str]) -> Said {
    let mut command = command(["serve"]);
    said(command.args(more).current_dir(folder))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_check_says_ok_and_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // The port is taken: a start would fail.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "listen: {}\nmanifests: [tools.yaml]\nupstreams: [{{name: own, command: ./server}}]\n",
        taken.local_addr().unwrap()
    );
    fs::write(folder.path().join("reversi.config.yaml"), config).unwrap();
    fs::write(folder.path().join("tools.yaml"), TWO).unwrap();
    fs::copy("/bin/true", folder.path().join("server")).unwrap();
    let said = serve(folder.path(), &["--check"]).exits(0);
    let expected = "ok: the daemon can start with these settings and 2 tool manifests\n";
    assert_eq!((said.out.as_str(), said.err.as_str()), (expected, ""));
    assert_eq!(names(folder.path()), ["reversi.config.yaml", "server", "tools.yaml"], "nothing was written");
    let said = serve(folder.path(), &[]).exits(1);
    assert!(said.err.contains("cannot listen on"), "{}", said.err);
}

#[test]
fn a_check_lists_everything_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let config = "listen: 0.0.0.0:7421\nmanifests: [tools.yaml, missing]\ndata_dir: tools.yaml/data\n\
                  upstreams: [{name: own, command: ./server}, {name: other, command: no-such-program}]\n";
    fs::write(folder.path().join("reversi.config.yaml"), config).unwrap();
    fs::write(folder.path().join("tools.yaml"), BROKEN).unwrap();
    let said = serve(folder.path(), &["--check"]).exits(1);
    assert_eq!(said.out, "");
    for words in [
        "error: the check found what is wrong:\n",
        "keys would cross the network unencrypted",
        "\nupstream \"own\": its command \"././server\" can't be run: there is no such program\n",
        "\nupstream \"other\": its command \"no-such-program\" can't be run: it is not in PATH\n",
        "tools.yaml is no folder\n",
        "\n./tools.yaml:2:1: efect: ",
        "\n./tools.yaml:3:13: permission: ",
        "\n./missing: there is no such file or folder (check the path)\n",
    ] {
        assert!(said.err.contains(words), "{words}: {}", said.err);
    }
    let said = serve(folder.path(), &["--check", "--config", "nowhere.yaml"]).exits(1);
    assert!(said.err.contains("nowhere.yaml can't be read"), "{}", said.err);
    reversi(["serve", "--chek"]).exits(64);
}

#[test]
fn a_default_folder_may_be_missing_and_a_named_one_may_not() {
    let folder = tempfile::tempdir().unwrap();
    let expected = "ok: the daemon can start with these settings and no manifests, so every call would be blocked\n";
    assert_eq!(serve(folder.path(), &["--check"]).exits(0).out, expected);
    fs::create_dir(folder.path().join("manifests")).unwrap();
    assert_eq!(serve(folder.path(), &["--check"]).exits(0).out, expected);
    fs::write(folder.path().join("reversi.config.yaml"), "manifests: [manifests]\n").unwrap();
    let said = serve(folder.path(), &["--check"]).exits(1);
    assert!(said.err.contains("./manifests: there is no .yaml, .yml or .json file in this folder"), "{}", said.err);
    let unreadable = folder.path().join("manifests/a.yaml");
    std::os::unix::fs::symlink("nowhere", unreadable).unwrap();
    fs::remove_file(folder.path().join("reversi.config.yaml")).unwrap();
    assert!(serve(folder.path(), &["--check"]).exits(1).err.contains("a.yaml: this link leads to nothing"));
}

#[test]
fn a_refusal_to_start_shows_the_lines_of_validate() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("manifests")).unwrap();
    fs::write(folder.path().join("manifests/a.yaml"), BROKEN).unwrap();
    let mut validate = command(["validate", "./manifests"]);
    let listed = said(validate.current_dir(folder.path())).exits(1);
    let refused = serve(folder.path(), &[]).exits(1);
    let expected =
        format!("error: {}{}the daemon does not start with manifests that have mistakes\n", listed.out, listed.err);
    assert_eq!(refused.err, expected);
    assert_eq!(names(folder.path()), ["manifests"], "no data directory was made");
}

struct Running {
    stage: Stage,
    daemon: Daemon,
    folder: tempfile::TempDir,
}

impl Running {
    fn start(manifests: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_reversi"));
        let stage = Stage::new(folder.path(), binary, &[("tools.yaml", manifests)]).unwrap();
        let daemon = stage.start(&Setting::default()).unwrap();
        Self { stage, daemon, folder }
    }

    fn write(&self, manifests: &str) {
        fs::write(self.folder.path().join("manifests/tools.yaml"), manifests).unwrap();
    }

    fn hang_up(&self) {
        let pid = Pid::from_raw(i32::try_from(self.daemon.pid()).unwrap()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
    }

    fn tell(&self, args: &[&str]) -> Said {
        let key = self.stage.data().join("admin.key");
        let mut command = command(args);
        said(command.arg("--key-file").arg(key).env("REVERSI_URL", &self.daemon.url))
    }

    /// Until the log says so.
    fn logged(&self, words: &str) -> String {
        until_logged(&self.stage, words)
    }

    fn loaded(&self) -> Vec<serde_json::Value> {
        let export = self.tell(&["ledger", "export"]).exits(0).out;
        let lines = export.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter(|record| record["type"] == "manifests.loaded").collect()
    }
}

fn until_logged(stage: &Stage, words: &str) -> String {
    until(|| Some(fs::read_to_string(stage.log()).unwrap_or_default()).filter(|log| log.contains(words)))
}

/// Asks until there is an answer; a daemon that never gives one must not keep the tests for ever.
fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "no answer");
        std::thread::yield_now();
    }
}

#[test]
fn a_signal_reloads_and_the_ledger_says_so_once() {
    let running = Running::start(ONE);
    running.hang_up();
    running.logged("the manifests were read again: nothing has changed");
    assert_eq!(running.loaded().len(), 1);
    running.write(BROKEN);
    running.hang_up();
    let log = running.logged("the manifests were not reloaded, those in force stay: 3 mistakes");
    assert!(log.contains("tools.yaml:2:1: efect: ") && log.contains("tools.yaml:3:13: permission: "), "{log}");
    assert_eq!(running.loaded().len(), 1);
    running.write(TWO);
    running.hang_up();
    running.logged("other manifests are in force");
    let loaded = running.loaded();
    assert_eq!(loaded.len(), 2);
    assert_eq!((&loaded[1]["body"]["count"], &loaded[1]["actor"]["kind"]), (&2.into(), &"system".into()), "{loaded:?}");
    assert!(running.daemon.stop().unwrap().success());
}

#[test]
fn a_command_reloads_as_the_admin_who_asked() {
    let running = Running::start(ONE);
    let unchanged = running.tell(&["reload"]).exits(0);
    assert_eq!(unchanged.out, "ok: nothing has changed, 1 tool manifest is in force\n");
    running.write(TWO);
    let said = running.tell(&["reload"]).exits(0);
    let seq = running.loaded()[1]["seq"].clone();
    assert_eq!(
        said.out,
        format!("ok: 2 tool manifests are in force as of record {seq}\nadded    b\nupdated  a\n"),
        "{said:?}"
    );
    assert_eq!(running.loaded()[1]["actor"]["id"], "admin");
    let json = running.tell(&["reload", "--json"]).exits(0).json();
    assert_eq!((&json["changed"], &json["count"], &json["seq"]), (&false.into(), &2.into(), &seq));
    running.write(BROKEN);
    let refused = running.tell(&["reload"]).exits(1);
    // The same lines as where they are read from the file itself.
    let listed = reversi(["validate", arg(&running.folder.path().join("manifests"))]).exits(1).out;
    assert!(
        refused.err.starts_with("error: the manifests stay as they were: 3 mistakes in the files\n"),
        "{refused:?}"
    );
    assert!(refused.err.ends_with(" (manifests.invalid)\n"), "{refused:?}");
    for line in listed.lines() {
        assert!(refused.err.contains(&format!("\n  {line}")), "{line}: {}", refused.err);
    }
    fs::remove_file(running.folder.path().join("manifests/tools.yaml")).unwrap();
    let said = running.tell(&["reload"]).exits(1);
    assert!(said.err.contains("manifests: there is no .yaml, .yml or .json file in this folder"), "{said:?}");
    assert_eq!(running.loaded().len(), 2);
    assert!(running.daemon.stop().unwrap().success());
}

/// Something once the process handles SIGHUP.
fn catches_hangups(child: &mut Child) -> Option<()> {
    assert!(child.try_wait().unwrap().is_none(), "the daemon ended");
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    (u64::from_str_radix(caught.trim(), 16).unwrap() & 1 != 0).then_some(())
}

/// Writes to a pipe once somebody reads from it.
fn open_gate(gate: &Path) -> Option<()> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut opened = fs::OpenOptions::new().write(true).custom_flags(flags).open(gate).ok()?;
    opened.write_all(b"\n").ok()
}

#[test]
fn a_signal_before_the_daemon_is_ready_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_reversi"));
    let stage = Stage::new(folder.path(), binary, &[("tools.yaml", ONE)]).unwrap();
    // The start waits for this upstream, which waits for us.
    let gate = folder.path().join("gate");
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let script = format!("read line < '{}'", gate.display());
    let slow = serde_json::json!({"name": "slow", "command": "sh", "args": ["-c", script]});
    let mut child = stage.spawn(&Setting { upstreams: vec![slow], ..Setting::default() }).unwrap();
    until(|| catches_hangups(&mut child));
    assert!(!folder.path().join("ready").exists(), "the handler is there before the daemon is ready");
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    until(|| open_gate(&gate));
    until_logged(&stage, "listening on");
    until_logged(&stage, "the manifests were read again: nothing has changed");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}
