//! Governed calls over HTTP: begin + complete, two durable appends. Prints each figure as a ratio to a floor measured in
//! the same run: the same handlers on a journal in memory, and a plain append + fdatasync of the same size.
//!
//! `cargo bench --bench http`            5 s per row
//! `cargo bench --bench http -- --long`  a million calls, latency by hundred thousands
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // figures for people
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reversi::adapters::notify::LogNotifier;
use reversi::demo::api::Api;
use reversi::demo::daemon::{Setting, Stage};
use reversi::http::{Http, Limits, Serve};
use reversi::manifests::Source;
use reversi::reload::Reloader;
use reversi_actors::clock::RealClock;
use reversi_actors::ids::OsIds;
use reversi_actors::journal::MemoryJournal;
use reversi_actors::ports::NoTools;
use reversi_actors::system::{Parts, System, genesis};
use reversi_proto::ids::LedgerId;
use reversi_proto::manifest::{ManifestSet, load};

const MANIFESTS: &str = include_str!("../manifests/demo/fs.yaml");
const SECONDS: u64 = 5;
/// Steps of a run before a connection starts its next one.
const STEPS: u32 = 500;
/// Bytes of the two records of a call, lines and private halves, about.
const CALL_BYTES: usize = 1_500;

/// The same handlers and actors on a journal in memory; tells its address and its admin key on stdout.
fn serve_from_memory() {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
        let clock = Arc::new(RealClock::start());
        let ledger = LedgerId([7; 16]);
        let first = genesis(ledger, "none", &OsIds).unwrap();
        let journal = Arc::new(MemoryJournal::open(ledger, Arc::clone(&clock) as _, first));
        let manifests = load("fs.yaml", MANIFESTS.as_bytes()).unwrap();
        let manifests = manifests.into_iter().map(|manifest| ("fs.yaml".to_owned(), manifest)).collect();
        let manifests = ManifestSet::new(manifests).unwrap();
        let parts = Parts {
            journal,
            clock,
            ids: Arc::new(OsIds),
            tools: Arc::new(NoTools),
            notifier: Arc::new(LogNotifier),
            manifests,
        };
        let mut key = String::new();
        let system = System::start(parts, |made| {
            made.clone_into(&mut key);
            Ok(())
        });
        let system = system.await.unwrap();
        let reloader = Arc::new(Reloader::new(system.service(), Source::Named(Vec::new())));
        let http = Http::new(system.service(), reloader, Limits::default());
        let server = http.listen("127.0.0.1:0".parse().unwrap(), Serve::Everything).await.unwrap();
        println!("{} {key}", server.address());
        std::io::stdout().flush().unwrap();
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    });
}

/// One keep-alive connection; counts nothing, allocates little, so that the load costs less than the server.
struct Connection {
    stream: BufReader<TcpStream>,
    head: String,
    out: Vec<u8>,
    body: Vec<u8>,
}

impl Connection {
    fn open(address: &str, key: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let head = format!("host: bench\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n");
        Self { stream: BufReader::with_capacity(16 << 10, stream), head, out: Vec::new(), body: Vec::new() }
    }

    fn post(&mut self, path: &str, body: &str) -> &str {
        self.out.clear();
        write!(self.out, "POST {path} HTTP/1.1\r\n{}content-length: {}\r\n\r\n{body}", self.head, body.len()).unwrap();
        self.stream.get_mut().write_all(&self.out).unwrap();
        let (mut line, mut length, mut status) = (String::new(), 0, String::new());
        loop {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            if status.is_empty() {
                line.trim().clone_into(&mut status);
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body).unwrap();
        let body = std::str::from_utf8(&self.body).unwrap();
        assert!(status.contains(" 20"), "{status}: {body}");
        body
    }

    fn run(&mut self) -> String {
        let body = self.post("/v1/runs", r#"{"permissions":["fs:write"]}"#);
        let started: serde_json::Value = serde_json::from_str(body).unwrap();
        started["run_id"].as_str().unwrap().to_owned()
    }

    /// One governed call.
    fn call(&mut self, run: &str, step: u32) {
        let begin =
            r#"{"tool":"fs.write_file","reason":"a bench","args":{"path":"reports/january.csv","content":"day,sum"}}"#;
        let answer = self.post(&format!("/v1/runs/{run}/steps"), begin);
        assert!(answer.contains("\"allow\""), "{answer}");
        let done = r#"{"status":"succeeded","result":{"undo_token":"0123456789abcdef0123456789abcdef","path":"reports/january.csv"}}"#;
        self.post(&format!("/v1/runs/{run}/steps/{step}/complete"), done);
    }
}

/// Latencies of calls in microseconds, sorted.
fn load_for(address: &str, key: &str, connections: usize, calls_max: u64, seconds: u64) -> (Vec<u64>, f64) {
    let since = Instant::now();
    let end = since + Duration::from_secs(seconds);
    let each = calls_max / connections as u64;
    let threads: Vec<_> = (0..connections)
        .map(|_| {
            let mut connection = Connection::open(address, key);
            std::thread::spawn(move || {
                let (mut run, mut step, mut taken) = (connection.run(), 0, Vec::new());
                while Instant::now() < end && (taken.len() as u64) < each {
                    if step == STEPS {
                        (run, step) = (connection.run(), 0);
                    }
                    step += 1;
                    let began = Instant::now();
                    connection.call(&run, step);
                    taken.push(u64::try_from(began.elapsed().as_micros()).unwrap());
                }
                taken
            })
        })
        .collect();
    let mut all: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let seconds = since.elapsed().as_secs_f64();
    all.sort_unstable();
    (all, seconds)
}

/// User and system time of a process in seconds (proc(5): fields 14 and 15, in ticks of 1/100 s).
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / 100.0
}

/// CPU seconds of a process by the names of its threads.
fn cpu_by_thread(pid: u32) -> std::collections::BTreeMap<String, f64> {
    let mut by_name = std::collections::BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        // A thread that has ended meanwhile has no file any more.
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
        let (head, fields) = stat.rsplit_once(") ").unwrap();
        let name = head.split_once('(').unwrap().1.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
        let fields: Vec<&str> = fields.split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        *by_name.entry(name.to_owned()).or_default() += ticks as f64 / 100.0;
    }
    by_name
}

