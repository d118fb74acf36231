//! The directory that a connector governs, and paths below it. Every component is opened by handle and without
//! following links, so that no string check can be raced. Knows no undo and no protocol.
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::ToolError;
use super::tree::{self, Digest};

/// Longest path and longest component that are looked at.
const PATH_BYTES_MAX: usize = 4096;
const NAME_BYTES_MAX: usize = 255;

/// The governed directory, held open.
pub(crate) struct Root {
    fd: OwnedFd,
}

/// A checked path below the root: plain names only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RelPath(Vec<String>);

/// An entry: the open directory that holds it, and its name there.
pub(crate) struct Place {
    pub(crate) parent: OwnedFd,
    pub(crate) path: RelPath,
}

impl RelPath {
    /// Checks a path given by a caller. `.` and doubled slashes are dropped; `..` and absolute paths are refused
    /// rather than resolved, because a caller that sends them doesn't mean something below the root.
    pub(crate) fn parse(text: &str) -> Result<Self, ToolError> {
        let wrong = |why: &str| Err(ToolError::Params(format!("The path {text:?} {why}.")));
        if text.len() > PATH_BYTES_MAX {
            return Err(ToolError::Params(format!("The path is longer than {PATH_BYTES_MAX} bytes.")));
        }
        if text.starts_with('/') {
            return wrong("is absolute; give a path relative to the connector's root");
        }
        if text.contains('\0') {
            return wrong("contains a NUL character");
        }
        let names: Vec<String> =
            text.split('/').filter(|name| !name.is_empty() && *name != ".").map(str::to_owned).collect();
        if names.iter().any(|name| name == "..") {
            return wrong("contains `..`; give a path that stays below the connector's root");
        }
        if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            return wrong("has a component of more than 255 bytes");
        }
        Ok(Self(names))
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `other` is this path or lies below it.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() { f.write_str(".") } else { f.write_str(&self.0.join("/")) }
    }
}

impl Place {
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.parent.as_fd()
    }

    pub(crate) fn name(&self) -> &OsStr {
        OsStr::new(self.path.0.last().map_or(".", String::as_str))
    }
}

impl Root {
    pub(crate) fn open(path: &Path) -> rustix::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { fd: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// Opens the directory at `path`, one component at a time.
    pub(crate) fn dir(&self, path: &RelPath) -> Result<OwnedFd, ToolError> {
        self.descend(path, &path.0)
    }

    /// Opens the directory that holds `path`. The root itself has none.
    pub(crate) fn place(&self, path: &RelPath) -> Result<Place, ToolError> {
        let Some((_, parents)) = path.0.split_last() else {
            return Err(ToolError::Refused("The root itself can't be changed; name something below it.".to_owned()));
        };
        Ok(Place { parent: self.descend(path, parents)?, path: path.clone() })
    }

    fn descend(&self, path: &RelPath, names: &[String]) -> Result<OwnedFd, ToolError> {
        self.walk(names).map_err(|(name, e)| match errno(&e) {
            Some(Errno::NOENT) => {
                ToolError::Refused(format!("`{path}`: there is no directory `{name}`; make it with fs.make_dir."))
            }
            // A link gives either of the two, depending on the kernel.
            Some(Errno::NOTDIR | Errno::LOOP) => ToolError::Refused(format!(
                "`{path}`: `{name}` is a link or no directory; this connector doesn't follow links."
            )),
            _ => ToolError::io(&format!("open `{name}` of `{path}`"), &e),
        })
    }

    fn walk(&self, names: &[String]) -> Result<OwnedFd, (String, io::Error)> {
        let mut dir = self.fd.try_clone().map_err(|e| (".".to_owned(), e))?;
        for name in names {
            dir = tree::open_dir(dir.as_fd(), OsStr::new(name)).map_err(|e| (name.clone(), e))?;
        }
        Ok(dir)
    }

    /// What stands at `path` now. A path that can't be reached below the root holds nothing.
    pub(crate) fn digest(&self, path: &RelPath) -> io::Result<Option<Digest>> {
        let Some((name, parents)) = path.0.split_last() else {
            return tree::digest_at(self.fd.as_fd(), OsStr::new("."), false);
        };
        match self.walk(parents) {
            Ok(parent) => tree::digest_at(parent.as_fd(), OsStr::new(name), false),
            Err((_, e)) if matches!(errno(&e), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => Ok(None),
            Err((_, e)) => Err(e),
        }
    }
}

/// The error number of an IO error, if it has one.
pub(crate) fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_relative_paths_parse() {
        for wrong in ["/etc/passwd", "..", "a/../b", "a/..", "../a", "a\0b"] {
            assert!(RelPath::parse(wrong).is_err(), "{wrong:?} was accepted");
        }
        assert!(RelPath::parse(&"x".repeat(256)).is_err());
        assert_eq!(RelPath::parse("./a//b/").unwrap().to_string(), "a/b");
        assert!(RelPath::parse(".").unwrap().is_root());
        assert!(RelPath::parse("a..b").is_ok());
    }
}
