//! The messages between a host and an engine.

use crate::{Arm, Backend, Decode, Device, ErrorReport, Inspection, RunSpec};
use niah::PromptVariant;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use ts_rs::TS;

/// Host → engine, one JSON object a line. Closing the pipe ends the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Request {
    /// First message: which protocol the host speaks. Answered by [`Event::Hello`] or [`Event::Failed`].
    Hello {
        /// [`crate::VERSION`] of the host.
        protocol: u32,
    },
    /// Loads a pack. Answered by [`Event::Loaded`] or [`Event::Failed`].
    Load {
        /// Pack folder.
        pack: PathBuf,
        /// Tensor library.
        backend: Backend,
        /// Device.
        device: Device,
        /// Arms that will be asked for, so that a missing part is found before the first trial.
        arms: Vec<Arm>,
    },
    /// Looks at a pack and at the device without loading. Answered by [`Event::Inspected`].
    Inspect {
        /// The run that is meant; its pack is looked at.
        spec: RunSpec,
    },
    /// Answers one prompt with one arm. Answered by [`Event::Done`], [`Event::Cancelled`] or [`Event::Failed`].
    Trial(Trial),
    /// Gives up the trial that is running, at the next token or layer.
    Cancel,
    /// What this machine has for a run. Answered by [`Event::Worker`].
    Worker {
        /// Folders that are packs, or hold some, beside those that the machine names itself.
        packs: Vec<PathBuf>,
    },
    /// Starts a run that outlives this connection, or makes sure that it goes on. Answered by [`Event::Accepted`] or
    /// [`Event::Failed`].
    Start(Order),
    /// Tells the records of a run, from one on, until it has ended or [`Request::Leave`] comes: [`Event::Record`]s, then
    /// [`Event::Left`].
    Follow {
        /// The run.
        run: String,
        /// Number of the last record that is known; 0 for none.
        after: u64,
    },
    /// Follows no longer; the run goes on.
    Leave,
    /// Ends a run that outlives connections. Answered by [`Event::Accepted`].
    Stop {
        /// The run.
        run: String,
    },
}

/// A run that a worker carries through by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Chosen by the host. The same one again is the same run: nothing that it has done is done again.
    pub run: String,
    /// What to run. Its `pack` is not looked at.
    pub spec: RunSpec,
    /// Digest of the pack, which is among the worker's own: packs do not travel.
    pub pack: String,
    /// Folders that are packs, or hold some, beside those that the worker names itself.
    pub packs: Vec<PathBuf>,
    /// Ids of the trials that are wanted, out of those of the specification.
    pub trials: Vec<String>,
}

/// What a machine has for a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Worker {
    /// Packs that were found, and folders that look like one and cannot be used.
    pub packs: Vec<FoundPack>,
    /// Main memory that is free now, bytes.
    pub free_memory_bytes: u64,
    /// Memory of the device that is free now, bytes; null where there is no GPU.
    pub free_device_bytes: Option<u64>,
    /// Free space where its journal lies, bytes; null where that cannot be told.
    pub free_disk_bytes: Option<u64>,
    /// What its clock says, seconds since 1970. Nothing is computed from it.
    pub clock_s: f64,
}

/// A pack on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct FoundPack {
    /// Its folder.
    pub folder: PathBuf,
    /// Name in its manifest.
    pub name: String,
    /// See [`LoadedPack::digest`]; null where it cannot be used.
    pub digest: Option<String>,
    /// Bytes of its files.
    pub bytes: u64,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// One entry in the account of a run that outlives connections. Numbers grow; those of past progress may be missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Record {
    /// An engine is up and the pack in its memory.
    Loaded {
        /// Who answers.
        hello: Box<Hello>,
        /// The pack.
        pack: Box<LoadedPack>,
    },
    /// A trial begins.
    Started {
        /// The trial.
        id: String,
    },
    /// It goes on.
    Progress {
        /// What it is doing.
        stage: Stage,
        /// Tokens generated so far.
        tokens: usize,
    },
    /// Memory of the engine process.
    Memory {
        /// Resident set, bytes, as the operating system reports it.
        resident_bytes: u64,
    },
    /// A trial is done and in the worker's journal.
    Done {
        /// The trial.
        id: String,
        /// Its result.
        result: Box<TrialResult>,
    },
    /// Something that a person should read.
    Notice {
        /// One line.
        line: String,
    },
    /// Nothing more comes.
    Ended {
        /// Why it ended early; null when every trial is done.
        error: Option<ErrorReport>,
    },
}

