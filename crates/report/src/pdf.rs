//! The report as pages, set by typst: vector charts, embedded fonts, tags for screen readers.

use crate::charts::in_chinese_fonts;
use crate::document::{Block, Cell, Chip, GateDocument, Section, Table, Tone};
use crate::text::{tame, width};
use crate::{ReportError, demo, more};
use evidence::{Language, said};
use serde_json::{Value, json};
use std::sync::LazyLock;
use typst::diag::{FileError, FileResult, SourceDiagnostic};
use typst::foundations::{Bytes, Datetime, Duration, Smart};
use typst::syntax::{FileId, RootedPath, Source, VirtualPath, VirtualRoot};
use typst::text::{Font, FontBook, FontVariant};
use typst::utils::LazyHash;
use typst::{Library, LibraryExt, World};
use typst_kit::fonts::FontStore;
use typst_layout::PagedDocument;
use typst_pdf::PdfOptions;

const TEMPLATE: &str = include_str!("report.typ");
/// Rows of a table that are printed; the HTML report holds the others.
const ROWS: usize = 400;
/// Blocks of a long section that are printed.
const BLOCKS: usize = 300;
/// A column is short up to so many ems; a page is 63 wide, and short columns may have so many of them.
const SHORT: f64 = 9.0;
const MOST_SHORT: f64 = 38.0;
/// Characters of a cell that are printed.
const CELL: usize = 600;

/// The fonts of the program first, so that a report looks the same everywhere; those of the system for scripts that it has
/// no letters for. Each file holds the ones that it uses.
static FONTS: LazyLock<FontStore> = LazyLock::new(|| {
    let mut fonts = FontStore::new();
    fonts.extend(typst_kit::fonts::embedded());
    fonts.extend(typst_kit::fonts::system());
    fonts
});
static LIBRARY: LazyLock<LazyHash<Library>> = LazyLock::new(|| LazyHash::new(Library::default()));

/// Renders the report as PDF.
///
/// # Errors
/// [`ReportError::Pdf`] when it cannot be set, [`ReportError::NoChineseFont`] when it is Chinese and no font has the letters:
/// pages of empty boxes are no report.
pub fn pdf(document: &GateDocument) -> Result<Vec<u8>, ReportError> {
    if document.sign_off.language == Language::Zh && !holds_chinese(FONTS.book()) {
        return Err(ReportError::NoChineseFont);
    }
    let pages = Pages::new(document);
    let set = typst::compile::<PagedDocument>(&pages).output.map_err(|problems| told(&problems))?;
    let options =
        PdfOptions { creator: Smart::Custom(Some("Kakeya Gate".to_owned())), ..PdfOptions::default() };
    typst_pdf::pdf(&set, &options).map_err(|problems| told(&problems))
}

fn holds_chinese(fonts: &FontBook) -> bool {
    fonts.select_fallback(None, FontVariant::default(), "门").is_some()
}

fn told(problems: &[SourceDiagnostic]) -> ReportError {
    let words: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    ReportError::Pdf(words.join("; "))
}

type Files = Vec<(FileId, Bytes)>;

/// What typst may read: the template, the data and the charts; no file of the machine.
struct Pages {
    main: Source,
    files: Files,
}

/// A file beside the template.
#[expect(clippy::expect_used, reason = "the names are our own: a word, perhaps a number, an ending")]
fn id(name: &str) -> FileId {
    let path = VirtualPath::new(name).expect("a plain name is a path");
    FileId::new(RootedPath::new(VirtualRoot::Project, path))
}

impl Pages {
    fn new(document: &GateDocument) -> Self {
        let mut files = Files::new();
        let data = data(document, &mut files);
        files.push((id("report.json"), Bytes::from_string(data.to_string())));
        Self { main: Source::new(id("report.typ"), TEMPLATE.to_owned()), files }
    }
}

impl World for Pages {
    fn library(&self) -> &LazyHash<Library> {
        &LIBRARY
    }

    fn book(&self) -> &LazyHash<FontBook> {
        FONTS.book()
    }

    fn main(&self) -> FileId {
        self.main.id()
    }

    fn source(&self, asked: FileId) -> FileResult<Source> {
        if asked == self.main.id() { Ok(self.main.clone()) } else { Err(FileError::AccessDenied) }
    }

    fn file(&self, asked: FileId) -> FileResult<Bytes> {
        let found = self.files.iter().find(|(id, _)| *id == asked);
        found.map(|(_, bytes)| bytes.clone()).ok_or(FileError::AccessDenied)
    }

    fn font(&self, index: usize) -> Option<Font> {
        FONTS.font(index)
    }

    fn today(&self, _: Option<Duration>) -> Option<Datetime> {
        None
    }
}

