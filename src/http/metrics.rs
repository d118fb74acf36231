//! Figures in Prometheus' text format. No label holds anything that a caller chose.
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::reply::with_type;
use super::{Edge, Shared};

/// Upper bounds of the histogram's buckets, in microseconds.
const BOUNDS_MICROS: [u64; 11] =
    [250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000];
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Requests, counted since the start.
#[derive(Default)]
pub(super) struct Counted {
    by_class: [AtomicU64; CLASSES.len()],
    by_time: [AtomicU64; BOUNDS_MICROS.len() + 1],
    micros: AtomicU64,
    refused: AtomicU64,
}

impl Counted {
    pub(super) fn request(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1).min(CLASSES.len() - 1);
        self.by_class[class].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        self.by_time[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// `GET /metrics`
pub(super) async fn show(State(edge): State<Shared>) -> Response {
    with_type(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", Body::from(render(&edge)))
}

fn render(edge: &Edge) -> String {
    let mut text = String::with_capacity(4096);
    let (stats, counters) = (edge.service.stats(), edge.service.counters());
    let people = edge.service.people_figures();
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let busy = edge.limits.requests - edge.admission.available_permits();
    for (name, kind, help, value) in [
        ("reversi_ledger_records", "gauge", "Durable records.", stats.head),
        ("reversi_store_lag_records", "gauge", "Durable records that the event store lacks.", stats.lag),
        ("reversi_checkpoint_records", "gauge", "Records that the newest checkpoint covers.", stats.checkpoint),
        ("reversi_checkpoint_sink_errors_total", "counter", "Checkpoints not written outside.", stats.sink_errors),
        ("reversi_journal_batches_total", "counter", "Group commits.", stats.batches),
        ("reversi_journal_syncs_total", "counter", "Syncs to disk by the writer.", stats.syncs),
        ("reversi_journal_bytes_total", "counter", "Bytes of group commits.", stats.bytes),
        ("reversi_disk_low", "gauge", "1 when new work is refused for lack of room.", u64::from(stats.disk_low)),
        ("reversi_approvals_open", "gauge", "Approvals pending, or granted and not used.", people.approvals_open),
        ("reversi_halts", "gauge", "Scopes that are halted.", people.halts),
        ("reversi_reviews_owed", "gauge", "Reviews owed after an emergency.", people.reviews_owed),
        ("reversi_reviews_overdue", "gauge", "Those that are overdue.", people.reviews_overdue),
        ("reversi_calls_allowed_total", "counter", "Calls that were let through.", read(&counters.allowed)),
        ("reversi_calls_blocked_total", "counter", "Calls that were refused.", read(&counters.blocked)),
        ("reversi_undo_calls_total", "counter", "Inverses that were called.", read(&counters.undo_calls)),
        ("reversi_reconciled_total", "counter", "Entities woken by the reconciler.", read(&counters.reconciled)),
        ("reversi_http_requests_in_flight", "gauge", "Requests under /v1 being worked on.", busy as u64),
        ("reversi_http_requests_refused_total", "counter", "Requests that found no room.", read(&edge.counted.refused)),
    ] {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    }
    requests(&mut text, &edge.counted);
    text
}

fn requests(text: &mut String, counted: &Counted) {
    let name = "reversi_http_requests_total";
    let _ = write!(text, "# HELP {name} Answered requests.\n# TYPE {name} counter\n");
    for (class, count) in CLASSES.iter().zip(&counted.by_class) {
        let _ = writeln!(text, "{name}{{class=\"{class}\"}} {}", count.load(Ordering::Relaxed));
    }
    let name = "reversi_http_request_seconds";
    let _ = write!(text, "# HELP {name} Time from header to answer.\n# TYPE {name} histogram\n");
    let mut sum = 0;
    for (bucket, count) in counted.by_time.iter().enumerate() {
        sum += count.load(Ordering::Relaxed);
        let bound = BOUNDS_MICROS.get(bucket).map_or_else(|| "+Inf".to_owned(), |micros| seconds(*micros));
        let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {sum}");
    }
    let _ = writeln!(text, "{name}_sum {}", seconds(counted.micros.load(Ordering::Relaxed)));
    let _ = writeln!(text, "{name}_count {sum}");
}

/// Without a float in between: exact, and never in exponential form.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_up_to_and_including_their_bound() {
        let counted = Counted::default();
        for micros in [250, 251, 20_000_000] {
            counted.request(StatusCode::OK, Duration::from_micros(micros));
        }
        let mut text = String::new();
        requests(&mut text, &counted);
        for line in [
            "reversi_http_requests_total{class=\"2xx\"} 3",
            "reversi_http_request_seconds_bucket{le=\"0.00025\"} 1",
            "reversi_http_request_seconds_bucket{le=\"0.0005\"} 2",
            "reversi_http_request_seconds_bucket{le=\"10\"} 2",
            "reversi_http_request_seconds_bucket{le=\"+Inf\"} 3",
            "reversi_http_request_seconds_sum 20.000501",
            "reversi_http_request_seconds_count 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