/// One prompt for one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Chosen by the host; comes back with the result.
    pub id: String,
    /// Arm.
    pub arm: Arm,
    /// Text before the chat template, already in its variant.
    pub prompt: String,
    /// The variant, which decides whether the chat template is applied.
    pub variant: PromptVariant,
    /// Decode loop.
    pub decode: Decode,
    /// First positions that are never evicted.
    pub sink: usize,
    /// Last positions that are never evicted.
    pub window: usize,
    /// Most tokens to generate.
    pub max_new_tokens: usize,
    /// Positions of the prompt that go through the layers at a time.
    pub prefill_chunk: usize,
    /// Seed of the noise that random arms inject.
    pub seed: i64,
    /// Sample index: each sample has noise of its own.
    pub sample: usize,
    /// Whether the distance of the first step from the oracle's is wanted. Where the oracle has not answered this prompt just
    /// before, the engine runs it over the prompt, beside what is timed: a trial comes out the same whatever ran before it.
    pub fidelity: bool,
    /// Text that teacher-forced decoding feeds; null in the loops that generate, which must not know it.
    pub answer: Option<String>,
}

/// Engine → host, one JSON object a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Event {
    /// Who the engine is.
    Hello(Hello),
    /// What was found.
    Inspected(Box<Inspection>),
    /// The pack is in memory.
    Loaded(LoadedPack),
    /// A trial goes on.
    Progress {
        /// The trial.
        id: String,
        /// What it is doing.
        stage: Stage,
        /// Tokens generated so far.
        tokens: usize,
    },
    /// A trial is done.
    Done(TrialResult),
    /// A trial was given up at the host's request.
    Cancelled {
        /// The trial.
        id: String,
    },
    /// Once a second, whatever else goes on.
    Heartbeat {
        /// Resident set of the engine process now, bytes, as the operating system reports it.
        resident_bytes: u64,
    },
    /// What the machine has.
    Worker(Box<Worker>),
    /// A run that outlives connections was started, found or told to end.
    Accepted {
        /// The run.
        run: String,
    },
    /// One record of a run that is followed.
    Record {
        /// Its number.
        number: u64,
        /// A [`Record`] as JSON, exactly as it lies in the worker's journal.
        text: String,
        /// SHA-256 of that text.
        sha256: String,
    },
    /// The run is no longer followed.
    Left {
        /// The run.
        run: String,
        /// Whether somebody still works on it; false once it has ended, or when its process died.
        alive: bool,
    },
    /// A request could not be carried out. The engine goes on.
    Failed(ErrorReport),
}

/// What an engine says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Hello {
    /// [`crate::VERSION`] of the engine.
    pub protocol: u32,
    /// Version of the program.
    pub version: String,
    /// Git commit that the program was built from; null outside a checkout.
    pub commit: Option<String>,
    /// Whether the checkout had uncommitted changes.
    pub dirty: bool,
    /// What it can run on.
    pub backends: Vec<BackendInfo>,
    /// The machine.
    pub host: Host,
}

/// One tensor library on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct BackendInfo {
    /// Library.
    pub backend: Backend,
    /// Device.
    pub device: Device,
    /// Version of the library.
    pub version: String,
    /// Name of the device.
    pub device_name: String,
    /// Version of the device's driver; null where it has none or does not tell.
    pub driver: Option<String>,
    /// Seconds that a small matrix product took whose result was checked.
    pub probe_seconds: f64,
}

/// The machine that an engine runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Host {
    /// Operating system and version.
    pub os: String,
    /// Processor architecture, as Rust names it.
    pub arch: String,
    /// Processor model.
    pub cpu: String,
    /// Logical cores that this process may use.
    pub cores: usize,
    /// Main memory, bytes.
    pub memory_bytes: u64,
}

