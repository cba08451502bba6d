//! Evidence as front ends show it.

use crate::{ErrorReport, error};
use evidence::{Audit, Comparison, GateReport, Place, Policy, ReadError, Scan, Severity, Verdict};
use report::{Block, GateDocument, SignOff};
use serde::Serialize;
use std::path::{Path, PathBuf};
use ts_rs::TS;

/// One line of the evidence list.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct EvidenceRow {
    /// The file.
    pub path: PathBuf,
    /// Its name.
    pub name: String,
    /// `/kind`.
    pub kind: Option<String>,
    /// Machine.
    pub platform: evidence::Platform,
    /// Rung or line bounds; `–` for other kinds.
    pub rung: String,
    /// Hits of the system under test, `20/20`.
    pub tested: Option<String>,
    /// Hits of the oracle.
    pub oracle: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// Findings at error severity.
    pub errors: usize,
    /// Findings at warn severity.
    pub warnings: usize,
    /// From the demonstration pack.
    pub demo: bool,
}

/// The evidence list: what could be read, and what could not.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct EvidenceList {
    /// Files that were read.
    pub rows: Vec<EvidenceRow>,
    /// Files that were not.
    pub problems: Vec<ErrorReport>,
}

/// One file in full.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct EvidenceDetail {
    /// Everything the audit knows.
    pub audit: Audit,
    /// The document, indented.
    pub raw: String,
}

/// One chart, as SVG documents for a light and a dark ground.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, TS)]
pub struct Chart {
    /// On a light ground.
    pub light: String,
    /// On a dark ground.
    pub dark: String,
}

/// Files side by side, with their charts.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct ComparisonView {
    /// The audits, baseline first.
    pub audits: Vec<Audit>,
    /// Every other file against the baseline.
    pub comparisons: Vec<Comparison>,
    /// Recall by rung, with intervals.
    pub recall: Chart,
    /// Recall delta against the oracle, with the 5 pp band.
    pub deltas: Chart,
}

/// Every evidence file below the given paths; none at all is an error.
pub fn find_evidence(paths: &[PathBuf]) -> Result<Vec<Place>, ErrorReport> {
    let found = evidence::find(paths);
    if found.is_empty() {
        let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let message = format!("no evidence file (*.json) in {}", shown.join(", "));
        return Err(error::report("no-evidence", message, "give a file or a folder that holds evidence"));
    }
    Ok(found)
}

/// Audits every file below the given paths. The first that cannot be read is the error: a verdict never rests on a part of
/// what was given.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Audit>, ErrorReport> {
    whole(evidence::scan(&find_evidence(paths)?, || {}))
}

fn whole(scan: Scan) -> Result<Vec<Audit>, ErrorReport> {
    match scan.unreadable.into_iter().next() {
        Some(problem) => Err(unreadable(&problem)),
        None => Ok(scan.audits),
    }
}

/// What to tell about a file that cannot be read.
pub fn unreadable(problem: &ReadError) -> ErrorReport {
    let hint = match problem {
        ReadError::File(_) => "check the path and its permissions",
        ReadError::Empty(_) => "remove it, or copy it again from where it was written",
        ReadError::NotJson { .. } => "copy it again from where it was written",
        ReadError::NotEvidence { .. } => "choose a file that a run wrote",
    };
    error::report("unreadable-evidence", problem, hint)
}

/// Audits every file below the given paths. Files that cannot be read are listed, they do not hide the others.
pub fn list_evidence(paths: &[PathBuf]) -> EvidenceList {
    let scan = evidence::scan(&evidence::find(paths), || {});
    EvidenceList {
        rows: scan.audits.iter().map(row).collect(),
        problems: scan.unreadable.iter().map(unreadable).collect(),
    }
}

