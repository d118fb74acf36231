//! One approval request: who was asked for what, who said yes, until when. Must not know the run around it: what a
//! grant is good for is the Run's and the Undo's to say, who may vote is a fact.
mod decide;
mod fold;
mod rules;
mod view;

use std::sync::Arc;

use crate::access::{Access, Principal};
use crate::aggregate::{Aggregate, Decision};
use crate::canonical::Canonical;
use crate::event::v1::Target;
use crate::event::{ApprovalEvent, Event, Meta, StepEvent, UndoEvent};
use crate::hash::Hash;
use crate::ids::{ActorId, ApprovalId, KeyId, RunId, Seq, StepNo, StreamId, ToolName};
use crate::time::Timestamp;
use crate::wake::Wake;

pub use rules::{Rules, merge};
pub use view::{ApprovalView, Approver, Preview, VoteView, escaped};

/// A grant that nobody uses is void after this time, in milliseconds.
pub const USE_WITHIN_MS: u64 = 15 * 60_000;
/// After the glass was broken another person reviews it within this time, in milliseconds.
pub const REVIEW_WITHIN_MS: u64 = 72 * 3_600_000;
/// Shortest reason for breaking the glass, in characters.
pub const GLASS_REASON_CHARS_MIN: usize = 20;

/// State of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    id: ApprovalId,
    run: RunId,
    ask: Option<Ask>,
    status: ApprovalStatus,
    level: u32,
    deadline: Option<Timestamp>,
    use_by: Option<Timestamp>,
    votes: Vec<Vote>,
    glass: Glass,
    /// Who ended it, and their words.
    end: Option<(String, String)>,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// A call or an undo.
    pub target: Target,
    /// The blocked step, or the step to be undone; 0 for a pre-approval.
    pub step: StepNo,
    /// What would be called.
    pub tool: ToolName,
    /// What it is bound to; None for a pre-approval, which any call of the tool may use.
    pub fingerprint: Option<Hash>,
    /// Checksum of the manifest that it is bound to.
    pub manifest: Option<Hash>,
    /// seq of the `manifests.loaded` that it was asked under.
    pub config: Seq,
    /// The rules, as merged when it was asked.
    pub rules: Rules,
    /// Who asked.
    pub actor: ActorId,
    /// The person behind them, whose own vote does not count.
    pub requester: Option<String>,
    /// The asker's words.
    pub reason: String,
    /// The full arguments, as long as they are kept.
    pub args: Option<Canonical>,
    /// When.
    pub at: Timestamp,
}

/// One yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vote {
    /// Whose.
    pub person: String,
    /// In whose place.
    pub on_behalf_of: Option<String>,
    /// By which key.
    pub key: KeyId,
    /// Their words.
    pub note: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApprovalStatus {
    /// No record yet.
    Absent,
    /// Waits for votes.
    Open,
    /// Granted: may be used once.
    Approved,
    /// Used.
    Consumed,
    /// Somebody said no.
    Denied,
    /// Nobody answered in time, or nobody used it in time.
    Expired,
    /// Taken away.
    Revoked,
    /// What it was for can't happen any more.
    Cancelled,
}

impl ApprovalStatus {
    /// The word that stands on the wire; an escalated request is pending, its level tells.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Open => "pending",
            Self::Approved => "approved",
            Self::Consumed => "consumed",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Cancelled => "cancelled",
        }
    }

    /// It may still be used, now or later.
    pub fn is_alive(self) -> bool {
        match self {
            Self::Open | Self::Approved => true,
            Self::Absent | Self::Consumed | Self::Denied | Self::Expired | Self::Revoked | Self::Cancelled => false,
        }
    }
}

/// Whether the glass was broken, and what became of the review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Glass {
    /// It was not.
    Whole,
    /// It was, and another person owes a review.
    Broken {
        /// Who did.
        person: String,
        /// When.
        at: Timestamp,
        /// Why.
        reason: String,
        /// When the review is due.
        review_by: Timestamp,
        /// It was not done by then.
        overdue: bool,
    },
    /// It was, and another person looked at it.
    Reviewed {
        /// Who broke it.
        person: String,
        /// When they did.
        at: Timestamp,
        /// Who reviewed.
        by: String,
        /// What they found.
        note: String,
    },
}

/// What a request is told.
#[derive(Debug, Clone)]
pub enum ApprovalCommand {
    /// Yes.
    Approve(Say),
    /// No.
    Deny(Say),
    /// A voter takes the yes back.
    Withdraw(Principal),
    /// A voter or an admin takes the request or the grant away.
    Revoke(Principal, String),
    /// One person grants it in place of the quorum.
    BreakGlass(Principal, String),
    /// Another person has looked at a broken glass.
    Review(Principal, String),
    /// A deadline has passed.
    Fire,
}

/// A vote as it comes in.
#[derive(Debug, Clone)]
pub struct Say {
    /// Whose.
    pub who: Principal,
    /// Their words.
    pub note: Option<String>,
    /// The short fingerprint of what they saw; refused if it is another one.
    pub fingerprint: Option<String>,
}

