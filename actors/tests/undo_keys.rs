//! The key that an inverse is called with: one per step, over all attempts and rollbacks, and nothing of the call's own
//! idempotency key. Upstreams deduplicate by it.
#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reversi_actors::clock::SimClock;
use reversi_actors::ids::SeededIds;
use reversi_actors::journal::MemoryJournal;
use reversi_actors::ports::{CallOutcome, Notice, Notifier, ToolCall, ToolCaller};
use reversi_actors::service::{NewKey, NewRollback, NewRun, NewStep, Retry, StepOutcome};
use reversi_actors::system::{Parts, System, genesis};
use reversi_proto::event::v1::{Mode, Outcome, Role};
use reversi_proto::ids::{LedgerId, ToolName};
use reversi_proto::manifest::{ManifestSet, load};
use reversi_proto::time::Timestamp;

const MANIFESTS: &str = r#"
- tool: doc.write
  effect: reversible
  permission: docs:write
  idempotency: { key: "write-{{args.name}}", scope: global }
  compensation: { tool: doc.restore, argument_map: { name: $args.name } }
- { tool: doc.restore, effect: idempotent, permission: docs:write }
"#;

/// Refuses the first four calls and keeps all keys.
#[derive(Default)]
struct Refusing(Mutex<Vec<String>>);

impl Notifier for Refusing {
    fn notify(&self, _notice: Notice) {}
}

#[async_trait]
impl ToolCaller for Refusing {
    fn upstream_of(&self, tool: &ToolName) -> Option<String> {
        self.tools().get(tool).cloned()
    }
    fn tools(&self) -> BTreeMap<ToolName, String> {
        BTreeMap::from([("doc.restore".parse().unwrap(), "doc".to_owned())])
    }
    async fn call(&self, call: ToolCall) -> CallOutcome {
        let mut keys = self.0.lock().unwrap();
        keys.push(call.idempotency_key.unwrap());
        if keys.len() <= 4 {
            return CallOutcome::KnownFailure { error: "refused".to_owned() };
        }
        CallOutcome::Success { result: None }
    }
    fn earlier_calls_are_over(&self, _tool: &ToolName) -> bool {
        true
    }
    async fn shutdown(&self) {}
}

// E10 H6
#[tokio::test]
async fn every_attempt_of_an_inverse_has_the_key_of_its_step() {
    let clock = Arc::new(SimClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
    let (ledger, tools) = (LedgerId([7; 16]), Arc::new(Refusing::default()));
    let first = genesis(ledger, "vkey", &SeededIds::new(1)).unwrap();
    let manifests = load("m.yaml", MANIFESTS.as_bytes()).unwrap().into_iter();
    let parts = Parts {
        journal: Arc::new(MemoryJournal::open(ledger, Arc::clone(&clock) as _, first)),
        clock: Arc::clone(&clock) as _,
        ids: Arc::new(SeededIds::new(8)),
        tools: Arc::clone(&tools) as _,
        notifier: Arc::clone(&tools) as _,
        manifests: ManifestSet::new(manifests.map(|manifest| ("m.yaml".to_owned(), manifest)).collect()).unwrap(),
    };
    let mut admin = None;
    let system = System::start(parts, |key| {
        admin = Some(key.to_owned());
        Ok(())
    });
    let system = system.await.unwrap();
    let service = system.service();
    let admin = service.authenticate(&admin.unwrap()).unwrap();
    let mut people = Vec::new();
    for (name, role) in [("bot-1", Role::Agent), ("olga", Role::Operator)] {
        let (actor, roles) = (name.parse().unwrap(), vec![role]);
        let key = NewKey { actor, roles, person: None, groups: vec![], allow_observe: false, expires_at: None };
        let (_, text) = service.create_key(&admin, key).await.unwrap();
        people.push(service.authenticate(&text).unwrap());
    }
    let [agent, operator] = &people[..] else { unreachable!() };
    let run = NewRun { run_id: None, permissions: vec!["docs:write".to_owned()], mode: Mode::Enforce, reason: None };
    let run = service.start_run(agent, run, Retry::default()).await.unwrap().0.run_id;
    for name in ["a", "b"] {
        let (tool, reason) = ("doc.write".parse().unwrap(), "because".to_owned());
        let step = NewStep { tool, reason, args: format!(r#"{{"name":"{name}"}}"#), approval_id: None };
        let step = service.begin(agent, &run, step, Retry::default()).await.unwrap().step;
        let result = Some("{}".to_owned());
        let outcome = StepOutcome { status: Outcome::Succeeded, result, error: None, result_values: None };
        service.complete(agent, &run, step, outcome).await.unwrap();
    }
    // Three attempts in the first rollback; one that is refused and one that isn't in the second, then the other step.
    let mut complete = false;
    for _ in 0..2 {
        service.rollback(operator, &run, NewRollback::default(), Retry::default()).await.unwrap();
        for _ in 0..20_000 {
            tokio::task::yield_now().await;
            let report = service.report(operator, &run).await.unwrap();
            complete = report.complete;
            if report.status != "rolling_back" {
                break;
            }
            if let Some(next) = clock.next_sleeper() {
                clock.advance_to(next);
            }
        }
    }
    assert!(complete);
    let keys = tools.0.lock().unwrap();
    assert_eq!(keys.len(), 6, "{keys:?}");
    assert!(keys[..5].iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_ne!(keys[5], keys[0], "another step, another key");
    assert!(keys.iter().all(|key| !key.contains("write-")), "not the key of the call: {keys:?}");
}
