//! What other programs read of an audit: one object a file, described by `docs/schema/audit.schema.json`.
//!
//! Names and rounding are a contract. Front ends show [`Audit`] instead, which holds every figure as it was computed.

use crate::audit::{Audit, CrossFile, Verdict};
use crate::finding::{Finding, Severity};
use crate::identity::{Platform, Role};
use crate::json::{median, round};
use crate::layout::Malformed;
use crate::model::{Arm, CURRENT, DRIVER, MemoryKind, Niah, NiahKind, Row};
use crate::recompute::{Analytic, DecodeOnly, Paired, Recomputed, Spreads};
use crate::stats::Interval;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// The audit of one file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FileDocument {
    /// The file as it was given, or its folder as given joined with its path below it.
    pub path: String,
    /// `/kind`; null for a file that names none.
    pub kind: Option<String>,
    /// The kind, or `nokind:NAME`, a name for the file's set of keys.
    pub shape: String,
    /// Needle evidence or not.
    pub role: Role,
    /// Machine.
    pub platform: Platform,
    /// `/schema_version`, as stored.
    pub schema_version: Option<Value>,
    /// Size, bytes.
    pub bytes: u64,
    /// SHA-256 of the file, 64 hexadecimal digits.
    pub sha256: String,
    /// Samples; for other kinds sessions, agents or prompts, whichever the kind counts.
    pub n: Option<u64>,
    /// Stored recall by label, for kinds that are no needle evidence.
    pub recall: Option<BTreeMap<String, Option<f64>>>,
    /// What the file claims of itself, as stored.
    pub claimed_gate: Option<Value>,
    /// Fields of the wrong type, read as absent.
    pub malformed: Vec<Malformed>,
    /// Fields of needle evidence; absent for other files.
    #[serde(flatten)]
    pub needle: Option<NeedleDocument>,
    /// No stored number contradicts its rows.
    pub integrity_ok: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// The verdict if schema age did not matter.
    pub verdict_ignoring_schema_age: Verdict,
    /// That verdict, with pass turned into inconclusive below 72 samples.
    pub verdict_strict_statistics: Verdict,
    /// Findings, errors first.
    pub findings: Vec<FindingDocument>,
}

/// What needle evidence adds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NeedleDocument {
    /// Seed of the dataset; null when the file does not hold it.
    pub seed: Option<i64>,
    /// Fewest and most padding lines; null when the file does not hold them.
    pub haystack_lines: Option<[u64; 2]>,
    /// Rung of the release ladder, or the rung that the file itself records, padding lines.
    pub rung_lines: Option<u32>,
    /// Sink, positions.
    pub sink: Option<u64>,
    /// Window, positions.
    pub window: Option<u64>,
    /// Token budget.
    pub max_new_tokens: Option<u64>,
    /// `legacy_20tok`, `direct_answer_18tok` or `unknown`: what the prompt lengths fit.
    pub prompt_variant: &'static str,
    /// How prompt lengths follow from line counts; null when no lengths are recorded.
    pub prompt_fingerprint: Option<FingerprintDocument>,
    /// Longest prompt, tokens.
    pub prompt_tokens_max: Option<u64>,
    /// Arms by their key in `/results`.
    pub arms: BTreeMap<String, ArmDocument>,
    /// Numbers recomputed from the rows.
    pub recomputed: RecomputedDocument,
    /// Memory figures; null without any.
    pub memory: Option<MemoryDocument>,
    /// K/V codec in use (same-checkpoint kind).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl_on: Option<bool>,
    /// State kept between samples (same-checkpoint kind).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stateful: Option<bool>,
    /// An identity run without an oracle, against the oracle of another file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_file: Option<CrossFileDocument>,
}

/// Tokens a padding line, and tokens beside the padding.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FingerprintDocument {
    /// Tokens a line; null when the lengths fit no single value.
    pub tokens_per_line: Option<i64>,
    /// Fewest and most tokens beside the padding.
    pub overhead: [i64; 2],
}

/// One arm, recounted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ArmDocument {
    /// Strict hits.
    pub correct: u64,
    /// Samples.
    pub total: u64,
    /// correct / total.
    pub recall: f64,
    /// Clopper–Pearson 95 % interval of the recall, 4 decimals.
    pub cp95: [f64; 2],
    /// Indices of the strict hits.
    pub correct_idx: Vec<usize>,
    /// Hits when case is ignored.
    pub case_insensitive_correct: u64,
    /// Samples whose text holds at least the code's digits.
    pub digits_present: usize,
    /// Mean of the per-sample rates, tokens a second, prefill included, 4 decimals.
    pub mean_tok_s: Option<f64>,
    /// Mean seconds a sample, as stored, 3 decimals.
    pub mean_latency_s: Option<f64>,
    /// Figures of the per-sample rates; absent without rates.
    #[serde(flatten)]
    pub rates: Option<RatesDocument>,
}

