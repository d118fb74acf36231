//! `reversi serve --check`: everything about a start that can be known without starting. Must not write, listen, connect
//! or run anything, and must not look into the data directory: a daemon may be at work there.
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::adapters::upstreams::{UpstreamConfig, Upstreams};
use crate::config::Config;

/// How many manifests there are, or everything that would keep the daemon from starting, a line each.
pub fn check(config: &Config) -> Result<usize, Vec<String>> {
    let mut problems: Vec<String> = config.check().err().map(|error| error.to_string()).into_iter().collect();
    problems.extend(Upstreams::check(&config.upstreams).err().map(|error| error.to_string()));
    problems.extend(config.upstreams.iter().filter_map(missing_program));
    problems.extend(unusable_data_dir(&config.data_dir));
    let manifests = config.manifests.read_at_start();
    if let Err(mistakes) = &manifests {
        problems.extend(mistakes.lines());
    }
    match manifests {
        Ok(manifests) if problems.is_empty() => Ok(manifests.len()),
        Ok(_) | Err(_) => Err(problems),
    }
}

/// A daemon starts without it and keeps trying, but nobody means to configure a program that isn't there.
fn missing_program(upstream: &UpstreamConfig) -> Option<String> {
    let command = upstream.command.as_deref()?;
    let found = if command.contains('/') {
        is_program(Path::new(command))
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| is_program(&folder.join(command)))
    };
    let where_ = if command.contains('/') { "there is no such program" } else { "it is not in PATH" };
    (!found).then(|| format!("upstream {:?}: its command {command:?} can't be run: {where_}", upstream.name))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

/// The directory is made at the first start, so until then its nearest ancestor must allow that.
fn unusable_data_dir(data_dir: &Path) -> Option<String> {
    let absolute = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    let existing: PathBuf = absolute.ancestors().find(|path| path.symlink_metadata().is_ok())?.to_owned();
    let shown = data_dir.display();
    if !existing.is_dir() {
        return Some(format!("the data directory {shown} can't be used: {} is no folder", existing.display()));
    }
    let allowed = rustix::fs::access(&existing, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK);
    allowed.err().map(|error| {
        format!("the data directory {shown} can't be used: {} can't be written to ({error})", existing.display())
    })
}
