//! Notices in the process log; other ways to tell people come with webhooks. Must not know what led to a notice.
use reversi_actors::ports::{Notice, Notifier};

/// Writes notices to the log.
#[derive(Debug, Default, Clone, Copy)]
pub struct LogNotifier;

impl Notifier for LogNotifier {
    fn notify(&self, notice: Notice) {
        match notice {
            Notice::ApprovalRequested { run, approval } => {
                tracing::info!(%run, %approval, "a call waits for a person's approval");
            }
            Notice::ApprovalEscalated { run, approval, level } => {
                tracing::warn!(%run, %approval, level, "nobody answered in time: more people may decide now");
            }
            Notice::GlassBroken { run, approval } => {
                tracing::warn!(%run, %approval, "a call was granted in an emergency: another person owes a review");
            }
            Notice::ReviewOverdue { run, approval } => {
                tracing::error!(%run, %approval, "the review of an emergency is overdue");
            }
            Notice::RollbackFinished { run, complete: true } => tracing::info!(%run, "a rollback is complete"),
            Notice::RollbackFinished { run, complete: false } => {
                tracing::warn!(%run, "a rollback has left something undone: see its report");
            }
            Notice::UndoUncertain { run, step } => {
                tracing::warn!(%run, step, "nobody knows whether an undo happened: check, then resolve");
            }
            Notice::Quarantined { entity } => tracing::error!(%entity, "an entity failed too often and is left alone"),
        }
    }
}