/// Per-sample rates of one arm.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RatesDocument {
    /// Median rate, tokens a second, 4 decimals.
    pub median_tok_s: f64,
    /// Highest over lowest rate, 2 decimals; null when a rate is not above zero.
    pub lat_spread: Option<f64>,
    /// Median of the generated tokens.
    pub median_decode_tokens: Option<f64>,
}

/// Recomputed numbers of one needle file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RecomputedDocument {
    /// 100·(hits of the arm under test − hits of the oracle)/n, percentage points; null when an arm is missing.
    pub delta_pp: Option<f64>,
    /// The paired comparison; absent when an arm is missing.
    #[serde(flatten)]
    pub paired: Option<PairedDocument>,
    /// What `/throughput` comes to (Mac kind).
    #[serde(flatten)]
    pub throughput: Option<ThroughputDocument>,
    /// Codes of the reference's own gate on this file read as schema 2, sorted, each once; only with a claimed speed-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow_gate_codes: Option<Vec<&'static str>>,
    /// Codes of the reference's own gate on this file as it is (Mac kind).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo_gate_codes: Option<Vec<&'static str>>,
}

/// The arm under test against the oracle on the same samples.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PairedDocument {
    /// |delta_pp|.
    pub abs_delta_pp: f64,
    /// 20·|Δhits| ≤ n.
    pub within_5pp_integer: bool,
    /// What one sample weighs, percentage points, 2 decimals.
    pub flip_pp: f64,
    /// Samples that only the arm under test recalls.
    pub gain_b: u64,
    /// Samples that only the oracle recalls.
    pub loss_c: u64,
    /// The oracle's hits: the samples that can show a loss.
    pub informative_n: u64,
    /// `k/n`: hits of the arm under test among the oracle's hits.
    pub retention: String,
    /// Clopper–Pearson 95 % interval of the retention, 4 decimals; null without an oracle hit.
    pub retention_cp95: Option<[f64; 2]>,
    /// One-sided exact 95 % bound on the rate of lost samples, 4 decimals.
    pub loss_upper95_one_sided: f64,
    /// Upper end of the two-sided exact 95 % interval of that rate, 4 decimals.
    pub loss_upper975: f64,
    /// Conservative 95 % interval of the difference, percentage points, 1 decimal.
    pub delta_ci95_conservative_pp: [f64; 2],
    /// Tango's 95 % score interval of the difference, percentage points, 1 decimal.
    pub delta_ci95_tango_pp: [f64; 2],
    /// `k/n`: samples on which both arms wrote the same text.
    pub identical_text: String,
    /// Exact McNemar test of gains against losses: the p-value.
    pub mcnemar_p: f64,
    /// Further clean pairs that bring the one-sided bound to 5 points; null when out of reach.
    pub pairs_needed: Option<u64>,
}

/// Stage times and rates of the Mac kind.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ThroughputDocument {
    /// Largest over smallest stage time, by arm and stage.
    pub spreads: Spreads,
    /// Median decode-only rates; null without stage timings of both arms.
    pub decode_only_recomputed: Option<DecodeOnly>,
    /// The stored speed-up.
    pub claimed_speedup: Option<f64>,
}

/// Memory: figures of each arm, or the formula of the Mac kind.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum MemoryDocument {
    /// The formula.
    Formula(FormulaDocument),
    /// Figures by arm.
    Arms(BTreeMap<String, ArmMemoryDocument>),
}

/// The memory table of the Mac kind: a formula throughout, recomputed from its layers. Bytes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FormulaDocument {
    /// The bounded cache.
    pub analytic_s5_bytes: f64,
    /// A cache that keeps every position of every layer.
    pub naive_bytes: f64,
    /// The model's own cache, whose sliding layers keep 1024 positions.
    pub native_hybrid_1024_bytes: f64,
    /// The stored saving, percent.
    pub claimed_savings_pct: Option<f64>,
    /// The saving against the unbounded cache, percent, 1 decimal.
    pub recomputed_savings_pct: Option<f64>,
    /// The saving against the native cache, percent, 1 decimal.
    pub savings_vs_native_hybrid_pct: Option<f64>,
    /// The stored measured peak, 10⁶ bytes.
    pub measured_peak_mb: Option<f64>,
}

