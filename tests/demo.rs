//! What a newcomer runs first, as they run it; and that no value of it leaks.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::process::Command;

#[test]
fn the_demo_holds() {
    let output = Command::new(env!("CARGO_BIN_EXE_reversi")).arg("demo").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for claim in ["ran exactly once", "the sandbox is what it was", "the cut tail is caught", "did not run"] {
        assert!(
            said.lines().any(|line| line.contains(claim) && line.trim_start().starts_with("ok")),
            "{claim}: {said}"
        );
    }
    assert!(!said.contains("NOT SO"), "{said}");
}
