//! One model for every needle file, whatever wrote it.

use crate::stats::Interval;
use crate::{Text, text};
use niah::Sample;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// The needle kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum NiahKind {
    /// `k1e_niah_validation`: one checkpoint as proposer and verifier.
    SameCheckpoint,
    /// `k3_integrated_niah_acceptance`.
    CrossModel,
    /// `k3_integrated_niah_acceptance_mac`.
    CrossModelMac,
}

impl NiahKind {
    pub(crate) fn of(kind: &str) -> Option<Self> {
        match kind {
            "k1e_niah_validation" => Some(Self::SameCheckpoint),
            "k3_integrated_niah_acceptance" => Some(Self::CrossModel),
            "k3_integrated_niah_acceptance_mac" => Some(Self::CrossModelMac),
            _ => None,
        }
    }

    /// Key of the system under test in `/results`.
    pub fn sut(self) -> &'static str {
        if self == Self::SameCheckpoint { "v04_dlm_restored" } else { "k3_cross_model" }
    }

    /// Key of the oracle in `/results`.
    pub fn oracle(self) -> &'static str {
        if self == Self::SameCheckpoint { "oracle_full_attention" } else { "oracle" }
    }
}

/// Needle evidence, recounted.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct Niah {
    /// Which of the kinds.
    pub kind: NiahKind,
    /// Samples a rung.
    pub n: u64,
    /// Seed of the dataset; null when the file does not hold it.
    pub seed: Option<i64>,
    /// Fewest padding lines; null when the file does not hold them.
    pub min_lines: Option<u64>,
    /// Most padding lines.
    pub max_lines: Option<u64>,
    /// Rung of the release ladder, or the rung that the file itself records.
    pub rung: Option<u32>,
    /// Sink, positions.
    pub sink: Option<u64>,
    /// Window, positions.
    pub window: Option<u64>,
    /// Token budget.
    pub max_new_tokens: Option<u64>,
    /// Verifier, as named in the file.
    pub verifier: Option<String>,
    /// Drafter.
    pub drafter: Option<String>,
    /// f_θ.
    pub f_theta: Option<String>,
    /// Full-attention layers kept exact.
    pub s5: bool,
    /// The verifier's own K/V restored.
    pub identity: bool,
    /// Settings that only a comparison looks at.
    pub settings: Settings,
    /// Decode loop: `/config/eval_mode`, `/config/decode`, or `re-forward`.
    pub decode: String,
    /// Prompt lengths in tokens, sample by sample; empty when not recorded.
    pub prompt_lens: Vec<u64>,
    /// Shortest prompt, tokens.
    pub prompt_tokens_min: Option<u64>,
    /// Longest prompt, tokens.
    pub prompt_tokens_max: Option<u64>,
    /// How prompt lengths follow from line counts.
    pub prompt_fit: Option<PromptFit>,
    /// The prompts, regenerated; empty when no dataset can be made from the bounds.
    pub samples: Vec<Sample>,
    /// Arms, in the order of the file.
    pub arms: Vec<Arm>,
    /// Memory figures, each with its kind.
    pub memory: Vec<MemoryFigure>,
    /// Rates of whole arms, each with what its time covers.
    pub throughput: Vec<ThroughputFigure>,
    /// Counters of restored arms and controls; empty for files of the reference.
    pub restoration: Vec<Restoration>,
    /// Distance of each arm's first step from the oracle's; empty for files of the reference.
    pub fidelity: Vec<ArmFidelity>,
    /// What the query of the first token attends to; empty for files of the reference.
    pub attention: Vec<ArmAttention>,
    /// Where the file comes from; absent in files of the reference.
    pub provenance: Option<Provenance>,
}

/// What two speculative-decoding acceptance runs must share to be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct Acceptance {
    /// Tokens drafted at once.
    pub block_size: Option<u64>,
    /// Denoising steps of a draft.
    pub num_steps: Option<u64>,
    /// Token budget.
    pub max_new_tokens: Option<u64>,
    /// The prompts, in order.
    pub prompts: Vec<String>,
}

/// Settings that only a comparison looks at (RULES §7.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct Settings {
    /// Number type, empty when not recorded.
    pub dtype: String,
    /// Attention implementation.
    pub attention: Option<String>,
    /// K/V codec in use.
    pub codec: bool,
    /// State kept between samples.
    pub stateful: bool,
    /// Warm-up tokens.
    pub warmup: Option<u64>,
}

