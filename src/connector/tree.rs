//! Digests, copies and removal of directory trees, by directory handle and never through a link. Knows no root, no
//! undo and no protocol; names are single components that the caller has checked.
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use reversi_proto::hash::Hash;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Deeper trees are refused, because every level holds a handle.
const DEPTH_MAX: usize = 128;

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link, itself and not what it points to.
    Link,
    /// A pipe, socket or device.
    Other,
}

impl Kind {
    /// The kind that a file's mode names.
    pub(crate) fn of(mode: u32) -> Self {
        match FileType::from_raw_mode(mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Dir,
            FileType::Symlink => Self::Link,
            _ => Self::Other,
        }
    }
}

/// The state of one path: its kind, and a hash over everything at and below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digest {
    /// What stands there.
    pub kind: Kind,
    /// Hash over kind, executable bit and content; for a directory over its sorted entries.
    pub hash: Hash,
}

/// One hash for everything below `root`: relative paths, kinds, contents, link targets and executable bits. Times,
/// owners and other permission bits don't count.
pub fn tree_hash(root: &Path) -> io::Result<Hash> {
    let dir = rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(dir_digest(&dir, false, 0)?.hash)
}

/// The digest of `name` in `dir`; `None` when nothing stands there. With `sync` every file read is also synced, so
/// that what is moved away afterwards is complete on disk.
pub(crate) fn digest_at(dir: BorrowedFd<'_>, name: &OsStr, sync: bool) -> io::Result<Option<Digest>> {
    match entry_digest(dir, name, sync, 0) {
        Err(e) if e.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(None),
        other => other.map(Some),
    }
}

fn entry_digest(dir: BorrowedFd<'_>, name: &OsStr, sync: bool, depth: usize) -> io::Result<Digest> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match Kind::of(stat.st_mode) {
        Kind::File => file_digest(&open_file(dir, name)?, sync),
        Kind::Dir => dir_digest(&open_dir(dir, name)?, sync, depth),
        Kind::Link => {
            let target = rustix::fs::readlinkat(dir, name, Vec::new())?;
            let hash = Sha256::new().chain_update(b"link\0").chain_update(target.as_bytes());
            Ok(Digest { kind: Kind::Link, hash: finish(hash) })
        }
        Kind::Other => Ok(Digest { kind: Kind::Other, hash: finish(Sha256::new().chain_update(b"other\0")) }),
    }
}

fn file_digest(file: &File, sync: bool) -> io::Result<Digest> {
    let executable = rustix::fs::fstat(file)?.st_mode & 0o100 != 0;
    let hash = Sha256::new().chain_update(b"file\0").chain_update([u8::from(executable)]);
    let hash = hash.chain_update(content_hash(file)?.0);
    if sync {
        file.sync_all()?;
    }
    Ok(Digest { kind: Kind::File, hash: finish(hash) })
}

fn dir_digest(dir: &OwnedFd, sync: bool, depth: usize) -> io::Result<Digest> {
    let mut hash = Sha256::new().chain_update(b"dir\0");
    for name in names(dir, depth)? {
        let entry = entry_digest(dir.as_fd(), &name, sync, depth + 1)?;
        // The length makes the list unambiguous: no name can be read as the end of another.
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name.as_bytes());
        hash.update(entry.hash.0);
    }
    if sync {
        rustix::fs::fsync(dir)?;
    }
    Ok(Digest { kind: Kind::Dir, hash: finish(hash) })
}

/// SHA-256 of a file's bytes from its start.
pub(crate) fn content_hash(mut file: &File) -> io::Result<Hash> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(finish(hash));
        }
        hash.update(&buffer[..count]);
    }
}

/// Copies `from` (of any depth) to a name that must not exist yet; everything copied is synced.
pub(crate) fn copy_at(from: (BorrowedFd<'_>, &OsStr), to: (BorrowedFd<'_>, &OsStr)) -> io::Result<()> {
    copy_entry(from, to, 0)
}

