//! What a run tells whoever watches it.

use crate::Target;
use evidence::Text;
use protocol::{Arm, Fidelity, LoadedPack, Stage};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use ts_rs::TS;

/// Progress of a run, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum RunEvent {
    /// The run is in the journal; its target is being reached.
    Started {
        /// Id of the run.
        run: String,
        /// Where it happens.
        target: Target,
        /// Rungs, in padding lines.
        rungs: Vec<u32>,
        /// Arms.
        arms: Vec<Arm>,
        /// Samples a rung.
        n_samples: usize,
    },
    /// It is known what there is to do.
    Planned {
        /// Trials of this run.
        trials: usize,
        /// How many of them the journal had already.
        reused: usize,
    },
    /// The pack is in memory.
    Loaded {
        /// What is known of it.
        pack: LoadedPack,
    },
    /// A trial begins.
    TrialStarted {
        /// Rung, in padding lines.
        rung: u32,
        /// Sample index.
        sample: usize,
        /// Arm.
        arm: Arm,
    },
    /// A trial goes on.
    TrialProgress {
        /// What it is doing.
        stage: Stage,
        /// Tokens generated so far.
        tokens: usize,
    },
    /// A trial is done.
    TrialDone {
        /// Rung, in padding lines.
        rung: u32,
        /// Sample index.
        sample: usize,
        /// Arm.
        arm: Arm,
        /// Its result.
        outcome: TrialOutcome,
        /// Recall of this arm on this rung so far.
        recall: ArmRecall,
        /// Trials done so far.
        done: usize,
        /// Seconds left at the pace so far (mean seconds a trial × trials left); null before there is a pace.
        remaining_s: Option<f64>,
        /// Whether the journal had it, from an earlier sitting or another run.
        reused: bool,
    },
    /// Memory of the engine process, about once a second.
    Memory {
        /// Seconds since the run began.
        at_s: f64,
        /// Resident set, bytes, as the operating system reports it.
        resident_bytes: u64,
    },
    /// Something that a person should read: an engine that was started again, a connection that was lost.
    Notice {
        /// One line.
        line: Text,
    },
    /// A rung is complete and its evidence files written.
    RungDone {
        /// Rung, in padding lines.
        rung: u32,
        /// The evidence files: the needle file, and with mixtures the sweep.
        paths: Vec<PathBuf>,
    },
    /// The last rung is complete.
    Finished {
        /// Every evidence file of the run.
        paths: Vec<PathBuf>,
    },
}

/// What one trial came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct TrialOutcome {
    /// The code that was to be recalled.
    pub answer: String,
    /// The generated text.
    pub text: String,
    /// Strict score.
    pub hit: bool,
    /// Score when case is ignored.
    pub hit_ignoring_case: bool,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated, the stop token included.
    pub generated_tokens: usize,
    /// Seconds from prompt to answer.
    pub seconds: f64,
    /// What restoration did, for restored arms and controls.
    pub restored: Option<RestoredBrief>,
    /// Distance of the first token's distribution from the oracle's, where that ran before.
    pub fidelity: Option<Fidelity>,
}

/// Restoration in one line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct RestoredBrief {
    /// Layers into which f_θ's K/V were injected.
    pub f_theta_layers: usize,
    /// Layers into which the clean forward's K/V were injected.
    pub capture_layers: usize,
    /// Evicted positions, summed over passes.
    pub positions: usize,
    /// Seconds in drafter, f_θ and clean capture.
    pub seconds: f64,
    /// Whether every evicted position of every layer was injected.
    pub complete: bool,
}

/// Recall so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ArmRecall {
    /// Strict hits.
    pub hits: usize,
    /// Samples done.
    pub n: usize,
    /// Lower end of the exact two-sided 95 % interval (Clopper–Pearson), as a fraction.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}