fn data(document: &GateDocument, charts: &mut Files) -> Value {
    let sign_off = &document.sign_off;
    let language = sign_off.language;
    let verdict = Chip::of_gate(document.verdict, language);
    let (made, version) = (tame(&sign_off.generated_at), tame(&sign_off.program_version));
    let made =
        said!(language, "Made {made} by Kakeya Gate {version}", "由 Kakeya Gate {version} 于 {made} 生成");
    let reviewer = match sign_off.reviewer.trim() {
        "" => said!(language, "nobody signed yet", "尚无人签署"),
        name => tame(name),
    };
    let notes: Vec<String> = sign_off.notes.lines().map(tame).collect();
    let sections: Vec<Value> = document.sections.iter().map(|part| section(part, charts, language)).collect();
    json!({
        "brand": "Kakeya Gate",
        "language": match language {
            Language::En => "en",
            Language::Zh => "zh",
        },
        "title": said!(language, "Gate report: {}", "门禁报告：{}", verdict.word),
        "made": made,
        "verdict": chip(&verdict),
        "headline": tame(&document.headline),
        "reviewer": reviewer,
        "notes": if notes.is_empty() { vec![said!(language, "none", "无")] } else { notes },
        "demo": if document.demo_files.is_empty() { String::new() } else { demo(language) },
        "words": {
            "gate": said!(language, "Gate: ", "门禁："),
            "reviewed": said!(language, "reviewer: ", "审阅人："),
            "demo": said!(language, "DEMO PACK.", "演示包。"),
            "sign-off": said!(language, "Sign-off", "签署"),
            "reviewer": said!(language, "Reviewer", "审阅人"),
            "notes": said!(language, "Notes", "备注"),
        },
        "sections": sections,
    })
}

fn section(section: &Section, charts: &mut Files, language: Language) -> Value {
    let blocks: Vec<Value> =
        section.blocks.iter().take(BLOCKS).map(|part| block(part, charts, language)).collect();
    json!({ "title": section.title, "blocks": blocks })
}

fn block(block: &Block, charts: &mut Files, language: Language) -> Value {
    match block {
        Block::Heading(before, words) => {
            json!({ "kind": "heading", "chip": chip(before), "text": tame(words) })
        }
        Block::Text(words) => json!({ "kind": "text", "text": tame(words) }),
        Block::Table(rows) => table(rows, language),
        Block::Chart(chart) => {
            let file = format!("chart-{}.svg", charts.len());
            let drawn = match language {
                Language::En => chart.light.clone(),
                Language::Zh => in_chinese_fonts(&chart.light),
            };
            charts.push((id(&file), Bytes::from_string(drawn)));
            json!({
                "kind": "chart",
                "file": file,
                "width": chart.width,
                "height": chart.height,
                "alt": tame(&chart.title),
            })
        }
    }
}

fn table(table: &Table, language: Language) -> Value {
    let rows: Vec<Vec<Value>> =
        table.rows.iter().take(ROWS).map(|row| row.iter().map(cell).collect()).collect();
    let left = table.rows.len().saturating_sub(ROWS);
    json!({
        "kind": "table",
        "caption": tame(&table.caption),
        "columns": table.columns,
        "widths": widths(table),
        "rows": rows,
        "left": left,
        "note": more(left, language),
    })
}

/// Widths of the columns: none for short ones, which are as wide as they need to be; shares of what is left for the others, by
/// their longest text within bounds, so that a long text wraps and a figure does not. Where short ones would leave too
/// little, all have shares.
fn widths(table: &Table) -> Vec<Option<f64>> {
    let longest = |at: usize| {
        let cells = table.rows.iter().take(ROWS).filter_map(|row| row.get(at));
        cells.map(cell_width).fold(0.0, f64::max)
    };
    let head = |name: &str| name.split(' ').map(|word| width(word, 1.0)).fold(0.0, f64::max);
    let columns = || table.columns.iter().enumerate();
    // A column that is as wide as it needs to be has its head in one line.
    let whole: Vec<f64> = columns().map(|(at, name)| longest(at).max(width(name, 1.0))).collect();
    let short: f64 = whole.iter().filter(|width| **width <= SHORT).sum();
    let share = |(at, name): (usize, &String)| {
        let share = longest(at).min(24.0).max(head(name)).max(3.0);
        (whole[at] > SHORT || short > MOST_SHORT).then_some(share)
    };
    columns().map(share).collect()
}

/// Width of a cell, ems; a chip is bold and has room around its word.
fn cell_width(cell: &Cell) -> f64 {
    match cell {
        Cell::Chip(chip) => 1.1 * width(&chip.word, 1.0) + 1.0,
        _ => width(words(cell), 1.0),
    }
}

fn words(cell: &Cell) -> &str {
    match cell {
        Cell::Text(words) | Cell::Number(words) | Cell::Code(words) => words,
        Cell::Chip(chip) => &chip.word,
    }
}

fn cell(cell: &Cell) -> Value {
    let kind = match cell {
        Cell::Text(_) => "text",
        Cell::Number(_) => "number",
        Cell::Code(_) => "code",
        Cell::Chip(verdict) => return json!({ "kind": "chip", "chip": chip(verdict) }),
    };
    let short: String = words(cell).chars().take(CELL).collect();
    json!({ "kind": kind, "text": tame(&short) })
}

fn chip(chip: &Chip) -> Value {
    let tone = match chip.tone {
        Tone::Pass => "pass",
        Tone::Warn => "warn",
        Tone::Fail => "fail",
        Tone::Undecided => "undecided",
        Tone::Neutral => "neutral",
    };
    json!({ "tone": tone, "word": tame(&chip.word) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a font of the system a Chinese report would be boxes: that must be told.
    #[test]
    fn the_programs_own_fonts_hold_no_chinese() {
        let mut own = FontStore::new();
        own.extend(typst_kit::fonts::embedded());
        assert!(!holds_chinese(own.book()));
    }
}
