//! Runs: trial after trial, wherever they are answered, until every rung has its evidence file.
//!
//! `RunSpec → plan → target → journal → evidence`. A target answers trials: an engine that is a child process here, a worker
//! behind ssh, whoever takes them from a queue. Each finished trial is in the journal before anybody is told of it, so a run
//! goes on after the death of any process where it stopped; evidence is made from the journal alone.

mod assemble;
mod book;
pub mod durable;
mod engine;
mod error;
mod event;
mod forecast;
mod journal;
mod local;
mod pack;
mod plan;
pub mod queue;
mod run;
mod shard;
mod shards;
pub mod ssh;
mod sweep;
mod target;

pub use engine::{Engine, EngineProgram};
pub use error::RunError;
pub use event::{ArmRecall, RestoredBrief, RunEvent, TrialOutcome};
pub use forecast::{TimeForecast, forecast};
pub use journal::{Journal, JournalError, JournalledRun, RunState};
pub(crate) use pack::{digest_of, find_pack};
pub use pack::{named_digest, own_packs};
pub use plan::Build;
pub use run::{Begin, Cancel, Run, unfinished};
pub use shard::{Shard, ShardError};
pub use shards::{KIND as SHARD_KIND, merge};
pub use target::{Target, TargetError};

/// Waits for what another process does: it can tell nothing to a channel, so it is looked at again.
#[expect(clippy::disallowed_methods, reason = "the callers look at a condition in a loop")]
pub(crate) fn look_again_after(time: std::time::Duration) {
    std::thread::sleep(time);
}
