//! Plays contract tests of manifests: each case in a daemon of its own, in memory, with simulated time and tools that
//! answer from a script. Nothing is decided here: the daemon's own code decides, and `reversi_proto::contract` compares.
mod grant;
mod play;
mod prepare;
mod tools;

use std::num::NonZeroUsize;

use reversi_proto::contract::{Case, Failure, judge};
use reversi_proto::manifest::ManifestSet;

use play::PlayError;

/// Below this number of cases a further thread costs more than it saves.
const CASES_PER_THREAD_MIN: usize = 16;

/// How a case ended.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseResult {
    /// What was expected and not seen; empty: the case passed.
    pub failures: Vec<Failure>,
}

impl CaseResult {
    /// Everything was as expected.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Plays the cases, on a few threads; the results are in their order. No case sees anything of another.
pub fn run(manifests: &ManifestSet, cases: &[Case]) -> Vec<CaseResult> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = cores.min(cases.len() / CASES_PER_THREAD_MIN + 1);
    let chunks: Vec<&[Case]> = cases.chunks(cases.len().div_ceil(threads).max(1)).collect();
    std::thread::scope(|scope| {
        let playing: Vec<_> = chunks.iter().map(|chunk| scope.spawn(|| play_all(manifests, chunk))).collect();
        let joined = playing.into_iter().zip(&chunks).map(|(thread, chunk)| {
            thread
                .join()
                .unwrap_or_else(|_| chunk.iter().map(|_| failed("the harness panicked; this is a defect")).collect())
        });
        joined.flatten().collect()
    })
}

/// One thread and one runtime with a single thread: what a case sees does not depend on how threads are scheduled.
fn play_all(manifests: &ManifestSet, cases: &[Case]) -> Vec<CaseResult> {
    let runtime = match tokio::runtime::Builder::new_current_thread().build() {
        Ok(runtime) => runtime,
        Err(error) => return cases.iter().map(|_| failed(&format!("no runtime can be started: {error}"))).collect(),
    };
    cases.iter().map(|case| played(case, runtime.block_on(play::play(manifests, case)))).collect()
}

fn played(case: &Case, seen: Result<reversi_proto::contract::Observed, PlayError>) -> CaseResult {
    match seen {
        Ok(seen) => CaseResult { failures: judge(case, &seen) },
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(why: &str) -> CaseResult {
    CaseResult { failures: vec![Failure::new("tool", format!("the case can't be played: {why}"))] }
}