fn copy_entry(from: (BorrowedFd<'_>, &OsStr), to: (BorrowedFd<'_>, &OsStr), depth: usize) -> io::Result<()> {
    let stat = rustix::fs::statat(from.0, from.1, AtFlags::SYMLINK_NOFOLLOW)?;
    match Kind::of(stat.st_mode) {
        Kind::File => {
            let source = open_file(from.0, from.1)?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&source)?.st_mode & 0o7777);
            let mut copy = create_file(to.0, to.1, 0o600)?;
            io::copy(&mut &source, &mut copy)?;
            rustix::fs::fchmod(&copy, mode)?;
            copy.sync_all()
        }
        Kind::Dir => {
            let source = open_dir(from.0, from.1)?;
            rustix::fs::mkdirat(to.0, to.1, Mode::RWXU)?;
            let copy = open_dir(to.0, to.1)?;
            for name in names(&source, depth)? {
                copy_entry((source.as_fd(), &name), (copy.as_fd(), &name), depth + 1)?;
            }
            rustix::fs::fchmod(&copy, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
            Ok(rustix::fs::fsync(&copy)?)
        }
        Kind::Link => {
            let target = rustix::fs::readlinkat(from.0, from.1, Vec::new())?;
            Ok(rustix::fs::symlinkat(target.as_c_str(), to.0, to.1)?)
        }
        Kind::Other => Err(io::Error::other(format!("{} is a pipe, socket or device", from.1.display()))),
    }
}

/// Removes `name` and everything below it; nothing there is fine.
pub(crate) fn remove_at(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    remove_entry(dir, name, 0)
}

fn remove_entry(dir: BorrowedFd<'_>, name: &OsStr, depth: usize) -> io::Result<()> {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    if Kind::of(stat.st_mode) != Kind::Dir {
        return Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?);
    }
    let inner = open_dir(dir, name)?;
    // A directory without write permission would keep its entries; the removal below tells whether this helped.
    let _ = rustix::fs::fchmod(&inner, Mode::RWXU);
    for name in names(&inner, depth)? {
        remove_entry(inner.as_fd(), &name, depth + 1)?;
    }
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
}

/// The sorted names in a directory, without `.` and `..`.
pub(crate) fn names(dir: &OwnedFd, depth: usize) -> io::Result<Vec<OsString>> {
    if depth >= DEPTH_MAX {
        return Err(io::Error::other(format!("the tree is deeper than {DEPTH_MAX} directories")));
    }
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            found.push(OsString::from_vec(name));
        }
    }
    found.sort();
    Ok(found)
}

/// Opens a directory entry that must be a directory and no link.
pub(crate) fn open_dir(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

/// Opens a directory entry that must be a regular file and no link.
pub(crate) fn open_file(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<File> {
    // Non-blocking, because a pipe put there in the meantime would hang the open for ever.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    if Kind::of(rustix::fs::fstat(&file)?.st_mode) == Kind::File {
        Ok(File::from(file))
    } else {
        Err(io::Error::other(format!("{} is no regular file", name.display())))
    }
}

/// Creates a file that must not exist yet; the umask applies to `mode`.
pub(crate) fn create_file(dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(mode))?))
}

fn finish(hash: Sha256) -> Hash {
    Hash(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn sample() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/one"), "1").unwrap();
        symlink("a/one", dir.path().join("link")).unwrap();
        dir
    }

    #[test]
    fn every_difference_changes_the_hash() {
        let base = tree_hash(sample().path()).unwrap();
        assert_eq!(base, tree_hash(sample().path()).unwrap());
        let changes: [fn(&Path); 5] = [
            |root| fs::write(root.join("a/one"), "2").unwrap(),
            |root| fs::rename(root.join("a/one"), root.join("a/two")).unwrap(),
            |root| fs::create_dir(root.join("empty")).unwrap(),
            |root| fs::set_permissions(root.join("a/one"), fs::Permissions::from_mode(0o755)).unwrap(),
            |root| {
                fs::remove_file(root.join("link")).unwrap();
                symlink("a", root.join("link")).unwrap();
            },
        ];
        for change in changes {
            let dir = sample();
            change(dir.path());
            assert_ne!(base, tree_hash(dir.path()).unwrap());
        }
    }

    #[test]
    fn a_copy_has_the_hash_of_its_source_and_can_be_removed() {
        let dir = sample();
        let fd: OwnedFd = File::open(dir.path()).unwrap().into();
        copy_at((fd.as_fd(), OsStr::new("a")), (fd.as_fd(), OsStr::new("b"))).unwrap();
        let digest = |name: &str| digest_at(fd.as_fd(), OsStr::new(name), false).unwrap();
        assert_eq!(digest("a"), digest("b"));
        remove_at(fd.as_fd(), OsStr::new("b")).unwrap();
        assert_eq!(digest("b"), None);
    }
}