/// What is known of a pack once it is in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct LoadedPack {
    /// Name of the pack.
    pub name: String,
    /// The demonstration pack.
    pub demo: bool,
    /// Folders as the manifest names them: verifier, drafter, f_θ.
    pub verifier: PathBuf,
    /// Drafter folder.
    pub drafter: Option<PathBuf>,
    /// f_θ folder.
    pub f_theta: Option<PathBuf>,
    /// `f_theta_config.json`, as stored.
    #[ts(type = "unknown")]
    pub f_theta_config: Option<serde_json::Value>,
    /// Every file that was read, with its digest.
    pub weights: Vec<WeightFile>,
    /// SHA-256 over what the pack's answers depend on: the two conventions of its manifest, and path and digest of every
    /// file, in order of paths. Two machines with the same pack see the same digest, wherever it lies.
    pub digest: String,
    /// Geometry of each verifier layer.
    pub layers: Vec<LayerGeometry>,
    /// Number type of the arithmetic, for example `f32`.
    pub compute_dtype: String,
    /// Number type of the stored weights.
    pub weights_dtype: String,
    /// Token ids that end an answer.
    pub stop_tokens: Vec<u32>,
    /// Seconds the loading took, digests included.
    pub seconds: f64,
}

/// One file of a pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct WeightFile {
    /// Path relative to the pack folder, or absolute.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256, 64 hexadecimal digits.
    pub sha256: String,
}

/// Kind of attention of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum LayerKind {
    /// Sees only the model's own sliding window.
    Sliding,
    /// Sees everything.
    Full,
}

/// K/V geometry of one verifier layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct LayerGeometry {
    /// Kind of attention.
    pub kind: LayerKind,
    /// K/V heads.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
}

/// What a trial is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Drafter, f_θ and clean capture.
    Restoring,
    /// The prompt's forward pass.
    Prefill,
    /// Generating.
    Decode,
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// A stop token was generated.
    StopToken,
    /// The token budget was used up.
    Budget,
}

/// One answered prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct TrialResult {
    /// The trial.
    pub id: String,
    /// The arm that answered.
    pub arm: Arm,
    /// Generated text, special tokens left out.
    pub text: String,
    /// Generated ids, the stop token included.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Why it ended.
    pub stop: Stop,
    /// Seconds of each stage.
    pub timings: StageTimings,
    /// What restoration did, or the control in its place; null for oracle and sink-window.
    pub restoration: Option<RestorationCounters>,
    /// How far the first step is from the oracle's; null for the oracle, and where that was not asked for.
    pub fidelity: Option<Fidelity>,
    /// Softmax mass, mean over heads, that the query of the first token pays to the evicted positions, layer by layer;
    /// null when nothing was evicted.
    pub attention_mass: Option<Vec<f64>>,
    /// Error of f_θ's K/V at the evicted positions of the prompt; null where the true K/V were not captured beside them
    /// (only mixtures do).
    pub projection_error: Option<Vec<LayerError>>,
    /// Memory.
    pub memory: TrialMemory,
}

/// Distance of an arm's first-token distribution from the oracle's, over the whole vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Fidelity {
    /// Largest absolute difference of a logit.
    pub max_abs_logit_difference: f64,
    /// Kullback–Leibler divergence of the arm from the oracle, nats.
    pub kl: f64,
}

/// Squared error of f_θ's raw K and V of one layer, and what it is relative to. Sums, so that samples add up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct LayerError {
    /// Layer index.
    pub layer: usize,
    /// Σ (projected − captured)² over K and V.
    pub squared_error: f64,
    /// Σ captured² over K and V.
    pub squared_norm: f64,
}

/// Wall-clock seconds of one trial's stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct StageTimings {
    /// Drafter, f_θ, clean capture and noise, all passes; null for oracle and sink-window.
    pub build_restoration_s: Option<f64>,
    /// The prompt's forward pass.
    pub prefill_s: f64,
    /// Everything after the first token's logits.
    pub decode_s: f64,
    /// From the text of the prompt to the id of the first token.
    pub first_token_s: f64,
    /// From the text of the prompt to the text of the answer.
    pub e2e_s: f64,
}

