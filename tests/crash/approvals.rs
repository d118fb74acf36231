//! An approval from the block to its use, by real processes: the daemon dies between the votes, and at every named place
//! of a vote; the call runs once.
use std::path::Path;
use std::time::{Duration, Instant};

use reversi::demo::api::Api;
use reversi::demo::daemon::{Daemon, Setting, Stage};
use serde_json::{Value, json};

const MANIFESTS: &str = r"
- tool: bank.transfer
  effect: irreversible
  permission: bank:write
  approval: { roles: [finance], quorum: 2, timeout: 1h }
";

/// Places that only a vote passes.
pub(crate) const AT_A_VOTE: &[&str] = &["approval.before_append", "approval.after_append"];

const PATIENCE: Duration = Duration::from_secs(120);

struct Story {
    stage: Stage,
    plans: Vec<String>,
    daemon: Option<Daemon>,
    deaths: usize,
    _dir: tempfile::TempDir,
}

impl Story {
    fn new(plans: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_reversi"));
        let stage = Stage::new(&root, binary, &[("bank.yaml", MANIFESTS)]).unwrap();
        let plans = plans.iter().rev().map(ToString::to_string).collect();
        Self { stage, plans, daemon: None, deaths: 0, _dir: dir }
    }

    /// A daemon that answers; the next plan is that of the next daemon.
    fn up(&mut self) -> String {
        if self.daemon.as_mut().is_some_and(Daemon::has_ended) {
            (self.daemon, self.deaths) = (None, self.deaths + 1);
        }
        if self.daemon.is_none() {
            let plan = self.plans.pop();
            let env = plan.into_iter().map(|plan| ("REVERSI_KILL_AT".to_owned(), plan)).collect();
            self.daemon = Some(self.stage.start(&Setting { env, ..Setting::default() }).unwrap());
        }
        self.daemon.as_ref().unwrap().url.clone()
    }

    fn kill(&mut self) {
        self.daemon.take().unwrap().kill().unwrap();
    }

    fn admin(&mut self) -> Api {
        self.up();
        self.stage.admin(self.daemon.as_ref().unwrap()).unwrap()
    }

    async fn key(&mut self, actor: &str, role: &str, groups: &[&str]) -> String {
        let body = json!({ "actor": actor, "roles": [role], "groups": groups });
        self.admin().must("/v1/keys", &body).await.unwrap()["key"].as_str().unwrap().to_owned()
    }

    /// Sends until it is answered.
    async fn post(&mut self, key: &str, path: &str, body: &Value) -> (u16, Value) {
        let since = Instant::now();
        loop {
            let api = Api::new(&self.up(), key).unwrap();
            match api.post(path, body, &[]).await {
                Ok((503, _)) | Err(_) => {}
                Ok(answer) => return answer,
            }
            assert!(since.elapsed() < PATIENCE, "{path} is never answered");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The story of the issue, with a kill between the votes, and with those that the plans name.
async fn told(plans: &[&str]) {
    let mut story = Story::new(plans);
    let agent = story.key("bot-1", "agent", &[]).await;
    let (fred, fiona) =
        (story.key("fred", "approver", &["finance"]).await, story.key("fiona", "approver", &["finance"]).await);
    let operator = story.key("olga", "operator", &[]).await;
    let body = json!({ "run_id": "r", "permissions": ["bank:write"] });
    assert_eq!(story.post(&agent, "/v1/runs", &body).await.0, 201);
    let call = json!({ "tool": "bank.transfer", "reason": "the invoice is due", "args": { "amount": 2500 } });
    let (_, blocked) = story.post(&agent, "/v1/runs/r/steps", &call).await;
    assert_eq!((&blocked["decision"], &blocked["codes"]), (&json!("block"), &json!(["approval.required"])));
    let id = blocked["approval_id"].as_str().unwrap().to_owned();
    let approve = format!("/v1/approvals/{id}/approve");
    let (status, first) = story.post(&fred, &approve, &json!({ "reason": "looked at the invoice" })).await;
    assert_eq!((status, &first["status"]), (200, &json!("pending")), "{first}");
    story.kill();
    let (status, granted) = story.post(&fiona, &approve, &json!({})).await;
    // A vote whose answer was lost was cast all the same, and casting it again changes nothing.
    assert_eq!((status, &granted["status"]), (200, &json!("approved")), "{granted}");
    let votes: Vec<&str> = granted["votes"].as_array().unwrap().iter().map(|v| v["person"].as_str().unwrap()).collect();
    assert_eq!(votes, ["fred", "fiona"]);
    let mut named = call.clone();
    named["approval_id"] = json!(id);
    let (_, allowed) = story.post(&agent, "/v1/runs/r/steps", &named).await;
    assert_eq!((&allowed["decision"], &allowed["approval_id"]), (&json!("allow"), &json!(id)), "{allowed}");
    let complete = format!("/v1/runs/r/steps/{}/complete", allowed["step"]);
    assert_eq!(story.post(&agent, &complete, &json!({ "status": "succeeded" })).await.0, 200);
    let (_, again) = story.post(&agent, "/v1/runs/r/steps", &named).await;
    assert_eq!((&again["decision"], &again["codes"]), (&json!("block"), &json!(["approval.used"])));
    let (status, closed) = story.post(&fred, &approve, &json!({})).await;
    assert_eq!((status, &closed["status"]), (200, &json!("consumed")), "a vote that was cast before: {closed}");
    let (status, _) = story.post(&operator, "/v1/ledger/checkpoint", &json!({})).await;
    assert_eq!(status, 405);
    assert_eq!(story.deaths, plans.len(), "the planned places were not all passed: {plans:?}");
    story.daemon.take().unwrap().stop().unwrap();
    let data = story.stage.data().display().to_string();
    for args in [["verify", &data], ["doctor", &data]] {
        let (code, out, err) = story.stage.reversi(&args).unwrap();
        assert_eq!(code, 0, "{args:?}\n{out}{err}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_survives_the_daemon_and_is_used_once() {
    told(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_is_killed_at_every_place() {
    for place in AT_A_VOTE {
        told(&[&format!("{place}:1")]).await;
    }
}
