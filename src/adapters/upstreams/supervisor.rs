//! One upstream: connect, list its tools, hand out the connection, notice its end, connect again with backoff. A call
//! that has no answer in time ends together with the child process it runs in. Logs names and counts, never what was
//! called with or answered.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reversi_actors::ports::{CallOutcome, ToolCall};
use reversi_proto::hash::hex;
use reversi_proto::ids::ToolName;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientConfig, ClientRequest, Implementation};
use rmcp::model::{RequestMetaObject, ServerResult};
use rmcp::service::{NotificationContext, Peer, PeerRequestOptions, RunningService, ServiceError};
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::process::Child;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::config::UpstreamConfig;
use super::process::Group;
use super::{KEY_META, http, outcome, pause, process};

/// A first start may have to download the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server may take to end by itself once its input is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer waits would overflow the clock.
const TIMEOUT_LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
const BACKOFF_FIRST: Duration = Duration::from_millis(250);
const BACKOFF_LONGEST: Duration = Duration::from_secs(30);
/// A connection that lasted this long was a good one: the next failure starts over.
const GOOD_AFTER: Duration = Duration::from_secs(10);
/// What rmcp may add to a timeout for telling the server that the request is cancelled.
const CANCEL_GRACE: Duration = Duration::from_millis(500);

/// The server's tool names; true where the output schema is a wrapper around the result.
type Known = BTreeMap<String, bool>;

/// One configured server and what is known about it.
pub(super) struct Upstream {
    config: UpstreamConfig,
    pid_file: PathBuf,
    tools_file: PathBuf,
    /// Kept while it is down: a tool that can't be called just now is still this upstream's.
    known: RwLock<Known>,
    link: watch::Sender<Link>,
    earlier_over: AtomicBool,
    stopping: watch::Sender<bool>,
    stopped: watch::Sender<bool>,
}

/// The state of the connection.
#[derive(Clone)]
enum Link {
    Starting,
    Up(Live),
    Down(String),
}

/// A connection that calls can use.
#[derive(Clone)]
struct Live {
    peer: Peer<RoleClient>,
    /// The child process of a stdio server.
    group: Option<Arc<Group>>,
}

/// A connection with all that belongs to it.
struct Session {
    service: RunningService<RoleClient, Handler>,
    tools_changed: Arc<Notify>,
    child: Option<(Child, Arc<Group>)>,
}

struct Handler {
    tools_changed: Arc<Notify>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.client_info = Implementation::new("reversi", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.tools_changed.notify_one();
    }
}

