//! Lint: manifests that are valid but unsafe, incomplete or contradictory. Judges a set as it stands, alone or against
//! the tools that an upstream offers. Must not know files, runs or how findings are shown.
mod against;
mod alone;
mod cycles;
mod finding;
mod pattern;
mod schema;
mod secret;
mod together;
mod upstream;

pub use finding::{Code, Counts, Finding, Level};
pub use upstream::{UpstreamError, UpstreamTool, UpstreamTools, schema_hash};

use crate::manifest::ManifestSet;
use finding::Found;

/// Everything that the manifests alone tell, in the order of findings.
pub fn lint(set: &ManifestSet) -> Vec<Finding> {
    let mut found = Found::default();
    check_set(set, &mut found);
    found.finish()
}

/// What only the upstream's tools tell: L017, L020, L027, L033, L034 and L035.
pub fn lint_upstream(set: &ManifestSet, tools: &UpstreamTools) -> Vec<Finding> {
    let mut found = Found::default();
    against::check(set, tools, &mut found);
    found.finish()
}

fn check_set(set: &ManifestSet, found: &mut Found) {
    for manifest in set.iter() {
        alone::check(manifest, found);
        secret::check(manifest, found);
    }
    together::check(set, found);
    cycles::check(set, found);
}
