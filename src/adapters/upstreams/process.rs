//! Child processes as groups: whether one of an earlier daemon is still running, and how it ends for certain. A call
//! is over when nothing of its group runs any more. Knows no MCP.
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use reversi_proto::hash::hex;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};

use super::pause;

/// In the environment of every child, so that its descendants can be told from strangers after their leader is gone.
const MARKER: &str = "REVERSI_UPSTREAM_MARK";
/// What a child gets of the daemon's own environment: what programs need to run, and no secret of the daemon.
const INHERITED: [&str; 10] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "TERM"];
const KILL_WAIT: Duration = Duration::from_secs(10);

/// What tells a process group from every other one, before and after a restart of the daemon or the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    /// The leader's pid, which is also the group's id.
    pid: i32,
    /// The leader's start, in clock ticks since boot.
    start: u64,
    /// The kernel's boot id: pids and ticks mean nothing after a reboot.
    boot: String,
    marker: String,
}

/// Starts a program as the leader of its own group, with pipes for its input and output. Its stderr is dropped:
/// servers print argument values there.
pub(super) fn spawn(command: &str, args: &[String], env: &BTreeMap<String, String>) -> io::Result<(Child, Group)> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let marker = hex(&random);
    let inherited = INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let child = Command::new(command)
        .args(args)
        .env_clear()
        .envs(inherited)
        .envs(env)
        .env(MARKER, &marker)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.ok_or_else(|| io::Error::other("the child ended before its pid was known"))?;
    // The child isn't reaped before its handle is waited for, so its entry is there even if it ended already.
    let start = stat(pid).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat can't be read")))?.start;
    Ok((child, Group { pid, start, boot: boot_id()?, marker }))
}

/// Writes down which group runs, before anything is called in it. Not synced: after a power cut no process is left.
pub(super) fn remember(file: &Path, group: &Group) -> io::Result<()> {
    let new = file.with_extension("pid.new");
    std::fs::write(&new, serde_json::to_vec(group)?)?;
    std::fs::rename(new, file)
}

/// Ends the group that an earlier daemon wrote down; afterwards nothing of it runs.
pub(super) async fn end_leftover(file: &Path) -> io::Result<()> {
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let group: Group = serde_json::from_slice(&text).map_err(|e| {
        let advice = "delete it once no child of an earlier daemon runs";
        io::Error::other(format!("{} is damaged ({e}): {advice}", file.display()))
    })?;
    if group.boot == boot_id()? {
        end(&group).await?;
    }
    std::fs::remove_file(file)
}

/// Kills everything in the group and waits until nothing of it runs.
pub(super) async fn end(group: &Group) -> io::Result<()> {
    let ended = tokio::time::timeout(KILL_WAIT, async {
        while runs(group)? {
            signal(group, Signal::KILL);
            pause(Duration::from_millis(10)).await;
        }
        Ok(())
    });
    ended.await.unwrap_or_else(|_| {
        Err(io::Error::other(format!("process group {} still runs 10 s after it was killed", group.pid)))
    })
}

/// Sends a signal to the group. The caller has just seen that it runs.
fn signal(group: &Group, signal: Signal) {
    if let Some(pid) = Pid::from_raw(group.pid) {
        // An error means that it ended in between, which the next look tells.
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// Whether a process of this very group runs. Zombies don't: they execute nothing.
fn runs(group: &Group) -> io::Result<bool> {
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Some(stat) = stat(pid) else { continue };
        if stat.group != group.pid || matches!(stat.state, 'Z' | 'X') {
            continue;
        }
        // A pid can be used again, so membership alone proves nothing.
        let leader = pid == group.pid && stat.start == group.start;
        if leader || marked(pid, &group.marker) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn marked(pid: i32, marker: &str) -> bool {
    let wanted = format!("{MARKER}={marker}");
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
}

struct Stat {
    state: char,
    group: i32,
    start: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 3, 5 and 22 of /proc/PID/stat. The name in field 2 can hold anything, so counting starts behind it.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        group: fields.get(2)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_program_name_does_not_shift_the_fields() {
        let text = "7 (a) Z 1 1) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9001 1 1";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.state, stat.group, stat.start), ('S', 42, 9001));
    }

    #[tokio::test]
    async fn a_group_ends_with_its_descendants() {
        let script = "sleep 1000 & sleep 1000 & wait".to_owned();
        let (mut child, group) = spawn("/bin/sh", &["-c".to_owned(), script], &BTreeMap::new()).unwrap();
        assert!(runs(&group).unwrap());
        end(&group).await.unwrap();
        assert!(!runs(&group).unwrap());
        assert!(!child.wait().await.unwrap().success());
    }

    #[tokio::test]
    async fn a_stranger_with_the_same_pid_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.pid");
        let (mut child, group) = spawn("/bin/sleep", &["1000".to_owned()], &BTreeMap::new()).unwrap();
        let stranger = Group { start: group.start + 1, marker: "other".to_owned(), ..group.clone() };
        remember(&file, &stranger).unwrap();
        end_leftover(&file).await.unwrap();
        assert!(runs(&group).unwrap());
        remember(&file, &group).unwrap();
        end_leftover(&file).await.unwrap();
        assert!(!runs(&group).unwrap());
        assert!(!file.exists());
        child.wait().await.unwrap();
    }
}
