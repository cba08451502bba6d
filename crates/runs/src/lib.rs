//! Runs: an engine process supervised, trial after trial, until every rung has its evidence file.
//!
//! `RunSpec → engine events → evidence`. The engine is a child process; its death ends the run, never the host.

mod assemble;
mod engine;
mod error;
mod event;
mod run;
mod sweep;

pub use engine::{Engine, EngineProgram};
pub use error::RunError;
pub use event::{ArmRecall, RestoredBrief, RunEvent, TrialOutcome};
pub use run::{Cancel, Run};
