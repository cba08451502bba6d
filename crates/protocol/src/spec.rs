//! What to run.

use crate::{Arm, Restore};
use niah::{DatasetError, PromptVariant, Rung};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use ts_rs::TS;

/// The tensor library that runs the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// candle: CPU (and CUDA).
    #[cfg_attr(not(target_os = "macos"), default)]
    Candle,
    /// MLX: Metal on macOS, the CPU on Linux.
    #[cfg_attr(target_os = "macos", default)]
    Mlx,
}

impl Backend {
    /// The device that it is for on this system.
    pub const fn device(self) -> Device {
        match self {
            Self::Mlx if cfg!(target_os = "macos") => Device::Metal,
            Self::Mlx | Self::Candle => Device::Cpu,
        }
    }
}

/// Where the tensors live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// Main memory.
    #[default]
    Cpu,
    /// The first NVIDIA GPU.
    Cuda,
    /// The GPU of a Mac, which shares the main memory.
    Metal,
}

/// How tokens are generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum Decode {
    /// One prefill, then one position a step over cached K/V. The evicted set is fixed at prefill.
    #[default]
    Incremental,
    /// The whole sequence again for every token, restored anew each time: the reference's semantics on CUDA.
    Reforward,
    /// As incremental, but sliding layers hold sink and window alone, what of the evicted positions the native window
    /// still sees is rebuilt from f_θ's latents, and full-attention layers whose V is the raw K hold it once. No
    /// reference has this loop.
    Bounded,
    /// As incremental, but each step is fed the answer's next token whatever was predicted: a diagnostic, no recall of
    /// free generation.
    TeacherForced,
}

/// A whole run: every arm on every sample of every rung.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct RunSpec {
    /// Folder of the model pack (holds `pack.json`).
    pub pack: PathBuf,
    /// Tensor library.
    pub backend: Backend,
    /// Device.
    pub device: Device,
    /// Arms. The first restored one that is no mixture is the system under test.
    pub arms: Vec<Arm>,
    /// Decode loop.
    pub decode: Decode,
    /// Rungs, in padding lines.
    pub ladder: Vec<Rung>,
    /// Samples a rung.
    pub n_samples: usize,
    /// Seed of the datasets.
    pub seed: i64,
    /// First positions that are never evicted.
    pub sink: usize,
    /// Last positions that are never evicted.
    pub window: usize,
    /// Most tokens generated for a sample.
    pub max_new_tokens: usize,
    /// Positions of the prompt that go through the layers at a time; fewer take less memory and more time.
    pub prefill_chunk: usize,
    /// How the prompt is put.
    pub prompt: PromptVariant,
}

/// A run that cannot be carried out as written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A list or number that must not be empty.
    #[error("{field} is empty: {hint}")]
    Empty {
        /// Field of the specification.
        field: &'static str,
        /// What to give.
        hint: &'static str,
    },
    /// The same entry twice.
    #[error("{field} names {value} twice")]
    Twice {
        /// Field of the specification.
        field: &'static str,
        /// The repeated entry.
        value: String,
    },
    /// A rung from which no dataset can be made.
    #[error("rung {rung}: {source}")]
    Rung {
        /// The rung, in padding lines.
        rung: u32,
        /// Why.
        source: DatasetError,
    },
    /// A number beyond what any run can use.
    #[error("{field} = {value} is above the limit of {limit}")]
    TooLarge {
        /// Field of the specification.
        field: &'static str,
        /// Value given.
        value: usize,
        /// Largest value accepted.
        limit: usize,
    },
}

const MAX_NEW_TOKENS: usize = 8192;
const MAX_POSITIONS: usize = 1 << 24;

impl RunSpec {
    /// Positions of the prompt that go through the layers at a time, if nothing else is asked for.
    pub const PREFILL_CHUNK: usize = 2048;

    /// Checks everything that can be checked without the pack.
    pub fn check(&self) -> Result<(), SpecError> {
        let empty = |field, hint| Err(SpecError::Empty { field, hint });
        if self.arms.is_empty() {
            return empty("arms", "name at least one arm, for example oracle,restored");
        }
        if self.ladder.is_empty() {
            return empty("ladder", "name at least one rung, for example 20,70");
        }
        if self.max_new_tokens == 0 {
            return empty("max_new_tokens", "a code needs 6 to 8 tokens; the ladder's standard is 24");
        }
        if self.prefill_chunk == 0 {
            return empty("prefill_chunk", "2048 positions at a time is the default");
        }
        twice("arms", &self.arms)?;
        twice("ladder", &self.ladder.iter().map(|rung| rung.0).collect::<Vec<_>>())?;
        for (field, value, limit) in [
            ("max_new_tokens", self.max_new_tokens, MAX_NEW_TOKENS),
            ("prefill_chunk", self.prefill_chunk, MAX_POSITIONS),
            ("sink", self.sink, MAX_POSITIONS),
            ("window", self.window, MAX_POSITIONS),
        ] {
            if value > limit {
                return Err(SpecError::TooLarge { field, value, limit });
            }
        }
        for rung in &self.ladder {
            let dataset = rung.dataset(self.seed, self.n_samples);
            dataset.check().map_err(|source| SpecError::Rung { rung: rung.0, source })?;
        }
        Ok(())
    }

    /// The arm whose recall is judged: the first restored one. A mixture with the true K/V is a diagnostic.
    pub fn system_under_test(&self) -> Option<Arm> {
        let tested = |arm: &Arm| matches!(arm, Arm::Restored(mode) if !matches!(mode, Restore::Mix(_)));
        self.arms.iter().copied().find(tested)
    }

    /// SHA-256 of what is asked, whoever answers: everything but pack, library and device. Runs of one specification on two
    /// machines have the same.
    pub fn digest(&self) -> String {
        let mut asked = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = asked.as_object_mut() {
            ["pack", "backend", "device"].iter().for_each(|field| drop(fields.remove(*field)));
        }
        files::sha256(asked.to_string().as_bytes())
    }

    /// Trials in all: arms × samples × rungs.
    pub fn trials(&self) -> usize {
        self.arms.len() * self.n_samples * self.ladder.len()
    }
}

fn twice<T: PartialEq + ToString>(field: &'static str, values: &[T]) -> Result<(), SpecError> {
    match values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) {
        Some((_, value)) => Err(SpecError::Twice { field, value: value.to_string() }),
        None => Ok(()),
    }
}
