//! What `--format json` prints, described by the files in `docs/schema`.

use crate::ErrorReport;
use crate::evidence_view::{ComparisonView, unreadable};
use evidence::{Comparison, FileDocument, ReadError, Scan, shown_path};
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
