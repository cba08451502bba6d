//! Evidence as front ends show it.

use crate::{ErrorCode, ErrorReport};
use evidence::{
    Audit, Comparison, GateReport, Language, NeedlePrompt, Place, Policy, ReadError, Scan, Severity, Verdict,
};
use report::{Block, Cell, Chart, GateDocument, SignOff};
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use ts_rs::TS;

/// A text whose lines are longer than this on average was not laid out to be read.
const LONG_LINE: usize = 400;

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
    /// The file's text; indented when it is written in one line.
    pub raw: String,
    /// The line of `raw` to which each finding points, from 1.
    pub lines: Vec<usize>,
    /// The regenerated prompts; empty when no dataset can be made from the recorded bounds.
    pub prompts: Vec<NeedlePrompt>,
    /// `/config` as stored, by key.
    #[ts(type = "Array<[string, unknown]>")]
    pub config: Vec<(String, Value)>,
}

/// Files side by side, with their charts.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct ComparisonView {
    /// The audits, baseline first.
    pub audits: Vec<Audit>,
    /// Every other file against the baseline.
    pub comparisons: Vec<Comparison>,
    /// Recall by rung, with intervals; recall delta against the oracle; memory; throughput.
    pub charts: Vec<FigureView>,
}

/// A chart with the table that holds its figures.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct FigureView {
    /// Which: the section of the report that it stands in.
    pub id: &'static str,
    /// The chart.
    pub chart: Chart,
    /// Heads of its columns.
    pub columns: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

/// Recall by depth and length.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct GridView {
    /// The heat map.
    pub figure: FigureView,
    /// Files that are not counted, because another one holds the same samples of the same system.
    pub left_out: Vec<PathBuf>,
}

/// Every evidence file below the given paths; none at all is an error.
pub fn find_evidence(paths: &[PathBuf]) -> Result<Vec<Place>, ErrorReport> {
    let found = evidence::find(paths);
    if found.is_empty() {
        let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let message = format!("no evidence file (*.json) in {}", shown.join(", "));
        return Err(ErrorReport::new(
            ErrorCode::NoEvidence,
            message,
            "give a file or a folder that holds evidence",
        ));
    }
    Ok(found)
}

/// Audits every file below the given paths. The first that cannot be read is the error: a verdict never rests on a part of
/// what was given.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Audit>, ErrorReport> {
    whole(evidence::scan(&find_evidence(paths)?, || {}))
}

pub(crate) fn whole(scan: Scan) -> Result<Vec<Audit>, ErrorReport> {
    match scan.unreadable.into_iter().next() {
        Some(problem) => Err(unreadable(&problem)),
        None => Ok(scan.audits),
    }
}

/// What to tell about a file that cannot be read.
pub fn unreadable(problem: &ReadError) -> ErrorReport {
    let (code, hint) = match problem {
        ReadError::File(_) => (ErrorCode::UnreadableEvidence, "check the path and its permissions"),
        ReadError::Empty(_) => {
            (ErrorCode::EmptyEvidence, "remove it, or copy it again from where it was written")
        }
        ReadError::NotJson { .. } => (ErrorCode::DamagedEvidence, "copy it again from where it was written"),
        ReadError::NotEvidence { .. } => (ErrorCode::NotEvidence, "choose a file that a run wrote"),
    };
    ErrorReport::new(code, problem, hint)
}

