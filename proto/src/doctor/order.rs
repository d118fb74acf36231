//! The order of a rollback, worked out from the records alone: what holds a step back. Must not know attempts.
use std::collections::{BTreeMap, BTreeSet};

use crate::event::v1::{RollbackStarted, StepBegun};
use crate::ids::{RollbackId, StepNo, ToolName};

/// What orders a run's inverses.
#[derive(Debug, Clone, Default)]
pub(super) struct Order {
    /// The rollback that was asked for last.
    pub(super) rollback: Option<RollbackId>,
    selection: Option<BTreeSet<StepNo>>,
    upstreams: BTreeMap<ToolName, String>,
    /// Which steps needed a tool.
    requirers: BTreeMap<ToolName, BTreeSet<StepNo>>,
    /// Steps that are not undone and not harmless, by upstream: each holds back the earlier ones beside it.
    open: BTreeMap<String, BTreeSet<StepNo>>,
    open_steps: BTreeSet<StepNo>,
}

impl Order {
    pub(super) fn begin_step(&mut self, body: &StepBegun) {
        for tool in &body.requires {
            self.requirers.entry(tool.clone()).or_default().insert(body.step);
        }
    }

    /// A rollback starts; who is open must be told anew.
    pub(super) fn start(&mut self, body: &RollbackStarted) {
        self.rollback = Some(body.rollback.clone());
        self.selection = body.steps.as_ref().map(|steps| steps.iter().copied().collect());
        self.upstreams.clone_from(&body.upstreams);
        self.open.clear();
        self.open_steps.clear();
    }

    pub(super) fn selects(&self, step: StepNo) -> bool {
        self.selection.as_ref().is_none_or(|selection| selection.contains(&step))
    }

    /// Says whether a step must still be undone or settled, selected or not.
    pub(super) fn set_open(&mut self, step: StepNo, undo_tool: Option<&ToolName>, is_open: bool) {
        let upstream = undo_tool.and_then(|tool| self.upstreams.get(tool)).cloned().unwrap_or_default();
        let beside = self.open.entry(upstream).or_default();
        if is_open {
            beside.insert(step);
            self.open_steps.insert(step);
        } else {
            beside.remove(&step);
            self.open_steps.remove(&step);
        }
    }

    /// A later step that must be undone or settled before this one. `tool_of` gives the tool of a step that ran.
    pub(super) fn holder<'a>(
        &self,
        step: StepNo,
        tools: (&'a ToolName, Option<&ToolName>),
        tool_of: impl Fn(StepNo) -> Option<&'a ToolName>,
    ) -> Option<StepNo> {
        let (tool, undo_tool) = tools;
        let upstream = undo_tool.and_then(|tool| self.upstreams.get(tool)).map_or("", String::as_str);
        let beside = self.open.get(upstream).and_then(|open| open.range(step + 1..).next());
        if let Some(beside) = beside {
            return Some(*beside);
        }
        // Edges go from a step to the earlier ones of the tools that it required, also through steps that are done.
        let mut seen = BTreeSet::new();
        let mut todo = vec![(step, tool)];
        while let Some((earlier, tool)) = todo.pop() {
            for later in self.requirers.get(tool).into_iter().flat_map(|steps| steps.range(earlier + 1..)) {
                let Some(tool) = tool_of(*later) else { continue };
                if self.open_steps.contains(later) {
                    return Some(*later);
                }
                if seen.insert(*later) {
                    todo.push((*later, tool));
                }
            }
        }
        None
    }
}