/// Measured memory of one arm, bytes; absent where not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ArmMemoryDocument {
    /// Peak counter of the allocator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<u64>,
    /// The driver's allocation, sampled after the arm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<u64>,
    /// The allocator's own total at the same moment; left out beside a peak, which says more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
}

/// An identity run against the oracle of another file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CrossFileDocument {
    /// The file whose oracle it is.
    pub oracle_source: String,
    /// Hits of that oracle.
    pub oracle_correct: u64,
    /// 100·(hits of the identity run − hits of the oracle)/n, percentage points.
    pub delta_pp: f64,
    /// `k/n`: samples on which both wrote the same text.
    pub identical_text: String,
}

/// One finding. Its numbers stand beside the named fields, under names of their own.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FindingDocument {
    /// Stable code.
    pub code: &'static str,
    /// Weight.
    pub severity: Severity,
    /// JSON pointer to the place in the file.
    pub pointer: String,
    /// One sentence with the numbers.
    pub message: String,
    /// Why it matters.
    pub why: String,
    /// What would fix it.
    pub fix: String,
    /// The numbers, by name.
    #[serde(flatten)]
    pub numbers: Map<String, Value>,
}

/// A path as it is shown: as given, without a leading `./`.
pub fn shown_path(path: &Path) -> String {
    path.strip_prefix(".").unwrap_or(path).display().to_string()
}

impl From<&Audit> for FileDocument {
    fn from(audit: &Audit) -> Self {
        Self {
            path: shown_path(&audit.path),
            kind: audit.identity.kind.clone(),
            shape: audit.identity.shape.clone(),
            role: audit.identity.role,
            platform: audit.identity.platform,
            schema_version: audit.identity.schema_version.clone(),
            bytes: audit.bytes,
            sha256: audit.sha256.clone(),
            n: audit.n,
            recall: audit.recall.as_ref().map(|rows| rows.iter().cloned().collect()),
            claimed_gate: audit.claimed_gate.clone(),
            malformed: audit.malformed.clone(),
            needle: audit.niah.as_ref().zip(audit.recomputed.as_ref()).map(|(n, r)| needle(audit, n, r)),
            integrity_ok: audit.integrity_ok,
            verdict: audit.verdict,
            verdict_ignoring_schema_age: audit.verdict_ignoring_schema_age,
            verdict_strict_statistics: audit.verdict_strict_statistics,
            findings: audit.findings.iter().map(FindingDocument::from).collect(),
        }
    }
}

impl From<&Finding> for FindingDocument {
    fn from(finding: &Finding) -> Self {
        Self {
            code: finding.code,
            severity: finding.severity,
            pointer: finding.pointer.clone(),
            message: finding.message.en().to_owned(),
            why: finding.why.en().to_owned(),
            fix: finding.fix.en().to_owned(),
            numbers: finding.data.clone(),
        }
    }
}

fn needle(audit: &Audit, niah: &Niah, recomputed: &Recomputed) -> NeedleDocument {
    let fit = niah.prompt_fit.as_ref();
    let same_checkpoint = niah.kind == NiahKind::SameCheckpoint;
    NeedleDocument {
        seed: niah.seed,
        haystack_lines: niah.lines(),
        rung_lines: niah.rung,
        sink: niah.sink,
        window: niah.window,
        max_new_tokens: niah.max_new_tokens,
        prompt_variant: fit.map_or("unknown", |fit| fit.variant),
        prompt_fingerprint: fit
            .map(|fit| FingerprintDocument { tokens_per_line: fit.tokens_per_line, overhead: fit.overhead }),
        prompt_tokens_max: niah.prompt_tokens_max,
        arms: niah.arms.iter().map(|arm| (arm.key.clone(), ArmDocument::from(arm))).collect(),
        recomputed: RecomputedDocument::from(recomputed),
        memory: memory(niah, recomputed),
        kl_on: same_checkpoint.then_some(niah.settings.codec),
        stateful: same_checkpoint.then_some(niah.settings.stateful),
        cross_file: audit.cross_file.as_ref().map(CrossFileDocument::from),
    }
}

fn of(part: u64, whole: u64) -> String {
    format!("{part}/{whole}")
}

fn ends(interval: Interval) -> [f64; 2] {
    [interval.low, interval.high]
}

impl From<&Arm> for ArmDocument {
    fn from(arm: &Arm) -> Self {
        Self {
            correct: arm.hits,
            total: arm.n,
            recall: arm.recall,
            cp95: ends(arm.interval.rounded(4)),
            correct_idx: arm.rows.iter().filter(|row| row.hit).map(|row| row.index).collect(),
            case_insensitive_correct: arm.hits_ignoring_case,
            digits_present: arm.rows.iter().filter(|row| holds_digits(row)).count(),
            mean_tok_s: arm.mean_tok_s.map(|rate| round(rate, 4)),
            mean_latency_s: arm.mean_latency_s.map(|seconds| round(seconds, 3)),
            rates: arm.median_tok_s.map(|median| rates(arm, median)),
        }
    }
}

