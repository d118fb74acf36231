//! Named places where a test kills the process: `REVERSI_KILL_AT=name:n` (several, comma-separated) sends SIGKILL at the
//! n-th time the place is passed. Compiled to nothing without the feature `failpoints`, so never in a shipped binary.

/// Every failpoint. A test compares this list with the names that stand in the source.
pub const FAILPOINTS: &[&str] = &[
    "approval.after_append",
    "approval.before_append",
    "boot.catchup",
    "boot.rewrite.after",
    "boot.rewrite.before",
    "checkpoint.after",
    "checkpoint.before",
    "journal.after_apply",
    "journal.after_sync",
    "journal.after_write",
    "journal.before_append",
    "journal.before_apply",
    "journal.before_reply",
    "journal.roll.after",
    "journal.roll.before",
    "keys.after",
    "keys.before",
    "run.after_append",
    "run.before_append",
    "undo.after_attempt",
    "undo.after_call",
    "undo.after_outcome",
    "undo.before_attempt",
    "undo.before_call",
    "undo.before_outcome",
    "verify.after_call",
    "verify.before_call",
];

/// Marks a place where a test can kill the process; nothing at all without the feature `failpoints`.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::hit($name);
    };
}
pub(crate) use failpoint;

/// Counts a pass of the place `name`, and kills the process if the environment says so.
#[cfg(feature = "failpoints")]
pub fn hit(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static PLAN: OnceLock<Vec<(String, u64, AtomicU64)>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let text = std::env::var("REVERSI_KILL_AT").unwrap_or_default();
        parse(&text).into_iter().map(|(name, at)| (name, at, AtomicU64::new(0))).collect()
    });
    for (planned, at, passed) in plan {
        if planned == name && passed.fetch_add(1, Ordering::Relaxed) + 1 == *at {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}

/// `a:1,b:3` as pairs; an entry without a count means the first pass.
#[cfg(any(test, feature = "failpoints"))]
fn parse(text: &str) -> Vec<(String, u64)> {
    let entry = |entry: &str| match entry.rsplit_once(':') {
        Some((name, count)) => (name.to_owned(), count.parse().unwrap_or(1)),
        None => (entry.to_owned(), 1),
    };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Points that the aggregates' host places; the journal alone can't pass them.
    const OF_THE_HOST: &[&str] = &["run.", "undo.", "verify."];

    fn names_in(dir: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                names_in(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for rest in text.split(concat!("failpoint", "!(\"")).skip(1) {
                    found.insert(rest.split('"').next().unwrap().to_owned());
                }
            }
        }
    }

    #[test]
    fn the_list_is_what_the_source_holds() {
        let mut found = BTreeSet::new();
        names_in(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
        let listed: BTreeSet<String> = FAILPOINTS.iter().map(ToString::to_string).collect();
        assert_eq!(listed.len(), FAILPOINTS.len(), "a name is listed twice");
        let unlisted: Vec<_> = found.difference(&listed).collect();
        assert!(unlisted.is_empty(), "placed in the source but not listed: {unlisted:?}");
        let missing: Vec<_> =
            listed.difference(&found).filter(|name| !OF_THE_HOST.iter().any(|host| name.starts_with(host))).collect();
        assert!(missing.is_empty(), "listed but placed nowhere: {missing:?}");
    }

    #[test]
    fn a_plan_names_places_and_counts() {
        assert_eq!(parse(" a.b:2, c"), vec![("a.b".to_owned(), 2), ("c".to_owned(), 1)]);
        assert_eq!(parse(""), vec![]);
    }
}
