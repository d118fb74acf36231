//! Contract tests of manifests as data: the cases of a file, and what a case finds wrong with what it saw happen. Must not
//! know how a call is made; `reversi-actors` plays the cases with the daemon's own code.
mod diff;
mod judge;
mod load;

use serde_json::{Map, Value};

use crate::event::v1::Finding;
use crate::ids::ToolName;
use crate::run::PlanAction;

pub use diff::{Difference, differences};
pub use judge::{Failure, judge};
pub use load::load;

/// One contract test.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The file that it stands in, as it was named to the loader.
    pub source: String,
    /// Where in the file: line from 1.
    pub line: u32,
    /// What it shows, in words.
    pub name: String,
    /// The tool that is called.
    pub tool: ToolName,
    /// With what.
    pub args: Map<String, Value>,
    /// How the call ends, as far as the tool is concerned.
    pub ending: Ending,
    /// What is called before it; `None`: what the manifest requires.
    pub after: Option<Vec<Before>>,
    /// What must come of it.
    pub expect: Expected,
}

/// How a fake call ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// The tool answers with success, and with this value if there is one.
    Succeeds(Option<Value>),
    /// The call fails with this message.
    Fails(String),
}

/// A call that is made before the one that is tested, and succeeds.
#[derive(Debug, Clone, PartialEq)]
pub struct Before {
    /// Which tool.
    pub tool: ToolName,
    /// With what; `None`: with what its idempotency key needs.
    pub args: Option<Map<String, Value>>,
    /// What it returns.
    pub result: Option<Value>,
}

/// What a case expects. Beside this every case expects that its call is allowed, unless `blocked` says otherwise.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Expected {
    /// What a rollback would do for the step.
    pub plan: Option<PlanAction>,
    /// The arguments of the undo.
    pub handle: Option<Map<String, Value>>,
    /// The arguments of the read-back.
    pub verification: Option<Map<String, Value>>,
    /// An answer to the read-back, and whether it shows that the undo worked.
    pub verified: Option<(Value, bool)>,
    /// Whether the same call, made once more, is a duplicate.
    pub duplicate: Option<bool>,
    /// A part of the reason for which the call must be refused.
    pub blocked: Option<String>,
}

impl Expected {
    /// Whether the undo has to be run to know.
    pub fn needs_rollback(&self) -> bool {
        self.handle.is_some() || self.verification.is_some() || self.verified.is_some()
    }
}

/// What happened when a case was played.
#[derive(Debug, Clone, PartialEq)]
pub enum Observed {
    /// A tool that had to be called before was refused, so that the call itself was never asked for.
    Unprepared {
        /// Which tool.
        tool: ToolName,
        /// Why.
        findings: Vec<Finding>,
    },
    /// The call was refused.
    Refused {
        /// Why.
        findings: Vec<Finding>,
        /// What a rollback would do for it.
        plan: SeenPlan,
    },
    /// The call was allowed.
    Allowed {
        /// What a rollback would do for it.
        plan: SeenPlan,
        /// Why the same call was refused the second time; empty if it was allowed. `None`: it was not made again.
        again: Option<Vec<Finding>>,
        /// What the undo did; `None`: it was not run.
        undo: Option<Box<SeenUndo>>,
    },
}

/// The plan's line of the step.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenPlan {
    /// What would be done.
    pub action: PlanAction,
    /// Why, or what is missing.
    pub reason: Option<String>,
}

/// What an undo did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SeenUndo {
    /// The inverse and the arguments that it was first called with.
    pub inverse: Option<(ToolName, Value)>,
    /// The same of the read-back.
    pub read_back: Option<(ToolName, Value)>,
    /// The read-back showed that the undo worked; `None` where none is declared.
    pub verified: Option<bool>,
    /// Where the answer to the read-back is not as the manifest expects.
    pub mismatch: Option<Difference>,
    /// How it ended, in words.
    pub reason: String,
}
