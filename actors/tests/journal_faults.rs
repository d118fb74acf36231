//! What must be survived, and what must be refused: torn writes, flipped bits, lost stores, cut tails, old copies.
#![allow(clippy::unwrap_used)]
mod kit;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kit::{Bed, Run, at, fill, loose, picture, run_id};
use reversi_actors::clock::SimClock;
use reversi_actors::journal::{AppendError, CheckpointSink, Journal, JournalError, MissingKeys};
use reversi_proto::ids::StreamId;

/// Where the last batch of a segment file begins and ends; its magic stands nowhere else in these tests' files.
fn last_batch(bytes: &[u8]) -> (usize, usize) {
    let magic = [0xb5, b'R', b'V', 1];
    let start = bytes.windows(4).rposition(|window| window == magic).unwrap();
    let len = u32::from_le_bytes(bytes[start + 20..start + 24].try_into().unwrap()) as usize;
    (start, start + 24 + len)
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_dir(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// Puts `from` in place of the bed's directory.
fn put_back(bed: &Bed, from: &Path) {
    std::fs::remove_dir_all(bed.dir()).unwrap();
    copy_dir(from, bed.dir());
}

/// A journal of a few records, stopped uncleanly, whose last record sled has not seen. Returns the head before it.
async fn unapplied_tail(bed: &mut Bed) -> u64 {
    let journal = bed.open();
    let mut run = Run::new(&journal, "a");
    run.step(&journal).await;
    run.step(&journal).await;
    journal.wait_applied();
    drop(journal);
    bed.config.apply_interval = std::time::Duration::from_secs(1000);
    let journal = bed.open();
    let head = journal.head();
    run.step(&journal).await;
    assert_eq!(journal.stats().lag, 1);
    drop(journal);
    bed.config.apply_interval = std::time::Duration::from_millis(1);
    head
}

#[tokio::test]
async fn a_torn_last_frame_was_never_there() {
    let mut bed = Bed::new();
    let head = unapplied_tail(&mut bed).await;
    let segment = bed.segments().pop().unwrap();
    let whole = std::fs::read(&segment).unwrap();
    let (start, end) = last_batch(&whole);
    let saved = bed.root.path().join("saved");
    copy_dir(bed.dir(), &saved);
    // Every byte is tried where it is cheap, in `segment.rs`.
    for cut in (start..end).step_by(23).chain(end - 3..end) {
        put_back(&bed, &saved);
        let mut torn = whole.clone();
        torn[cut..end].fill(0);
        std::fs::write(&segment, &torn).unwrap();
        let journal = bed.open();
        // A frame whose last bytes are zeros anyway can't be torn there.
        let expected = if torn == whole { head + 1 } else { head };
        assert_eq!(journal.head(), expected, "cut at {cut}");
        let after = std::fs::read(&segment).unwrap();
        assert!(expected > head || after[start..].iter().all(|byte| *byte == 0), "the rest is zeroed");
        if cut % 2 == 0 {
            Run::new(&journal, "b").step(&journal).await;
            drop(journal);
            assert_eq!(bed.open().head(), expected + 1);
        }
    }
}

#[tokio::test]
async fn a_flipped_bit_is_refused_or_an_unacknowledged_tail_but_never_believed() {
    let mut bed = Bed::new();
    bed.config.sink = Some(CheckpointSink::File(bed.root.path().join("checkpoints")));
    let head = unapplied_tail(&mut bed).await;
    let lines = picture(&bed.open()).lines;
    let segment = bed.segments().pop().unwrap();
    let whole = std::fs::read(&segment).unwrap();
    let (start, end) = last_batch(&whole);
    let saved = bed.root.path().join("saved");
    std::fs::remove_dir_all(bed.dir().join("db")).unwrap();
    std::fs::remove_file(bed.root.path().join("checkpoints")).unwrap();
    copy_dir(bed.dir(), &saved);
    // Every byte is tried where it is cheap, in `segment.rs`.
    for byte in (0..120).step_by(7).chain((4090..end + 40).step_by(41)).chain([whole.len() - 1]) {
        put_back(&bed, &saved);
        let mut bad = whole.clone();
        bad[byte] ^= 1 << (byte % 8);
        std::fs::write(&segment, &bad).unwrap();
        match bed.try_open() {
            Err(JournalError::Damage { path, offset, .. }) => {
                assert_eq!(path, segment);
                assert!(byte < start && offset <= byte as u64, "byte {byte}: refused at {offset}");
            }
            Err(other) => panic!("byte {byte}: {other}"),
            Ok(journal) => {
                let kept = picture(&journal).lines;
                assert!(byte >= start, "byte {byte} was not seen");
                let expected = if (start..end).contains(&byte) { head } else { head + 1 };
                assert_eq!((kept.len() as u64, &kept[..]), (expected, &lines[..kept.len()]), "byte {byte}");
            }
        }
        let _ = std::fs::remove_file(bed.root.path().join("checkpoints"));
    }
}

#[tokio::test]
async fn a_flipped_bit_below_what_was_applied_is_refused_with_its_place() {
    let bed = Bed::new();
    let journal = bed.open();
    let mut run = Run::new(&journal, "a");
    run.step(&journal).await;
    run.step(&journal).await;
    journal.wait_applied();
    journal.close().await.unwrap();
    std::fs::remove_file(bed.dir().join("clean-stop")).unwrap();
    let segment = bed.segments().pop().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let (start, end) = last_batch(&bytes);
    bytes[end - 1] ^= 1;
    std::fs::write(&segment, &bytes).unwrap();
    let error = bed.try_open().err().unwrap();
    assert!(matches!(&error, JournalError::Restored { offset, .. } if *offset == start as u64), "{error}");
    assert!(error.to_string().contains("--accept-restored-storage"), "{error}");
    assert_eq!(std::fs::read(&segment).unwrap(), bytes, "nothing may have been changed");
}

#[tokio::test]
async fn segments_roll_and_every_one_is_read_again() {
    let bed = Bed::new();
    let journal = bed.open();
    fill(&journal, 25).await;
    assert!(journal.stats().rolls > 3 && bed.segments().len() > 4);
    let before = picture(&journal);
    journal.wait_applied();
    assert_eq!(picture(&journal), before);
    drop(journal);
    assert_eq!(picture(&bed.open()), before);
}

#[tokio::test]
async fn a_missing_or_damaged_closed_segment_is_refused() {
    let bed = Bed::new();
    let journal = bed.open();
    fill(&journal, 15).await;
    drop(journal);
    let saved = bed.root.path().join("saved");
    copy_dir(bed.dir(), &saved);
    let segments = bed.segments();
    assert!(segments.len() > 3);
    std::fs::remove_file(&segments[1]).unwrap();
    assert!(matches!(bed.try_open(), Err(JournalError::Damage { path, .. }) if path == segments[2]));
    put_back(&bed, &saved);
    let file = std::fs::OpenOptions::new().write(true).open(&segments[1]).unwrap();
    file.write_all_at(&[0xff], file.metadata().unwrap().len() - 4000).unwrap();
    assert!(matches!(bed.try_open(), Err(JournalError::Damage { path, .. }) if path == segments[1]));
    // A wrong byte among its batches is found by whoever reads it, at the latest by a rebuild.
    put_back(&bed, &saved);
    let file = std::fs::OpenOptions::new().write(true).open(&segments[1]).unwrap();
    file.write_all_at(b"#", 6000).unwrap();
    let journal = bed.open();
    let read = (0..journal.head()).try_for_each(|seq| journal.lines(seq, 1).map(|_| ()));
    assert!(matches!(read, Err(JournalError::Damage { path, .. }) if path == segments[1]));
    drop(journal);
    std::fs::remove_dir_all(bed.dir().join("db")).unwrap();
    assert!(matches!(bed.try_open(), Err(JournalError::Damage { path, .. }) if path == segments[1]));
}

#[tokio::test]
async fn a_lost_or_damaged_store_is_rebuilt_to_the_same_state() {
    for clean in [true, false] {
        let bed = Bed::new();
        let journal = bed.open();
        fill(&journal, 12).await;
        journal.wait_applied();
        let before = picture(&journal);
        if clean {
            journal.close().await.unwrap();
        }
        drop(journal);
        let saved = bed.root.path().join("saved");
        copy_dir(bed.dir(), &saved);
        let db = bed.dir().join("db/db");
        let len = std::fs::metadata(&db).unwrap().len();
        let lose_a_value = || {
            let store = sled::open(bed.dir().join("db")).unwrap();
            let (key, _) = store.scan_prefix("e").nth(3).unwrap().unwrap();
            store.remove(key).unwrap();
            store.flush().unwrap();
        };
        let harm: [&dyn Fn(); 7] = [
            &lose_a_value,
            &|| std::fs::remove_dir_all(bed.dir().join("db")).unwrap(),
            &|| std::fs::remove_file(&db).unwrap(),
            &|| drop(std::fs::File::options().write(true).open(&db).map(|file| file.set_len(len / 2).unwrap())),
            &|| drop(std::fs::File::options().write(true).open(&db).map(|file| file.set_len(len - 1).unwrap())),
            &|| std::fs::write(&db, vec![0xa5; usize::try_from(len).unwrap()]).unwrap(),
            &|| std::fs::write(bed.dir().join("db/conf"), b"garbage").unwrap(),
        ];
        for (number, harm) in harm.iter().enumerate() {
            put_back(&bed, &saved);
            harm();
            let journal = bed.open();
            assert_eq!(picture(&journal), before, "harm {number}, clean stop {clean}");
            drop(journal);
            assert_eq!(picture(&bed.open()), before, "harm {number}, clean stop {clean}, opened again");
        }
    }
}

#[tokio::test]
async fn a_power_cut_makes_the_store_worthless() {
    let mut bed = Bed::new();
    let rebuilt = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&rebuilt);
    bed.config.progress = Some(Arc::new(move |_, all| told.store(all, Ordering::SeqCst)));
    let journal = bed.open();
    fill(&journal, 3).await;
    journal.wait_applied();
    let before = picture(&journal);
    drop(journal);
    rebuilt.store(0, Ordering::SeqCst);
    drop(bed.open());
    assert_eq!(rebuilt.load(Ordering::SeqCst), 0, "a kill in one boot of the kernel leaves a store that can be used");
    bed.config.boot_id = Some("boot-2".to_owned());
    assert_eq!(picture(&bed.open()), before);
    assert_eq!(rebuilt.load(Ordering::SeqCst), before.head, "another boot without a clean stop rebuilds it");
}

#[tokio::test]
async fn an_unclean_stop_rewrites_the_open_segment_and_a_clean_one_does_not() {
    use std::os::unix::fs::MetadataExt;
    let bed = Bed::new();
    let inode = || std::fs::metadata(bed.segments().pop().unwrap()).unwrap().ino();
    let journal = bed.open();
    Run::new(&journal, "a").step(&journal).await;
    let first = inode();
    drop(journal);
    let journal = bed.open();
    let second = inode();
    assert_ne!(first, second);
    assert_eq!(journal.head(), 2);
    journal.close().await.unwrap();
    drop(bed.open());
    assert_eq!(second, inode());
}

#[tokio::test]
async fn a_tail_cut_below_the_store_is_refused() {
    let mut bed = Bed::new();
    let journal = bed.open();
    let mut run = Run::new(&journal, "a");
    run.step(&journal).await;
    run.step(&journal).await;
    journal.wait_applied();
    drop(journal);
    let segment = bed.segments().pop().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let (start, end) = last_batch(&bytes);
    bytes[start..end].fill(0);
    std::fs::write(&segment, &bytes).unwrap();
    let error = bed.try_open().err().unwrap();
    let JournalError::Restored { head, known, offset, .. } = &error else { panic!("{error}") };
    assert_eq!((*head, *known, *offset), (2, 3, start as u64));
    bed.config.accept_restored_storage = true;
    let journal = bed.open();
    assert!(journal.was_restored());
    assert_eq!((journal.head(), journal.version(&run.stream()).unwrap()), (2, Some(1)));
    drop(journal);
    bed.config.accept_restored_storage = false;
    // A crash or a restart makes no whole ledger of a copy: only the person who deletes the file does.
    assert!(bed.open().was_restored());
    assert!(bed.open().was_restored());
    std::fs::remove_file(bed.dir().join("restored-copy")).unwrap();
    assert!(!bed.open().was_restored());
}

#[tokio::test]
async fn segments_older_than_the_clean_stop_mark_are_a_restored_copy_too() {
    let mut bed = Bed::new();
    let journal = bed.open();
    let mut run = Run::new(&journal, "a");
    run.step(&journal).await;
    journal.close().await.unwrap();
    let saved = bed.root.path().join("saved");
    copy_dir(&bed.dir().join("ledger"), &saved);
    let journal = bed.open();
    run.step(&journal).await;
    journal.close().await.unwrap();
    // Only the segments are put back, and the event store is gone.
    std::fs::remove_dir_all(bed.dir().join("ledger")).unwrap();
    std::fs::remove_dir_all(bed.dir().join("db")).unwrap();
    copy_dir(&saved, &bed.dir().join("ledger"));
    let error = bed.try_open().err().unwrap();
    assert!(matches!(error, JournalError::Restored { .. }), "{error}");
    bed.config.accept_restored_storage = true;
    assert!(bed.open().was_restored());
}

#[tokio::test]
async fn an_older_copy_under_a_newer_outside_checkpoint_is_refused() {
    let mut bed = Bed::new();
    bed.config.sink = Some(CheckpointSink::File(bed.root.path().join("checkpoints")));
    let journal = bed.open();
    let mut run = Run::new(&journal, "a");
    run.step(&journal).await;
    journal.close().await.unwrap();
    let saved = bed.root.path().join("saved");
    copy_dir(bed.dir(), &saved);
    let journal = bed.open();
    run.step(&journal).await;
    journal.close().await.unwrap();
    put_back(&bed, &saved);
    let error = bed.try_open().err().unwrap();
    assert!(matches!(error, JournalError::Restored { head: 2, known: 3, .. }), "{error}");
    bed.config.accept_restored_storage = true;
    let journal = bed.open();
    assert!(journal.was_restored());
    drop(journal);
    // From then on the accepted copy is the ledger.
    bed.config.accept_restored_storage = false;
    let journal = bed.open();
    // Other records than those that the newer checkpoint was signed over are no problem either, now.
    Run::new(&journal, "other").step(&journal).await;
    Run::new(&journal, "another").step(&journal).await;
    journal.close().await.unwrap();
    let rewritten = bed.root.path().join("rewritten");
    copy_dir(bed.dir(), &rewritten);
    // But a ledger of the right length with other records than the checkpoint's is.
    put_back(&bed, &saved);
    bed.config.accept_restored_storage = true;
    let journal = bed.open();
    Run::new(&journal, "x").step(&journal).await;
    Run::new(&journal, "y").step(&journal).await;
    journal.close().await.unwrap();
    bed.config.accept_restored_storage = false;
    put_back(&bed, &rewritten);
    let error = bed.try_open().err().unwrap();
    assert!(matches!(error, JournalError::Contradicted { size: 4, .. }), "{error}");
}

#[tokio::test]
async fn a_note_cut_short_in_the_sink_is_passed_over() {
    let mut bed = Bed::new();
    let sink = bed.root.path().join("checkpoints");
    bed.config.sink = Some(CheckpointSink::File(sink.clone()));
    let journal = bed.open();
    Run::new(&journal, "a").step(&journal).await;
    journal.close().await.unwrap();
    let whole = std::fs::read(&sink).unwrap();
    for cut in (1..200).step_by(7) {
        std::fs::write(&sink, &whole[..whole.len() - cut]).unwrap();
        let journal = bed.open();
        let signed = journal.checkpoint().unwrap();
        journal.close().await.unwrap();
        let notes = reversi_actors::journal::read_notes(&std::fs::read_to_string(&sink).unwrap());
        assert!(notes.iter().any(|note| note.to_string() == signed.note), "cut {cut}");
    }
}

#[tokio::test]
async fn a_full_disk_takes_outcomes_only() {
    let mut bed = Bed::new();
    let free = Arc::new(AtomicU64::new(u64::MAX));
    let told = Arc::clone(&free);
    bed.config.free_space = Some(Arc::new(move || told.load(Ordering::SeqCst)));
    let journal = bed.open();
    let mut run = Run::new(&journal, "a");
    run.step(&journal).await;
    drop(journal);
    free.store(bed.config.free_bytes_min - 1, Ordering::SeqCst);
    let journal = bed.open();
    assert!(journal.stats().disk_low);
    assert_eq!(run.try_step(&journal, 100, false).await, Err(AppendError::Full));
    run.try_step(&journal, 100, true).await.unwrap();
    journal.wait_applied();
    assert_eq!(journal.version(&run.stream()).unwrap(), run.version);
}

#[tokio::test]
async fn a_request_that_no_segment_holds_is_refused() {
    let bed = Bed::new();
    let journal = bed.open();
    let mut request = loose(journal.ledger(), "big", vec![(StreamId::Config, reversi_proto::wake::Wake::None)]);
    request.records[0].private = vec![7; 64 << 10];
    assert!(matches!(journal.append(request.clone()).await, Err(AppendError::TooLarge { .. })));
    request.records[0].private.truncate(50 << 10);
    journal.append(request.clone()).await.unwrap();
    journal.append(request).await.unwrap();
    assert_eq!((journal.head(), bed.segments().len()), (3, 2));
    journal.wait_applied();
    assert_eq!(journal.load(&StreamId::Config, 0).unwrap()[1].private, vec![7; 50 << 10]);
}

#[tokio::test]
async fn a_missing_run_key_is_refused_by_name() {
    let mut bed = Bed::new();
    let journal = bed.open();
    let keys = std::fs::read(bed.dir().join("private.keys")).unwrap();
    Run::new(&journal, "lost").step(&journal).await;
    journal.close().await.unwrap();
    std::fs::write(bed.dir().join("private.keys"), keys).unwrap();
    assert!(matches!(bed.try_open(), Err(JournalError::MissingKey { run, .. }) if run == run_id("lost")));
    bed.config.missing_keys = MissingKeys::Report;
    assert_eq!(bed.open().runs_without_key().unwrap(), [run_id("lost")]);
}

#[tokio::test]
async fn lost_segments_are_no_empty_directory() {
    let bed = Bed::new();
    let journal = bed.open();
    Run::new(&journal, "a").step(&journal).await;
    journal.close().await.unwrap();
    std::fs::remove_dir_all(bed.dir().join("ledger")).unwrap();
    assert!(matches!(bed.try_open(), Err(JournalError::Damage { .. })));
    std::fs::remove_dir_all(bed.dir().join("db")).unwrap();
    std::fs::remove_file(bed.dir().join("clean-stop")).unwrap();
    assert!(
        matches!(bed.try_open(), Err(JournalError::Damage { .. })),
        "the run's key still shows that there was a run"
    );
}

#[tokio::test]
async fn a_clock_a_day_behind_the_newest_record_is_refused() {
    let bed = Bed::new();
    bed.clock.advance_to(at(90_000));
    let journal = bed.open();
    Run::new(&journal, "a").step(&journal).await;
    journal.close().await.unwrap();
    let mut late = Bed { clock: Arc::new(SimClock::at(at(0))), ..bed };
    assert!(matches!(late.try_open(), Err(JournalError::ClockAhead { .. })));
    late.config.accept_clock = true;
    late.open();
    late.config.accept_clock = false;
    late.clock = Arc::new(SimClock::at(at(4_000)));
    late.open();
}
