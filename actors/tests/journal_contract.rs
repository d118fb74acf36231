//! What every journal must do, and what the one on disk adds: keys, checkpoints, publication, closing.
#![allow(clippy::unwrap_used)]
mod kit;

use std::sync::{Arc, Mutex};

use kit::{Bed, Run, at, fill, loose, picture, run_id};
use reversi_actors::journal::{
    AppendError, CheckpointSink, Journal, JournalError, PublishedRecord, Request, StoredRecord, read_notes,
};
use reversi_proto::ids::StreamId;
use reversi_proto::ledger::verify::{Options, Verifier};
use reversi_proto::ledger::{VerifierKey, leaf};
use reversi_proto::wake::Wake;

/// The contract: any implementation, opened fresh with its first record.
async fn contract(journal: &dyn Journal) {
    assert_eq!(journal.head(), 1);
    let (mut a, mut b) = (Run::new(journal, "a"), Run::new(journal, "b"));
    let first = a.step(journal).await;
    assert_eq!((first[0].seq, first[0].leaf), (1, leaf(&first[0].line)));
    assert_eq!(journal.run_key(&run_id("a")), Some([9; 32]));
    b.step(journal).await;

    // All or nothing, and what was found.
    let mut stale = a.clone();
    let second = a.step(journal).await;
    let error = stale.try_step(journal, 10, false).await.unwrap_err();
    let (expected, found) = (Some(first[0].seq), Some(second[0].seq));
    assert_eq!(error, AppendError::Conflict { stream: a.stream(), expected, found });
    let taken = Run::new(journal, "a").try_step(journal, 10, false).await.unwrap_err();
    assert_eq!(taken, AppendError::Conflict { stream: a.stream(), expected: None, found });
    assert_eq!(journal.head(), 4);

    // A record of several streams advances each; a request is in order.
    let claim = StreamId::Claim([3; 32]);
    let further = [vec![(claim.clone(), Wake::None)], vec![(StreamId::Approval(approval()), Wake::At(at(60)))]];
    let both = journal.append(Request { read_at: 4, ..a.request(Wake::Now, &further, 10) }).await.unwrap();
    a.took(&both);
    assert_eq!(both.iter().map(|record| record.seq).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(journal.version(&claim).unwrap(), Some(4));
    assert_eq!(journal.version(&a.stream()).unwrap(), Some(5));
    assert_eq!(journal.version(&StreamId::Halt).unwrap(), None);
    let loaded = journal.load(&a.stream(), 4).unwrap();
    let expect = |appended: &reversi_actors::journal::Appended, private: &str| StoredRecord {
        seq: appended.seq,
        leaf: appended.leaf,
        line: Arc::clone(&appended.line),
        private: private.as_bytes().to_vec(),
    };
    assert_eq!(loaded, [expect(&both[0], "sealed 2"), expect(&both[1], "sealed 3")]);
    assert_eq!(journal.load(&claim, 0).unwrap(), [expect(&both[0], "sealed 2")]);

    // Alarms: now first, then by time; the newest hint of a stream counts.
    let approval = StreamId::Approval(approval());
    assert_eq!(journal.due(at(59), 9).unwrap(), [(a.stream(), Wake::Now)]);
    assert_eq!(journal.due(at(60), 9).unwrap(), [(a.stream(), Wake::Now), (approval, Wake::At(at(60)))]);
    assert_eq!(journal.due(at(60), 1).unwrap(), [(a.stream(), Wake::Now)]);
    a.step(journal).await;
    assert_eq!(journal.due(at(59), 9).unwrap(), []);

    // Streams by name, lines by number.
    assert_eq!(journal.streams("run/", None, 9).unwrap(), [a.stream(), b.stream()]);
    assert_eq!(journal.streams("run/", Some(&a.stream()), 9).unwrap(), [b.stream()]);
    assert_eq!(journal.streams("run/", None, 1).unwrap(), [a.stream()]);
    assert_eq!(journal.lines(4, 1).unwrap(), [Arc::clone(&both[0].line)]);
    assert_eq!(journal.lines(journal.head(), 1000).unwrap().len(), 0);

    // What makes no sense is refused.
    let empty = journal.append(Request::default()).await.unwrap_err();
    let mut mixed = a.request(Wake::None, &[vec![]], 1);
    mixed.records.extend(b.request(Wake::None, &[vec![]], 1).records);
    assert_eq!((empty, journal.append(mixed).await.unwrap_err()), (AppendError::Mixed, AppendError::Mixed));
}

fn approval() -> reversi_proto::ids::ApprovalId {
    "apr_000102030405060708090a0b0c0d0e0f".parse().unwrap()
}

#[tokio::test]
async fn the_disk_keeps_the_contract_with_everything_applied() {
    let bed = Bed::new();
    let journal = bed.open();
    contract(&journal).await;
    let before = picture(&journal);
    journal.wait_applied();
    assert_eq!(picture(&journal), before);
}

#[tokio::test]
async fn the_disk_keeps_the_contract_with_nothing_applied() {
    let mut bed = Bed::new();
    (bed.config.apply_interval, bed.config.apply_records) = (std::time::Duration::from_secs(1000), u64::MAX);
    let journal = bed.open();
    contract(&journal).await;
    assert_eq!(journal.stats().applied, 1);
    fill(&journal, 6).await;
    let unapplied = picture(&journal);
    assert_eq!(journal.stats().applied, 1);
    journal.wait_applied();
    assert_eq!(journal.stats().lag, 0);
    assert_eq!(picture(&journal), unapplied);
}

#[tokio::test]
async fn a_reader_too_far_behind_conflicts() {
    let mut bed = Bed::new();
    bed.config.window = 4;
    let journal = bed.open();
    let (mut old, mut busy) = (Run::new(&journal, "old"), Run::new(&journal, "busy"));
    old.step(&journal).await;
    let read_at = journal.head();
    for _ in 0..10 {
        busy.step(&journal).await;
        journal.wait_applied();
    }
    let late = Request { read_at, ..old.request(Wake::None, &[vec![]], 1) };
    let (stream, expected) = (old.stream(), old.version);
    assert_eq!(journal.append(late).await.unwrap_err(), AppendError::Conflict { stream, expected, found: None });
    old.step(&journal).await;
}

#[tokio::test]
async fn parallel_appends_on_one_stream_let_one_through() {
    let bed = Bed::new();
    let journal = Arc::new(bed.open());
    let halt = |n: u32| {
        let mut request = loose(journal.ledger(), &format!("{n}"), vec![(StreamId::Halt, Wake::None)]);
        (request.expect, request.read_at) = (vec![(StreamId::Halt, None)], journal.head());
        let journal = Arc::clone(&journal);
        tokio::spawn(async move { journal.append(request).await })
    };
    let answers: Vec<_> = (0..20).map(halt).collect();
    let mut taken = 0;
    for answer in answers {
        match answer.await.unwrap() {
            Ok(_) => taken += 1,
            Err(AppendError::Conflict { found, .. }) => {
                // Whoever conflicts must find what it conflicts with.
                assert_eq!(journal.version(&StreamId::Halt).unwrap(), found);
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(taken, 1);
}

#[tokio::test]
async fn the_lines_verify_with_their_checkpoint() {
    let mut bed = Bed::new();
    let sink = bed.root.path().join("checkpoints");
    bed.config.sink = Some(CheckpointSink::File(sink.clone()));
    let journal = bed.open();
    fill(&journal, 12).await;
    let signed = journal.sign_checkpoint().await.unwrap();
    assert_eq!((signed.size, journal.checkpoint()), (journal.head(), Some(signed.clone())));
    let notes = read_notes(&std::fs::read_to_string(&sink).unwrap());
    assert_eq!(notes.last().map(ToString::to_string), Some(signed.note));
    let key: VerifierKey =
        std::fs::read_to_string(bed.dir().join("keys/ledger.pub")).unwrap().trim_end().parse().unwrap();
    let note = notes.last().unwrap().to_string();
    let mut verifier = Verifier::new(Options {
        known_type: &|_| true,
        lenient: false,
        checkpoint: Some(note.as_bytes()),
        require_checkpoint: true,
        trust: Some(&key),
    });
    for line in picture(&journal).lines {
        verifier.feed(format!("{line}\n").as_bytes());
    }
    let report = verifier.finish();
    assert!(report.is_ok(), "{report:?}");
}

#[tokio::test]
async fn checkpoints_come_by_count_and_by_time() {
    let mut bed = Bed::new();
    bed.config.checkpoint_records = 5;
    bed.config.checkpoint_after = std::time::Duration::from_secs(1000);
    let journal = bed.open();
    let mut run = Run::new(&journal, "a");
    for _ in 0..5 {
        run.step(&journal).await;
    }
    while journal.stats().checkpoint < 6 {
        tokio::task::yield_now().await;
    }
    journal.close().await.unwrap();
    bed.config.checkpoint_records = 1000;
    bed.config.checkpoint_after = std::time::Duration::from_millis(1);
    let journal = bed.open();
    Run::new(&journal, "b").step(&journal).await;
    while journal.stats().checkpoint < journal.head() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn everything_durable_is_published_in_order_before_it_is_answered() {
    let bed = Bed::new();
    let journal = bed.open();
    let told: Arc<Mutex<Vec<PublishedRecord>>> = Arc::default();
    let to = Arc::clone(&told);
    journal.publish_to(Arc::new(move |records| to.lock().unwrap().extend(records.iter().cloned())));
    let mut run = Run::new(&journal, "a");
    for n in 1..=3 {
        let appended = run.step(&journal).await;
        let told = told.lock().unwrap();
        assert_eq!((told.len(), &told[n - 1].record), (n, &appended[0]));
        assert_eq!(told[n - 1].streams, [(run.stream(), Wake::None)]);
    }
}

#[tokio::test]
async fn a_clean_stop_is_clean_and_final() {
    let bed = Bed::new();
    let journal = bed.open();
    fill(&journal, 3).await;
    let before = picture(&journal);
    journal.close().await.unwrap();
    assert!(bed.dir().join("clean-stop").exists());
    let late = journal.append(loose(journal.ledger(), "late", vec![])).await;
    assert_eq!(late, Err(AppendError::Closed));
    assert!(matches!(journal.load(&StreamId::Halt, 0), Err(JournalError::Closed)));
    let again = bed.open();
    assert!(!bed.dir().join("clean-stop").exists());
    assert_eq!(picture(&again), before);
    let mut run = Run::new(&again, "z");
    assert_eq!(run.step(&again).await[0].seq, before.head);
}

#[tokio::test]
async fn a_second_daemon_is_told_who_holds_the_directory() {
    let bed = Bed::new();
    let journal = bed.open();
    let error = bed.try_open().err().unwrap();
    assert!(matches!(error, JournalError::Locked { .. }), "{error}");
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop(journal);
    bed.open();
}

#[tokio::test]
async fn record_times_never_go_back() {
    let bed = Bed::new();
    bed.clock.advance_to(at(500));
    let journal = bed.open();
    let mut run = Run::new(&journal, "a");
    let first = run.step(&journal).await[0].ts;
    journal.close().await.unwrap();
    let back = Bed { clock: Arc::new(reversi_actors::clock::SimClock::at(at(3))), ..bed };
    let journal = back.open();
    assert!(run.step(&journal).await[0].ts >= first);
}

#[tokio::test]
async fn a_panic_on_the_writers_thread_is_fatal_and_acknowledges_nothing() {
    let mut bed = Bed::new();
    let why: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&why);
    bed.config.fatal = Arc::new(move |why| told.lock().unwrap().push(why.to_owned()));
    let journal = bed.open();
    journal.publish_to(Arc::new(|_| panic!("a subscriber's bug")));
    let mut run = Run::new(&journal, "a");
    assert_eq!(run.try_step(&journal, 1, false).await, Err(AppendError::Closed));
    assert_eq!(run.try_step(&journal, 1, false).await, Err(AppendError::Closed));
    assert!(matches!(journal.close().await, Err(JournalError::Closed)));
    assert_eq!(*why.lock().unwrap(), ["the thread journal-writer panicked"]);
    assert!(!bed.dir().join("clean-stop").exists());
}
