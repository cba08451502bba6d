//! What `--format json` prints, described by the files in `docs/schema`.

use crate::ErrorReport;
use crate::evidence_view::{ComparisonView, unreadable};
use evidence::{Audit, Comparison, FileDocument, GateReport, ReadError, Scan, shown_path};
use report::SignOff;
use schemars::JsonSchema;
use serde::Serialize;

/// `kakeya-gate audit --format json`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AuditDocument {
    /// Files that were read, by path.
    pub files: Vec<FileDocument>,
    /// Files that were not.
    pub unreadable: Vec<UnreadableFile>,
}

/// A file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnreadableFile {
    /// The file.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl From<&Scan> for AuditDocument {
    fn from(scan: &Scan) -> Self {
        Self {
            files: scan.audits.iter().map(FileDocument::from).collect(),
            unreadable: scan.unreadable.iter().map(UnreadableFile::from).collect(),
        }
    }
}

impl From<&ReadError> for UnreadableFile {
    fn from(problem: &ReadError) -> Self {
        let ErrorReport { message, hint, .. } = unreadable(problem);
        Self { path: shown_path(problem.path()), message, hint }
    }
}

/// `kakeya-gate compare --format json`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CompareDocument {
    /// The files, baseline first.
    pub files: Vec<FileDocument>,
    /// Every other file against the baseline.
    pub comparisons: Vec<Comparison>,
}

impl From<&ComparisonView> for CompareDocument {
    fn from(view: &ComparisonView) -> Self {
        Self {
            files: view.audits.iter().map(FileDocument::from).collect(),
            comparisons: view.comparisons.clone(),
        }
    }
}

/// A gate report, `.json`: what the pages show, for programs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReportDocument {
    /// Name of the reviewer; empty when nobody signed.
    pub reviewer: String,
    /// Notes of the reviewer.
    pub notes: String,
    /// When the report was made, with its time zone.
    pub generated_at: String,
    /// Version of the program that made it.
    pub program_version: String,
    /// Files that the demonstration pack wrote: they say nothing of a release model.
    pub demo_files: Vec<String>,
    /// The verdicts and the policy that decided.
    pub gate: GateReport,
    /// The files, with their digests and findings; the first is the baseline.
    pub files: Vec<FileDocument>,
    /// Every other file against the baseline.
    pub comparisons: Vec<Comparison>,
}

impl ReportDocument {
    pub(crate) fn new(
        audits: &[Audit],
        comparisons: Vec<Comparison>,
        gate: GateReport,
        sign_off: SignOff,
    ) -> Self {
        let demo = audits.iter().filter(|audit| audit.is_demo());
        Self {
            reviewer: sign_off.reviewer,
            notes: sign_off.notes,
            generated_at: sign_off.generated_at,
            program_version: sign_off.program_version,
            demo_files: demo.map(|audit| shown_path(&audit.path)).collect(),
            gate,
            files: audits.iter().map(FileDocument::from).collect(),
            comparisons,
        }
    }
}