/// Counters kept where restoration happens, not where it is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct RestorationCounters {
    /// Restored forward passes: one for incremental decoding, one a token for re-forward.
    pub passes: usize,
    /// Evicted positions, summed over passes.
    pub evicted_positions: usize,
    /// Positions the drafter ran over, summed over passes; 0 without a drafter.
    pub drafter_positions: usize,
    /// Positions that f_θ projected, summed over passes and layers.
    pub projected_positions: usize,
    /// What was injected, layer by layer.
    pub layers: Vec<LayerCounter>,
    /// Seconds in the drafter.
    pub drafter_s: f64,
    /// Seconds in f_θ.
    pub projection_s: f64,
    /// Seconds in the clean capture (S5, identity, mixtures).
    pub capture_s: f64,
}

/// What became of evicted positions in one layer, summed over passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct LayerCounter {
    /// Layer index.
    pub layer: usize,
    /// Positions whose K and V were replaced by f_θ's.
    pub from_f_theta: usize,
    /// Positions whose K and V were replaced by those of the clean forward.
    pub from_capture: usize,
    /// Positions whose K and V were replaced by a mixture of both.
    pub from_mix: usize,
    /// Positions whose K and V were replaced by noise (control).
    pub from_noise: usize,
    /// Positions hidden from every later query (control).
    pub hidden: usize,
    /// Seconds of the replacement itself.
    pub seconds: f64,
    /// Bytes of the injected K and V.
    pub bytes: u64,
}

impl LayerCounter {
    /// Positions that were dealt with in any way.
    pub fn positions(&self) -> usize {
        self.from_f_theta + self.from_capture + self.from_mix + self.from_noise + self.hidden
    }
}

/// Bytes of K/V by kind. Room that arrays have left is counted with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct KvBytes {
    /// K and V on sliding layers.
    pub sliding_resident: u64,
    /// K and V, or the one that the other is made from, on full-attention layers.
    pub full_resident: u64,
    /// Latents of f_θ, which all layers share.
    pub latent: u64,
}

impl KvBytes {
    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.sliding_resident + self.full_resident + self.latent
    }
}

/// Memory of one trial. Every figure says in its name how it came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct TrialMemory {
    /// K/V counted from the tensors that live at the end of decoding; null where none are kept (re-forward).
    pub kv_counted: Option<KvBytes>,
    /// The same by formula, from the geometry and the lengths alone.
    pub kv_forecast: Option<KvBytes>,
    /// An unbounded cache on every layer, by formula, at the same length.
    pub kv_full_formula: KvBytes,
    /// The model's own cache, whose sliding layers keep their window, by formula, at the same length.
    pub kv_native_formula: KvBytes,
    /// Highest resident set of the engine process since it started, bytes, as the operating system reports it; on macOS its
    /// highest physical footprint; on systems that report no peak, the resident set when the trial ended.
    pub process_peak_bytes: Option<u64>,
    /// Memory of the device and of the library's allocator; null where neither is known.
    pub device: Option<DeviceMemory>,
}

/// Memory of a device, and what the library's allocator says of itself, over one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct DeviceMemory {
    /// High-water mark of what this process's allocator had given out since the trial began, weights included, bytes;
    /// null where the allocator keeps none.
    pub allocator_peak_bytes: Option<u64>,
    /// Highest sample of what that allocator had given out, bytes; null where it does not tell.
    pub allocator_active_bytes: Option<u64>,
    /// Highest sample of freed memory that it kept for later, bytes; null where it does not tell.
    pub allocator_cache_bytes: Option<u64>,
    /// Highest sample of the memory in use on the whole device, other processes included, bytes; null where the device
    /// does not tell.
    pub used_bytes: Option<u64>,
    /// All memory of the device, bytes; that of the machine where both share it.
    pub total_bytes: u64,
}
