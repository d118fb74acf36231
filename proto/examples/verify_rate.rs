//! Prints how many records a second are verified, beside the floor: plain SHA-256 of the same bytes. Run with --release.
//! `verify_rate golden DIR` writes the golden ledger of the tamper test instead.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]
#[path = "../tests/kit/mod.rs"]
mod kit;

use std::time::Instant;

use reversi_proto::ledger::verify::{Options, Verifier};
use serde_json::json;
use sha2::{Digest, Sha256};

const RECORDS: usize = 1_000_000;
const RUNS: usize = 10_000;

fn main() {
    let mut args = std::env::args().skip(1);
    if let (Some("golden"), Some(dir)) = (args.next().as_deref(), args.next()) {
        let book = kit::Book::small(1);
        std::fs::write(format!("{dir}/golden_ledger.jsonl"), book.text()).unwrap();
        std::fs::write(format!("{dir}/golden_ledger.note"), book.note(book.lines.len())).unwrap();
        return;
    }
    let text = ledger();
    println!("{RECORDS} records, {RUNS} runs, {} bytes a record", text.len() / RECORDS);
    let floor = time("plain SHA-256 of the same bytes, one core", || assert_ne!(Sha256::digest(&text)[..], [0; 32]));
    for threads in 1..=std::thread::available_parallelism().map_or(1, usize::from) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let took = time(&format!("verify, {threads} threads"), || pool.install(|| verify(&text)));
        println!("    {:.2} of the floor", floor / took);
    }
}

fn ledger() -> Vec<u8> {
    let mut book = kit::Book::new(1);
    for n in 1..RECORDS {
        let body =
            json!({"step": n / RUNS, "tool": "stripe.refund", "args": "ab".repeat(32), "reason": "chat 4821, café"});
        book.add(&format!("run_{:08}", n % RUNS), "step.begun", &body);
    }
    book.text()
}

fn verify(text: &[u8]) {
    let options = Options {
        known_type: &kit::known_type,
        lenient: false,
        checkpoint: None,
        require_checkpoint: false,
        trust: None,
    };
    let mut verifier = Verifier::new(options);
    for chunk in text.chunks(1 << 20) {
        verifier.feed(chunk);
    }
    let report = verifier.finish();
    assert!(report.is_ok(), "{report:?}");
}

/// Best of three, in seconds.
fn time(what: &str, mut work: impl FnMut()) -> f64 {
    let took = (0..3).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    let best = took.fold(f64::MAX, f64::min);
    println!("{what}: {:.0} ms, {:.0} records/s", best * 1e3, RECORDS as f64 / best);
    best
}
