//! The gates: for each, every rung and platform, one cell with a verdict and its reason.
//!
//! Three honest outcomes (pass, fail, undecided) and two warnings (vacuous, missing).

use crate::audit::{Audit, Verdict};
use crate::identity::Platform;
use crate::json::round;
use crate::model::Niah;
use serde::Serialize;
use std::path::PathBuf;
use ts_rs::TS;

/// The memory of the target machine: 24 GiB.
pub const MEMORY_LIMIT_BYTES: u64 = 24 << 30;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum GateKind {
    /// The restored arm loses at most 5 percentage points of the oracle's recall.
    Recall,
    /// Every evicted position of every layer was injected.
    Restoration,
    /// The measured memory stays under 24 GiB.
    Memory,
}

impl GateKind {
    const ALL: [Self; 3] = [Self::Recall, Self::Restoration, Self::Memory];

    /// The gate in words.
    pub fn label(self) -> &'static str {
        match self {
            Self::Recall => "Recall within 5 pp",
            Self::Restoration => "Restoration ran",
            Self::Memory => "Memory under 24 GiB",
        }
    }
}

/// Outcome of one gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, TS)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct GateCell {
    /// Which gate.
    pub gate: GateKind,
    /// The gate in words.
    pub title: &'static str,
    /// Rung, in padding lines, or line bounds.
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
    /// The file that the cell rests on.
    pub file: PathBuf,
}

/// Every gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct GateReport {
    /// The worst outcome of all cells; missing when there is none.
    pub verdict: GateVerdict,
    /// The outcome in a sentence.
    pub headline: String,
    /// The cells, by rung, platform and gate.
    pub cells: Vec<GateCell>,
    /// Files that carry no needle gate.
    pub ignored: Vec<PathBuf>,
}

/// Decides every gate from audited files.
pub fn gate(audits: &[Audit]) -> GateReport {
    let mut cells: Vec<GateCell> = Vec::new();
    for audit in audits {
        if let Some(niah) = &audit.niah {
            cells.extend(GateKind::ALL.map(|kind| cell(kind, audit, niah)));
        }
    }
    let order = |cell: &GateCell| {
        (cell.rung.parse::<u32>().unwrap_or(u32::MAX), cell.rung.clone(), cell.platform, cell.gate)
    };
    cells.sort_by_key(order);
    let verdict = cells.iter().map(|cell| cell.verdict).min().unwrap_or(GateVerdict::Missing);
    let ignored =
        audits.iter().filter(|audit| audit.niah.is_none()).map(|audit| audit.path.clone()).collect();
    GateReport { verdict, headline: headline(&cells), cells, ignored }
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
        (GateVerdict::Undecided, "undecided for want of samples"),
        (GateVerdict::Pass, "pass"),
    ]
    .into_iter()
    .filter(|(verdict, _)| count(*verdict) > 0)
    .map(|(verdict, words)| format!("{} {words}", count(verdict)))
    .collect();
    format!("{} gates: {}.", cells.len(), parts.join(", "))
}

fn cell(gate: GateKind, audit: &Audit, niah: &Niah) -> GateCell {
    let outcome = match gate {
        GateKind::Recall => recall(audit, niah),
        GateKind::Restoration => restoration(audit, niah),
        GateKind::Memory => memory(niah),
    };
    GateCell {
        gate,
        title: gate.label(),
        rung: audit.rung_label(),
        platform: audit.identity.platform,
        verdict: outcome.verdict,
        figures: outcome.figures,
        why: outcome.why,
        samples_needed: outcome.samples_needed,
        file: audit.path.clone(),
    }
}

struct Outcome {
    verdict: GateVerdict,
    figures: String,
    why: String,
    samples_needed: Option<u64>,
}

fn outcome(verdict: GateVerdict, figures: impl Into<String>, why: impl Into<String>) -> Outcome {
    Outcome { verdict, figures: figures.into(), why: why.into(), samples_needed: None }
}

