//! Reports of a gate: charts, and one document that HTML and Markdown show alike.
//!
//! `audits → GateDocument → html | markdown`. The document holds every figure as text once; a renderer only decides how
//! it looks. Text of files is hostile and is shown as text.

pub mod charts;
mod text;

/// A report that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A chart could not be drawn.
    #[error("a chart could not be drawn: {0}; the tables hold the same figures")]
    Chart(String),
}
