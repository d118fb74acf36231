//! Loading and checking manifests: the page's three-tool example and 10,000 generated manifests, each figure as a ratio
//! to its floor, the YAML events of the same bytes alone.
//!
//! `cargo bench --bench manifests`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::cast_precision_loss)] // figures for people
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use granit_parser::{Options, Parser};
use reversi::manifests::read;
use reversi_proto::lint::{UpstreamTools, lint, lint_upstream};
use reversi_proto::manifest::{ManifestSet, load};

const EXAMPLE: &str = include_str!("../manifests/payments.yaml");
const GENERATED: usize = 10_000;
/// Rounds of a measurement; the fastest counts, because everything that disturbs makes it slower.
const ROUNDS: usize = 7;

/// As varied as what people write: a read tool, a charge with everything, its refund, and so on.
fn generated() -> String {
    let mut text = String::new();
    for n in 0..GENERATED / 4 {
        write!(
            text,
            "
- {{ tool: shop{n}.get_charge, description: Read one charge., effect: read_only, permission: shop{n}:read }}
- tool: shop{n}.create_charge
  description: Charge a card.
  effect: compensable
  permission: shop{n}:write
  owner: payments-team@example.com
  oncall: payments-oncall
  risk: {{ data_class: financial, blast_radius: high, environment: prod }}
  timeout_ms: 30s
  idempotency: {{ key: \"charge-{{{{args.order_id}}}}\", scope: global }}
  audit:
    retention_days: 2555
    evidence_export: required
    redaction: [$args.card_token]
  approval: {{ roles: [finance], quorum: 2, timeout: 15m, on_timeout: escalate, escalate_to: [cfo] }}
  compensation:
    tool: shop{n}.refund
    residue: [the charge still appears on the customer's statement]
    timeout_ms: 20s
    argument_map:
      charge_id: $result.id
      amount: $args.amount
    verification:
      tool: shop{n}.get_charge
      arguments: {{ charge_id: $result.id }}
      expect: {{ refunded: true }}
      backoff_ms: 2s
- tool: shop{n}.refund
  description: Refund a charge.
  effect: idempotent
  permission: shop{n}:write
  owner: payments-team@example.com
  timeout_ms: 20s
  retry: {{ attempts: 3, base_ms: 200ms, max_ms: 5s }}
- tool: shop{n}.announce
  description: Tell the customer.
  effect: irreversible
  permission: mail{n}:send
  requires: [shop{n}.create_charge]
"
        )
        .unwrap();
    }
    text
}

/// The fastest of some rounds, each repeated until it takes long enough to be measured.
fn fastest(mut work: impl FnMut()) -> Duration {
    let began = Instant::now();
    work();
    let once = began.elapsed();
    let repeats = (Duration::from_millis(200).as_nanos() / once.as_nanos().max(1)).clamp(1, 20_000);
    let repeats = u32::try_from(repeats).unwrap();
    let round = |_| {
        let began = Instant::now();
        (0..repeats).for_each(|_| work());
        began.elapsed() / repeats
    };
    (0..ROUNDS).map(round).min().unwrap()
}

fn events(text: &str) {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut parser = Parser::new_from_str_with_options(text, options);
    while let Some(event) = parser.next_event() {
        black_box(event.unwrap());
    }
}

fn set(text: &str) -> ManifestSet {
    let manifests = load("bench.yaml", text.as_bytes()).unwrap();
    ManifestSet::new(manifests.into_iter().map(|manifest| ("bench.yaml".to_owned(), manifest)).collect()).unwrap()
}

/// Every tool of the set, none of which has the arguments that the manifests name.
fn upstream(manifests: &ManifestSet) -> UpstreamTools {
    let mut tools = UpstreamTools::default();
    for manifest in manifests.iter() {
        let schema = serde_json::json!({"type": "object", "properties": {"amuont": {}, "order": {}, "card": {}}});
        tools.insert("tool", manifest.tool.as_str(), schema).unwrap();
    }
    tools
}

fn row(what: &str, took: Duration, floor: Duration) {
    let micros = took.as_nanos() as f64 / 1000.0;
    println!("  {what:34} {micros:11.1} us   {:5.2} x floor", took.as_secs_f64() / floor.as_secs_f64());
}

fn measure(name: &str, text: &str) {
    let manifests = set(text);
    println!("{name}: {} manifests, {} bytes", manifests.len(), text.len());
    let floor = fastest(|| events(text));
    row("floor: YAML events alone", floor, floor);
    row("load", fastest(|| drop(black_box(load("bench.yaml", text.as_bytes()).unwrap()))), floor);
    row("load and check the set", fastest(|| drop(black_box(set(text)))), floor);
    row("checksum of the set", fastest(|| _ = black_box(manifests.checksum())), floor);
    let tools = upstream(&manifests);
    row("lint", fastest(|| drop(black_box(lint(&manifests)))), floor);
    row("lint against an upstream", fastest(|| drop(black_box(lint_upstream(&manifests, &tools)))), floor);
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), text).unwrap();
    let paths = [file.path().to_owned()];
    row("validate: read, load, check", fastest(|| drop(black_box(read(&paths).unwrap()))), floor);
}

/// A folder of many files instead of one large one.
fn measure_folder(text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let chunks: Vec<&str> = text.split("\n\n").collect();
    for (n, chunk) in chunks.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{n}.yaml")), chunk).unwrap();
    }
    let paths = [folder.path().to_owned()];
    println!("the same in {} files", chunks.len());
    let floor = fastest(|| chunks.iter().for_each(|chunk| events(chunk)));
    row("floor: YAML events alone", floor, floor);
    row("validate: read, load, check", fastest(|| drop(black_box(read(&paths).unwrap()))), floor);
}

fn main() {
    measure("the page's example", EXAMPLE);
    let text = generated();
    measure("generated", &text);
    measure_folder(&text);
}
