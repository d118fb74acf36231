//! Tools that answer from a script and remember what they were asked. Must not know the case.
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use reversi_proto::canonical::Canonical;
use reversi_proto::ids::ToolName;
use serde_json::Value;

use crate::ports::{CallOutcome, Notice, Notifier, ToolCall, ToolCaller};

/// Name of the upstream that serves every tool.
const UPSTREAM: &str = "contract-test";

/// Inverses succeed, read-backs get the answer.
pub(super) struct Script {
    served: BTreeMap<ToolName, String>,
    answer: Option<Canonical>,
    seen: Mutex<Seen>,
}

/// The first call of each kind; all further ones are retries of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) inverse: Option<(ToolName, Value)>,
    pub(super) read_back: Option<(ToolName, Value)>,
}

impl Script {
    pub(super) fn new(tools: impl IntoIterator<Item = ToolName>, answer: Option<Canonical>) -> Self {
        let served = tools.into_iter().map(|tool| (tool, UPSTREAM.to_owned())).collect();
        Self { served, answer, seen: Mutex::default() }
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl ToolCaller for Script {
    fn upstream_of(&self, tool: &ToolName) -> Option<String> {
        self.served.get(tool).cloned()
    }
    fn tools(&self) -> BTreeMap<ToolName, String> {
        self.served.clone()
    }
    async fn call(&self, call: ToolCall) -> CallOutcome {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Only what changes the world carries a key: the two may be the same tool.
        let (place, result) = match call.idempotency_key {
            Some(_) => (&mut seen.inverse, None),
            None => (&mut seen.read_back, self.answer.clone()),
        };
        place.get_or_insert_with(|| (call.tool, call.args.value()));
        CallOutcome::Success { result }
    }
    fn earlier_calls_are_over(&self, _: &ToolName) -> bool {
        true
    }
    async fn shutdown(&self) {}
}

/// There is nobody to tell.
pub(super) struct Nobody;

impl Notifier for Nobody {
    fn notify(&self, _: Notice) {}
}
