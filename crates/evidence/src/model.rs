//! One model for every needle file, whatever wrote it.

use crate::json::{At, median, round};
use crate::stats::{Interval, clopper_pearson};
use niah::{Dataset, Rung, Sample, Score};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
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
    /// Seed of the dataset.
    pub seed: i64,
    /// Fewest padding lines.
    pub min_lines: u64,
    /// Most padding lines.
    pub max_lines: u64,
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
    /// Longest prompt, tokens.
    pub prompt_tokens_max: Option<u64>,
    /// How prompt lengths follow from line counts.
    pub prompt_fit: Option<PromptFit>,
    /// The prompts, regenerated; empty when no dataset can be made from the bounds.
    pub samples: Vec<Prompt>,
    /// Arms, in the order of the file.
    pub arms: Vec<Arm>,
    /// Memory figures, each with its kind.
    pub memory: Vec<MemoryFigure>,
    /// Counters of restored arms; empty for files of the reference.
    pub restoration: Vec<Restoration>,
    /// Where the file comes from; absent in files of the reference.
    pub provenance: Option<Provenance>,
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

/// What tells one prompt from another: with these the text is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct Prompt {
    /// The code to recall.
    pub answer: String,
    /// Padding lines before the needle.
    pub needle_line: u32,
    /// Padding lines in all.
    pub padding_lines: u32,
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
    /// Mean of the per-sample rates, tokens a second, prefill included.
    pub mean_tok_s: Option<f64>,
    /// Median of the per-sample rates.
    pub median_tok_s: Option<f64>,
    /// Mean seconds a sample, as stored.
    pub mean_latency_s: Option<f64>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
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
    pub fn label(self) -> &'static str {
        match self {
            Self::AllocatorPeak => "measured peak",
            Self::DeviceSampled => "device, sampled",
            Self::ProcessFootprint => "process footprint",
            Self::KvCounted => "counted K/V",
            Self::Formula => "formula",
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
    pub label: String,
    /// Bytes.
    pub bytes: u64,
    /// How it came about.
    pub kind: MemoryKind,
}

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
}

impl RestoredLayer {
    /// Positions injected from either source.
    pub fn injected(&self) -> u64 {
        self.from_f_theta.saturating_add(self.from_capture)
    }
}

impl Restoration {
    /// Whether every evicted position of every layer was injected, and there was one.
    pub fn is_complete(&self) -> bool {
        self.evicted_positions > 0
            && !self.layers.is_empty()
            && self.layers.iter().all(|layer| layer.injected() == self.evicted_positions)
    }

    /// Layers into which f_θ's K/V went.
    pub fn f_theta_layers(&self) -> usize {
        self.layers.iter().filter(|layer| layer.from_f_theta > 0).count()
    }
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
    let bytes: Vec<u8> = samples
        .iter()
        .flat_map(|sample| variant.text(&sample.prompt).into_bytes().into_iter().chain([0]))
        .collect();
    files::sha256(&bytes)
}

/// Datasets of one audit, each generated once.
#[derive(Default)]
pub(crate) struct Datasets(BTreeMap<(i64, usize, u32, u32), std::rc::Rc<Vec<Sample>>>);

/// Hostile bounds must not fill the memory: prompts of more than this many bytes in all are not regenerated.
const REGENERATE_CAP: u64 = 256 << 20;
const LINE_BYTES: u64 = 90;

impl Datasets {
    /// The samples of these bounds; empty when no dataset can be made from them.
    pub(crate) fn samples(
        &mut self,
        n: u64,
        min_lines: u64,
        max_lines: u64,
        seed: i64,
    ) -> std::rc::Rc<Vec<Sample>> {
        let bounds = (usize::try_from(n), u32::try_from(min_lines), u32::try_from(max_lines));
        let (Ok(n_samples), Ok(min), Ok(max)) = bounds else { return std::rc::Rc::default() };
        if n.saturating_mul(max_lines).saturating_mul(LINE_BYTES) > REGENERATE_CAP {
            return std::rc::Rc::default();
        }
        let made = self.0.entry((seed, n_samples, min, max)).or_insert_with(|| {
            let dataset = Dataset { seed, n_samples, min_lines: min, max_lines: max };
            std::rc::Rc::new(dataset.samples().map(Iterator::collect).unwrap_or_default())
        });
        std::rc::Rc::clone(made)
    }
}

