//! The gates: for each, every rung and platform, one cell with a verdict and its reason.
//!
//! Three honest outcomes (pass, fail, undecided) and two warnings (vacuous, missing).

use crate::audit::{Audit, Verdict};
use crate::finding::INTEGRITY;
use crate::identity::Platform;
use crate::json::round;
use crate::model::{Arm, MemoryFigure, MemoryKind, Niah, NiahKind, Restoration};
use crate::policy::{Policy, Thresholds};
use crate::recompute::Paired;
use crate::stats::{pairs_needed, upper_bound};
use crate::{Finding, Recomputed};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use ts_rs::TS;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, TS, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GateKind {
    /// A platform has evidence, with both arms, at every rung of the policy's ladder.
    Coverage,
    /// The recalls of the arm under test and its oracle lie within the margin.
    Recall,
    /// Every evicted position of every layer was injected.
    Restoration,
    /// The measured memory stays under the limit.
    Memory,
}

impl GateKind {
    /// The gate in words.
    fn title(self, limits: &Thresholds) -> String {
        match self {
            Self::Coverage => "Every rung measured".to_owned(),
            Self::Recall => format!("Recall within {} pp", limits.recall_margin_pp),
            Self::Restoration => "Restoration ran".to_owned(),
            Self::Memory => format!("Memory under {} GiB", limits.memory_limit_gib),
        }
    }
}

/// Outcome of one gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, TS, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GateVerdict {
    /// It does not hold.
    Fail,
    /// It would hold whatever the claim is.
    Vacuous,
    /// Nothing measured it.
    Missing,
    /// The point estimate holds, the samples are too few to prove it.
    Undecided,
    /// It holds, and the samples prove it.
    Pass,
}

impl GateVerdict {
    /// The outcome in a word.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Undecided => "undecided",
            Self::Vacuous => "vacuous",
            Self::Missing => "missing",
        }
    }
}

/// One gate on one rung of one platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS, JsonSchema)]
pub struct GateCell {
    /// Which gate.
    pub gate: GateKind,
    /// The gate in words, with its threshold.
    pub title: String,
    /// Rung, in padding lines, or line bounds; `all` where the whole ladder is asked for.
    pub rung: String,
    /// Platform.
    pub platform: Platform,
    /// Outcome.
    pub verdict: GateVerdict,
    /// The numbers, in short.
    pub figures: String,
    /// One sentence why.
    pub why: String,
    /// Further clean pairs that would decide it.
    pub samples_needed: Option<u64>,
    /// The file that the cell rests on; null where it rests on all of them.
    pub file: Option<PathBuf>,
}

/// Every gate.
#[derive(Clone, Debug, PartialEq, Serialize, TS, JsonSchema)]
pub struct GateReport {
    /// The worst outcome of all cells; missing when there is none.
    pub verdict: GateVerdict,
    /// The outcome in a sentence.
    pub headline: String,
    /// The thresholds that decided.
    pub policy: Policy,
    /// The cells: first what covers the whole ladder, then by rung, platform and gate.
    pub cells: Vec<GateCell>,
    /// Files that carry no needle gate.
    pub ignored: Vec<PathBuf>,
}

/// Decides every gate from audited files.
pub fn gate(audits: &[Audit], policy: &Policy) -> GateReport {
    let limits = &policy.values;
    let needles: Vec<Needle> = audits.iter().filter_map(Needle::of).collect();
    let mut cells: Vec<GateCell> = Vec::new();
    if !needles.is_empty() {
        cells.extend(limits.platforms.iter().map(|platform| coverage(&needles, *platform, limits)));
        cells.extend(rungs(&needles, limits));
    }
    let verdict = cells.iter().map(|cell| cell.verdict).min().unwrap_or(GateVerdict::Missing);
    let ignored =
        audits.iter().filter(|audit| audit.niah.is_none()).map(|audit| audit.path.clone()).collect();
    GateReport { verdict, headline: headline(&cells), policy: policy.clone(), cells, ignored }
}

