//! Who holds a claimed idempotency key: what the last record of its stream says. Must not know how keys are rendered.
use crate::event::{Event, StepEvent};
use crate::ids::{RunId, StepNo};

/// The holder after this record of the claim's stream: `step.begun` takes the claim, `step.disputed` takes it back,
/// every other record that advances the stream (a failure, a resolution, the end of a compensation) frees it.
pub fn holder_after(run: Option<&RunId>, last: &Event) -> Option<(RunId, StepNo)> {
    match last {
        Event::Step(StepEvent::Begun(body, _)) => run.map(|run| (run.clone(), body.step)),
        Event::Step(StepEvent::Disputed(body, ())) => run.map(|run| (run.clone(), body.step)),
        Event::Step(
            StepEvent::Blocked(..)
            | StepEvent::Succeeded(..)
            | StepEvent::Failed(..)
            | StepEvent::Uncertain(..)
            | StepEvent::Resolved(..),
        )
        | Event::System(_)
        | Event::Access(_)
        | Event::Config(_)
        | Event::Halt(_)
        | Event::Run(_)
        | Event::Approval(_)
        | Event::Rollback(_)
        | Event::Undo(_) => None,
    }
}
