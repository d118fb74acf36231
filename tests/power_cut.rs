//! A power cut in the middle of writing: nothing that was acknowledged over HTTP is missing afterwards. The tool that
//! cuts (`powerloss.sh`) and loop mounts are not everywhere; the test says so where it skips.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rounds; `POWER_CUT_ROUNDS` asks for more.
const ROUNDS: &str = "3";

fn harness() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/faults/powerloss.sh");
    if !script.exists() {
        eprintln!("skipped: ../shared/faults/powerloss.sh is not beside the checkout");
        return None;
    }
    let mounts = "d=$(mktemp -d) && truncate -s 16M $d/i && mkfs.ext4 -q -F $d/i && mkdir $d/m && mount -o loop $d/i $d/m \
                  && umount $d/m; r=$?; rm -rf $d; exit $r";
    let allowed = Command::new("bash").args(["-c", mounts]).output().is_ok_and(|output| output.status.success());
    if !allowed {
        eprintln!("skipped: loop mounts are not allowed here");
        return None;
    }
    Some(script)
}

#[test]
fn nothing_acknowledged_is_lost() {
    let Some(script) = harness() else { return };
    let target = Path::new(env!("CARGO_BIN_EXE_reversi")).parent().unwrap();
    let program = target.join("examples/power_cut");
    assert!(program.exists(), "{} is built with the tests", program.display());
    let rounds = std::env::var("POWER_CUT_ROUNDS").unwrap_or_else(|_| ROUNDS.to_owned());
    let output = Command::new("bash")
        .arg(script)
        .arg(rounds)
        .arg(format!("{} write {{dir}}", program.display()))
        .arg(format!("{} check {{dir}} '{{acked}}'", program.display()))
        .arg("512")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let told = said.lines().filter(|line| line.starts_with("round ") && !line.contains("acked nothing")).count();
    assert!(told > 0, "rounds in which nothing was acknowledged prove nothing: {said}");
}
