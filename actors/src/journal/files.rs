//! Small file helpers: what `std::fs` leaves to do for durability. Must not know segments.
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Zeros are written in pieces of this size.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// Makes creations, renames and removals in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// A new file that only the owner can read, open for reading and writing. An older one is emptied.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// An existing file, open for reading and writing.
pub(crate) fn open_existing(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Puts a small file in place as a whole: written aside, synced, renamed, the directory synced.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("tmp");
    let mut file = create_private(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&aside, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Writes zeros over `from..to`.
pub(crate) fn zero(file: &File, from: u64, to: u64) -> io::Result<()> {
    static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
    let mut at = from;
    while at < to {
        let piece = usize::try_from(to - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        file.write_all_at(&ZEROS[..piece], at)?;
        at += piece as u64;
    }
    Ok(())
}

/// The file's text, or none if there is no such file.
pub(crate) fn read_if_there(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file; it is fine if there is none.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
