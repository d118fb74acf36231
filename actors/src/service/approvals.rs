//! Approvals for edges: what is asked, who says what to it, and waiting for that. Must not know any protocol.
use std::sync::Arc;

use reversi_proto::access::Principal;
use reversi_proto::aggregate::Aggregate as _;
use reversi_proto::approval::{Approval, ApprovalCommand, ApprovalStatus, ApprovalView, Say};
use reversi_proto::event::v1::Role;
use reversi_proto::ids::{ApprovalId, RunId, StreamId, ToolName};
use reversi_proto::run::{PreApprove, Run, RunCommand};
use reversi_proto::time::Timestamp;

use super::{Result, Service, check_text, need};
use crate::approvals::ApprovalKey;
use crate::codec::decode;
use crate::error::{Code, ServiceError};
use crate::ids::Mint as _;
use crate::world::World;

/// Longest wait for a change, in milliseconds.
pub const APPROVAL_WAIT_MS_MAX: u64 = 25_000;

/// Which approvals a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ApprovalFilter {
    /// Those that wait for votes, escalated ones too.
    #[default]
    Pending,
    /// Those that are granted and not used yet.
    Approved,
    /// All that ever were.
    All,
}

/// What its asker may know of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalShown {
    /// Whoever decides or audits sees everything.
    Full(Box<ApprovalView>),
    /// The agent that asked sees how it stands.
    Own {
        /// Which.
        approval_id: ApprovalId,
        /// Its status.
        status: &'static str,
        /// When the next thing happens by itself.
        deadline: Option<Timestamp>,
    },
}

/// A person's word on an approval.
#[derive(Debug, Clone)]
pub enum Word {
    /// Yes.
    Approve,
    /// No.
    Deny,
    /// The yes is taken back.
    Withdraw,
    /// The request or grant is taken away.
    Revoke,
    /// Granted in an emergency, in place of the quorum.
    BreakGlass,
    /// A broken glass was looked at.
    Review,
}

