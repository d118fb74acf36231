//! Which durable events a person should hear of. Must not know how they are told.
use reversi_proto::event::v1::{AfterMismatch, AfterUnknown};
use reversi_proto::event::{ApprovalEvent, Event, RollbackEvent, UndoEvent};
use reversi_proto::ids::RunId;

use crate::ports::Notice;

/// The notice that an event of a run gives, if it gives one.
pub(crate) fn notice_of(run: &RunId, event: &Event) -> Option<Notice> {
    let run = run.clone();
    match event {
        Event::Approval(ApprovalEvent::Requested(body, _)) => {
            Some(Notice::ApprovalRequested { run, approval: body.approval.clone() })
        }
        Event::Approval(ApprovalEvent::Escalated(body, ())) => {
            Some(Notice::ApprovalEscalated { run, approval: body.approval.clone(), level: body.level })
        }
        Event::Approval(ApprovalEvent::GlassBroken(body, ())) => {
            Some(Notice::GlassBroken { run, approval: body.approval.clone() })
        }
        Event::Approval(ApprovalEvent::ReviewOverdue(body, ())) => {
            Some(Notice::ReviewOverdue { run, approval: body.approval.clone() })
        }
        Event::Rollback(RollbackEvent::Finished(body, ())) => {
            Some(Notice::RollbackFinished { run, complete: body.complete })
        }
        Event::Undo(UndoEvent::Uncertain(body, _)) if body.next == AfterUnknown::Operator => {
            Some(Notice::UndoUncertain { run, step: body.step })
        }
        Event::Undo(UndoEvent::Mismatched(body, _)) if body.next == AfterMismatch::Operator => {
            Some(Notice::UndoUncertain { run, step: body.step })
        }
        Event::Undo(
            UndoEvent::Attempted(..)
            | UndoEvent::Succeeded(..)
            | UndoEvent::Failed(..)
            | UndoEvent::Uncertain(..)
            | UndoEvent::Mismatched(..)
            | UndoEvent::Verified(..)
            | UndoEvent::Deferred(..),
        )
        | Event::Approval(
            ApprovalEvent::PreApproved(..)
            | ApprovalEvent::Voted(..)
            | ApprovalEvent::Granted(..)
            | ApprovalEvent::Denied(..)
            | ApprovalEvent::Withdrawn(..)
            | ApprovalEvent::Expired(..)
            | ApprovalEvent::Revoked(..)
            | ApprovalEvent::Cancelled(..)
            | ApprovalEvent::Reviewed(..),
        )
        | Event::Rollback(RollbackEvent::Started(..))
        | Event::System(_)
        | Event::Access(_)
        | Event::Config(_)
        | Event::Halt(_)
        | Event::Run(_)
        | Event::Step(_) => None,
    }
}