impl Upstream {
    pub(super) fn new(config: UpstreamConfig, state_dir: &Path) -> Self {
        let hash: [u8; 32] = Sha256::digest(config.name.as_bytes()).into();
        let file = |end: &str| state_dir.join(format!("{}.{end}", &hex(&hash)[..16]));
        let tools_file = file("tools.json");
        // After a restart it is known at once who serves a tool, before the server has answered: an undo that goes
        // on then must not find that nobody does.
        let known = std::fs::read(&tools_file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Self {
            config,
            pid_file: file("pid"),
            tools_file,
            known: RwLock::new(known.unwrap_or_default()),
            link: watch::Sender::new(Link::Starting),
            earlier_over: AtomicBool::new(false),
            stopping: watch::Sender::new(false),
            stopped: watch::Sender::new(false),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(*self.link.borrow(), Link::Up(_))
    }

    pub(super) fn earlier_calls_are_over(&self) -> bool {
        self.earlier_over.load(Ordering::Acquire)
    }

    /// The server's own name of a tool, if it serves it.
    pub(super) fn serves(&self, tool: &str) -> Option<String> {
        let own = tool.strip_prefix(self.config.prefix.as_deref().unwrap_or(""))?;
        self.known.read().unwrap_or_else(PoisonError::into_inner).contains_key(own).then(|| own.to_owned())
    }

    /// Names as manifests use them. A name that no manifest can have is left out.
    pub(super) fn tools(&self) -> Vec<ToolName> {
        let prefix = self.config.prefix.as_deref().unwrap_or("");
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.keys().filter_map(|own| format!("{prefix}{own}").parse().ok()).collect()
    }

    pub(super) async fn settled(&self) {
        // An error means that the sender is gone, which it isn't while `self` lives.
        let _ = self.link.subscribe().wait_for(|link| !matches!(link, Link::Starting)).await;
    }

    pub(super) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub(super) async fn stopped(&self) {
        becomes_true(&self.stopped).await;
    }

    /// Whether the file says which child of this very upstream runs.
    pub(super) fn keeps(&self, pid_file: &Path) -> bool {
        self.config.command.is_some() && self.pid_file == pid_file
    }

    /// Ends the child of an earlier daemon, if one still runs.
    pub(super) async fn end_leftover(&self) {
        if self.config.command.is_none() {
            return;
        }
        match process::end_leftover(&self.pid_file).await {
            Ok(()) => self.earlier_over.store(true, Ordering::Release),
            Err(e) => tracing::warn!(upstream = self.name(), error = %e, "a child of an earlier daemon can't be ended"),
        }
    }

    /// Starts the task that keeps the connection.
    pub(super) fn supervise(self: Arc<Self>) {
        tokio::spawn(async move {
            let mut failures = 0;
            while !*self.stopping.borrow() {
                let started = Instant::now();
                let reason = self.connect_and_hold().await;
                failures = if started.elapsed() >= GOOD_AFTER { 0 } else { failures + 1 };
                self.link.send_replace(Link::Down(reason));
                let wait = backoff(failures);
                if !*self.stopping.borrow() {
                    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                    tracing::warn!(upstream = self.name(), wait_ms, "no connection; trying again");
                }
                tokio::select! {
                    () = pause(wait) => {}
                    () = becomes_true(&self.stopping) => {}
                }
            }
            if self.config.command.is_some() {
                // A stop in the middle of connecting leaves a child that is only written down.
                let _ = process::end_leftover(&self.pid_file).await;
            }
            self.stopped.send_replace(true);
        });
    }

    /// Calls a tool by the server's own name for it.
    pub(super) async fn call(&self, tool: String, call: ToolCall) -> CallOutcome {
        let deadline = Instant::now() + Duration::from_millis(call.timeout_ms).min(TIMEOUT_LONGEST);
        let mut link = self.link.subscribe();
        let settled = timeout_at(deadline, link.wait_for(|link| !matches!(link, Link::Starting))).await;
        let live = match settled.map(|link| link.map(|link| Link::clone(&link))) {
            Ok(Ok(Link::Up(live))) if !live.peer.is_transport_closed() => live,
            Ok(Ok(Link::Down(reason))) => return self.not_called(&reason),
            Ok(Ok(Link::Up(_) | Link::Starting) | Err(_)) => return self.not_called("the connection has just ended"),
            Err(_) => return self.not_called("it is still starting"),
        };
        let Value::Object(arguments) = call.args.value() else {
            return outcome::known("the arguments of a tool call must be an object");
        };
        let wrapped = self.wraps(&tool);
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let options = options(call.idempotency_key, deadline);
        match timeout_at(deadline + CANCEL_GRACE, send(&live.peer, params, options)).await {
            Ok(Ok(result)) => outcome::of_result(result, wrapped),
            Ok(Err(e)) => {
                if outcome::is_lost(&e) {
                    self.make_sure_it_is_over(&live).await;
                }
                match e {
                    ServiceError::Timeout { .. } => self.no_answer(call.timeout_ms),
                    e => outcome::of_error(&e),
                }
            }
            Err(_) => {
                self.make_sure_it_is_over(&live).await;
                self.no_answer(call.timeout_ms)
            }
        }
    }

    fn not_called(&self, reason: &str) -> CallOutcome {
        outcome::known(&format!("upstream {} is not connected: {reason}", self.name()))
    }

    fn no_answer(&self, timeout_ms: u64) -> CallOutcome {
        outcome::unknown(&format!("upstream {} gave no answer within {timeout_ms} ms", self.name()))
    }

    /// A child that may still be executing the call is killed; over HTTP nobody can do that.
    async fn make_sure_it_is_over(&self, live: &Live) {
        if let Some(group) = &live.group
            && let Err(e) = process::end(group).await
        {
            tracing::error!(upstream = self.name(), error = %e, "a child can't be killed");
        }
    }

    async fn connect_and_hold(&self) -> String {
        self.link.send_replace(Link::Starting);
        let connected = tokio::select! {
            connected = self.connect() => connected,
            () = becomes_true(&self.stopping) => return "the daemon is stopping".to_owned(),
        };
        match connected {
            Ok(session) => {
                self.hold(session).await;
                "the connection was lost".to_owned()
            }
            Err(reason) => reason,
        }
    }

    async fn connect(&self) -> Result<Session, String> {
        let tools_changed = Arc::new(Notify::new());
        let handler = Handler { tools_changed: tools_changed.clone() };
        let (service, child) = if let Some(command) = &self.config.command {
            let (service, child) = self.connect_child(command, handler).await?;
            (service, Some(child))
        } else {
            let url = self.config.url.as_deref().unwrap_or_default();
            let transport = http::transport(url).map_err(|e| outcome::chain(&e))?;
            (handshake(handler.serve(transport)).await?, None)
        };
        let session = Session { service, tools_changed, child };
        let listed = self.refresh(session.service.peer()).await;
        if let Err(reason) = listed {
            let Session { mut service, child, .. } = session;
            let _ = service.close_with_timeout(CLOSE_TIMEOUT).await;
            self.close_child(child).await;
            return Err(reason);
        }
        Ok(session)
    }

    async fn connect_child(
        &self,
        command: &str,
        handler: Handler,
    ) -> Result<(RunningService<RoleClient, Handler>, (Child, Arc<Group>)), String> {
        // Also after a failed attempt to end it at the start, and after a child that outlived its own end here.
        process::end_leftover(&self.pid_file).await.map_err(|e| e.to_string())?;
        self.earlier_over.store(true, Ordering::Release);
        let (mut child, group) = process::spawn(command, &self.config.args, &self.config.env)
            .map_err(|e| format!("the program {command:?} can't be started: {e}"))?;
        // Dropping the child kills its leader only, so every way out of here ends the group.
        let connected = match (process::remember(&self.pid_file, &group), child.stdout.take(), child.stdin.take()) {
            (Ok(()), Some(stdout), Some(stdin)) => handshake(handler.serve((stdout, stdin))).await,
            (Err(e), _, _) => Err(format!("the file of running children can't be written: {e}")),
            (Ok(()), _, _) => Err("the child has no pipes".to_owned()),
        };
        match connected {
            Ok(service) => Ok((service, (child, Arc::new(group)))),
            Err(reason) => {
                self.end_child(&mut child, &group).await;
                Err(reason)
            }
        }
    }

    /// Keeps a connection until it ends, whichever side ends it.
    async fn hold(&self, session: Session) {
        let Session { service, tools_changed, mut child } = session;
        let peer = service.peer().clone();
        let group = child.as_ref().map(|(_, group)| group.clone());
        let cancel = service.cancellation_token();
        let mut service_over = pin!(service.waiting());
        tracing::info!(upstream = self.name(), tools = self.tools().len(), "connected");
        self.link.send_replace(Link::Up(Live { peer: peer.clone(), group }));
        let mut running = true;
        loop {
            let child_over = async {
                match &mut child {
                    Some((child, _)) => drop(child.wait().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = becomes_true(&self.stopping) => break,
                () = child_over => break,
                _ = &mut service_over => {
                    running = false;
                    break;
                }
                () = tools_changed.notified() => {
                    if self.refresh(&peer).await.is_err() {
                        tracing::warn!(upstream = self.name(), "the changed tool list can't be read");
                    }
                }
            }
        }
        self.link.send_replace(Link::Starting);
        if running {
            // Closes the child's input, which asks it to end.
            cancel.cancel();
            let _ = timeout(CLOSE_TIMEOUT, service_over).await;
        }
        self.close_child(child).await;
    }

    /// Lets a child end by itself for a moment; afterwards nothing of it runs.
    async fn close_child(&self, child: Option<(Child, Arc<Group>)>) {
        if let Some((mut child, group)) = child {
            let _ = timeout(CLOSE_TIMEOUT, child.wait()).await;
            self.end_child(&mut child, &group).await;
        }
    }

    async fn end_child(&self, child: &mut Child, group: &Group) {
        match process::end(group).await {
            Ok(()) => {
                let _ = child.wait().await;
                let _ = std::fs::remove_file(&self.pid_file);
            }
            Err(e) => tracing::error!(upstream = self.name(), error = %e, "a child can't be killed"),
        }
    }

    async fn refresh(&self, peer: &Peer<RoleClient>) -> Result<(), String> {
        let listed = timeout(LIST_TIMEOUT, peer.list_all_tools()).await;
        let tools = listed.map_err(|_| "the tool list took too long".to_owned())?.map_err(|e| outcome::chain(&e))?;
        let known: Known = tools
            .iter()
            .map(|tool| (tool.name.to_string(), outcome::is_wrapper(tool.output_schema.as_deref())))
            .collect();
        if let Err(e) = replace_file(&self.tools_file, &known) {
            tracing::warn!(upstream = self.name(), error = %e, "the tool list can't be kept for the next start");
        }
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    fn wraps(&self, tool: &str) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(tool).copied().unwrap_or(false)
    }
}

async fn handshake<F>(serve: F) -> Result<RunningService<RoleClient, Handler>, String>
where
    F: Future<Output = Result<RunningService<RoleClient, Handler>, rmcp::service::ClientInitializeError>>,
{
    let done = timeout(CONNECT_TIMEOUT, serve).await;
    done.map_err(|_| "the handshake took too long".to_owned())?.map_err(|e| outcome::chain(&e))
}

async fn becomes_true(flag: &watch::Sender<bool>) {
    // An error would mean that the sender is gone, which the reference rules out.
    let _ = flag.subscribe().wait_for(|value| *value).await;
}

async fn send(
    peer: &Peer<RoleClient>,
    params: CallToolRequestParams,
    options: PeerRequestOptions,
) -> Result<ServerResult, ServiceError> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    peer.send_request_with_option(request, options).await?.await_response().await
}

fn options(key: Option<String>, deadline: Instant) -> PeerRequestOptions {
    let options = PeerRequestOptions::with_timeout(deadline.saturating_duration_since(Instant::now()));
    match key {
        None => options,
        Some(key) => {
            let mut meta = RequestMetaObject::new();
            meta.0.insert(KEY_META.to_owned(), json!(key));
            options.with_meta(meta)
        }
    }
}

/// The pause after a number of failures in a row.
fn backoff(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    BACKOFF_FIRST.saturating_mul(doubled).min(BACKOFF_LONGEST)
}

fn replace_file(file: &Path, known: &Known) -> std::io::Result<()> {
    let new = file.with_extension("json.new");
    std::fs::write(&new, serde_json::to_vec(known)?)?;
    std::fs::rename(new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_a_bound() {
        let pauses: Vec<u128> = (0..10).map(|failures| backoff(failures).as_millis()).collect();
        assert_eq!(pauses, [250, 250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        assert_eq!(backoff(u32::MAX), BACKOFF_LONGEST);
    }
}