/// A code is `PREFIX-dddd`.
fn holds_digits(row: &Row) -> bool {
    row.hit || row.answer.rsplit_once('-').is_some_and(|(_, digits)| row.text.contains(digits))
}

fn rates(arm: &Arm, median_tok_s: f64) -> RatesDocument {
    let rates = || arm.rates.iter().copied();
    let (low, high) = (rates().reduce(f64::min), rates().reduce(f64::max));
    RatesDocument {
        median_tok_s: round(median_tok_s, 4),
        lat_spread: low.zip(high).filter(|(low, _)| *low > 0.0).map(|(low, high)| round(high / low, 2)),
        median_decode_tokens: median(&arm.tokens),
    }
}

impl From<&Recomputed> for RecomputedDocument {
    fn from(recomputed: &Recomputed) -> Self {
        let paired = recomputed.paired.as_ref();
        Self {
            delta_pp: paired.map(|paired| paired.delta_pp),
            paired: paired.map(PairedDocument::from),
            throughput: recomputed.spreads.map(|spreads| ThroughputDocument {
                spreads,
                decode_only_recomputed: recomputed.decode_only,
                claimed_speedup: recomputed.claimed_speedup,
            }),
            shadow_gate_codes: recomputed.shadow_gate_codes.clone(),
            repo_gate_codes: recomputed.repo_gate_codes.clone(),
        }
    }
}

impl From<&Paired> for PairedDocument {
    fn from(paired: &Paired) -> Self {
        Self {
            abs_delta_pp: paired.delta_pp.abs(),
            within_5pp_integer: paired.within_5pp,
            flip_pp: paired.flip_pp,
            gain_b: paired.gained,
            loss_c: paired.lost,
            informative_n: paired.informative_n,
            retention: of(paired.retained, paired.informative_n),
            retention_cp95: paired.retention_interval.map(ends),
            loss_upper95_one_sided: paired.loss_upper95,
            loss_upper975: paired.loss_upper975,
            delta_ci95_conservative_pp: ends(paired.delta_interval_pp),
            delta_ci95_tango_pp: ends(paired.delta_tango_pp),
            identical_text: of(paired.identical_texts, paired.n),
            mcnemar_p: paired.mcnemar_p,
            pairs_needed: paired.pairs_needed,
        }
    }
}

/// The formula where the file holds one, else what was measured for each arm.
fn memory(niah: &Niah, recomputed: &Recomputed) -> Option<MemoryDocument> {
    if let Some(table) = &recomputed.analytic {
        return Some(MemoryDocument::Formula(table.into()));
    }
    if niah.kind == NiahKind::CrossModelMac {
        return None;
    }
    let mut arms: BTreeMap<String, ArmMemoryDocument> = BTreeMap::new();
    for figure in &niah.memory {
        let slot: fn(&mut ArmMemoryDocument) -> &mut Option<u64> = match (figure.kind, figure.label.en()) {
            (MemoryKind::AllocatorPeak, _) => |arm| &mut arm.peak,
            (MemoryKind::DeviceSampled, DRIVER) => |arm| &mut arm.driver,
            (MemoryKind::DeviceSampled, CURRENT) => |arm| &mut arm.current,
            _ => continue,
        };
        *slot(arms.entry(figure.arm.clone()).or_default()) = Some(figure.bytes);
    }
    for arm in arms.values_mut().filter(|arm| arm.peak.is_some()) {
        arm.current = None;
    }
    (!arms.is_empty()).then_some(MemoryDocument::Arms(arms))
}

impl From<&Analytic> for FormulaDocument {
    fn from(table: &Analytic) -> Self {
        Self {
            analytic_s5_bytes: table.total,
            naive_bytes: table.naive,
            native_hybrid_1024_bytes: table.native,
            claimed_savings_pct: table.claimed_savings_pct,
            recomputed_savings_pct: table.savings_pct,
            savings_vs_native_hybrid_pct: table.savings_vs_native_pct,
            measured_peak_mb: table.measured_peak_mb,
        }
    }
}

impl From<&CrossFile> for CrossFileDocument {
    fn from(cross: &CrossFile) -> Self {
        Self {
            oracle_source: shown_path(&cross.oracle_source),
            oracle_correct: cross.oracle_correct,
            delta_pp: cross.delta_pp,
            identical_text: of(cross.identical_texts, cross.n),
        }
    }
}
