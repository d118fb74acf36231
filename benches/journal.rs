//! Sustained durable appends, with the event store filled behind them and segments rolling, against floors measured in
//! the same run: a plain file with one writer thread and group commit of the same bytes, appended to and zero-filled.
//!
//! `cargo bench -p reversi-actors --bench journal`; `REVERSI_BENCH_SECONDS` (3), `REVERSI_BENCH_ROUNDS` (3),
//! `REVERSI_BENCH_ONLY` (one number of concurrent appenders), `REVERSI_BENCH_DIR` (the system's temporary directory, which must be a real disk).
#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reversi_actors::clock::RealClock;
use reversi_actors::journal::{Config, DiskJournal, Journal, NewRecord, Request};
use reversi_proto::canonical::Canonical;
use reversi_proto::ids::{Actor, LedgerId, RunId, Seq, StreamId};
use reversi_proto::ledger::{Draft, run_genesis};
use reversi_proto::wake::Wake;
use tokio::sync::{mpsc, oneshot};

const CONCURRENT: [u64; 4] = [1, 16, 64, 256];
const PRIVATE_BYTES: usize = 100;
const LINE_BYTES: usize = 600;
/// What a record takes in a segment: its head, one stream, line and private part.
const STORED_BYTES: usize = 36 + 12 + LINE_BYTES + PRIVATE_BYTES;
const SETTLE: Duration = Duration::from_secs(16);
const ZERO_FILLED_BYTES: u64 = 256 << 20;

/// One measurement.
struct Sample {
    per_second: f64,
    p99: Duration,
    cpu_micros: f64,
    note: String,
}

fn main() {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let time = Duration::from_secs(number("REVERSI_BENCH_SECONDS", 3));
    let rounds = number("REVERSI_BENCH_ROUNDS", 3);
    let base = std::env::var_os("REVERSI_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!(
        "durable appends of about {STORED_BYTES} B, {} s a sample, median of {rounds}; a ratio's range is over the rounds",
        time.as_secs()
    );
    let only = number("REVERSI_BENCH_ONLY", 0);
    for concurrent in CONCURRENT.into_iter().filter(|concurrent| only == 0 || *concurrent == only) {
        let concurrent = usize::try_from(concurrent).unwrap();
        let mut samples: [Vec<Sample>; 4] = Default::default();
        for round in 0..rounds {
            // Whoever comes after another's clean-up has a slower disk, so the order changes from round to round. The
            // last kind is the first one again: how far its ratio is from 1 says how much the others can be believed.
            for turn in 0..4 {
                let kind = usize::try_from((round + turn) % 4).unwrap();
                let sample = match kind {
                    0 | 3 => runtime.block_on(plain_file(&base, concurrent, time, false)),
                    1 => runtime.block_on(plain_file(&base, concurrent, time, true)),
                    _ => runtime.block_on(journal(&base, concurrent, time)),
                };
                samples[kind].push(sample);
            }
        }
        let ratio = |ours: usize, floor: usize| {
            let pairs = samples[ours].iter().zip(&samples[floor]);
            let mut ratios: Vec<f64> = pairs.map(|(ours, floor)| ours.per_second / floor.per_second).collect();
            ratios.sort_by(f64::total_cmp);
            format!("{:.2} ({:.2} to {:.2})", ratios[ratios.len() / 2], ratios[0], ratios[ratios.len() - 1])
        };
        let (to_appending, to_zeroed, control) = (ratio(2, 0), ratio(2, 1), ratio(3, 0));
        let [appending, zeroed, journal, _] = samples.map(median);
        for (name, sample) in [("appending file", &appending), ("zero-filled file", &zeroed), ("journal", &journal)] {
            println!(
                "{concurrent:>4} concurrent  {name:<16} {:>9.0}/s  p99 {:>7.2} ms  cpu {:>5.1} us/event  {}",
                sample.per_second,
                sample.p99.as_secs_f64() * 1e3,
                sample.cpu_micros,
                sample.note
            );
        }
        println!(
            "{concurrent:>4} concurrent  ratio {to_appending} of the appending file, {to_zeroed} of the zero-filled one; \
             control (the appending file by itself) {control}"
        );
    }
}

fn median(mut samples: Vec<Sample>) -> Sample {
    samples.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
    samples.swap_remove(samples.len() / 2)
}

/// The same rest for everything that is measured, from before it is set up: the journal takes that long to prepare its
/// next segment, and a disk that has rested is faster than one that has just been filled.
fn settle(begun: Instant) {
    while begun.elapsed() < SETTLE {
        std::thread::park_timeout(SETTLE.saturating_sub(begun.elapsed()));
    }
}

/// CPU time of this process in microseconds, by the kernel's ticks of 10 ms.
fn cpu_micros() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) * 10_000.0
}

/// Waits for all clients, each of which gives its latencies.
async fn collect(clients: Vec<tokio::task::JoinHandle<Vec<Duration>>>, cpu: f64, begun: Instant) -> Sample {
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.await.unwrap());
    }
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_micros() - cpu);
    latencies.sort_unstable();
    let count = latencies.len();
    let p99 = latencies[count * 99 / 100];
    Sample { per_second: count as f64 / seconds, p99, cpu_micros: cpu / count as f64, note: String::new() }
}

type Waiting = (Vec<u8>, oneshot::Sender<u64>);