fn headline(cells: &[GateCell]) -> String {
    if cells.is_empty() {
        return "No needle evidence was given: nothing can be decided.".to_owned();
    }
    let count = |verdict| cells.iter().filter(|cell| cell.verdict == verdict).count();
    let parts: Vec<String> = [
        (GateVerdict::Fail, "fail"),
        (GateVerdict::Vacuous, "vacuous"),
        (GateVerdict::Missing, "not measured"),
        (GateVerdict::Undecided, "undecided for want of proof"),
        (GateVerdict::Pass, "pass"),
    ]
    .into_iter()
    .filter(|(verdict, _)| count(*verdict) > 0)
    .map(|(verdict, words)| format!("{} {words}", count(verdict)))
    .collect();
    format!("{} gates: {}.", cells.len(), parts.join(", "))
}

/// A file of needle evidence.
struct Needle<'a> {
    audit: &'a Audit,
    niah: &'a Niah,
    recomputed: &'a Recomputed,
}

impl<'a> Needle<'a> {
    fn of(audit: &'a Audit) -> Option<Self> {
        Some(Self { audit, niah: audit.niah.as_ref()?, recomputed: audit.recomputed.as_ref()? })
    }

    fn finding(&self, codes: &[&str]) -> Option<&'a Finding> {
        self.audit.findings.iter().find(|finding| codes.contains(&finding.code))
    }

    /// Rung and platform, in the order of the report. Off the ladder the line bounds stand for the rung.
    fn place(&self) -> (u64, u64, Platform) {
        let [low, high] = self.niah.lines().unwrap_or_default();
        let (lines, most) = self.niah.rung.map_or((low, high), |rung| (u64::from(rung), 0));
        (lines, most, self.audit.identity.platform)
    }
}

struct Outcome {
    verdict: GateVerdict,
    figures: String,
    why: String,
    samples_needed: Option<u64>,
}

impl Outcome {
    fn new(verdict: GateVerdict, figures: impl Into<String>, why: impl Into<String>) -> Self {
        Self { verdict, figures: figures.into(), why: why.into(), samples_needed: None }
    }

    /// Nothing was measured.
    fn missing(why: impl Into<String>) -> Self {
        Self::new(GateVerdict::Missing, "–", why)
    }
}

/// The cells of every file, by rung, platform and gate.
fn rungs(needles: &[Needle], limits: &Thresholds) -> Vec<GateCell> {
    type Gate = fn(&Needle, &Thresholds) -> Outcome;
    const GATES: [(GateKind, Gate); 3] =
        [(GateKind::Recall, recall), (GateKind::Restoration, restoration), (GateKind::Memory, memory)];
    let mut asked: Vec<(&Needle, GateKind, Gate)> =
        needles.iter().flat_map(|needle| GATES.map(|(gate, decide)| (needle, gate, decide))).collect();
    asked.sort_by_key(|(needle, gate, _)| (needle.place(), *gate));
    let cell = |(needle, gate, decide): (&Needle, GateKind, Gate)| {
        let outcome = decide(needle, limits);
        GateCell {
            gate,
            title: gate.title(limits),
            rung: needle.audit.rung_label(),
            platform: needle.audit.identity.platform,
            verdict: outcome.verdict,
            figures: outcome.figures,
            why: outcome.why,
            samples_needed: outcome.samples_needed,
            file: Some(needle.audit.path.clone()),
        }
    };
    asked.into_iter().map(cell).collect()
}

/// Does the platform have a file with both arms at every rung?
fn coverage(needles: &[Needle], platform: Platform, limits: &Thresholds) -> GateCell {
    let mut paired: BTreeMap<u32, bool> = BTreeMap::new();
    for needle in needles.iter().filter(|needle| needle.audit.identity.platform == platform) {
        if let Some(rung) = needle.niah.rung {
            *paired.entry(rung).or_default() |= needle.niah.pair().is_some();
        }
    }
    let rungs = |wanted: Option<bool>| -> Vec<String> {
        let found = limits.ladder.iter().filter(|rung| paired.get(rung).copied() == wanted);
        found.map(u32::to_string).collect()
    };
    let (measured, alone, absent) = (rungs(Some(true)), rungs(Some(false)), rungs(None));
    let mut lacks = Vec::new();
    if !absent.is_empty() {
        lacks.push(format!("no evidence at {}", absent.join(", ")));
    }
    if !alone.is_empty() {
        lacks.push(format!("only one arm at {}", alone.join(", ")));
    }
    let (verdict, why) = if lacks.is_empty() {
        (GateVerdict::Pass, "both arms ran at every rung of the ladder".to_owned())
    } else {
        (GateVerdict::Missing, format!("{} padding lines", lacks.join(" and ")))
    };
    GateCell {
        gate: GateKind::Coverage,
        title: GateKind::Coverage.title(limits),
        rung: "all".to_owned(),
        platform,
        verdict,
        figures: format!("{} of {} rungs", measured.len(), limits.ladder.len()),
        why,
        samples_needed: None,
        file: None,
    }
}