pub(crate) fn looked_row(audit: &Audit) -> EvidenceRow {
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

/// One file in full. A file that is no longer the one that was audited is an error.
pub(crate) fn detail(audit: Audit) -> Result<EvidenceDetail, ErrorReport> {
    let bytes = files::read_capped(&audit.path, evidence::CAP)
        .map_err(|problem| unreadable(&ReadError::File(problem)))?;
    let file = evidence::File::parse(audit.path.as_path().into(), &bytes).map_err(|e| unreadable(&e))?;
    if file.sha256 != audit.sha256 {
        let message = format!("{} has changed since the list was read", audit.path.display());
        return Err(ErrorReport::new(ErrorCode::EvidenceChanged, message, "read the list again"));
    }
    let raw = laid_out(&bytes, &file.value)?;
    let lines = audit.findings.iter().map(|finding| evidence::locate(&raw, &finding.pointer).line).collect();
    let prompts = audit.niah.as_ref().map(evidence::Niah::prompts).unwrap_or_default();
    let config = file.value.get("config").and_then(Value::as_object).cloned().unwrap_or_default();
    Ok(EvidenceDetail { audit, raw, lines, prompts, config: config.into_iter().collect() })
}

/// The text as it lies in the file; what was written in a few long lines is laid out anew.
fn laid_out(bytes: &[u8], value: &Value) -> Result<String, ErrorReport> {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    if bytes.len() < LONG_LINE * (lines + 1) {
        return Ok(String::from_utf8_lossy(bytes).into_owned());
    }
    serde_json::to_string_pretty(value)
        .map_err(|e| ErrorReport::new(ErrorCode::DamagedEvidence, e, "copy the file again"))
}

/// The baseline in front, every other file once behind it.
pub(crate) fn baseline_first(paths: &[PathBuf], baseline: &Path) -> Vec<PathBuf> {
    let others = paths.iter().filter(|path| *path != baseline).cloned();
    std::iter::once(baseline.to_owned()).chain(others).collect()
}

/// Audits of all files, and every other file against the baseline (default: the first).
pub fn compare(paths: &[PathBuf], baseline: Option<&Path>) -> Result<ComparisonView, ErrorReport> {
    let paths = baseline.map_or_else(|| paths.to_vec(), |baseline| baseline_first(paths, baseline));
    let places: Vec<Place> = paths.iter().map(|path| path.as_path().into()).collect();
    comparison(whole(evidence::scan(&places, || {}))?, Language::En)
}

/// Audits, baseline first, laid side by side; charts in the reader's language.
pub(crate) fn comparison(audits: Vec<Audit>, language: Language) -> Result<ComparisonView, ErrorReport> {
    let comparisons = compare_all(&audits);
    let gate = evidence::gate(&audits, &Policy::built_in());
    let reader = SignOff { language, ..SignOff::default() };
    let document = GateDocument::new(&audits, &comparisons, &gate, reader).map_err(not_drawn)?;
    let charts = ["recall", "delta", "memory", "throughput"];
    let charts = charts.into_iter().filter_map(|section| figure(&document, section)).collect();
    Ok(ComparisonView { audits, comparisons, charts })
}

/// The chart of one section of the report, and the figures of all its tables: window and report show the same ones.
fn figure(document: &GateDocument, id: &'static str) -> Option<FigureView> {
    let section = document.sections.iter().find(|section| section.id == id)?;
    let chart = section.blocks.iter().find_map(|block| match block {
        Block::Chart(chart) => Some(chart.clone()),
        _ => None,
    })?;
    let tables = section.blocks.iter().filter_map(|block| match block {
        Block::Table(table) => Some(table),
        _ => None,
    });
    let first = tables.clone().next()?;
    let alike = tables.filter(|table| table.columns == first.columns);
    Some(FigureView {
        id,
        chart,
        columns: first.columns.clone(),
        rows: alike.flat_map(|table| &table.rows).map(|row| row.iter().map(cell).collect()).collect(),
    })
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) | Cell::Number(text) | Cell::Code(text) => text.clone(),
        Cell::Chip(chip) => chip.word.clone(),
    }
}

/// Recall by needle depth and length, of one arm or of all.
pub(crate) fn grid_view(
    audits: &[Audit],
    arm: Option<&str>,
    language: Language,
) -> Result<GridView, ErrorReport> {
    let grid = crate::grid(audits, arm)?;
    let (columns, rows) = report::grid_table(&grid, language);
    Ok(GridView {
        left_out: grid.left_out.iter().map(|file| file.path.clone()).collect(),
        figure: FigureView {
            id: "depths",
            chart: report::heat_map(&grid, language).map_err(not_drawn)?,
            columns,
            rows,
        },
    })
}

pub(crate) fn compare_all(audits: &[Audit]) -> Vec<Comparison> {
    let Some((baseline, others)) = audits.split_first() else { return Vec::new() };
    others.iter().map(|other| evidence::compare(baseline, other)).collect()
}

pub(crate) fn not_drawn(problem: report::ReportError) -> ErrorReport {
    let (code, hint) = match problem {
        report::ReportError::NoChineseFont => (
            ErrorCode::NoChineseFont,
            "install a Chinese font such as Noto Sans CJK, or choose HTML, which is shown in the reader's fonts",
        ),
        _ => (ErrorCode::Report, "this is a fault of the program; please report it"),
    };
    ErrorReport::new(code, problem, hint)
}

/// The policy in a file, or the built-in one.
pub(crate) fn policy(file: Option<&Path>) -> Result<Policy, ErrorReport> {
    let Some(file) = file else { return Ok(Policy::built_in()) };
    let hint = "correct the file, or leave the policy out to use the built-in one";
    Policy::read(file).map_err(|problem| ErrorReport::new(ErrorCode::Policy, problem, hint))
}

/// Every gate of every file below the given paths, by the policy in a file (default: the built-in one).
pub fn gate(paths: &[PathBuf], policy_file: Option<&Path>) -> Result<GateReport, ErrorReport> {
    judge(&load(paths)?, policy_file)
}

pub(crate) fn judge(audits: &[Audit], policy_file: Option<&Path>) -> Result<GateReport, ErrorReport> {
    Ok(evidence::gate(audits, &policy(policy_file)?))
}

/// The gates as JUnit XML.
pub fn gate_junit(report: &GateReport) -> Result<String, ErrorReport> {
    let sign_off = SignOff { program_version: crate::VERSION.to_owned(), ..SignOff::default() };
    report::junit(report, &sign_off).map_err(not_drawn)
}
