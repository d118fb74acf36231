//! The manifest model: loading, defaults, rules, references. Must not know runs, the ledger or any file system: texts
//! come in as bytes with a name.
mod build;
mod build_parts;
pub(crate) mod diagnostic;
mod expect;
mod json;
pub(crate) mod load;
mod loader;
mod mcp;
mod model;
pub(crate) mod node;
mod path;
mod places;
mod reference;
mod restore;
mod scalar;
mod set;
mod template;
mod undo;
pub(crate) mod walk;
mod yaml;

pub use diagnostic::{Code, DIAGNOSTICS_MAX, Diagnostic};
pub(crate) use diagnostic::{SUGGESTION_WORK_MAX, nearest, quoted};
pub use expect::{Expectations, Mismatch, same_value};
pub use load::{DEPTH_MAX, FILE_BYTES_MAX, Loaded, load};
pub use mcp::mcp_result_value;
pub use model::{
    Approval, ApprovalRules, ArgumentMap, Audit, BlastRadius, Compensation, CompensationKind, Effect, EvidenceExport,
    Fields, Idempotency, IdempotencyScope, Manifest, OnTimeout, Retry, Risk, Status, Verification,
};
pub use path::{PathError, Segment, ValuePath};
pub use reference::{Reference, ReferenceError, Root};
pub use restore::RestoreError;
pub use set::ManifestSet;
pub use template::{KeyTemplate, TemplateError, TemplateSyntaxError};
pub use undo::{Captured, Missing, build_arguments, undo_values};
pub(crate) use walk::{index_path, key_path};

/// The JSON Schema of manifest files (2020-12), for editors. It refuses nothing that [`load`] accepts; some rules it
/// cannot say.
pub const SCHEMA: &str = include_str!("../../schemas/manifest.schema.json");
