//! Manifest files of a daemon: which there are, and the set they make. Must not know what a manifest says.
use std::io;
use std::path::{Path, PathBuf};

use reversi_proto::manifest::{Diagnostic, ManifestSet, load};

/// Why there is no set.
#[derive(Debug, thiserror::Error)]
pub enum ManifestsError {
    /// A file or folder can't be read.
    #[error("the manifests {path} can't be read")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What is wrong, in all files.
    #[error("{}", listed(.0))]
    Invalid(Vec<Diagnostic>),
}

fn listed(diagnostics: &[Diagnostic]) -> String {
    let mut lines: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
    lines.push("the daemon does not start with manifests that have mistakes".to_owned());
    lines.join("\n")
}

/// Reads files, and folders of them (without their folders); every mistake of every file is reported.
pub fn read(paths: &[PathBuf]) -> Result<ManifestSet, ManifestsError> {
    let (mut found, mut mistakes) = (Vec::new(), Vec::new());
    for path in files(paths)? {
        let bytes = std::fs::read(&path).map_err(|source| ManifestsError::Read { path: path.clone(), source })?;
        let name = path.display().to_string();
        match load(&name, &bytes) {
            Ok(manifests) => found.extend(manifests.into_iter().map(|manifest| (name.clone(), manifest))),
            Err(diagnostics) => mistakes.extend(diagnostics),
        }
    }
    if !mistakes.is_empty() {
        return Err(ManifestsError::Invalid(mistakes));
    }
    ManifestSet::new(found).map_err(ManifestsError::Invalid)
}

fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, ManifestsError> {
    let mut files = Vec::new();
    for path in paths {
        let failed = |source| ManifestsError::Read { path: path.clone(), source };
        if !std::fs::metadata(path).map_err(failed)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            inside.push(entry.map_err(failed)?.path());
        }
        // The order of a folder is the file system's whim.
        inside.sort();
        files.extend(inside.into_iter().filter(|file| is_manifest(file)));
    }
    Ok(files)
}

fn is_manifest(file: &Path) -> bool {
    let hidden = file.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    let end = file.extension().unwrap_or_default();
    !hidden && file.is_file() && ["yaml", "yml", "json"].iter().any(|known| end.eq_ignore_ascii_case(known))
}
