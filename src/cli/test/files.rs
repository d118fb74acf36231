//! Which files hold contract tests. Must not know what is in them.
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use reversi_proto::manifest::FILE_BYTES_MAX;

use super::Failure;
use crate::manifests::{Content, content};

/// Ends of test files' names.
const ENDS: [&str; 3] = ["yaml", "yml", "json"];

/// The named files, and those in the named folders and their folders, in order of their names; each once. What is hidden
/// is left out.
pub(super) fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut search = Search::default();
    for path in paths {
        let kind = std::fs::metadata(path).map_err(|error| Failure::io("read", path, &error))?;
        if kind.is_dir() { search.folder(path)? } else { search.file(path)? }
    }
    Ok(search.found)
}

/// What stands in it, if it is a regular file of a size that can be meant.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    match content(file).map_err(|error| Failure::io("read", file, &error))? {
        Content::Bytes(bytes) => Ok(bytes),
        Content::Strange(kind) => {
            Err(Failure::Input(format!("{} is {kind}, and only regular files are read", file.display())))
        }
        Content::TooLarge(bytes) => {
            let name = file.display();
            Err(Failure::Input(format!("{name} has {bytes} bytes, at most {FILE_BYTES_MAX} are read: split it")))
        }
    }
}

/// `refunds.policy.test.yaml`: a test of the policy.
pub(super) fn is_policy_test(file: &Path) -> bool {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    ends_well(file) && stem.to_ascii_lowercase().ends_with(".policy.test")
}

fn ends_well(file: &Path) -> bool {
    let end = file.extension().unwrap_or_default();
    ENDS.iter().any(|known| end.eq_ignore_ascii_case(known))
}

#[derive(Default)]
struct Search {
    found: Vec<PathBuf>,
    /// Where links lead in the end, so that none leads in circles.
    seen: BTreeSet<PathBuf>,
}

impl Search {
    fn is_new(&mut self, path: &Path) -> Result<bool, Failure> {
        let place = path.canonicalize().map_err(|error| Failure::io("read", path, &error))?;
        Ok(self.seen.insert(place))
    }

    fn file(&mut self, file: &Path) -> Result<(), Failure> {
        if self.is_new(file)? {
            self.found.push(file.to_owned());
        }
        Ok(())
    }

    fn folder(&mut self, folder: &Path) -> Result<(), Failure> {
        let mut open = vec![folder.to_owned()];
        while let Some(path) = open.pop() {
            // A link that leads nowhere matters only where it is named like a test: one that is not run looks passed.
            let is_dir = match std::fs::metadata(&path) {
                Ok(metadata) => metadata.is_dir(),
                Err(error) if ends_well(&path) => return Err(Failure::io("read", &path, &error)),
                Err(_) => false,
            };
            if is_dir {
                if self.is_new(&path)? {
                    // The last one is taken first.
                    open.extend(inside(&path)?.into_iter().rev());
                }
            } else if ends_well(&path) {
                self.file(&path)?;
            }
        }
        Ok(())
    }
}

/// Sorted, because the order of a folder is the file system's whim.
fn inside(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: io::Error| Failure::io("read", folder, &error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}
