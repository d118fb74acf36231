//! A person at a terminal: answers once a question is on the screen.
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::program::Said;

/// Runs the command with stdin and stderr at a terminal. As soon as `question` is on the screen, `answer` is typed.
/// `err` of what comes back is the screen, stdout is a pipe.
pub(crate) fn answering(command: &mut Command, question: &str, answer: &str) -> Said {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = || File::from(rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
    let mut child = command.stdin(slave()).stderr(slave()).stdout(Stdio::piped()).spawn().unwrap();
    // What the command holds of the terminal must end with the child.
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut master = File::from(master);
    let (mut screen, mut typed, mut buffer) = (Vec::new(), false, [0; 4096]);
    // The end of a terminal is an error (EIO).
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        screen.extend_from_slice(&buffer[..count]);
        if !typed && String::from_utf8_lossy(&screen).contains(question) {
            master.write_all(answer.as_bytes()).unwrap();
            typed = true;
        }
    }
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let code = child.wait().unwrap().code().unwrap();
    Said { code, out, err: String::from_utf8(screen).unwrap().replace("\r\n", "\n") }
}
