//! Manifest files that are missing, strange or hostile: each is named with what to do, all in one list, and nothing hangs.
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use crate::ledger::arg;
use crate::program::{Said, command, reversi, said};

const GOOD: &str = "tool: a\neffect: read_only\npermission: x\n";

fn validate(paths: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Said {
    let mut command = command(["validate"]);
    said(command.args(paths))
}

fn pipe(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
}

/// What is wrong with a path, not with what a manifest says.
fn strange_paths(dir: &Path) -> Vec<(PathBuf, &'static str)> {
    let at = |name: &str| dir.join(name);
    let made = |name: &str, make: &dyn Fn(&Path) -> io::Result<()>| {
        make(&at(name)).unwrap();
        at(name)
    };
    let sparse = |bytes: u64| move |path: &Path| fs::File::create(path)?.set_len(bytes);
    vec![
        (at("missing.yaml"), "there is no such file or folder (check the path)"),
        (made("dangling.yaml", &|p| symlink("nowhere", p)), "this link leads to nothing"),
        (made("circle.yaml", &|p| symlink("circle.yaml", p)), "its links lead in a circle"),
        (made("folder.yaml", &|p| fs::create_dir(p)), "there is no .yaml, .yml or .json file in this folder"),
        (
            made("pipe.yaml", &|p| {
                pipe(p);
                Ok(())
            }),
            "this is a pipe, and only regular files are read",
        ),
        (made("socket.yaml", &|p| UnixListener::bind(p).map(drop)), "this is a socket"),
        (made("zero.yaml", &|p| symlink("/dev/zero", p)), "this is a device"),
        (made("null.yaml", &|p| symlink("/dev/null", p)), "this is a device"),
        (made("terminal.yaml", &|p| symlink("/dev/ptmx", p)), "this is a device"),
        (made("a file.yaml/below.yaml", &|p| fs::write(p.parent().unwrap(), GOOD)), "can't be read: Not a directory"),
        (made("huge.yaml", &sparse(100 << 20)), "the file has 104857600 bytes, at most 16777216 are read"),
        (made("endless.yaml", &sparse(1 << 40)), "the file has 1099511627776 bytes"),
        (PathBuf::from("/proc/self/mem"), "can't be read"),
    ]
}

/// What is wrong with what stands in a file.
fn hostile_texts() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (before, name) in "abcdefgh".chars().zip("bcdefghi".chars()) {
        let aliases = vec![format!("*{before}"); 10].join(", ");
        writeln!(bomb, "{name}: &{name} [{aliases}]").unwrap();
    }
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("binary.yaml", (0..=255).cycle().take(4096).collect(), "not UTF-8"),
        ("nul.yaml", text("tool: a\0\n"), "U+0000"),
        ("elf.yaml", fs::read(env!("CARGO_BIN_EXE_reversi")).unwrap()[..65536].to_vec(), "not UTF-8"),
        ("latin.yaml", b"tool: caf\xe9\n".to_vec(), "not UTF-8"),
        ("utf16.yaml", b"\xff\xfet\0o\0o\0l\0".to_vec(), "UTF-16"),
        ("bom.yaml", [b"\xef\xbb\xbf", GOOD.as_bytes()].concat(), "byte order mark"),
        ("bomb.yaml", bomb.into_bytes(), "aliases"),
        ("inside.yaml", text("a: &a [*a]\n"), "alias"),
        ("deep.yaml", [b"[".repeat(10_000), b"]".repeat(10_000)].concat(), "nested"),
        ("deep.json", [b"[".repeat(10_000), b"]".repeat(10_000)].concat(), "nested"),
        ("block.yaml", (0..2_000).flat_map(|n| format!("{}a:\n", " ".repeat(n)).into_bytes()).collect(), "nested"),
        ("twice.yaml", text("tool: a\ntool: b\neffect: read_only\npermission: x\n"), "twice"),
        ("tabs.yaml", text("tool: a\n\teffect: read_only\n"), "indent with spaces"),
        ("crlf.yaml", text("tool: a\r\neffect: read_onl\r\npermission: x\r\n"), "did you mean"),
        ("tag.yaml", text("tool: !!python/object:os.system a\n"), "tag"),
        ("empty.yaml", vec![], "the file holds no manifest"),
        ("list.yaml", text("[]\n"), "the file holds no manifest"),
        ("comment.yml", text("# nothing\n---\n---\n"), ""),
        ("text.yaml", text("hello"), "must be a manifest"),
        ("number.json", text("7"), "must be a manifest"),
        ("half.json", text("{\"tool\": \"a\""), "not valid JSON"),
        ("comma.json", text("[{\"tool\": \"a\"},]"), "not valid JSON"),
        ("control.yaml", text("tool: a\u{1b}[2J\n"), "U+001B"),
        ("long.yaml", [b"tool: ".to_vec(), b"a".repeat(1 << 20)].concat(), "128"),
        ("many.yaml", b"- {}\n".repeat(5_000), "there are more errors than these 1000"),
        ("escape.yaml", text("tool: \"a\\u202eb\\u001b\"\neffect: read_only\npermission: x\n"), "letters, digits"),
    ]
}