/// Tokens a padding line, and tokens around the padding.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct PromptFit {
    /// Tokens a line; null when the lengths fit no single value.
    pub tokens_per_line: Option<i64>,
    /// Fewest and most tokens beside the padding.
    pub overhead: [i64; 2],
    /// `legacy_20tok`, `direct_answer_18tok` or `unknown`.
    pub variant: &'static str,
}

/// One arm.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
#[ts(rename = "EvidenceArm")]
pub struct Arm {
    /// Key in `/results`.
    pub key: String,
    /// Samples.
    pub n: u64,
    /// Strict hits, recounted from the stored texts.
    pub hits: u64,
    /// Hits when case is ignored.
    pub hits_ignoring_case: u64,
    /// hits / n.
    pub recall: f64,
    /// Exact 95 % interval of the recall.
    pub interval: Interval,
    /// Wilson score interval of the recall, 95 %.
    pub wilson: Interval,
    /// Mean of the per-sample rates, tokens a second, prefill included.
    pub mean_tok_s: Option<f64>,
    /// Median of the per-sample rates.
    pub median_tok_s: Option<f64>,
    /// Median rate of decoding alone, tokens a second; null without stage timings.
    pub decode_tok_s: Option<f64>,
    /// Median rate of the prompt's forward pass alone, tokens a second; null where the rows don't state the prompt's length.
    pub prefill_tok_s: Option<f64>,
    /// Median seconds from the prompt to the first token; null where the rows don't state them.
    pub first_token_s: Option<f64>,
    /// Mean seconds a sample, as stored.
    pub mean_latency_s: Option<f64>,
    /// Per-sample rates as stored, also those without a text beside them.
    #[serde(skip)]
    #[ts(skip)]
    pub(crate) rates: Vec<f64>,
    /// Per-sample token counts as stored.
    #[serde(skip)]
    #[ts(skip)]
    pub(crate) tokens: Vec<f64>,
    /// Sample by sample.
    pub rows: Vec<Row>,
}

/// One sample of one arm.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct Row {
    /// Sample index.
    pub index: usize,
    /// The code to recall; empty when the dataset cannot be regenerated.
    pub answer: String,
    /// Where the needle lies, 0 to 1.
    pub depth: Option<f64>,
    /// Generated text.
    pub text: String,
    /// Strict hit, recounted.
    pub hit: bool,
    /// Hit when case is ignored.
    pub hit_ignoring_case: bool,
    /// The stored flag.
    pub stored_hit: Option<bool>,
    /// Tokens generated.
    pub tokens: Option<u64>,
    /// Tokens a second.
    pub rate: Option<f64>,
}

/// How a memory figure came about. Figures of two kinds never share an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// Peak counter of the allocator.
    AllocatorPeak,
    /// Device memory in use, sampled.
    DeviceSampled,
    /// Resident set of the process, from the operating system.
    ProcessFootprint,
    /// K/V counted from the tensors that live.
    KvCounted,
    /// A formula; nothing was measured.
    Formula,
}

impl MemoryKind {
    /// The kind in words.
    pub fn label(self) -> Text {
        match self {
            Self::AllocatorPeak => text!("measured peak", "实测峰值"),
            Self::DeviceSampled => text!("device, sampled", "设备采样"),
            Self::ProcessFootprint => text!("process footprint", "进程占用"),
            Self::KvCounted => text!("counted K/V", "K/V 计数"),
            Self::Formula => text!("formula", "公式"),
        }
    }

    /// Whether the figure was measured in the run.
    pub fn is_measured(self) -> bool {
        self != Self::Formula
    }
}

/// One memory figure.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct MemoryFigure {
    /// Arm.
    pub arm: String,
    /// What it is.
    pub label: Text,
    /// Bytes.
    pub bytes: u64,
    /// How it came about.
    pub kind: MemoryKind,
}

/// What the seconds under a rate cover. Rates of two scopes are never divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum TimeScope {
    /// Prefill and decode.
    EndToEnd,
    /// Decode alone.
    DecodeOnly,
    /// A forward pass over the whole sequence for every token.
    Reforward,
    /// The file does not say and its rows do not show.
    Unstated,
}

impl TimeScope {
    /// The scope in words.
    pub fn label(self) -> Text {
        match self {
            Self::EndToEnd => text!("prefill and decode", "预填充和解码"),
            Self::DecodeOnly => text!("decode only", "仅解码"),
            Self::Reforward => text!("re-forward for every token", "每个词元重新前向"),
            Self::Unstated => text!("scope not stated", "范围未注明"),
        }
    }
}

