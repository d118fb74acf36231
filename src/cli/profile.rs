//! The profile of a local user: one daemon and one key, in a file that nobody else can read. Must not know what a key
//! opens.
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::api::read_private;
use super::failure::Failure;

/// What `reversi login` keeps.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Profile {
    /// Where the daemon answers.
    pub(super) url: String,
    /// The key, which is sent to this daemon only.
    pub(super) key: String,
    /// The key may go there unencrypted.
    #[serde(default)]
    pub(super) allow_plain_http: bool,
}

/// Where the profile is; None where the system names no home.
pub(super) fn path() -> Option<PathBuf> {
    // A relative path counts as none (XDG Base Directory Specification).
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(config.join("reversi").join("profile.json"))
}

/// The path, for those who must have one.
pub(super) fn must_path() -> Result<PathBuf, Failure> {
    let text = "there is no place for a profile: set HOME or XDG_CONFIG_HOME to an absolute path";
    path().ok_or_else(|| Failure::Usage(text.to_owned()))
}

/// The profile; None where nobody has logged in.
pub(super) fn load() -> Result<Option<Profile>, Failure> {
    let Some(path) = path() else { return Ok(None) };
    let Some(text) = read_private(&path, "profile")? else { return Ok(None) };
    // Without serde's own words, which could repeat a part of the key.
    let broken = |_| {
        let text = "is no profile of this program; `reversi login` writes it anew, `reversi logout` deletes it";
        Failure::Input(format!("{} {text}", path.display()))
    };
    serde_json::from_str(&text).map(Some).map_err(broken)
}

/// Keeps it, in the place of the one before.
pub(super) fn store(path: &Path, profile: &Profile) -> Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(profile)
        .map_err(|error| Failure::Internal(format!("the profile has no JSON form: {error}")))?;
    text.push(b'\n');
    if let Some(folder) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        // One that was there before may be open to others.
        let closed = made.and_then(|()| std::fs::set_permissions(folder, Permissions::from_mode(0o700)));
        closed.map_err(|error| Failure::io("made", folder, &error))?;
    }
    crate::app::write_atomically(path, &text).map_err(|error| Failure::io("written", path, &error))
}

/// Deletes it; false if there was none.
pub(super) fn delete(path: &Path) -> Result<bool, Failure> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::io("deleted", path, &error)),
    }
}
