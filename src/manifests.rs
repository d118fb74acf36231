//! Manifest files: which there are, what of them can be read, and the set they make. Must not know what a manifest says.
//!
//! A path can lead anywhere: to a pipe that nobody writes to, a device without an end, a link that leads back to itself.
//! So only regular files are opened, never more than the limit is read, and whatever can't be read is a finding like all
//! others: all of them are reported, not the first.
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use reversi_proto::manifest::{Code, Diagnostic, FILE_BYTES_MAX, Loaded, ManifestSet};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// After this many findings of all files the rest is only counted: nobody reads them, and a folder has no end.
const LISTED_MAX: usize = 10_000;

/// Endings of the files that are read of a folder.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Why there is no set: everything that is wrong with the files, in the order in which they were named.
#[derive(Debug)]
pub struct ManifestsError {
    diagnostics: Vec<Diagnostic>,
    unlisted: usize,
}

impl ManifestsError {
    /// What is wrong; at least one.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// What is wrong, to be shown with other findings.
    pub fn into_diagnostics(self) -> Vec<Diagnostic> {
        self.diagnostics
    }

    /// The one way in which they are shown, everywhere: a line each.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.diagnostics.iter().map(ToString::to_string)
    }

    /// How many, as words.
    pub fn count(&self) -> String {
        match (self.diagnostics.len(), self.unlisted) {
            (1, 0) => "1 mistake".to_owned(),
            (listed, 0) => format!("{listed} mistakes"),
            (listed, unlisted) => format!("{} mistakes, the first {listed} are shown", listed + unlisted),
        }
    }
}

impl From<Vec<Diagnostic>> for ManifestsError {
    fn from(mut diagnostics: Vec<Diagnostic>) -> Self {
        let unlisted = diagnostics.len().saturating_sub(LISTED_MAX);
        diagnostics.truncate(LISTED_MAX);
        Self { diagnostics, unlisted }
    }
}

impl fmt::Display for ManifestsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|line| writeln!(f, "{line}"))?;
        f.write_str(&self.count())
    }
}

impl std::error::Error for ManifestsError {}

/// Where a daemon's manifests are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Files and folders that the settings name; an empty list means none on purpose.
    Named(Vec<PathBuf>),
    /// The folder that is read where the settings name none.
    Default(PathBuf),
}

impl Source {
    /// What is there now.
    pub fn read(&self) -> Result<ManifestSet, ManifestsError> {
        match self {
            Self::Named(paths) => read(paths),
            Self::Default(folder) => read(std::slice::from_ref(folder)),
        }
    }

    /// As [`Self::read`], but a default folder that is absent or empty holds no mistake: a first start is not prevented
    /// by what nobody has asked for.
    pub fn read_at_start(&self) -> Result<ManifestSet, ManifestsError> {
        if let Self::Default(folder) = self {
            let absent = std::fs::symlink_metadata(folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            if absent {
                return Ok(ManifestSet::default());
            }
        }
        match (self, self.read()) {
            (Self::Default(_), Err(error)) if error.diagnostics().iter().all(|d| d.code == Code::NoFiles) => {
                Ok(ManifestSet::default())
            }
            (_, read) => read,
        }
    }
}

/// Reads files, and folders of them (without their folders). Every mistake of every file is reported, and those between
/// them.
pub fn read(paths: &[PathBuf]) -> Result<ManifestSet, ManifestsError> {
    let mut reader = Reader::default();
    for path in paths {
        reader.path(path);
    }
    Ok(ManifestSet::of_files(reader.files)?)
}

/// Device and inode: the same file under whatever name.
type FileId = (u64, u64);

#[derive(Default)]
struct Reader {
    files: Vec<Loaded>,
    /// Files and folders that were read; a second name for one of them adds nothing.
    seen: BTreeSet<FileId>,
}

impl Reader {
    /// What was named: a file, whatever its ending, or a folder.
    fn path(&mut self, path: &Path) {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.folder(path, &metadata),
            Ok(metadata) => self.file(path, &metadata),
            Err(error) => self.unreadable(path, &error),
        }
    }

    fn folder(&mut self, path: &Path, metadata: &Metadata) {
        if !self.seen.insert(id(metadata)) {
            return;
        }
        let mut files = match files_of(path) {
            Ok(files) => files,
            Err(error) => return self.unreadable(path, &error),
        };
        // The order of a folder is the file system's whim.
        files.sort();
        if files.is_empty() {
            let hint = "folders inside of it are not read; name them too, or another path";
            self.mistake(path, Code::NoFiles, "there is no .yaml, .yml or .json file in this folder", hint);
        }
        for file in files {
            match std::fs::metadata(&file) {
                Ok(metadata) if metadata.is_dir() => {
                    let message = "this is a folder, and folders inside of a folder are not read";
                    self.mistake(&file, Code::Unreadable, message, "name it as a path of its own, or rename it");
                }
                Ok(metadata) => self.file(&file, &metadata),
                Err(error) => self.unreadable(&file, &error),
            }
        }
    }