/// Rate of one arm over all its samples.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct ThroughputFigure {
    /// Arm.
    pub arm: String,
    /// Tokens a second.
    pub tok_s: f64,
    /// What the seconds cover.
    pub scope: TimeScope,
}

/// Label of the driver's allocation, which a Mac samples after the arm.
pub(crate) const DRIVER: &str = "driver allocation";
/// Label of the allocator's own total at the same moment.
pub(crate) const CURRENT: &str = "current allocation";
/// Label of an allocator's peak.
pub(crate) const PEAK: &str = "peak";

/// Counters of one restored arm, summed over its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Restoration {
    /// Key in `/results`.
    #[serde(default)]
    pub key: String,
    /// Restored forward passes.
    pub passes: u64,
    /// Evicted positions, summed over passes.
    pub evicted_positions: u64,
    /// Positions the drafter ran over.
    #[serde(default)]
    pub drafter_positions: u64,
    /// Positions that f_θ projected, summed over layers.
    #[serde(default)]
    pub projected_positions: u64,
    /// Seconds in the drafter.
    #[serde(default)]
    pub drafter_s: f64,
    /// Seconds in f_θ.
    #[serde(default)]
    pub projection_s: f64,
    /// Seconds in the clean capture.
    #[serde(default)]
    pub capture_s: f64,
    /// Injection, layer by layer.
    pub layers: Vec<RestoredLayer>,
}

/// Injection into one layer, summed over samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct RestoredLayer {
    /// Layer index.
    pub layer: u64,
    /// Positions from f_θ.
    pub from_f_theta: u64,
    /// Positions from the clean forward.
    pub from_capture: u64,
    /// Positions from a mixture of both.
    #[serde(default)]
    pub from_mix: u64,
    /// Positions filled with noise (control).
    #[serde(default)]
    pub from_noise: u64,
    /// Positions hidden from every later query (control).
    #[serde(default)]
    pub hidden: u64,
}

impl RestoredLayer {
    /// Positions that were restored, whatever from.
    pub fn injected(&self) -> u64 {
        [self.from_f_theta, self.from_capture, self.from_mix].into_iter().fold(0, u64::saturating_add)
    }

    /// Positions that were dealt with, by restoration or by a control in its place.
    pub fn accounted(&self) -> u64 {
        [self.injected(), self.from_noise, self.hidden].into_iter().fold(0, u64::saturating_add)
    }
}

impl Restoration {
    /// Whether every evicted position of every layer was restored, and there was one.
    pub fn is_complete(&self) -> bool {
        self.covers(RestoredLayer::injected)
    }

    /// Whether every evicted position of every layer was dealt with, and there was one.
    pub fn is_accounted(&self) -> bool {
        self.covers(RestoredLayer::accounted)
    }

    fn covers(&self, positions: fn(&RestoredLayer) -> u64) -> bool {
        self.evicted_positions > 0
            && !self.layers.is_empty()
            && self.layers.iter().all(|layer| positions(layer) == self.evicted_positions)
    }

    /// Layers into which f_θ's K/V went.
    pub fn f_theta_layers(&self) -> usize {
        self.layers.iter().filter(|layer| layer.from_f_theta > 0).count()
    }

    /// How many layers got what, in words: `4 from f_θ, 2 captured`.
    pub fn layers_in_words(&self) -> Text {
        let count =
            |positions: fn(&RestoredLayer) -> u64| self.layers.iter().filter(|l| positions(l) > 0).count();
        let kinds = [
            (count(|layer| layer.from_f_theta), text!("from f_θ", "层来自 f_θ")),
            (count(|layer| layer.from_mix), text!("mixed", "层为混合")),
            (count(|layer| layer.from_noise), text!("noise", "层为噪声")),
            (count(|layer| layer.hidden), text!("hidden", "层被隐藏")),
            (count(|layer| layer.from_capture), text!("captured", "层为捕获值")),
        ];
        let words: Vec<Text> = kinds
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| text!(language => "{count} {}", "{count} {}", what.said(language)))
            .collect();
        if words.is_empty() { text!("none", "无") } else { Text::join(&words, &text!(", ", "，")) }
    }
}

/// Distance of the distribution of an arm's first token from the oracle's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ArmFidelity {
    /// Key in `/results`.
    #[serde(default)]
    pub key: String,
    /// Mean over samples.
    pub mean: Distance,
    /// Largest of the samples.
    pub worst: Distance,
    /// Sample by sample.
    pub samples: Vec<Distance>,
}

/// How far one distribution over the vocabulary is from another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Distance {
    /// Largest absolute difference of a logit.
    pub max_abs_logit_difference: f64,
    /// Kullback–Leibler divergence, nats.
    pub kl: f64,
}