fn row(audit: &Audit) -> EvidenceRow {
    let hits = |arm: Option<&evidence::Arm>| arm.map(|arm| format!("{}/{}", arm.hits, arm.n));
    let count = |severity| audit.findings.iter().filter(|finding| finding.severity == severity).count();
    EvidenceRow {
        path: audit.path.clone(),
        name: audit.name.clone(),
        kind: audit.identity.kind.clone(),
        platform: audit.identity.platform,
        rung: audit.rung_label(),
        tested: hits(audit.niah.as_ref().and_then(|niah| niah.sut())),
        oracle: hits(audit.niah.as_ref().and_then(|niah| niah.oracle())),
        verdict: audit.verdict,
        errors: count(Severity::Error),
        warnings: count(Severity::Warn),
        demo: audit.is_demo(),
    }
}

/// One file in full, audited beside its neighbours: every file below the given paths.
pub fn evidence_detail(path: &Path, neighbours: &[PathBuf]) -> Result<EvidenceDetail, ErrorReport> {
    let mut places = evidence::find(neighbours);
    let place = places.iter().find(|place| place.path == path).cloned().unwrap_or_else(|| path.into());
    let file = evidence::read(&place).map_err(|problem| unreadable(&problem))?;
    let raw = serde_json::to_string_pretty(&file.value)
        .map_err(|e| error::report("unreadable-evidence", e, "copy the file again"))?;
    if !places.contains(&place) {
        places.push(place);
    }
    let audit = evidence::scan(&places, || {}).audits.into_iter().find(|audit| audit.path == path);
    audit.map(|audit| EvidenceDetail { audit, raw }).ok_or_else(|| {
        let message = format!("{} changed while it was read", path.display());
        error::report("unreadable-evidence", message, "open it again")
    })
}

/// Audits of all files, and every other file against the baseline (default: the first).
pub fn compare(paths: &[PathBuf], baseline: Option<&Path>) -> Result<ComparisonView, ErrorReport> {
    let mut paths: Vec<PathBuf> = paths.to_vec();
    if let Some(baseline) = baseline {
        paths.retain(|path| path != baseline);
        paths.insert(0, baseline.to_owned());
    }
    let places: Vec<Place> = paths.iter().map(|path| path.as_path().into()).collect();
    let audits = whole(evidence::scan(&places, || {}))?;
    let comparisons = compare_all(&audits);
    let gate = evidence::gate(&audits, &Policy::built_in());
    let document = GateDocument::new(&audits, &comparisons, &gate, SignOff::default()).map_err(not_drawn)?;
    let (recall, deltas) = (chart(&document, "recall"), chart(&document, "delta"));
    Ok(ComparisonView { audits, comparisons, recall, deltas })
}

/// The chart of one section of the report: window and report show the same one.
fn chart(document: &GateDocument, section: &str) -> Chart {
    let blocks = document.sections.iter().filter(|part| part.id == section).flat_map(|part| &part.blocks);
    let mut charts = blocks.filter_map(|block| match block {
        Block::Chart { light, dark } => Some(Chart { light: light.clone(), dark: dark.clone() }),
        _ => None,
    });
    charts.next().unwrap_or_default()
}

pub(crate) fn compare_all(audits: &[Audit]) -> Vec<Comparison> {
    let Some((baseline, others)) = audits.split_first() else { return Vec::new() };
    others.iter().map(|other| evidence::compare(baseline, other)).collect()
}

pub(crate) fn not_drawn(problem: report::ReportError) -> ErrorReport {
    error::report("report", problem, "this is a fault of the program; please report it")
}

/// The policy in a file, or the built-in one.
pub(crate) fn policy(file: Option<&Path>) -> Result<Policy, ErrorReport> {
    let Some(file) = file else { return Ok(Policy::built_in()) };
    let hint = "correct the file, or leave the policy out to use the built-in one";
    Policy::read(file).map_err(|problem| error::report("policy", problem, hint))
}

/// Every gate of every file below the given paths, by the policy in a file (default: the built-in one).
pub fn gate(paths: &[PathBuf], policy_file: Option<&Path>) -> Result<GateReport, ErrorReport> {
    let policy = policy(policy_file)?;
    Ok(evidence::gate(&load(paths)?, &policy))
}