/// What a request must know of the world.
#[derive(Debug, Clone)]
pub struct ApprovalFacts {
    /// Who may.
    pub access: Arc<Access>,
    /// Version of the `access` stream.
    pub access_version: Option<Seq>,
    /// Why nothing may begin, if that is so.
    pub halted: Option<String>,
    /// Version of the `halt` stream.
    pub halt_version: Option<Seq>,
    /// Version of the run's stream: every record of a run expects it.
    pub run_version: Seq,
}

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalReject {
    /// 404.
    #[error("approval {0} does not exist")]
    Absent(ApprovalId),
    /// 409.
    #[error("approval {approval} is {status} and takes no {what}")]
    Closed {
        /// Which.
        approval: ApprovalId,
        /// Its status.
        status: &'static str,
        /// What was wanted.
        what: &'static str,
    },
    /// 403.
    #[error("this request needs an approver who holds one of {}; {person} holds none of them now", listed(.roles))]
    NotEligible {
        /// Who.
        person: String,
        /// What is asked for.
        roles: Vec<String>,
    },
    /// 403.
    #[error("{person} is behind the request and can't decide on it; another person must")]
    OwnRequest {
        /// Who.
        person: String,
    },
    /// 403.
    #[error("agents don't decide on approvals; use a person's key with the role approver")]
    Agent,
    /// 409.
    #[error("{person} has not voted for approval {approval}, so there is nothing to withdraw")]
    NoVote {
        /// Which.
        approval: ApprovalId,
        /// Who.
        person: String,
    },
    /// 403.
    #[error("only a person who voted for approval {approval}, or an admin, may revoke it")]
    NotRevoker {
        /// Which.
        approval: ApprovalId,
    },
    /// 409.
    #[error("approval {approval} has the fingerprint {expected}, not {got}: look at it again before you vote")]
    Fingerprint {
        /// Which.
        approval: ApprovalId,
        /// The request's.
        expected: String,
        /// The voter's.
        got: String,
    },
    /// 422.
    #[error("breaking the glass needs a reason of at least {GLASS_REASON_CHARS_MIN} characters, got {got}")]
    ReasonTooShort {
        /// How many there were.
        got: usize,
    },
    /// 423.
    #[error("calls like this one are halted ({reason}); nothing is granted in an emergency until that is lifted")]
    Halted {
        /// Why.
        reason: String,
    },
    /// 409.
    #[error("a review of what {person} did before is overdue; until somebody has done it, they can't break the glass")]
    ReviewOverdue {
        /// Who.
        person: String,
    },
    /// 409.
    #[error("no review is owed for approval {approval}")]
    NoReview {
        /// Which.
        approval: ApprovalId,
    },
}

fn listed(roles: &[String]) -> String {
    if roles.is_empty() { "the role approver".to_owned() } else { roles.join(", ") }
}

impl Approval {
    /// A request without records.
    pub fn new(run: RunId, id: ApprovalId) -> Self {
        Self {
            id,
            run,
            ask: None,
            status: ApprovalStatus::Absent,
            level: 0,
            deadline: None,
            use_by: None,
            votes: Vec::new(),
            glass: Glass::Whole,
            end: None,
        }
    }

    /// Its id.
    pub fn id(&self) -> &ApprovalId {
        &self.id
    }
    /// The run that it belongs to.
    pub fn run(&self) -> &RunId {
        &self.run
    }
    /// What was asked.
    pub fn ask(&self) -> Option<&Ask> {
        self.ask.as_ref()
    }
    /// Where it stands.
    pub fn status(&self) -> ApprovalStatus {
        self.status
    }
    /// Levels that it has climbed.
    pub fn level(&self) -> u32 {
        self.level
    }
    /// The votes for it.
    pub fn votes(&self) -> &[Vote] {
        &self.votes
    }
    /// Whether the glass was broken.
    pub fn glass(&self) -> &Glass {
        &self.glass
    }
    /// When an approved one becomes void.
    pub fn use_by(&self) -> Option<Timestamp> {
        self.use_by
    }
    /// Who ended it, and their words.
    pub fn end(&self) -> Option<(&str, &str)> {
        self.end.as_ref().map(|(who, why)| (who.as_str(), why.as_str()))
    }

    /// The full arguments are of no use any more where this copy lives.
    pub fn forget_arguments(&mut self) {
        if let Some(ask) = &mut self.ask {
            ask.args = None;
        }
    }

    /// May it be used now? The voters must still be entitled to what they said.
    pub fn is_usable(&self, access: &Access, now: Timestamp) -> bool {
        let in_time = self.use_by.is_some_and(|until| now < until);
        let broken = !matches!(self.glass, Glass::Whole);
        self.status == ApprovalStatus::Approved && in_time && (broken || self.has_quorum(&[], access, now))
    }

