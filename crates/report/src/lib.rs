//! Reports of a gate: charts, and one document that HTML and Markdown show alike.
//!
//! `audits → GateDocument → html | markdown`. The document holds every figure as text once; a renderer only decides how
//! it looks. Text of files is hostile and is shown as text.

mod arms;
mod charts;
mod document;
mod html;
mod junit;
mod markdown;
mod pdf;
mod text;

pub use charts::{Chart, Spot};
pub use document::{Block, Cell, Chip, GateDocument, Section, SignOff, Table, Tone, grid_table, heat_map};
use evidence::{Language, said};
pub use html::html;
pub use junit::junit;
pub use markdown::{escape, markdown};
pub use pdf::pdf;
pub use text::tame;

/// What every report says of a run on the demonstration pack.
fn demo(language: Language) -> String {
    said!(
        language,
        "Runs on the demonstration pack, a tiny model that is trained for this task alone. They show that the program works; \
         they say nothing about a release model.",
        "在演示包上的运行：它是只为此任务训练的微型模型。这些运行说明程序可用，说明不了任何发布模型。"
    )
}

/// What a table says that shows only its first rows.
fn more(left: usize, language: Language) -> String {
    said!(language, "… and {left} more in the HTML report.", "… 另有 {left} 行见 HTML 报告。")
}

/// A report that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A chart could not be drawn.
    #[error("a chart could not be drawn: {0}; the tables hold the same figures")]
    Chart(String),
    /// The JUnit document could not be written.
    #[error("the JUnit document could not be written: {0}")]
    Junit(String),
    /// Pages in Chinese need a font that has its letters; the program brings none.
    #[error("no font of this machine holds Chinese letters")]
    NoChineseFont,
    /// The pages could not be set.
    #[error("the pages could not be set: {0}")]
    Pdf(String),
}