#[test]
fn each_hostile_file_is_named_and_none_hangs_or_panics() {
    let dir = tempfile::tempdir().unwrap();
    let mut all: Vec<(PathBuf, &str)> = strange_paths(dir.path());
    for (name, bytes, words) in hostile_texts() {
        fs::write(dir.path().join(name), bytes).unwrap();
        all.push((dir.path().join(name), words));
    }
    assert!(all.len() > 30);
    for (path, words) in &all {
        let said = validate([path]).exits(1);
        let line = said.out.lines().next().unwrap();
        assert!(line.starts_with(arg(path)) && said.out.contains(words), "{}: {said:?}", path.display());
        assert!(!said.err.contains("panic") && !said.out.contains(['\u{1b}', '\u{202e}']), "{said:?}");
        assert!(said.err.ends_with("mistake\n") || said.err.ends_with("mistakes\n"), "{said:?}");
    }
    // In one list, in the order in which they were named, each on lines of its own.
    let together = validate(all.iter().map(|(path, _)| path)).exits(1);
    let mut found: Vec<&str> = Vec::new();
    for line in together.out.lines() {
        let (path, _) = all.iter().find(|(path, _)| line.starts_with(arg(path))).unwrap_or_else(|| panic!("{line}"));
        if found.last() != Some(&arg(path)) {
            found.push(arg(path));
        }
    }
    assert_eq!(found, all.iter().map(|(path, _)| arg(path)).collect::<Vec<_>>());
}

#[test]
fn a_folder_of_hostile_files_lists_them_all() {
    let dir = tempfile::tempdir().unwrap();
    symlink(".", dir.path().join("itself.yaml")).unwrap();
    symlink("circle.yaml", dir.path().join("circle.yaml")).unwrap();
    pipe(&dir.path().join("pipe.json"));
    fs::write(dir.path().join("good.yaml"), GOOD).unwrap();
    // An editor's lock, and a mount's own folder, are not the user's files.
    symlink("someone@host.1", dir.path().join(".#good.yaml")).unwrap();
    fs::create_dir(dir.path().join("..data.yaml")).unwrap();
    let said = validate([dir.path()]).exits(1);
    let words: Vec<&str> = said.out.lines().map(|line| line.rsplit_once('/').unwrap().1).collect();
    let expected = [
        "circle.yaml: its links lead in a circle (let the link lead to a file or a folder)",
        "itself.yaml: this is a folder, and folders inside of a folder are not read \
         (name it as a path of its own, or rename it)",
        "pipe.json: this is a pipe, and only regular files are read (write the manifests to a file and name that)",
    ];
    assert_eq!(words, expected);
    assert_eq!(said.err, "3 mistakes\n");
}

#[test]
fn folders_are_read_without_their_folders() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("manifests");
    fs::create_dir_all(dir.join("drafts")).unwrap();
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/payments.yaml"), dir.join("payments.yaml")).unwrap();
    fs::write(dir.join("drafts/broken.yaml"), "tool: [").unwrap();
    fs::write(dir.join("README.md"), "not a manifest").unwrap();
    let said = said(command(["validate", "manifests"]).current_dir(home.path())).exits(0);
    // A4
    assert_eq!((said.out.as_str(), said.err.as_str()), ("ok: 3 tool manifests valid\n", ""));
    // A folder that leads back to itself ends nowhere, because nobody follows it.
    symlink("..", dir.join("drafts/up")).unwrap();
    symlink(".", dir.join("self")).unwrap();
    assert_eq!(reversi(["validate", arg(&dir)]).exits(0).out, "ok: 3 tool manifests valid\n");
}

#[test]
fn a_file_with_several_names_is_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, GOOD).unwrap();
    symlink("a.yaml", dir.path().join("b.yaml")).unwrap();
    fs::hard_link(&file, dir.path().join("c.json")).unwrap();
    symlink(".", dir.path().join("d")).unwrap();
    let paths = [dir.path().join("d"), file.clone(), dir.path().to_owned(), dir.path().join("b.yaml"), file];
    assert_eq!(validate(&paths).exits(0).out, "ok: 1 tool manifest valid\n");
    // A copy is another file.
    fs::write(dir.path().join("copy.yaml"), GOOD).unwrap();
    assert!(validate(&paths).exits(1).out.contains("has two manifests"));
}

#[test]
fn a_files_name_can_not_speak_for_us_or_steer_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    for name in [&b"x\nok: 3 tool manifests valid\n.yaml"[..], b"\x1b[2J\xe2\x80\xae.yaml", b"caf\xe9.yaml"] {
        fs::write(dir.path().join(OsStr::from_bytes(name)), "tool: a\n").unwrap();
    }
    let said = validate([dir.path()]).exits(1);
    assert!(!said.out.lines().any(|line| line.starts_with("ok")), "{}", said.out);
    assert!(!said.out.contains(['\u{1b}', '\u{202e}']), "{}", said.out);
    for shown in ["x\\nok: 3", "\\u{1b}[2J\\u{202e}.yaml:1:1", "caf\u{fffd}.yaml:1:1"] {
        assert!(said.out.contains(shown), "{shown}: {}", said.out);
    }
    let json = reversi(["validate", "--json", arg(dir.path())]).exits(1).json();
    let source = json["diagnostics"][0]["source"].as_str().unwrap();
    assert!(!source.contains(['\n', '\u{1b}', '\u{202e}']), "{source:?}");
}

#[test]
fn what_may_not_be_read_is_said_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let (file, folder) = (dir.path().join("secret.yaml"), dir.path().join("closed"));
    fs::write(&file, GOOD).unwrap();
    fs::create_dir(&folder).unwrap();
    for (path, mode) in [(dir.path(), 0o755), (&file, 0o000), (&folder, 0o000)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = command(["validate", arg(&file), arg(&folder)]);
    if rustix::process::geteuid().is_root() {
        // Nothing is forbidden to root, so somebody else asks.
        command.uid(65534).gid(65534);
    }
    let output = match command.output() {
        // This checkout is closed to others, so nobody else can run the binary.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return,
        output => output.unwrap(),
    };
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let hint = "this can't be read: permission denied (let the user that runs Reversi read it, and enter the folders \
                above it)";
    let expected = format!("{}: {hint}\n{}: {hint}\n", file.display(), folder.display());
    assert_eq!(text, expected);
}