/// The margin in integers, then whether the claim says anything, then whether the samples prove it.
fn recall(needle: &Needle, limits: &Thresholds) -> Outcome {
    let (Some((sut, oracle)), Some(paired)) = (needle.niah.pair(), needle.recomputed.paired.as_ref()) else {
        return Outcome::missing("an arm is missing: recall is not judged without its oracle");
    };
    let figures = format!("{}/{} vs {}/{}", sut.hits, sut.n, oracle.hits, oracle.n);
    if let Some(finding) = needle.finding(&INTEGRITY) {
        return Outcome::new(GateVerdict::Fail, figures, finding.message.clone());
    }
    if !limits.within_margin(sut.hits, oracle.hits, paired.n) {
        let why = format!(
            "{} of {} samples apart, more than {} pp",
            sut.hits.abs_diff(oracle.hits),
            paired.n,
            limits.recall_margin_pp
        );
        return Outcome::new(GateVerdict::Fail, figures, why);
    }
    if let Some(finding) = vacuous(needle) {
        return Outcome::new(GateVerdict::Vacuous, figures, finding.message.clone());
    }
    if needle.audit.verdict == Verdict::Legacy {
        return Outcome::new(GateVerdict::Missing, figures, "the file's schema proves too little");
    }
    decided(paired, limits, figures)
}

/// Why recall within the margin would say nothing. One checkpoint in both roles restores exactly, unless a codec is on.
fn vacuous<'a>(needle: &Needle<'a>) -> Option<&'a Finding> {
    let exact = needle.niah.kind == NiahKind::SameCheckpoint && !needle.niah.settings.codec;
    let ran = needle.finding(&["RESTORATION_NOT_EXECUTED", "SUT_NEVER_RAN", "DELTA_ON_ZERO_RECALL"]);
    ran.or_else(|| needle.finding(&["SELF_PROJECTION"]).filter(|_| exact))
}

/// The point estimate holds; do the samples prove it?
fn decided(paired: &Paired, limits: &Thresholds, figures: String) -> Outcome {
    let bound = round(100.0 * upper_bound(paired.lost, paired.n, limits.confidence), 1);
    let confidence = round(100.0 * limits.confidence, 4);
    let seen = format!("{} lost of {}: lost recall", paired.lost, paired.n);
    match pairs_needed(paired.lost, paired.n, limits.margin(), limits.confidence) {
        Some(0) => {
            let why = format!("{seen} is at most {bound} pp (one-sided {confidence} %)");
            Outcome::new(GateVerdict::Pass, figures, why)
        }
        needed => {
            let more = needed.map_or_else(
                || "no number of samples would decide it".to_owned(),
                |needed| format!("{needed} more clean pairs decide"),
            );
            let why = format!("{seen} may be up to {bound} pp; {more}");
            Outcome { samples_needed: needed, ..Outcome::new(GateVerdict::Undecided, figures, why) }
        }
    }
}

/// Counters prove it, timings can only disprove it, and K/V restored to itself must change no text.
fn restoration(needle: &Needle, limits: &Thresholds) -> Outcome {
    let Some(sut) = needle.niah.sut() else {
        return Outcome::missing("the system under test did not run");
    };
    let identity = identity_check(needle.niah);
    if let Some(Err(why)) = identity {
        return Outcome::new(GateVerdict::Fail, "–", why);
    }
    match needle.niah.restored(&sut.key) {
        Some(counters) => counted(needle, counters, identity.is_some()),
        None => timed(needle, limits),
    }
}