/// Attention that the query of the first token pays to evicted positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ArmAttention {
    /// Key in `/results`.
    #[serde(default)]
    pub key: String,
    /// Samples behind the means.
    pub samples: u64,
    /// Layer by layer.
    pub layers: Vec<LayerAttention>,
}

/// Attention in one layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct LayerAttention {
    /// Layer index.
    pub layer: u64,
    /// `sliding` or `full`.
    pub kind: String,
    /// Mean over heads and samples, 0 to 1.
    pub mean: f64,
}

/// Our own provenance block, as far as reports show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Provenance {
    /// Version of the program that ran.
    pub program_version: String,
    /// Its git commit.
    pub git_commit: Option<String>,
    /// Whether its checkout had uncommitted changes.
    #[serde(default)]
    pub git_dirty: bool,
    /// Name of the model pack.
    pub pack_name: String,
    /// The demonstration pack.
    #[serde(default)]
    pub demo: bool,
    /// Files of the pack.
    pub weights: Vec<ProvenanceFile>,
    /// The dataset.
    pub dataset: ProvenanceDataset,
    /// The machine.
    pub host: ProvenanceHost,
    /// Tensor library.
    pub backend: String,
    /// Its version.
    #[serde(default)]
    pub backend_version: Option<String>,
    /// Device.
    pub device: String,
    /// Number type of the arithmetic.
    pub dtype: String,
    /// Start, RFC 3339.
    pub started: String,
    /// End, RFC 3339.
    pub ended: String,
    /// Failing checks in spite of which the run was started.
    #[serde(default)]
    pub overridden_checks: Vec<OverriddenCheck>,
}

/// A failing check of the preflight in spite of which a run was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct OverriddenCheck {
    /// Id of the check.
    pub id: String,
    /// What it had measured.
    pub measured: String,
}

/// A weight file and its digest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ProvenanceFile {
    /// Path, relative to the pack.
    pub path: String,
    /// Bytes.
    pub bytes: u64,
    /// SHA-256.
    pub sha256: String,
}

/// The dataset that ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ProvenanceDataset {
    /// SHA-256 over the prompts as they were put, each followed by a zero byte.
    pub sha256: String,
    /// Nominal rung.
    #[serde(default)]
    pub rung: Option<u32>,
    /// Prompt variant.
    pub prompt_variant: niah::PromptVariant,
}

/// The machine that ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ProvenanceHost {
    /// Operating system.
    pub os: String,
    /// Architecture.
    pub arch: String,
    /// Processor.
    pub cpu: String,
    /// Cores in use.
    pub cores: u64,
    /// Main memory, bytes.
    pub memory_bytes: u64,
}

/// SHA-256 over the prompts as they are put (variant applied), each followed by a zero byte: what a run records and what
/// an audit regenerates.
pub fn dataset_digest(samples: &[Sample], variant: niah::PromptVariant) -> String {
    files::sha256_parts(samples.iter().map(|sample| variant.text(sample) + "\0"))
}

impl Niah {
    /// An arm by its key.
    pub fn arm(&self, key: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.key == key)
    }

    /// The system under test.
    pub fn sut(&self) -> Option<&Arm> {
        self.arm(self.kind.sut())
    }

    /// The oracle.
    pub fn oracle(&self) -> Option<&Arm> {
        self.arm(self.kind.oracle())
    }

    /// Fewest and most padding lines.
    pub fn lines(&self) -> Option<[u64; 2]> {
        Some([self.min_lines?, self.max_lines?])
    }

    /// Both arms, when both ran.
    pub(crate) fn pair(&self) -> Option<(&Arm, &Arm)> {
        self.sut().zip(self.oracle())
    }

    /// Both arms, when their hits could be recounted: without the prompts nobody knows what the texts should hold.
    pub(crate) fn recounted(&self) -> Option<(&Arm, &Arm)> {
        self.pair().filter(|_| !self.samples.is_empty())
    }

    /// One digest over the digests of every file of the pack; None in files of the reference.
    pub fn weights_digest(&self) -> Option<String> {
        let files = &self.provenance.as_ref()?.weights;
        let all: String = files.iter().map(|file| format!("{} {}\n", file.sha256, file.path)).collect();
        Some(files::sha256(all.as_bytes())[..16].to_owned())
    }

    /// Counters of an arm.
    pub fn restored(&self, key: &str) -> Option<&Restoration> {
        self.restoration.iter().find(|counters| counters.key == key)
    }
}