/// The needle evidence in a file; None for other kinds and for files without the fields that every needle file has.
pub(crate) fn niah(value: &Value, datasets: &mut Datasets) -> Option<(Niah, std::rc::Rc<Vec<Sample>>)> {
    let kind = NiahKind::of(value.text("/kind")?)?;
    let n = value.whole("/config/n_samples")?;
    let seed = value.at("/config/seed").and_then(Value::as_i64)?;
    let (min_lines, max_lines) =
        (value.whole("/config/haystack_min_lines")?, value.whole("/config/haystack_max_lines")?);
    let samples = datasets.samples(n, min_lines, max_lines, seed);
    let prompt_lens = prompt_lens(value, kind);
    let text = |pointers: &[&str]| pointers.iter().find_map(|pointer| value.text(pointer)).map(str::to_owned);
    let provenance: Option<Provenance> =
        value.at("/provenance").and_then(|block| serde_json::from_value(block.clone()).ok());
    let ladder_rung = u32::try_from(min_lines)
        .ok()
        .zip(u32::try_from(max_lines).ok())
        .and_then(|(low, high)| Rung::of_bounds(low, high).map(|rung| rung.0));
    let evidence = Niah {
        kind,
        n,
        seed,
        min_lines,
        max_lines,
        rung: ladder_rung.or_else(|| provenance.as_ref().and_then(|provenance| provenance.dataset.rung)),
        sink: value.whole("/config/sink_size"),
        window: value.whole("/config/window_size"),
        max_new_tokens: value.whole("/config/max_new_tokens"),
        verifier: text(&["/config/model", "/config/verifier_id", "/config/verifier_path"]),
        drafter: text(&["/config/drafter_id"]),
        f_theta: text(&["/config/f_theta_dir"]),
        s5: value.is_on("/config/s5_exact_full_attn"),
        identity: value.is_on("/config/identity_restore"),
        settings: Settings {
            dtype: text(&["/config/dtype"]).unwrap_or_default(),
            attention: text(&["/config/attn_impl"]),
            codec: value.is_on("/kl/kl_on") || value.is_on("/config/compress_full_attn"),
            stateful: value.is_on("/stateful"),
            warmup: value.whole("/config/decode_warmup_tokens"),
        },
        decode: text(&["/config/eval_mode", "/config/decode"]).unwrap_or_else(|| "re-forward".to_owned()),
        prompt_tokens_max: prompt_lens
            .as_ref()
            .and_then(|lens| lens.iter().copied().max())
            .or_else(|| value.whole("/config/prompt_token_len_max")),
        prompt_fit: prompt_fit(value, prompt_lens.as_deref(), &samples),
        prompt_lens: prompt_lens.unwrap_or_default(),
        samples: samples.iter().map(prompt).collect(),
        arms: arms(value, n, &samples),
        memory: memory(value, kind),
        restoration: restoration(value),
        provenance,
    };
    Some((evidence, samples))
}

fn prompt(sample: &Sample) -> Prompt {
    Prompt {
        answer: sample.answer.clone(),
        needle_line: sample.needle_line,
        padding_lines: sample.padding_lines,
    }
}

fn prompt_lens(value: &Value, kind: NiahKind) -> Option<Vec<u64>> {
    if let Some(lens) = value.list("/config/prompt_token_lens") {
        return lens.iter().map(Value::as_u64).collect();
    }
    let rows = value.list(&format!("/attention_window/per_config/{}/per_sample", kind.sut()))?;
    rows.iter().map(|row| row.whole("/seq_len")).collect()
}

/// Longer prompts than this exist in no evidence; hostile lengths must not overflow the fit.
const LONGEST_PROMPT: u64 = 1 << 40;

/// RULES §5, `prompt_fingerprint`: the slope of prompt length over line count, and what is left.
fn prompt_fit(value: &Value, lens: Option<&[u64]>, samples: &[Sample]) -> Option<PromptFit> {
    let bound = |key: &str| value.whole(key).filter(|len| *len < LONGEST_PROMPT).map(|len| len as i64);
    let lens = lens.filter(|lens| lens.iter().all(|len| *len < LONGEST_PROMPT));
    let lines: Vec<i64> = samples.iter().map(|sample| i64::from(sample.padding_lines)).collect();
    let (shortest, longest) = (lines.iter().min().copied()?, lines.iter().max().copied()?);
    let slope = |tokens: i64, lines: i64| round(tokens as f64 / lines as f64, 0) as i64;
    let (tokens_per_line, overhead) = match lens {
        Some(lens) => {
            let pairs: Vec<(i64, i64)> =
                lens.iter().map(|len| *len as i64).zip(lines.iter().copied()).collect();
            let (first_len, first_lines) = *pairs.first()?;
            if pairs.iter().all(|(_, l)| *l == first_lines) {
                let fits = |s: &i64| (25..=75).contains(&(first_len - s * first_lines));
                let fitting: Vec<i64> = [20, 18].into_iter().filter(fits).collect();
                let shown = fitting.first().copied().unwrap_or(20);
                let left = first_len - shown * first_lines;
                (if fitting.len() == 1 { Some(shown) } else { None }, [left, left])
            } else {
                let at = |wanted: i64| pairs.iter().find(|(_, l)| *l == wanted);
                let (longest_len, _) = at(pairs.iter().map(|(_, l)| *l).max()?)?;
                let (shortest_len, _) = at(pairs.iter().map(|(_, l)| *l).min()?)?;
                let span = pairs.iter().map(|(_, l)| *l).max()? - pairs.iter().map(|(_, l)| *l).min()?;
                let s = slope(longest_len - shortest_len, span);
                let left = |(len, l): &(i64, i64)| len - s * l;
                (Some(s), [pairs.iter().map(left).min()?, pairs.iter().map(left).max()?])
            }
        }
        None => {
            let low = bound("/config/prompt_token_len_min")?;
            let high = bound("/config/prompt_token_len_max")?;
            if longest == shortest {
                return None;
            }
            let s = slope(high - low, longest - shortest);
            (Some(s), [low - s * shortest, high - s * longest])
        }
    };
    let variant = match tokens_per_line {
        Some(18) => "direct_answer_18tok",
        Some(20) => "legacy_20tok",
        _ => "unknown",
    };
    Some(PromptFit { tokens_per_line, overhead, variant })
}

