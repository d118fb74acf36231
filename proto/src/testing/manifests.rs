//! The manifests that the stories are told with. Must not be loaded from files.
use std::sync::{Arc, LazyLock};

use super::Upstreams;
use crate::manifest::{ManifestSet, load};

/// The payments example of the manifests page; files with a read-back; orders whose undo can't be repeated, with and
/// without read-back; notes without a read-back; mail that can't be undone; chains of `requires`; and the rest.
pub const MANIFESTS: &str = r#"
- {tool: stripe.get_charge, description: Read one charge., effect: read_only, permission: payments:read}
- tool: stripe.create_charge
  description: Charge a card.
  effect: compensable
  permission: payments:write
  owner: payments-team@example.com
  oncall: payments-oncall
  risk: { data_class: financial, blast_radius: high, environment: prod }
  timeout_ms: 30s
  idempotency: { key: "charge-{{args.order_id}}", scope: global }
  audit:
    retention_days: 2555
    evidence_export: required
    redaction: [$args.card_token]
  approval:
    roles: [finance]
    quorum: 2
    timeout: 15m
    on_timeout: escalate
    escalate_to: [cfo]
  compensation:
    tool: stripe.refund
    kind: compensation
    residue: [the charge still appears on the customer's statement]
    requires_approval: false
    timeout_ms: 20s
    argument_map:
      charge_id: $result.id
      amount: $args.amount
    verification:
      tool: stripe.get_charge
      arguments: { charge_id: $result.id }
      expect: { refunded: true }
      retries: 3
      backoff_ms: 2s
- tool: stripe.refund
  description: Refund a charge.
  effect: idempotent
  permission: payments:write
  retry: { attempts: 3, base_ms: 200ms, max_ms: 5s }

- tool: fs.write_file
  effect: reversible
  permission: fs:write
  timeout_ms: 30s
  compensation:
    tool: fs.restore
    kind: inverse
    timeout_ms: 30s
    argument_map: { undo_token: $result.undo_token }
    verification:
      tool: fs.stat
      arguments: { undo_token: $result.undo_token }
      expect: { matches_before: true }
- {tool: fs.stat, effect: read_only, permission: fs:read}
- {tool: fs.restore, effect: idempotent, permission: fs:write}

- tool: order.create
  effect: compensable
  permission: orders:write
  compensation: { tool: order.cancel, argument_map: { id: $result.id }, timeout_ms: 10s }
- tool: order.create_checked
  effect: compensable
  permission: orders:write
  compensation:
    tool: order.cancel
    argument_map: { id: $result.id }
    timeout_ms: 10s
    verification: { tool: order.get, arguments: { id: $result.id }, expect: { state: cancelled }, retries: 2 }
- {tool: order.get, effect: read_only, permission: orders:read}
- {tool: order.cancel, effect: compensable, permission: orders:write, compensation: { tool: order.reopen }}
- {tool: order.reopen, effect: idempotent, permission: orders:write}

- tool: note.add
  effect: reversible
  permission: notes:write
  compensation: { tool: note.remove, kind: inverse, argument_map: { name: $args.name }, timeout_ms: 5s }
- {tool: note.remove, effect: idempotent, permission: notes:write, retry: { attempts: 2, base_ms: 100, max_ms: 1000 }}

- {tool: mail.send, effect: irreversible, permission: mail:send}
- {tool: draft.tool, effect: read_only, permission: draft:use, status: draft}
- {tool: old.tool, effect: read_only, permission: notes:read, status: deprecated, replaced_by: fs.stat}

- tool: job.start
  effect: compensable
  permission: jobs:write
  idempotency: { key: "{{args.job}}" }
  compensation:
    tool: job.stop
    argument_map: { job: $args.job }
    verification: { tool: job.get, arguments: { job: $args.job }, expect: { running: false }, retries: 1 }
- {tool: job.stop, effect: idempotent, permission: jobs:write}
- {tool: job.get, effect: read_only, permission: jobs:read}

- tool: vault.put
  effect: reversible
  permission: vault:write
  compensation: { tool: vault.remove, argument_map: { key: $args.key }, requires_approval: true }
- {tool: vault.remove, effect: idempotent, permission: vault:write}

- tool: first.open
  effect: reversible
  permission: chain
  compensation: { tool: first.close }
- {tool: first.close, effect: idempotent, permission: chain}
- {tool: second.check, effect: read_only, permission: chain, requires: [first.open]}
- tool: third.use
  effect: reversible
  permission: chain
  requires: [second.check]
  compensation: { tool: third.unuse }
- {tool: third.unuse, effect: idempotent, permission: chain}
"#;

/// The set of [`MANIFESTS`].
pub fn manifests() -> Arc<ManifestSet> {
    // Read once: random histories make a world each.
    static SET: LazyLock<Arc<ManifestSet>> = LazyLock::new(|| Arc::new(set_of(MANIFESTS)));
    Arc::clone(&SET)
}

pub(super) fn set_of(yaml: &str) -> ManifestSet {
    let list = load("stories.yaml", yaml.as_bytes()).expect("the stories' manifests are valid");
    let named = list.into_iter().map(|manifest| ("stories.yaml".to_owned(), manifest)).collect();
    ManifestSet::new(named).expect("the stories' manifests fit together")
}

/// Every tool is served by the upstream that its name begins with.
pub fn upstreams() -> Upstreams {
    let name = |tool: &crate::ids::ToolName| tool.as_str().split('.').next().unwrap_or_default().to_owned();
    manifests().iter().map(|manifest| (manifest.tool.clone(), name(&manifest.tool))).collect()
}