    /// When its stream must be woken as it stands.
    pub fn wake(&self) -> Wake {
        self.due().map_or(Wake::None, Wake::At)
    }

    /// When its stream must be woken once it is used: only a review can still be owed.
    pub fn wake_once_used(&self) -> Wake {
        let used = Self { status: ApprovalStatus::Consumed, ..self.clone() };
        used.wake()
    }

    /// The next deadline: to answer, to use, or to review.
    fn due(&self) -> Option<Timestamp> {
        let own = match self.status {
            ApprovalStatus::Open => self.deadline,
            ApprovalStatus::Approved => self.use_by,
            ApprovalStatus::Absent
            | ApprovalStatus::Consumed
            | ApprovalStatus::Denied
            | ApprovalStatus::Expired
            | ApprovalStatus::Revoked
            | ApprovalStatus::Cancelled => None,
        };
        let review = match &self.glass {
            Glass::Broken { review_by, overdue: false, .. } => Some(*review_by),
            Glass::Broken { .. } | Glass::Whole | Glass::Reviewed { .. } => None,
        };
        own.into_iter().chain(review).min()
    }
}

/// Which request an event of approvals is about.
pub fn subject(event: &ApprovalEvent) -> &ApprovalId {
    match event {
        ApprovalEvent::Requested(body, _) => &body.approval,
        ApprovalEvent::PreApproved(body, ()) => &body.approval,
        ApprovalEvent::Voted(body, ()) => &body.approval,
        ApprovalEvent::Granted(body, ()) => &body.approval,
        ApprovalEvent::Denied(body, ()) => &body.approval,
        ApprovalEvent::Withdrawn(body, ()) => &body.approval,
        ApprovalEvent::Escalated(body, ()) => &body.approval,
        ApprovalEvent::Expired(body, ()) => &body.approval,
        ApprovalEvent::Revoked(body, ()) => &body.approval,
        ApprovalEvent::Cancelled(body, ()) => &body.approval,
        ApprovalEvent::GlassBroken(body, ()) => &body.approval,
        ApprovalEvent::Reviewed(body, ()) => &body.approval,
        ApprovalEvent::ReviewOverdue(body, ()) => &body.approval,
    }
}

impl Aggregate for Approval {
    type Command = ApprovalCommand;
    type Facts = ApprovalFacts;
    type Answer = ();
    type Reject = ApprovalReject;
    type Effect = std::convert::Infallible;

    fn decide(
        &self,
        now: Timestamp,
        command: &ApprovalCommand,
        facts: &ApprovalFacts,
    ) -> Result<Decision<()>, ApprovalReject> {
        if self.status == ApprovalStatus::Absent {
            return Err(ApprovalReject::Absent(self.id.clone()));
        }
        match command {
            ApprovalCommand::Approve(say) => self.approve(now, say, facts),
            ApprovalCommand::Deny(say) => self.deny(now, say, facts),
            ApprovalCommand::Withdraw(who) => self.withdraw(now, who, facts),
            ApprovalCommand::Revoke(who, note) => self.revoke(now, who, note, facts),
            ApprovalCommand::BreakGlass(who, reason) => self.break_glass(now, who, reason, facts),
            ApprovalCommand::Review(who, note) => self.review(who, note, facts),
            ApprovalCommand::Fire => Ok(self.fire(now, facts)),
        }
    }

    fn evolve(&mut self, meta: &Meta, event: &Event) {
        let consumed = match event {
            Event::Approval(event) => {
                self.evolve_own(meta, event);
                None
            }
            Event::Step(StepEvent::Begun(body, _)) => body.approval.as_ref(),
            Event::Undo(UndoEvent::Attempted(body, ())) => body.approval.as_ref(),
            Event::System(_)
            | Event::Access(_)
            | Event::Config(_)
            | Event::Halt(_)
            | Event::Run(_)
            | Event::Step(_)
            | Event::Rollback(_)
            | Event::Undo(_) => None,
        };
        if consumed == Some(&self.id) {
            self.status = ApprovalStatus::Consumed;
            self.forget_arguments();
        }
    }

    fn effects(&self) -> Vec<std::convert::Infallible> {
        Vec::new()
    }

    fn deadline(&self) -> Option<(Timestamp, ApprovalCommand)> {
        self.due().map(|at| (at, ApprovalCommand::Fire))
    }

    fn abandon_open_intent(&self) -> Option<ApprovalCommand> {
        None
    }

    fn wake_after(&self, now: Timestamp, events: &[Event]) -> Wake {
        let meta = Meta { seq: 0, ts: now, leaf: Hash::default(), actor: crate::ids::Actor::system() };
        let mut next = self.clone();
        for event in events {
            next.evolve(&meta, event);
        }
        next.wake()
    }
}

impl Approval {
    /// The streams that each of its records advances.
    fn streams(&self) -> Vec<StreamId> {
        vec![StreamId::Approval(self.id.clone()), StreamId::Run(self.run.clone())]
    }
}