fn arms(value: &Value, n: u64, samples: &[Sample]) -> Vec<Arm> {
    let Some(results) = value.at("/results").and_then(Value::as_object) else { return Vec::new() };
    results
        .iter()
        .filter(|(_, arm)| arm.is_object())
        .map(|(key, block)| arm(key, block, n, samples))
        .collect()
}

fn arm(key: &str, block: &Value, n: u64, samples: &[Sample]) -> Arm {
    let texts = block.list("/per_sample_decoded").unwrap_or_default();
    let rates = block.numbers("/per_sample_throughput_tokens_per_sec").filter(|rates| !rates.is_empty());
    let item = |pointer: &str, i: usize| block.at(&format!("{pointer}/{i}")).cloned();
    let rows: Vec<Row> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let text = text.as_str().unwrap_or_default().to_owned();
            let sample = samples.get(index);
            let answer = sample.map_or_else(String::new, |sample| sample.answer.clone());
            let score = Score::of(&text, &answer);
            Row {
                index,
                depth: sample.map(Sample::depth),
                hit: score.strict,
                hit_ignoring_case: score.ignoring_case,
                stored_hit: item("/per_sample_correct", index).and_then(|flag| flag.as_bool()),
                tokens: item("/per_sample_decode_tokens", index).and_then(|tokens| tokens.as_u64()),
                rate: rates.as_ref().and_then(|rates| rates.get(index).copied()),
                answer,
                text,
            }
        })
        .collect();
    let hits = rows.iter().filter(|row| row.hit).count() as u64;
    let mean = |rates: &Vec<f64>| rates.iter().sum::<f64>() / rates.len() as f64;
    Arm {
        key: key.to_owned(),
        n,
        hits,
        hits_ignoring_case: rows.iter().filter(|row| row.hit_ignoring_case).count() as u64,
        recall: if n == 0 { 0.0 } else { hits as f64 / n as f64 },
        interval: clopper_pearson(hits.min(n), n, 0.05),
        mean_tok_s: rates.as_ref().map(mean),
        median_tok_s: rates.as_deref().and_then(median),
        mean_latency_s: block.number("/mean_latency_s"),
        rows,
    }
}

fn memory(value: &Value, kind: NiahKind) -> Vec<MemoryFigure> {
    let base = if kind == NiahKind::SameCheckpoint { "/memory/per_config" } else { "/memory" };
    let mut figures = Vec::new();
    let Some(blocks) = value.at(base).and_then(Value::as_object) else { return figures };
    for (arm, block) in blocks {
        let mut push = |label: &str, bytes: Option<u64>, kind| {
            figures.extend(bytes.map(|bytes| MemoryFigure {
                arm: arm.clone(),
                label: label.to_owned(),
                bytes,
                kind,
            }));
        };
        push("peak", block.whole("/peak_allocated_bytes"), MemoryKind::AllocatorPeak);
        push("driver allocation", block.whole("/driver_allocated_bytes"), MemoryKind::DeviceSampled);
        for figure in block.list("/figures").unwrap_or_default() {
            let kind = figure.at("/kind").and_then(|kind| serde_json::from_value(kind.clone()).ok());
            if let (Some(label), Some(kind)) = (figure.text("/label"), kind) {
                push(label, figure.whole("/bytes"), kind);
            }
        }
    }
    let mut of_sut = |label: &str, bytes: Option<f64>, figure_kind| {
        figures.extend(bytes.filter(|bytes| *bytes >= 0.0).map(|bytes| MemoryFigure {
            arm: kind.sut().to_owned(),
            label: label.to_owned(),
            bytes: bytes.round() as u64,
            kind: figure_kind,
        }));
    };
    of_sut("resident K/V", value.number("/memory/s5/total_resident_bytes"), MemoryKind::Formula);
    of_sut("peak", value.number("/memory/measured_peak_mb").map(|mb| mb * 1e6), MemoryKind::AllocatorPeak);
    figures
}

fn restoration(value: &Value) -> Vec<Restoration> {
    let Some(blocks) = value.at("/restoration").and_then(Value::as_object) else { return Vec::new() };
    let parsed = blocks.iter().filter_map(|(key, block)| {
        let counters: Restoration = serde_json::from_value(block.clone()).ok()?;
        Some(Restoration { key: key.clone(), ..counters })
    });
    parsed.collect()
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

    /// Both arms, when both ran.
    pub(crate) fn pair(&self) -> Option<(&Arm, &Arm)> {
        self.sut().zip(self.oracle())
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