fn counted(needle: &Needle, counters: &Restoration, identity: bool) -> Outcome {
    let figures = format!("{} layers × {} positions", counters.layers.len(), counters.evicted_positions);
    if !counters.is_complete() {
        let verdict = if counters.evicted_positions == 0 { GateVerdict::Vacuous } else { GateVerdict::Fail };
        let why = needle
            .finding(&["RESTORATION_NOT_EXECUTED"])
            .map_or("not every evicted position was injected", |finding| finding.message.as_str());
        return Outcome::new(verdict, figures, why);
    }
    let why = format!(
        "every evicted position of every layer was injected, f_θ on {} layers, {:.2} s in all; {}",
        counters.f_theta_layers(),
        counters.drafter_s + counters.projection_s + counters.capture_s,
        if identity { "restored to itself, K/V changes no text" } else { "no identity check ran" }
    );
    Outcome::new(GateVerdict::Pass, figures, why)
}

/// Without counters: a time too short shows that nothing ran, a longer one does not show what was injected.
fn timed(needle: &Needle, limits: &Thresholds) -> Outcome {
    let longest = needle.recomputed.restoration_s;
    let figures = longest.map_or_else(|| "–".to_owned(), |seconds| format!("{seconds:.3} s"));
    if let Some(finding) = needle.finding(&["RESTORATION_NOT_EXECUTED", "SUT_NEVER_RAN"]) {
        return Outcome::new(GateVerdict::Vacuous, figures, finding.message.clone());
    }
    let shortest = limits.min_restoration_s;
    match longest {
        None => Outcome::missing("the file holds no restoration counters: a flag is no proof"),
        Some(seconds) if seconds < shortest => {
            let why = format!("no sample's restoration took as long as {shortest} s: nothing was restored");
            Outcome::new(GateVerdict::Vacuous, figures, why)
        }
        Some(_) => {
            let why = "restoration took time, but no counters tell what was injected: a time is no proof";
            Outcome::new(GateVerdict::Undecided, figures, why)
        }
    }
}

/// The verifier's own K/V, restored, must give the oracle's texts. None when no such arm ran beside an oracle.
fn identity_check(niah: &Niah) -> Option<Result<(), String>> {
    let own = niah.arm("k3_identity_restore").or_else(|| niah.sut().filter(|_| niah.identity))?;
    let oracle = niah.oracle()?;
    let texts = |arm: &Arm| arm.rows.iter().map(|row| row.text.clone()).collect::<Vec<_>>();
    let (own_texts, oracle_texts) = (texts(own), texts(oracle));
    if own_texts == oracle_texts && own.hits == oracle.hits {
        return Some(Ok(()));
    }
    let same = own_texts.iter().zip(&oracle_texts).filter(|(own, oracle)| own == oracle).count();
    Some(Err(format!(
        "restored to itself, K/V changes the texts: {same} of {} equal the oracle's, {} hits against {}",
        oracle.n, own.hits, oracle.hits
    )))
}

/// Figures of the whole machine or process that were measured while the system under test ran. The oracle, which keeps
/// every K/V, need not fit; K/V alone and formulas do not tell what the machine holds.
fn memory(needle: &Needle, limits: &Thresholds) -> Outcome {
    const MEASURED: [MemoryKind; 3] =
        [MemoryKind::AllocatorPeak, MemoryKind::DeviceSampled, MemoryKind::ProcessFootprint];
    let other_arm = |key: &str| key != needle.niah.kind.sut() && needle.niah.arm(key).is_some();
    let figures = || needle.niah.memory.iter().filter(|figure| !other_arm(&figure.arm));
    let highest = |measured: bool| {
        let kind = |figure: &&MemoryFigure| MEASURED.contains(&figure.kind) == measured;
        figures().filter(kind).max_by_key(|figure| figure.bytes)
    };
    let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / (1_u64 << 30) as f64);
    match (highest(true), highest(false)) {
        (Some(figure), _) => {
            let under = figure.bytes < limits.memory_limit_bytes();
            let verdict = if under { GateVerdict::Pass } else { GateVerdict::Fail };
            Outcome::new(verdict, gib(figure.bytes), format!("{} ({})", figure.label, figure.kind.label()))
        }
        (None, Some(figure)) => Outcome::missing(format!(
            "nothing of device or process was measured; {} of {} is a {}",
            figure.label,
            gib(figure.bytes),
            figure.kind.label()
        )),
        (None, None) => Outcome::missing("no memory figure was measured in this run"),
    }
}