    fn file(&mut self, path: &Path, metadata: &Metadata) {
        // Before it is opened: opening a device can already do something.
        if let Some(kind) = strange_kind(metadata) {
            return self.strange(path, kind);
        }
        if !self.seen.insert(id(metadata)) {
            return;
        }
        match content(path) {
            Ok(Content::Bytes(bytes)) => self.files.push(Loaded::of(&shown(path), &bytes)),
            Ok(Content::Strange(kind)) => self.strange(path, kind),
            Ok(Content::TooLarge(bytes)) => {
                let message = format!("the file has {bytes} bytes, at most {FILE_BYTES_MAX} are read");
                self.mistake(path, Code::FileSize, message, "split it into several files");
            }
            Err(error) => self.unreadable(path, &error),
        }
    }

    fn strange(&mut self, path: &Path, kind: &str) {
        let message = format!("this is {kind}, and only regular files are read");
        self.mistake(path, Code::Unreadable, message, "write the manifests to a file and name that");
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        let is_link = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
        let (message, hint) = match error.kind() {
            _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                ("its links lead in a circle".to_owned(), "let the link lead to a file or a folder")
            }
            io::ErrorKind::NotFound if is_link => {
                ("this link leads to nothing".to_owned(), "create what it leads to, or remove it")
            }
            io::ErrorKind::NotFound => ("there is no such file or folder".to_owned(), "check the path"),
            io::ErrorKind::PermissionDenied => {
                let hint = "let the user that runs Reversi read it, and enter the folders above it";
                ("this can't be read: permission denied".to_owned(), hint)
            }
            _ => (format!("this can't be read: {error}"), "try to read it with another program, like cat"),
        };
        self.mistake(path, Code::Unreadable, message, hint);
    }

    /// A finding about a whole file.
    fn mistake(&mut self, path: &Path, code: Code, message: impl Into<String>, hint: &str) {
        let (source, hint) = (shown(path), Some(hint.to_owned()));
        let message = message.into();
        let diagnostic = Diagnostic { source, line: 0, column: 0, path: String::new(), code, message, hint };
        self.files.push(Loaded::unreadable(&shown(path), vec![diagnostic]));
    }
}

fn id(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// Everything in a folder that is named like a manifest file; what is none is found out when it is read.
fn files_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if is_named_like_one(&path) {
            files.push(path);
        }
    }
    Ok(files)
}

/// Hidden files are the business of editors and mounts.
fn is_named_like_one(file: &Path) -> bool {
    let hidden = file.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let end = file.extension().unwrap_or_default();
    !hidden && ENDINGS.iter().any(|known| end.eq_ignore_ascii_case(known))
}

pub(crate) enum Content {
    /// All of it.
    Bytes(Vec<u8>),
    /// No regular file.
    Strange(&'static str),
    /// It has so many bytes; none was read, or no more than the limit.
    TooLarge(u64),
}

/// What stands in a file that is named like a manifest or a test of one: never waits, never reads more than the limit.
pub(crate) fn content(path: &Path) -> io::Result<Content> {
    // Never waits, in case the file has become a pipe since it was looked at.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if let Some(kind) = strange_kind(&metadata) {
        return Ok(Content::Strange(kind));
    }
    if metadata.len() > FILE_BYTES_MAX as u64 {
        return Ok(Content::TooLarge(metadata.len()));
    }
    bounded(file, metadata.len())
}

/// The length of a file can be a lie (in /proc it is 0), and it can grow while it is read.
fn bounded(file: File, expected: u64) -> io::Result<Content> {
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or_default());
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(if bytes.len() > FILE_BYTES_MAX { Content::TooLarge(bytes.len() as u64) } else { Content::Bytes(bytes) })
}

/// What it is if it is no regular file.
fn strange_kind(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_fifo() {
        Some("a pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}

/// A path as it may stand in a message: nothing in a file's name can end the line, steer a terminal or turn the writing
/// around. What is no UTF-8 is replaced.
fn shown(path: &Path) -> String {
    let turns = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut text = String::new();
    for c in path.to_string_lossy().chars() {
        if c.is_control() || turns(c) || matches!(c, '\u{2028}' | '\u{2029}') {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_name_can_not_speak_for_us() {
        assert_eq!(shown(Path::new("a\nok: 3 tool manifests valid.yaml")), "a\\nok: 3 tool manifests valid.yaml");
        assert_eq!(shown(Path::new("\u{1b}[2J\u{202e}x")), "\\u{1b}[2J\\u{202e}x");
        assert_eq!(shown(Path::new("ключ.yaml")), "ключ.yaml");
    }

    #[test]
    fn what_grows_while_it_is_read_is_read_to_the_limit() {
        // Its length is said to be 0.
        let endless = File::open("/dev/zero").unwrap();
        assert!(matches!(bounded(endless, 0).unwrap(), Content::TooLarge(bytes) if bytes == FILE_BYTES_MAX as u64 + 1));
    }

    #[test]
    fn a_pipe_that_took_a_files_place_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("x.yaml");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(matches!(content(&pipe).unwrap(), Content::Strange("a pipe")));
    }

    #[test]
    fn the_rest_is_counted() {
        let mut reader = Reader::default();
        for _ in 0..=LISTED_MAX {
            reader.mistake(Path::new("x"), Code::Unreadable, "wrong", "right it");
        }
        let error = ManifestsError::from(ManifestSet::of_files(reader.files).unwrap_err());
        assert_eq!(error.count(), "10001 mistakes, the first 10000 are shown");
    }
}