/// The floor: what a file can do with the same queue, the same group commit and the same bytes.
async fn plain_file(base: &Path, concurrent: usize, time: Duration, zero_filled: bool) -> Sample {
    let set_up = Instant::now();
    let dir = tempfile::tempdir_in(base).unwrap();
    let path = dir.path().join("floor");
    let file = std::fs::File::create(&path).unwrap();
    if zero_filled {
        let zeros = vec![0; 1 << 20];
        (0..ZERO_FILLED_BYTES >> 20).for_each(|mib| file.write_all_at(&zeros, mib << 20).unwrap());
        file.sync_all().unwrap();
    }
    settle(set_up);
    let (queue, mut waiting) = mpsc::channel::<Waiting>(4096);
    let writer = std::thread::spawn(move || {
        let (mut at, mut count, mut bytes, mut replies) = (0, 0, Vec::new(), Vec::new());
        let (mut before, mut syncs, mut syncing) = (0, 0_u32, Duration::ZERO);
        while let Some(first) = waiting.blocking_recv() {
            let woken = Instant::now();
            while waiting.len() + 1 < before && woken.elapsed() < Duration::from_micros(100) {
                std::thread::yield_now();
            }
            let mut next = Some(first);
            while let Some((record, reply)) = next.take() {
                bytes.extend_from_slice(&record);
                replies.push(reply);
                if replies.len() < 1024 && bytes.len() < 1 << 20 {
                    next = waiting.try_recv().ok();
                }
            }
            if zero_filled && at + bytes.len() as u64 > ZERO_FILLED_BYTES {
                at = 0;
            }
            file.write_all_at(&bytes, at).unwrap();
            let sync = Instant::now();
            file.sync_data().unwrap();
            (syncs, syncing) = (syncs + 1, syncing + sync.elapsed());
            at += bytes.len() as u64;
            bytes.clear();
            before = replies.len();
            for reply in replies.drain(..) {
                count += 1;
                let _ = reply.send(count);
            }
        }
        (count / u64::from(syncs.max(1)), syncing / syncs.max(1))
    });
    let (cpu, begun) = (cpu_micros(), Instant::now());
    let client = |_| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            while begun.elapsed() < time {
                let sent = Instant::now();
                let (reply, answer) = oneshot::channel();
                queue.send((vec![0x5a; STORED_BYTES], reply)).await.unwrap();
                answer.await.unwrap();
                latencies.push(sent.elapsed());
            }
            latencies
        })
    };
    let mut sample = collect((0..concurrent).map(client).collect(), cpu, begun).await;
    drop(queue);
    let (a_sync, sync) = tokio::task::spawn_blocking(move || writer.join().unwrap()).await.unwrap();
    sample.note = format!("{a_sync} records a sync, {:.2} ms each", sync.as_secs_f64() * 1e3);
    sample
}

fn draft(ledger: LedgerId, run: Option<&RunId>, pad: usize) -> Draft {
    let body = Canonical::parse(format!(r#"{{"pad":"{}"}}"#, "x".repeat(pad)).as_bytes()).unwrap();
    Draft::new(ledger, &Actor::system(), "step.begun", &body, (run, 0), [7; 16]).unwrap()
}

async fn journal(base: &Path, concurrent: usize, time: Duration) -> Sample {
    let set_up = Instant::now();
    let dir = tempfile::tempdir_in(base).unwrap();
    let config = Config::new(dir.path().join("data"));
    let journal = DiskJournal::open(config, Arc::new(RealClock::start()), |ledger, _| NewRecord {
        draft: draft(ledger, None, 10),
        private: Vec::new(),
        streams: vec![(StreamId::Ledger, Wake::None)],
    });
    let journal = Arc::new(journal.unwrap());
    settle(set_up);
    let ready = if journal.stats().next_ready { "" } else { "next segment NOT ready at the start; " };
    let (cpu, begun) = (cpu_micros(), Instant::now());
    let clients = (0..concurrent).map(|number| tokio::spawn(client(Arc::clone(&journal), number, begun, time)));
    let mut sample = collect(clients.collect(), cpu, begun).await;
    let stats = journal.stats();
    let behind = Instant::now();
    let waiting = Arc::clone(&journal);
    tokio::task::spawn_blocking(move || waiting.wait_applied()).await.unwrap();
    let with_store = (cpu_micros() - cpu) / stats.head as f64;
    sample.note = format!(
        "{ready}{:.1} with the store; {} records a sync, {} rolls, lag {} ({:.2} s)",
        with_store,
        stats.head / stats.batches.max(1),
        stats.rolls,
        stats.lag,
        behind.elapsed().as_secs_f64()
    );
    journal.close().await.unwrap();
    sample
}

/// One run's actor: each append expects the run where the one before left it.
async fn client(journal: Arc<DiskJournal>, number: usize, begun: Instant, time: Duration) -> Vec<Duration> {
    let run: RunId = format!("run_{number:03}").parse().unwrap();
    let stream = StreamId::Run(run.clone());
    let fixed = draft(journal.ledger(), Some(&run), 0).bytes_max();
    let template = draft(journal.ledger(), Some(&run), LINE_BYTES - fixed);
    let (mut prev, mut version): (_, Option<Seq>) = (run_genesis(journal.ledger(), Some(&run)), None);
    let (mut latencies, mut run_seq) = (Vec::new(), 0);
    while begun.elapsed() < time {
        let sent = Instant::now();
        let mut draft = template.clone();
        draft.set_run_seq(run_seq);
        let record =
            NewRecord { draft, private: vec![0x5a; PRIVATE_BYTES], streams: vec![(stream.clone(), Wake::None)] };
        let request = Request {
            expect: vec![(stream.clone(), version)],
            read_at: journal.head(),
            records: vec![record],
            run_prev: Some(prev),
            ..Request::default()
        };
        let appended = journal.append(request).await.unwrap();
        (prev, version) = (appended[0].leaf, Some(appended[0].seq));
        run_seq += 1;
        latencies.push(sent.elapsed());
    }
    latencies
}
