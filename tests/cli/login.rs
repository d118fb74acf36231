//! `reversi login`, `logout`, `whoami`: where the key is kept, who may read it, and to whom it is sent.
use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::http::{Daemon, KEY};
use crate::ledger::arg;
use crate::program::{Said, command, said};
use crate::terminal::answering;

fn me() -> Value {
    json!({"key_id": "abcdefghijkl", "actor": "olga", "kind": "human", "person": "olga@example.com",
           "roles": ["operator", "approver"], "groups": ["finance"], "allow_observe": false})
}

/// Somebody's home, without any environment that names a daemon.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn profile(&self) -> PathBuf {
        self.0.path().join(".config/reversi/profile.json")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("HOME", self.0.path());
        command
    }

    fn tell(&self, args: &[&str]) -> Said {
        said(&mut self.command(args))
    }

    fn tell_fed(&self, args: &[&str], input: &str) -> Said {
        let mut command = self.command(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A program that has seen enough closes its stdin.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn log_in(&self, daemon: &Daemon) -> Said {
        self.tell_fed(&["login", "--url", &daemon.url], &format!("{KEY}\n")).exits(0)
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_key_from_stdin_is_checked_and_kept_for_its_owner_alone() {
    let (home, daemon) = (Home::new(), Daemon::json([me(), me()]));
    let folder = home.profile().parent().unwrap().to_owned();
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let said = home.log_in(&daemon);
    let expected = format!("logged in at {} as olga (olga@example.com), operator, approver\n", daemon.url);
    assert_eq!(said.out, expected);
    assert!(!said.err.contains(KEY) && said.err.contains("reversi logout"), "{}", said.err);
    assert_eq!((mode(&home.profile()), mode(&folder)), (0o600, 0o700));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "something was left beside the profile");
    let whoami = home.tell(&["whoami"]).exits(0);
    let expected = format!(
        "actor       olga (human)\nperson      olga@example.com\nroles       operator, approver\ngroups      finance\n\
         key         abcdefghijkl, from the profile\ndaemon      {}\n",
        daemon.url
    );
    assert_eq!(whoami.out, expected);
    let asked = daemon.asked();
    assert!(asked.iter().all(|asked| asked.line == "GET /v1/me HTTP/1.1"));
    assert!(asked.iter().all(|asked| asked.has(&format!("authorization: Bearer {KEY}"))));
}

#[test]
fn a_key_that_the_daemon_does_not_know_is_not_kept() {
    let problem = json!({"status": 401, "detail": "the access key is revoked", "code": "key.invalid"});
    let (home, daemon) = (Home::new(), Daemon::problem(401, &problem));
    let said = home.tell_fed(&["login", "--url", &daemon.url], KEY).exits(1);
    assert!(said.err.contains("the access key is revoked") && !home.profile().exists(), "{}", said.err);
    for (input, code) in [("", 64), (" \n", 64), ("hunter2", 1), ("rvk_a b", 1)] {
        let said = home.tell_fed(&["login", "--url", "http://127.0.0.1:1"], input).exits(code);
        assert!(said.err.contains("key") && !said.err.contains("hunter2") && !home.profile().exists(), "{said:?}");
    }
    home.tell_fed(&["login", "--url", "http://10.0.0.1:7421"], KEY).exits(64);
}

#[test]
fn a_key_from_a_file_and_another_place_for_the_profile() {
    let (home, daemon) = (Home::new(), Daemon::json([me(), me()]));
    let file = home.0.path().join("olga.key");
    std::fs::write(&file, format!("{KEY}\n")).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    let config = home.0.path().join("elsewhere");
    let args = ["login", "--url", &daemon.url, "--key-file", arg(&file)];
    let refused = said(home.command(&args).env("XDG_CONFIG_HOME", &config)).exits(1);
    assert!(refused.err.contains("chmod 600"), "{}", refused.err);
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let told = said(home.command(&args).env("XDG_CONFIG_HOME", &config).env("REVERSI_KEY", "rvk_other")).exits(0);
    assert!(told.err.contains("note: REVERSI_KEY is set and comes before the profile"), "{}", told.err);
    assert!(config.join("reversi/profile.json").exists() && !home.profile().exists());
    let json = said(home.command(&["whoami", "--json"]).env("XDG_CONFIG_HOME", &config)).exits(0);
    assert_eq!(json.json(), me());
    // A relative place is none.
    said(home.command(&["whoami"]).env("XDG_CONFIG_HOME", "elsewhere")).exits(64);
}

#[test]
fn a_typed_key_is_not_shown() {
    let (home, daemon) = (Home::new(), Daemon::json([me()]));
    let mut command = home.command(&["login", "--url", &daemon.url]);
    let said = answering(&mut command, "(not shown): ", &format!("{KEY}\n")).exits(0);
    assert!(!said.err.contains(KEY), "{}", said.err);
    assert!(home.profile().exists() && daemon.asked()[0].has(&format!("authorization: Bearer {KEY}")));
}

#[test]
fn a_profile_that_others_can_read_is_refused() {
    let (home, daemon) = (Home::new(), Daemon::json([me()]));
    home.log_in(&daemon);
    for bits in [0o640, 0o604, 0o620] {
        std::fs::set_permissions(home.profile(), Permissions::from_mode(bits)).unwrap();
        let said = home.tell(&["status"]).exits(1);
        assert!(said.err.contains("others can read this profile") && said.err.contains("chmod 600 "), "{}", said.err);
    }
    std::fs::set_permissions(home.profile(), Permissions::from_mode(0o600)).unwrap();
    std::fs::write(home.profile(), format!("{{\"key\": \"{KEY}")).unwrap();
    let said = home.tell(&["status"]).exits(1);
    assert!(said.err.contains("`reversi login` writes it anew") && !said.err.contains(KEY), "{}", said.err);
}

#[test]
fn the_command_line_and_the_environment_come_before_the_profile() {
    let (home, own, other) = (Home::new(), Daemon::json([me(), me()]), Daemon::json([me(), me()]));
    home.log_in(&own);
    let foreign = home.tell(&["whoami", "--url", &other.url]).exits(64);
    assert!(foreign.err.contains("is not sent to") && other.asked().is_empty(), "{}", foreign.err);
    let key = "rvk_zzzzzzzzzzzz_1";
    said(home.command(&["whoami", "--url", &other.url]).env("REVERSI_KEY", key)).exits(0);
    assert!(other.asked()[0].has(&format!("authorization: Bearer {key}")));
    said(home.command(&["whoami"]).env("REVERSI_KEY", key)).exits(0);
    assert!(
        own.asked()[1].has(&format!("authorization: Bearer {key}")),
        "the profile's address, the environment's key"
    );
    let file = home.0.path().join("file.key");
    std::fs::write(&file, "rvk_ffffffffffff_1").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let args = ["whoami", "--url", &other.url, "--key-file", arg(&file)];
    said(home.command(&args).env("REVERSI_KEY", key).env("REVERSI_URL", "http://127.0.0.1:1")).exits(0);
    assert!(other.asked()[1].has("authorization: Bearer rvk_ffffffffffff_1"));
}

#[test]
fn a_logout_deletes_the_key_and_can_be_repeated() {
    let (home, daemon) = (Home::new(), Daemon::json([me()]));
    home.log_in(&daemon);
    assert_eq!(home.tell(&["logout"]).exits(0).out, "logged out: the kept key is deleted\n");
    assert!(!home.profile().exists());
    assert_eq!(home.tell(&["logout"]).exits(0).out, "nobody was logged in\n");
    assert!(home.tell(&["status"]).exits(64).err.contains("no key was given"));
    // Without a home there is nothing to keep a key in.
    assert!(said(&mut command(["logout"])).exits(64).err.contains("set HOME"));
}