fn row(name: &str, pid: u32, address: &str, key: &str, connections: usize) -> (f64, u64) {
    load_for(address, key, connections, u64::MAX, 1);
    let (cpu, threads) = (cpu_seconds(pid), cpu_by_thread(pid));
    let (taken, seconds) = load_for(address, key, connections, u64::MAX, SECONDS);
    let cpu = cpu_seconds(pid) - cpu;
    let at = |part: f64| taken[((taken.len() - 1) as f64 * part) as usize];
    let rate = taken.len() as f64 / seconds;
    let per_request = cpu * 1e6 / (2.0 * taken.len() as f64);
    let (p50, p99) = (at(0.5), at(0.99));
    println!(
        "{name:<10} {connections:>4} connections: {rate:>8.0} calls/s  p50 {p50:>6} us  p99 {p99:>6} us  server {per_request:>4.0} us CPU/request"
    );
    let micros = |(name, after): (String, f64)| {
        let spent = (after - threads.get(&name).copied().unwrap_or(0.0)) * 1e6 / (2.0 * taken.len() as f64);
        (spent >= 0.5).then(|| format!("{name} {spent:.1}"))
    };
    let spent: Vec<String> = cpu_by_thread(pid).into_iter().filter_map(micros).collect();
    println!("{name:<10} {connections:>4} connections: us CPU/request by thread: {}", spent.join(", "));
    (rate, p50)
}

/// Median of a plain append + fdatasync of a call's half, in microseconds.
fn fdatasync_micros(dir: &Path) -> u64 {
    let mut file = std::fs::File::create(dir.join("floor")).unwrap();
    let record = vec![b'x'; CALL_BYTES / 2];
    let mut taken: Vec<u64> = (0..400)
        .map(|_| {
            let began = Instant::now();
            file.write_all(&record).unwrap();
            file.sync_data().unwrap();
            u64::try_from(began.elapsed().as_micros()).unwrap()
        })
        .collect();
    taken.sort_unstable();
    taken[taken.len() / 2]
}

fn memory_server() -> (Child, String, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env("REVERSI_BENCH_SERVER", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let (address, key) = line.trim().split_once(' ').unwrap();
    (child, address.to_owned(), key.to_owned())
}

fn agent_key(address: &str, admin: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let admin = Api::new(&format!("http://{address}"), admin).unwrap();
        admin.with_role("bot-1", "agent").await.unwrap().key().to_owned()
    })
}

fn main() {
    if std::env::var_os("REVERSI_BENCH_SERVER").is_some() {
        return serve_from_memory();
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let stage = Stage::new(dir.path(), Path::new(env!("CARGO_BIN_EXE_reversi")), &[("fs.yaml", MANIFESTS)]).unwrap();
    let daemon = stage.start(&Setting::default()).unwrap();
    let address = daemon.url.trim_start_matches("http://").to_owned();
    let admin = std::fs::read_to_string(stage.data().join("admin.key")).unwrap();
    let key = agent_key(&address, admin.trim());
    if std::env::args().any(|arg| arg == "--long") {
        return long(&address, &key);
    }
    let (mut memory, memory_address, memory_admin) = memory_server();
    let memory_key = agent_key(&memory_address, &memory_admin);
    for connections in [1, 16, 64] {
        let floor = fdatasync_micros(dir.path());
        let (without, _) = row("in memory", memory.id(), &memory_address, &memory_key, connections);
        let (with, p50) = row("journaled", daemon.pid(), &address, &key, connections);
        println!(
            "{:<10} {connections:>4} connections: {:.2} of the same handlers without a journal",
            "ratio",
            with / without
        );
        if connections == 1 {
            let ratio = p50 as f64 / floor as f64;
            println!("{:<10} a call's p50 is {ratio:.1} fdatasyncs of {floor} us", "ratio");
        }
    }
    memory.kill().unwrap();
    memory.wait().unwrap();
}

/// Latency by hundred thousands, 64 connections.
fn long(address: &str, key: &str) {
    for part in 1..=10 {
        let (taken, seconds) = load_for(address, key, 64, 100_000, 3600);
        let rate = taken.len() as u64 / (seconds as u64).max(1);
        let (p50, p99) = (taken[taken.len() / 2], taken[taken.len() * 99 / 100]);
        println!("calls to {part}00,000: about {rate} calls/s, p50 {p50} us, p99 {p99} us");
    }
}
