//! Open, vote, use: what an approval costs as durable appends, against bare appends to the same kind of journal at the
//! same concurrency, measured in the same run.
//!
//! `cargo bench -p reversi-actors --bench approvals`; `REVERSI_BENCH_ROUNDS` approvals of each client (200).
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use reversi_actors::clock::{Clock, RealClock};
use reversi_actors::ids::OsIds;
use reversi_actors::journal::{Config, DiskJournal, Journal, NewRecord, Request};
use reversi_actors::ports::{NoTools, Notice, Notifier};
use reversi_actors::service::{NewKey, NewRun, NewStep, Retry, Service, Word};
use reversi_actors::system::{Parts, System, genesis};
use reversi_proto::access::Principal;
use reversi_proto::canonical::Canonical;
use reversi_proto::event::v1::{Mode, Role};
use reversi_proto::ids::{Actor, LedgerId, RunId, StreamId};
use reversi_proto::ledger::{Draft, run_genesis};
use reversi_proto::manifest::{ManifestSet, load};
use reversi_proto::run::DecisionWord;
use reversi_proto::wake::Wake;

const MANIFESTS: &str = "{tool: mail.send, effect: irreversible, permission: mail, approval: {timeout: 1h}}";
const CONCURRENT: [usize; 3] = [1, 16, 64];
/// Appends of one approval: the request with the blocked step, the vote with the grant, the begin.
const APPENDS: usize = 3;
/// About what the records of one of those appends take as lines.
const LINE_BYTES: usize = 800;

struct Silent;

impl Notifier for Silent {
    fn notify(&self, _: Notice) {}
}

fn main() {
    let rounds = std::env::var("REVERSI_BENCH_ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(200);
    let base = std::env::var_os("REVERSI_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("{rounds} approvals of each client, {APPENDS} durable appends each");
    for concurrent in CONCURRENT {
        let floor = runtime.block_on(bare(&base, concurrent, rounds * APPENDS));
        let appends = runtime.block_on(approvals(&base, concurrent, rounds));
        println!(
            "{concurrent:>3} clients: {:>7.0} appends/s as approvals ({:.0} approvals/s), {floor:>7.0}/s bare, ratio {:.2}",
            appends,
            appends / APPENDS as f64,
            appends / floor
        );
    }
}

async fn principal(service: &Service, admin: &Principal, actor: &str, role: Role) -> Principal {
    let actor = actor.parse().unwrap();
    let key = NewKey { actor, roles: vec![role], person: None, groups: vec![], allow_observe: false, expires_at: None };
    let (_, text) = service.create_key(admin, key).await.unwrap();
    service.authenticate(&text).unwrap()
}

/// Durable appends per second.
async fn approvals(base: &Path, concurrent: usize, rounds: usize) -> f64 {
    let dir = tempfile::tempdir_in(base).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(RealClock::start());
    let config = Config::new(dir.path().join("data"));
    let journal = DiskJournal::open(config, Arc::clone(&clock), |ledger, key| genesis(ledger, key, &OsIds).unwrap());
    let manifests = load("m.yaml", MANIFESTS.as_bytes()).unwrap();
    let named = manifests.into_iter().map(|manifest| ("m.yaml".to_owned(), manifest)).collect();
    let parts = Parts {
        journal: Arc::new(journal.unwrap()),
        clock,
        ids: Arc::new(OsIds),
        tools: Arc::new(NoTools),
        notifier: Arc::new(Silent),
        manifests: ManifestSet::new(named).unwrap(),
    };
    let mut admin = String::new();
    let system = System::start(parts, |key| {
        key.clone_into(&mut admin);
        Ok(())
    });
    let system = system.await.unwrap();
    let service = system.service();
    let admin = service.authenticate(&admin).unwrap();
    let agent = principal(&service, &admin, "bot-1", Role::Agent).await;
    let anna = principal(&service, &admin, "anna", Role::Approver).await;
    let begun = Instant::now();
    let clients = (0..concurrent).map(|_| tokio::spawn(client(service.clone(), agent.clone(), anna.clone(), rounds)));
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    let took = begun.elapsed();
    system.stop().await.unwrap();
    (concurrent * rounds * APPENDS) as f64 / took.as_secs_f64()
}

async fn client(service: Service, agent: Principal, anna: Principal, rounds: usize) {
    let run = NewRun { run_id: None, permissions: vec!["mail".to_owned()], mode: Mode::Enforce, reason: None };
    let run = service.start_run(&agent, run, Retry::default()).await.unwrap().0.run_id;
    for round in 0..rounds {
        let args = format!(r#"{{"to":"somebody@example.com","n":{round}}}"#);
        let call =
            NewStep { tool: "mail.send".parse().unwrap(), reason: "a bench".to_owned(), args, approval_id: None };
        let asked = service.begin(&agent, &run, call.clone(), Retry::default()).await.unwrap();
        service.say(&anna, &asked.approval.unwrap(), Word::Approve, (None, None)).await.unwrap();
        let allowed = service.begin(&agent, &run, call, Retry::default()).await.unwrap();
        assert_eq!(allowed.decision, DecisionWord::Allow);
    }
}

fn draft(ledger: LedgerId, run: Option<&RunId>, pad: usize) -> Draft {
    let body = Canonical::parse(format!(r#"{{"pad":"{}"}}"#, "x".repeat(pad)).as_bytes()).unwrap();
    Draft::new(ledger, &Actor::system(), "step.begun", &body, (run, 0), [7; 16]).unwrap()
}

/// Durable appends per second of clients that do nothing else.
async fn bare(base: &Path, concurrent: usize, appends: usize) -> f64 {
    let dir = tempfile::tempdir_in(base).unwrap();
    let journal = DiskJournal::open(Config::new(dir.path().join("data")), Arc::new(RealClock::start()), |ledger, _| {
        NewRecord { draft: draft(ledger, None, 10), private: Vec::new(), streams: vec![(StreamId::Ledger, Wake::None)] }
    });
    let journal = Arc::new(journal.unwrap());
    let begun = Instant::now();
    let clients = (0..concurrent).map(|number| tokio::spawn(appender(Arc::clone(&journal), number, appends)));
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    let took = begun.elapsed();
    journal.close().await.unwrap();
    (concurrent * appends) as f64 / took.as_secs_f64()
}

async fn appender(journal: Arc<DiskJournal>, number: usize, appends: usize) {
    let run: RunId = format!("run_{number}").parse().unwrap();
    let stream = StreamId::Run(run.clone());
    let template = draft(journal.ledger(), Some(&run), LINE_BYTES);
    let (mut prev, mut version) = (run_genesis(journal.ledger(), Some(&run)), None);
    for run_seq in 0..appends {
        let mut draft = template.clone();
        draft.set_run_seq(run_seq as u64);
        let record = NewRecord { draft, private: Vec::new(), streams: vec![(stream.clone(), Wake::None)] };
        let request = Request {
            expect: vec![(stream.clone(), version)],
            read_at: journal.head(),
            records: vec![record],
            run_prev: Some(prev),
            ..Request::default()
        };
        let appended = journal.append(request).await.unwrap();
        (prev, version) = (appended[0].leaf, Some(appended[0].seq));
    }
}
