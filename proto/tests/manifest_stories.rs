//! What a manifest means for a run's life, where the other stories don't tell it: pins, deprecation, scopes of keys.
#![allow(clippy::unwrap_used, clippy::panic)]
use reversi_proto::config::Archive;
use reversi_proto::event::v1::{ManifestsLoaded, ManifestsLoadedPrivate, Mode, Outcome};
use reversi_proto::event::{ConfigEvent, Meta};
use reversi_proto::ids::{Actor, ActorKind, RunId, Seq};
use reversi_proto::manifest::{Manifest, ManifestSet, load};
use reversi_proto::run::{DecisionWord, RunStatus, claim_of};
use reversi_proto::testing::{MANIFESTS, World, agent, hash, json};
use reversi_proto::undo::UndoCommand;

/// The stories' manifests with one text replaced by another.
fn changed(from: &str, to: &str) -> ManifestSet {
    let text = MANIFESTS.replacen(from, to, 1);
    assert_ne!(text, MANIFESTS);
    let named = load("m.yaml", text.as_bytes()).unwrap().into_iter().map(|m| ("m.yaml".to_owned(), m)).collect();
    ManifestSet::new(named).unwrap()
}

/// Puts another set in force, as a `manifests.loaded` of that number does.
fn swap(world: &mut World, set: &ManifestSet, seq: Seq) {
    let body = ManifestsLoaded { count: u32::try_from(set.len()).unwrap(), set: set.checksum() };
    let texts = set.iter().map(|manifest| manifest.canonical()).collect();
    let meta = Meta { seq, ts: world.now, leaf: hash(1), actor: Actor::system() };
    world.archive.evolve(&meta, &ConfigEvent::ManifestsLoaded(body, ManifestsLoadedPrivate { texts }).into());
    assert_eq!(world.archive.checksum(), Some(set.checksum()));
}

// E5
#[test]
fn the_undo_keeps_the_timeout_that_its_step_pinned() {
    let mut world = World::new(Mode::Observe);
    let args = r#"{"order_id":"o","amount":2500}"#;
    let step = world.done("stripe.create_charge", args, r#"{"id":"ch_1"}"#);
    assert_eq!(world.spec(step).timeout_ms, 20_000);
    swap(&mut world, &changed("timeout_ms: 20s", "timeout_ms: 45s"), 1_000_000);
    assert_eq!(world.spec(step).timeout_ms, 20_000, "the manifest of its day");
    world.rollback(1).unwrap();
    world.undo(step, &UndoCommand::Attempt).unwrap();
    let body = world.log.last().unwrap().event.encode().unwrap().body;
    let over_by = serde_json::to_value(world.now.plus_ms(20_000)).unwrap();
    assert_eq!(body.value()["over_by"], over_by, "whoever runs it is told until when: {}", body.as_str());
}

// I3
#[test]
fn a_deprecated_tool_still_rolls_back() {
    let mut world = World::new(Mode::Enforce);
    let deprecated = "- tool: note.add\n  status: deprecated\n  replaced_by: fs.write_file\n";
    let set = changed("- tool: note.add\n", deprecated);
    // In the place of the set that the world began with, so that it is what steps pin.
    world.archive = Archive::default();
    swap(&mut world, &set, 0);
    let begun = world.begin("note.add", r#"{"name":"n"}"#);
    assert_eq!(
        (begun.decision, begun.notes),
        (DecisionWord::Allow, vec!["manifest deprecated; use fs.write_file".into()])
    );
    world.complete(begun.step, Outcome::Succeeded, "{}").unwrap();
    world.rollback(1).unwrap();
    world.undo_all();
    assert_eq!(world.run.status(), RunStatus::RolledBack);
    assert!(world.run.report(&world.archive).complete);
}

// H5
#[test]
fn after_a_failure_the_same_call_is_no_duplicate() {
    let mut world = World::new(Mode::Enforce);
    let first = world.begin("job.start", r#"{"job":"j"}"#);
    assert_eq!(world.begin("job.start", r#"{"job":"j"}"#).decision, DecisionWord::Block);
    world.complete(first.step, Outcome::Failed, "").unwrap();
    assert_eq!(world.begin("job.start", r#"{"job":"j"}"#).decision, DecisionWord::Allow);
}

fn keyed(tool: &str, scope: &str) -> Manifest {
    let text = format!(
        "{{tool: {tool}, effect: read_only, permission: p, idempotency: {{key: \"k-{{{{args.id}}}}\", scope: {scope}}}}}"
    );
    load("m.yaml", text.as_bytes()).unwrap().remove(0)
}

// H2 H3
#[test]
fn calls_are_duplicates_within_the_scope_of_their_key() {
    let (run, other_run): (RunId, RunId) = ("run_a".parse().unwrap(), "run_b".parse().unwrap());
    let other_actor = Actor { id: "bot-2".parse().unwrap(), kind: ActorKind::Agent };
    let claim = |manifest: &Manifest, id: &str, run: &RunId, actor: &Actor| {
        let args = json(&format!(r#"{{"id":"{id}","more":"{run}"}}"#));
        claim_of(manifest, &args, (run, actor), &[9; 32]).unwrap().unwrap()
    };
    // Scope; whether the same key is a duplicate in another run of the same actor, and of another actor.
    for (scope, across_runs, across_actors) in [("run", false, false), ("actor", true, false), ("global", true, true)] {
        let manifest = keyed("t", scope);
        let first = claim(&manifest, "1", &run, &agent());
        assert_eq!(first, claim(&manifest, "1", &run, &agent()), "{scope}: the same call");
        assert_ne!(first, claim(&manifest, "2", &run, &agent()), "{scope}: another key");
        assert_ne!(first, claim(&keyed("u", scope), "1", &run, &agent()), "{scope}: another tool");
        assert_eq!(first == claim(&manifest, "1", &other_run, &agent()), across_runs, "{scope}");
        assert_eq!(first == claim(&manifest, "1", &other_run, &other_actor), across_actors, "{scope}");
    }
}
