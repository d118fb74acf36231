//! Other manifests for a running daemon: what changes, what stays, and where a call that races with it stands.
use std::collections::{BTreeMap, BTreeSet};

use reversi::adapters::upstreams::UpstreamConfig;
use reversi::http::Limits;
use reversi::manifests::read;
use reversi_actors::service::ReloadBy;
use reversi_proto::manifest::{ManifestSet, load};
use serde_json::{Value, json};

use crate::harness::{Daemon, create};

const RELOAD: &str = "/v1/reload";

impl Daemon {
    fn write_manifests(&self, text: &str) {
        std::fs::write(self.manifests_dir().join("tools.yaml"), text).unwrap();
    }

    async fn ledger(&self) -> Vec<Value> {
        let export = self.get("/v1/ledger/records", &self.operator).await;
        export.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    async fn loaded(&self) -> Vec<Value> {
        self.ledger().await.into_iter().filter(|record| record["type"] == "manifests.loaded").collect()
    }
}

/// Two tools; the second one's version tells sets apart.
fn versioned(version: u32) -> String {
    format!(
        "- {{ tool: crm.read, effect: read_only, permission: \"crm:read\" }}\n\
         - {{ tool: crm.write, effect: idempotent, permission: \"crm:write\", version: {version} }}\n"
    )
}

#[tokio::test]
async fn a_reload_says_what_changed_and_is_one_record_or_none() {
    let daemon = Daemon::start().await;
    let same = daemon.post(RELOAD, &daemon.admin, &json!({})).await.json(200);
    assert_eq!((&same["changed"], &same["count"], &same["updated"]), (&json!(false), &json!(4), &json!([])));
    daemon.write_manifests(&versioned(1));
    let done = daemon.post_text(RELOAD, &daemon.admin, "").await.json(200);
    let loaded = daemon.loaded().await;
    assert_eq!(loaded.len(), 2);
    let expected = json!({"changed": true, "count": 2, "checksum": loaded[1]["body"]["set"], "seq": loaded[1]["seq"],
        "added": ["crm.write"], "removed": ["crm.create", "crm.delete", "mail.send"], "updated": ["crm.read"]});
    assert_eq!(done, expected);
    assert_eq!(loaded[1]["actor"], json!({"id": "admin", "kind": "human"}), "whoever asked stands in the ledger");
    let again = daemon.post(RELOAD, &daemon.admin, &json!({})).await.json(200);
    assert_eq!((&again["changed"], &again["seq"]), (&json!(false), &loaded[1]["seq"]));
    let steps = daemon.new_run("r").await;
    let blocked = daemon.post(&steps, &daemon.agent, &create("1")).await.json(200);
    assert_eq!(blocked["decision"], "block", "{blocked}");
    // The next start finds the same set, and journals nothing.
    let daemon = daemon.restart().await;
    assert_eq!(daemon.loaded().await.len(), 2);
    daemon.post(RELOAD, &daemon.admin, &json!({"paths": ["/etc"]})).await.problem(400, "request.malformed");
    daemon.stop().await;
}

#[tokio::test]
async fn mistakes_are_all_listed_and_change_nothing() {
    let daemon = Daemon::start().await;
    daemon.write_manifests("tool: a\nefect: read_only\npermission: x y\n");
    std::fs::write(daemon.manifests_dir().join("more.json"), "{").unwrap();
    std::os::unix::fs::symlink("nowhere", daemon.manifests_dir().join("link.yml")).unwrap();
    let problem = daemon.post(RELOAD, &daemon.admin, &json!({})).await.problem(422, "manifests.invalid");
    assert_eq!(problem["detail"], "the manifests stay as they were: 5 mistakes in the files");
    let errors = problem["errors"].as_array().unwrap();
    let places: Vec<(&str, Option<u64>, &str)> = errors
        .iter()
        .map(|error| {
            let file = error["file"].as_str().unwrap().rsplit_once('/').unwrap().1;
            (file, error["line"].as_u64(), error["code"].as_str().unwrap())
        })
        .collect();
    let expected = [
        ("link.yml", None, "manifest.unreadable"),
        ("more.json", Some(1), "manifest.strict_json"),
        ("tools.yaml", Some(1), "manifest.missing_field"),
        ("tools.yaml", Some(2), "manifest.unknown_field"),
        ("tools.yaml", Some(3), "manifest.bad_text"),
    ];
    assert_eq!(places, expected);
    assert_eq!((&errors[3]["field"], &errors[3]["hint"]), (&json!("efect"), &json!("did you mean `effect`?")));
    assert_eq!(daemon.loaded().await.len(), 1);
    let steps = daemon.new_run("r").await;
    assert_eq!(daemon.post(&steps, &daemon.agent, &create("1")).await.json(200)["decision"], "allow");
    daemon.stop().await;
}

/// The compensation is a call of the file connector, so that the folder shows which one was made.
fn undone_by(compensation: &str) -> String {
    format!(
        "- tool: crm.note\n  effect: compensable\n  permission: crm:write\n  compensation: {compensation}\n\
         - {{ tool: fs.write_file, effect: idempotent, permission: \"fs:write\" }}\n\
         - {{ tool: fs.delete, effect: idempotent, permission: \"fs:write\" }}\n"
    )
}

const BY_WRITING: &str = "{ tool: fs.write_file, argument_map: { path: $args.old, content: $result.text } }";
const BY_WRITING_ELSEWHERE: &str = "{ tool: fs.write_file, argument_map: { path: $args.new, content: $args.new } }";
const BY_DELETING: &str = "{ tool: fs.delete, argument_map: { path: $args.new } }";

#[tokio::test(flavor = "multi_thread")]
async fn a_step_keeps_the_compensation_it_began_under() {
    let sandbox = tempfile::tempdir().unwrap();
    let root = sandbox.path().display().to_string();
    let upstream = UpstreamConfig {
        name: "fs".to_owned(),
        command: Some(env!("CARGO_BIN_EXE_reversi").to_owned()),
        args: ["connector", "fs", "--root", &root].map(str::to_owned).to_vec(),
        env: BTreeMap::new(),
        url: None,
        prefix: None,
    };
    let daemon = Daemon::start_with(Limits::default(), |config| config.upstreams = vec![upstream]).await;
    let call = json!({"tool": "crm.note", "reason": "a test", "args": {"old": "old.txt", "new": "new.txt"}});
    let done = json!({"status": "succeeded", "result": {"text": "of the first version"}});
    daemon.write_manifests(&undone_by(BY_WRITING));
    daemon.post(RELOAD, &daemon.admin, &json!({})).await.json(200);
    let steps = daemon.new_run("r").await;
    assert_eq!(daemon.post(&steps, &daemon.agent, &call).await.json(200)["decision"], "allow");
    // While the call is made, other arguments; once it has ended, another tool; a begin under that one; at last, none.
    daemon.write_manifests(&undone_by(BY_WRITING_ELSEWHERE));
    assert_eq!(daemon.post(RELOAD, &daemon.admin, &json!({})).await.json(200)["updated"], json!(["crm.note"]));
    let completed = daemon.post(&format!("{steps}/1/complete"), &daemon.agent, &done).await.json(200);
    assert_eq!(completed["recoverable"], true, "{completed}");
    std::fs::write(sandbox.path().join("new.txt"), "to be deleted").unwrap();
    daemon.write_manifests(&undone_by(BY_DELETING));
    daemon.post(RELOAD, &daemon.admin, &json!({})).await.json(200);
    daemon.post(&steps, &daemon.agent, &call).await.json(200);
    daemon.post(&format!("{steps}/2/complete"), &daemon.agent, &done).await.json(200);
    daemon.write_manifests("{ tool: fs.read_file, effect: read_only, permission: \"fs:read\" }");
    daemon.post(RELOAD, &daemon.admin, &json!({})).await.json(200);
    let plan = daemon.get("/v1/runs/r/plan", &daemon.operator).await.json(200);
    let tools: Vec<&Value> = plan["steps"].as_array().unwrap().iter().map(|step| &step["undo_tool"]).collect();
    assert_eq!(tools, ["fs.delete", "fs.write_file"], "{plan}");
    let mut report = daemon.post_text("/v1/runs/r/rollback", &daemon.operator, "").await.json(202);
    while report["status"] == "rolling_back" {
        report = daemon.get("/v1/runs/r/rollback", &daemon.operator).await.json(200);
    }
    assert_eq!(report["complete"], true, "{report}");
    let left: BTreeSet<String> =
        std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(left, BTreeSet::from(["old.txt".to_owned()]));
    assert_eq!(std::fs::read_to_string(sandbox.path().join("old.txt")).unwrap(), "of the first version");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sets_that_race_each_get_a_record_and_are_compared_with_the_one_before() {
    let daemon = Daemon::start().await;
    let mut racing = tokio::task::JoinSet::new();
    for version in 1..=10 {
        let manifests = load("tools.yaml", versioned(version).as_bytes()).unwrap();
        let set = ManifestSet::new(manifests.into_iter().map(|one| ("tools.yaml".to_owned(), one)).collect()).unwrap();
        let service = daemon.service();
        racing.spawn(async move { service.reload_manifests(&ReloadBy::system(), &set).await.unwrap() });
    }
    let mut done = racing.join_all().await;
    done.sort_by_key(|reloaded| reloaded.seq);
    assert_eq!((done[0].added.len(), done[0].removed.len(), done[0].updated.len()), (1, 3, 1), "{:?}", done[0]);
    for later in &done[1..] {
        assert!(later.changed && later.added.is_empty() && later.removed.is_empty(), "{later:?}");
        assert_eq!(later.updated, ["crm.write".parse().unwrap()]);
    }
    let loaded = daemon.loaded().await;
    let in_order: Vec<Value> = done.iter().map(|one| json!([one.seq, one.checksum])).collect();
    let recorded: Vec<Value> = loaded[1..].iter().map(|one| json!([one["seq"], one["body"]["set"]])).collect();
    assert_eq!(in_order, recorded);
    daemon.stop().await;
}

const RUNS: usize = 8;
const CALLS: usize = 40;
const RELOADS: u32 = 12;

/// Begins that race with reloads, answered one after the other in each run.
async fn begin_many(daemon: &Daemon, run: usize) {
    let steps = daemon.new_run(&format!("r{run}")).await;
    let call = json!({"tool": "crm.write", "reason": "a race", "args": {}});
    for _ in 0..CALLS {
        let begun = daemon.post(&steps, &daemon.agent, &call).await;
        // Too many reloads got in between: nothing was done.
        if begun.status.as_u16() != 503 {
            assert_eq!(begun.json(200)["decision"], "allow");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_begin_stands_on_its_side_of_a_reload() {
    let daemon = std::sync::Arc::new(Daemon::start().await);
    let file = daemon.manifests_dir().join("tools.yaml");
    let mut checksums = BTreeMap::new();
    for version in 1..=RELOADS {
        daemon.write_manifests(&versioned(version));
        let set = read(std::slice::from_ref(&file)).unwrap();
        let tool = set.get(&"crm.write".parse().unwrap()).unwrap().checksum().to_string();
        checksums.insert(set.checksum().to_string(), tool);
    }
    daemon.write_manifests(&versioned(1));
    daemon.post(RELOAD, &daemon.admin, &json!({})).await.json(200);
    let mut racing = tokio::task::JoinSet::new();
    for run in 0..RUNS {
        let daemon = std::sync::Arc::clone(&daemon);
        racing.spawn(async move { begin_many(&daemon, run).await });
    }
    let mut version = 1;
    while !racing.is_empty() {
        version = version % RELOADS + 1;
        daemon.write_manifests(&versioned(version));
        // Two at once: one of them finds the set in force.
        let reload = || daemon.post_text(RELOAD, &daemon.admin, "");
        let (one, two) = tokio::join!(reload(), reload());
        let changed = [one.json(200)["changed"].clone(), two.json(200)["changed"].clone()];
        assert_eq!(changed.iter().filter(|changed| **changed == json!(true)).count(), 1, "{changed:?}");
        while racing.try_join_next().map(Result::unwrap).is_some() {}
    }
    let (mut in_force, mut begun, mut under) = (Value::Null, 0, BTreeSet::new());
    for record in daemon.ledger().await {
        if record["type"] == "manifests.loaded" {
            in_force = json!([record["seq"], checksums.get(record["body"]["set"].as_str().unwrap())]);
        } else if record["type"] == "step.begun" {
            let body = &record["body"];
            assert_eq!(json!([body["config"], body["manifest"]]), in_force, "{record}");
            begun += 1;
            under.insert(body["config"].as_u64().unwrap());
        }
    }
    assert!(begun > RUNS * CALLS / 2 && under.len() > 3, "{begun} calls under {} sets were no race", under.len());
}