fn recall(audit: &Audit, niah: &Niah) -> Outcome {
    let (Some((sut, oracle)), Some(paired)) =
        (niah.pair(), audit.recomputed.as_ref().and_then(|recomputed| recomputed.paired.as_ref()))
    else {
        return outcome(
            GateVerdict::Missing,
            "–",
            "an arm is missing: recall is not judged without its oracle",
        );
    };
    let figures = format!("{}/{} vs {}/{}", sut.hits, sut.n, oracle.hits, oracle.n);
    let first = |code: &str| audit.findings.iter().find(|finding| finding.code == code);
    match audit.verdict_ignoring_schema_age {
        _ if !audit.integrity_ok => {
            let error = audit.findings.iter().find(|finding| finding.code.ends_with("_MISMATCH"));
            let why = error
                .map_or_else(|| "stored numbers contradict their rows".to_owned(), |f| f.message.clone());
            outcome(GateVerdict::Fail, figures, why)
        }
        Verdict::Fail => {
            let why = format!(
                "{} of {} samples apart, at most one in twenty is allowed",
                sut.hits.abs_diff(oracle.hits),
                niah.n
            );
            outcome(GateVerdict::Fail, figures, why)
        }
        Verdict::Vacuous => {
            let codes =
                ["RESTORATION_NOT_EXECUTED", "SUT_NEVER_RAN", "DELTA_ON_ZERO_RECALL", "SELF_PROJECTION"];
            let why =
                codes.iter().find_map(|code| first(code)).map_or_else(String::new, |f| f.message.clone());
            outcome(GateVerdict::Vacuous, figures, why)
        }
        Verdict::Legacy | Verdict::Inconclusive | Verdict::NotAGateReport => {
            outcome(GateVerdict::Missing, figures, "the file's schema proves too little")
        }
        Verdict::Pass => decided(paired, figures),
    }
}

/// The point estimate holds; do the samples prove it?
fn decided(paired: &crate::Paired, figures: String) -> Outcome {
    let bound = round(100.0 * paired.loss_upper95, 1);
    match paired.pairs_needed {
        Some(0) => {
            let why = format!(
                "{} lost of {}: lost recall is at most {bound} pp (one-sided 95 %)",
                paired.lost, paired.n
            );
            outcome(GateVerdict::Pass, figures, why)
        }
        needed => {
            let more = needed.map_or_else(
                || "no number of samples would decide it".to_owned(),
                |needed| format!("{needed} more clean pairs decide"),
            );
            let why =
                format!("{} lost of {}: lost recall may be up to {bound} pp; {more}", paired.lost, paired.n);
            Outcome { samples_needed: needed, ..outcome(GateVerdict::Undecided, figures, why) }
        }
    }
}

/// Counters decide; without them only the reference's timing tells, and that can merely show that nothing ran.
fn restoration(audit: &Audit, niah: &Niah) -> Outcome {
    let Some(sut) = niah.sut() else {
        return outcome(GateVerdict::Missing, "–", "the system under test did not run");
    };
    let suspicion = audit
        .findings
        .iter()
        .find(|finding| ["RESTORATION_NOT_EXECUTED", "SUT_NEVER_RAN"].contains(&finding.code));
    let Some(counters) = niah.restored(&sut.key) else {
        return match suspicion {
            Some(finding) => outcome(GateVerdict::Vacuous, "–", finding.message.clone()),
            None => outcome(
                GateVerdict::Missing,
                "–",
                "the file holds no restoration counters: a flag is no proof",
            ),
        };
    };
    let figures = format!("{} layers × {} positions", counters.layers.len(), counters.evicted_positions);
    if !counters.is_complete() {
        let why =
            suspicion.map_or("not every evicted position was injected", |finding| finding.message.as_str());
        let verdict = if counters.evicted_positions == 0 { GateVerdict::Vacuous } else { GateVerdict::Fail };
        return outcome(verdict, figures, why);
    }
    let seconds = counters.drafter_s + counters.projection_s + counters.capture_s;
    let why = format!(
        "every evicted position of every layer was injected, f_θ on {} layers, {seconds:.2} s in all",
        counters.f_theta_layers()
    );
    outcome(GateVerdict::Pass, figures, why)
}

/// Only measured figures of the whole machine or process count; K/V alone and formulas do not.
fn memory(niah: &Niah) -> Outcome {
    let measured = niah.memory.iter().filter(|figure| {
        use crate::MemoryKind::{AllocatorPeak, DeviceSampled, ProcessFootprint};
        [AllocatorPeak, DeviceSampled, ProcessFootprint].contains(&figure.kind)
    });
    let Some(highest) = measured.max_by_key(|figure| figure.bytes) else {
        return outcome(GateVerdict::Missing, "–", "no memory figure was measured in this run");
    };
    let figures = format!("{:.2} GiB", highest.bytes as f64 / (1_u64 << 30) as f64);
    let why = format!("{} ({})", highest.label, highest.kind.label());
    let under = highest.bytes < MEMORY_LIMIT_BYTES;
    outcome(if under { GateVerdict::Pass } else { GateVerdict::Fail }, figures, why)
}
