//! What a run will take: time from the journal, memory from the engine's own plan of its cache.

use crate::{ErrorReport, RunError};
use niah::Rung;
use protocol::{Inspection, RunSpec};
use runs::{EngineProgram, Target, TimeForecast};
use serde::Serialize;
use std::path::Path;
use ts_rs::TS;

/// A run, foretold.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct ForecastView {
    /// How long it will take on each target.
    pub times: Vec<TargetTime>,
    /// What it will hold at most; null where that does not follow from the pack's headers.
    pub memory: Option<MemoryForecast>,
}

/// How long a run will take on one target.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct TargetTime {
    /// Where.
    pub target: Target,
    /// Null while trials of this pack in this setting are not in the journal.
    pub time: Option<TimeForecast>,
}

/// Bytes by formula, not measured: weights as they are held, K/V as the cache will allocate them. Activations come on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
pub struct MemoryForecast {
    /// Weights.
    pub weights: u64,
    /// K/V and what is injected, at the end of the longest answer.
    pub kv: u64,
    /// Positions of that answer's end.
    pub positions: usize,
}

/// Foretells a run on each target.
pub fn forecast(
    data: &Path,
    program: &EngineProgram,
    spec: &RunSpec,
    targets: &[Target],
) -> Result<ForecastView, ErrorReport> {
    let inspection = program.inspect(spec)?.1?;
    let lengths = lengths(&inspection);
    let time = |target: &Target| {
        Ok(TargetTime { target: target.clone(), time: runs::forecast(data, spec, target, &lengths)? })
    };
    let times = targets.iter().map(time).collect::<Result<_, RunError>>()?;
    let memory = inspection.forecast.map(|of| MemoryForecast {
        weights: of.weights,
        kv: of.kv,
        positions: of.positions,
    });
    Ok(ForecastView { times, memory })
}

/// Tokens of the first prompt of each rung.
fn lengths(inspection: &Inspection) -> Vec<(Rung, usize)> {
    let prompts = inspection.prompts.as_ref().and_then(|look| look.found.as_ref().ok());
    prompts.into_iter().flatten().map(|prompt| (prompt.rung, prompt.tokens)).collect()
}
