//! MCP servers that nobody here wrote, from npm: what they change is undone through the daemon, checked in their own
//! files. Skipped, with a word, where they are not installed (`./check` installs them).
#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::fs;
use std::path::{Path, PathBuf};

use reversi::connector::tree::tree_hash;
use reversi::demo::agent::Agent;
use reversi::demo::daemon::{Setting, Stage};
use reversi::demo::settled;
use reversi_proto::canonical::Canonical;
use serde_json::{Value, json};

const MEMORY: &str = r"
- tool: memory.read_graph
  effect: read_only
  permission: memory:read
- tool: memory.create_relations
  effect: reversible
  permission: memory:write
  compensation:
    tool: memory.delete_relations
    kind: inverse
    argument_map: { relations: $result.relations }
- tool: memory.delete_relations
  effect: idempotent
  permission: memory:write
";

const FILES: &str = r"
- tool: files.move_file
  effect: reversible
  permission: files:write
  compensation:
    tool: back.move_file
    kind: inverse
    argument_map: { source: $args.destination, destination: $args.source }
- tool: back.move_file
  effect: reversible
  permission: files:write
  compensation:
    tool: files.move_file
    kind: inverse
    argument_map: { source: $args.destination, destination: $args.source }
";

fn server(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = root.join("target/npm/node_modules/@modelcontextprotocol").join(name).join("dist/index.js");
    if script.exists() && std::process::Command::new("node").arg("--version").output().is_ok() {
        return Some(script);
    }
    eprintln!("skipped: {name} is not installed below target/npm (./check installs it)");
    None
}

async fn undone(stage: &Stage, upstreams: Vec<Value>, calls: &[(&str, Value)]) -> Value {
    let daemon = stage.start(&Setting { upstreams: upstreams.clone(), ..Setting::default() }).unwrap();
    let admin = stage.admin(&daemon).unwrap();
    let operator = admin.with_role("olga", "operator").await.unwrap();
    let bot = admin.with_role("bot-1", "agent").await.unwrap();
    let scope = ["memory:read", "memory:write", "files:read", "files:write"];
    let own = stage.data().with_extension("agent");
    let agent = Agent::start(bot, upstreams, &own, &scope).await.unwrap();
    for (tool, args) in calls {
        let called = agent.call(tool, args.clone()).await.unwrap();
        assert_eq!(called.decision["decision"], "allow", "{}", called.decision);
    }
    agent.leave().await;
    let run = agent.run().to_owned();
    operator.must(&format!("/v1/runs/{run}/rollback"), &json!({})).await.unwrap();
    let report = settled(&operator, &run).await.unwrap();
    assert!(daemon.stop().unwrap().success());
    report
}

/// The graph's lines, in any order and any spelling.
fn graph(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let mut lines: Vec<String> =
        text.lines().map(|line| Canonical::parse(line.as_bytes()).unwrap().as_str().to_owned()).collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relation_that_was_there_before_survives_the_undo() {
    let Some(script) = server("server-memory") else { return };
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::new(dir.path(), Path::new(env!("CARGO_BIN_EXE_reversi")), &[("memory.yaml", MEMORY)]).unwrap();
    let file = dir.path().join("memory.jsonl");
    let lines = [
        json!({ "type": "entity", "name": "ada", "entityType": "person", "observations": [] }),
        json!({ "type": "entity", "name": "bob", "entityType": "person", "observations": [] }),
        json!({ "type": "relation", "from": "ada", "to": "bob", "relationType": "knows" }),
    ];
    fs::write(&file, lines.map(|line| line.to_string()).join("\n")).unwrap();
    let before = graph(&file);
    let upstream = json!({
        "name": "memory", "prefix": "memory.", "command": "node", "args": [script.display().to_string()],
        "env": { "MEMORY_FILE_PATH": file.display().to_string() },
    });
    // The first of the two is there already, so the server skips it in silence: an undo built from the arguments would
    // delete what the run never made.
    let relations = json!([
        { "from": "ada", "to": "bob", "relationType": "knows" },
        { "from": "bob", "to": "ada", "relationType": "knows" },
    ]);
    let calls = [("memory.create_relations", json!({ "relations": relations }))];
    let report = undone(&stage, vec![upstream], &calls).await;
    assert_eq!(report["complete"], true, "{report}");
    assert_eq!(graph(&file), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_of_moves_is_undone_by_swapped_arguments() {
    let Some(script) = server("server-filesystem") else { return };
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    let stage = Stage::new(&root, Path::new(env!("CARGO_BIN_EXE_reversi")), &[("files.yaml", FILES)]).unwrap();
    let tree = root.join("tree");
    fs::create_dir_all(tree.join("dir")).unwrap();
    fs::write(tree.join("a"), "a").unwrap();
    fs::write(tree.join("b"), "b").unwrap();
    let before = tree_hash(&tree).unwrap();
    let args = [script.display().to_string(), tree.display().to_string()];
    let upstream = |name: &str| json!({ "name": name, "prefix": format!("{name}."), "command": "node", "args": args });
    let at = |name: &str| tree.join(name).display().to_string();
    let moves = [("a", "dir/a"), ("b", "a"), ("dir/a", "b"), ("a", "dir/c")];
    let calls: Vec<_> = moves
        .iter()
        .map(|(from, to)| ("files.move_file", json!({ "source": at(from), "destination": at(to) })))
        .collect();
    let report = undone(&stage, vec![upstream("files"), upstream("back")], &calls).await;
    assert_eq!(report["complete"], true, "{report}");
    assert_eq!(report["compensated"].as_array().unwrap().len(), 4);
    assert_eq!(tree_hash(&tree).unwrap(), before);
}