impl Service {
    /// Approvals in the order of their making, after `after`. `mine`: only those on which the asker's word counts now.
    pub async fn approvals(
        &self,
        who: &Principal,
        (filter, mine): (ApprovalFilter, bool),
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Result<Vec<ApprovalView>> {
        need_one(who, &[Role::Auditor, Role::Approver, Role::Breakglass])?;
        let (world, who) = (Arc::clone(&self.world), who.clone());
        let list = tokio::task::spawn_blocking(move || list(&world, &who, (filter, mine), after, limit));
        list.await.map_err(|error| ServiceError::internal(&error))?
    }

    /// One approval; others' look to an agent like ones that don't exist.
    pub async fn approval(&self, who: &Principal, id: &ApprovalId) -> Result<ApprovalShown> {
        let key = self.approval_key(who, id).await?;
        self.shown(who, &key).await
    }

    /// The same, once it is no longer pending or the time is over.
    pub async fn approval_once_decided(&self, who: &Principal, id: &ApprovalId, wait_ms: u64) -> Result<ApprovalShown> {
        let key = self.approval_key(who, id).await?;
        let until = self.world.clock.now().plus_ms(wait_ms.min(APPROVAL_WAIT_MS_MAX));
        let mut changes = self.world.asked.changes();
        let over = self.world.clock.sleep_until(until);
        tokio::pin!(over);
        loop {
            // Seen before the look, so that a change after it is not missed.
            changes.borrow_and_update();
            let pending = self.world.query::<Approval, _>(&key, |it| it.status() == ApprovalStatus::Open).await?;
            if !pending {
                return self.shown(who, &key).await;
            }
            tokio::select! {
                () = &mut over => return self.shown(who, &key).await,
                // The sender lives as long as the world does.
                _ = changes.changed() => {}
            }
        }
    }

    /// A person says something to an approval.
    pub async fn say(
        &self,
        who: &Principal,
        id: &ApprovalId,
        word: Word,
        (note, fingerprint): (Option<String>, Option<String>),
    ) -> Result<ApprovalView> {
        match word {
            Word::Approve | Word::Deny | Word::Withdraw => need(who, Role::Approver)?,
            Word::Revoke => need_one(who, &[Role::Approver, Role::Operator, Role::Admin])?,
            Word::BreakGlass => need(who, Role::Breakglass)?,
            Word::Review => need_one(who, &[Role::Approver, Role::Auditor])?,
        }
        check_text("reason", note.as_deref().unwrap_or(""))?;
        let say = |note| Say { who: who.clone(), note, fingerprint };
        let command = match word {
            Word::Approve => ApprovalCommand::Approve(say(note)),
            Word::Deny => ApprovalCommand::Deny(say(note)),
            Word::Withdraw => ApprovalCommand::Withdraw(who.clone()),
            Word::Revoke => ApprovalCommand::Revoke(who.clone(), required("reason", note)?),
            Word::BreakGlass => ApprovalCommand::BreakGlass(who.clone(), required("reason", note)?),
            Word::Review => ApprovalCommand::Review(who.clone(), required("reason", note)?),
        };
        let key = self.world.approval_key(id).ok_or_else(|| no_approval(id))?;
        self.world.ask::<Approval>(&key, who.actor.clone(), command).await?;
        self.view(&key).await
    }

    /// An operator's yes to the next call of a tool in a run, or to the next undo by it.
    pub async fn pre_approve(
        &self,
        who: &Principal,
        run: &RunId,
        tool: ToolName,
        note: Option<String>,
    ) -> Result<ApprovalView> {
        need(who, Role::Operator)?;
        self.must_exist(run)?;
        check_text("note", note.as_deref().unwrap_or(""))?;
        let approval = self.world.ids.approval_id();
        let pre = PreApprove { approval: approval.clone(), tool, who: who.clone(), note };
        self.world.ask::<Run>(run, who.actor.clone(), RunCommand::PreApprove(pre)).await?;
        self.view(&ApprovalKey(run.clone(), approval)).await
    }

    async fn approval_key(&self, who: &Principal, id: &ApprovalId) -> Result<ApprovalKey> {
        let key = self.world.approval_key(id).ok_or_else(|| no_approval(id))?;
        let reads_all = [Role::Auditor, Role::Approver, Role::Breakglass].into_iter().any(|role| who.has(role));
        if reads_all {
            return Ok(key);
        }
        need(who, Role::Agent)?;
        let own = self.must_own(who, &key.0).await.is_ok();
        if own { Ok(key) } else { Err(no_approval(id)) }
    }

    async fn shown(&self, who: &Principal, key: &ApprovalKey) -> Result<ApprovalShown> {
        let view = self.view(key).await?;
        if who.has(Role::Agent) {
            let ApprovalView { approval_id, status, deadline, .. } = view;
            return Ok(ApprovalShown::Own { approval_id, status, deadline });
        }
        Ok(ApprovalShown::Full(Box::new(view)))
    }

    async fn view(&self, key: &ApprovalKey) -> Result<ApprovalView> {
        let archive = self.world.globals().archive;
        let view = self.world.query::<Approval, _>(key, move |approval| approval.view(&archive)).await?;
        view.ok_or_else(|| no_approval(&key.1))
    }
}

/// Folded from the journal, so that looking at ten thousand of them starts no actor.
fn list(
    world: &World,
    who: &Principal,
    (filter, mine): (ApprovalFilter, bool),
    mut after: Option<ApprovalId>,
    limit: usize,
) -> Result<Vec<ApprovalView>> {
    let (globals, now) = (world.globals(), world.clock.now());
    let mut found = Vec::new();
    while found.len() < limit {
        let keys = match filter {
            ApprovalFilter::All => all_after(world, after.as_ref(), limit)?,
            ApprovalFilter::Pending | ApprovalFilter::Approved => world.asked.page(after.as_ref(), limit),
        };
        let Some(last) = keys.last() else { break };
        after = Some(last.1.clone());
        for key in keys {
            let approval = fold(world, &key)?;
            let wanted = match filter {
                ApprovalFilter::Pending => approval.status() == ApprovalStatus::Open,
                ApprovalFilter::Approved => approval.status() == ApprovalStatus::Approved,
                ApprovalFilter::All => true,
            };
            if wanted && (!mine || approval.may_decide(who, &globals.access, now)) {
                found.extend(approval.view(&globals.archive));
            }
        }
    }
    found.truncate(limit);
    Ok(found)
}

fn all_after(world: &World, after: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalKey>> {
    let after = after.cloned().map(StreamId::Approval);
    let streams = world.journal.streams("approval/", after.as_ref(), limit)?;
    let key = |stream| match stream {
        StreamId::Approval(id) => world.approval_key(&id),
        StreamId::Run(_)
        | StreamId::Undo(..)
        | StreamId::Claim(_)
        | StreamId::Halt
        | StreamId::Config
        | StreamId::Access
        | StreamId::Ledger => None,
    };
    Ok(streams.into_iter().filter_map(key).collect())
}

fn fold(world: &World, key: &ApprovalKey) -> Result<Approval> {
    let mut approval = Approval::new(key.0.clone(), key.1.clone());
    for record in world.journal.load(&StreamId::Approval(key.1.clone()), 0)? {
        let decoded = decode(&*world.journal, &record).map_err(|error| ServiceError::internal(&error))?;
        approval.evolve(&decoded.meta, &decoded.event);
    }
    Ok(approval)
}

pub(super) fn need_one(who: &Principal, roles: &[Role]) -> Result<()> {
    if roles.iter().any(|role| who.has(*role)) {
        return Ok(());
    }
    let words: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
    Err(ServiceError::new(Code::RoleMissing, format!("this needs a key with one of the roles {}", words.join(", "))))
}

fn required(name: &str, text: Option<String>) -> Result<String> {
    let text = text.filter(|text| !text.trim().is_empty());
    text.ok_or_else(|| ServiceError::new(Code::RequestInvalid, format!("{name}: say why, in a sentence")))
}

fn no_approval(id: &ApprovalId) -> ServiceError {
    ServiceError::new(Code::ApprovalNotFound, format!("approval {id} does not exist"))
}
