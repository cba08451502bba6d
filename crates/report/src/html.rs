//! The report as one self-contained HTML file: no script, nothing loaded.

use crate::document::{Block, Cell, Chip, GateDocument, Section, Table, Tone};
use crate::text::tame;
use evidence::{Language, said};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Nothing may run or load, whatever text the evidence holds.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Renders the report as HTML. It stands alone: styles and charts are inline, it loads nothing and runs nothing.
pub fn html(document: &GateDocument) -> String {
    let sign_off = &document.sign_off;
    let language = sign_off.language;
    let verdict = Chip::of_gate(document.verdict, language);
    let title = said!(language, "Gate report: {}", "门禁报告：{}", verdict.word);
    let reviewer = reviewer(document);
    let (made, version) =
        (or_unknown(&sign_off.generated_at, language), or_unknown(&sign_off.program_version, language));
    let page = html! {
        (DOCTYPE)
        html lang=(language.tag()) {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(include_str!("report.css"))) }
            }
            body {
                header {
                    p.brand { "Kakeya Gate" }
                    h1 { (said!(language, "Gate: ", "门禁：")) span class=(format!("word {}", tone(verdict.tone))) { (verdict.word) } }
                    p.headline { (tame(&document.headline)) }
                    p.meta {
                        (said!(
                            language,
                            "Made {made} by Kakeya Gate {version} · reviewer: {reviewer}",
                            "由 Kakeya Gate {version} 于 {made} 生成 · 审阅人：{reviewer}"
                        ))
                    }
                }
                main {
                    @if !document.demo_files.is_empty() { (demo(&document.demo_files, language)) }
                    nav aria-label=(said!(language, "Contents", "目录")) {
                        @for section in &document.sections { a href=(format!("#{}", section.id)) { (section.title) } }
                        a href="#sign-off" { (said!(language, "Sign-off", "签署")) }
                    }
                    @for section in &document.sections { (self::section(section)) }
                    section #sign-off {
                        h2 { (said!(language, "Sign-off", "签署")) }
                        dl {
                            dt { (said!(language, "Reviewer", "审阅人")) } dd { (reviewer) }
                            dt { (said!(language, "Notes", "备注")) }
                            dd.notes { @if sign_off.notes.trim().is_empty() { (said!(language, "none", "无")) } @else { (notes(&sign_off.notes)) } }
                        }
                    }
                }
            }
        }
    };
    page.into_string()
}

fn or_unknown(text: &str, language: Language) -> String {
    if text.trim().is_empty() { said!(language, "(not stated)", "（未注明）") } else { tame(text) }
}

fn reviewer(document: &GateDocument) -> String {
    let name = document.sign_off.reviewer.trim();
    let nobody = || said!(document.sign_off.language, "nobody signed yet", "尚无人签署");
    if name.is_empty() { nobody() } else { tame(name) }
}

/// Notes keep their lines.
fn notes(text: &str) -> Markup {
    html! { @for line in text.lines() { p { (tame(line)) } } }
}

fn demo(files: &[String], language: Language) -> Markup {
    html! {
        aside.demo {
            strong { (said!(language, "DEMO PACK", "演示包")) }
            p {
                (crate::demo(language)) (said!(language, " Files: ", "文件："))
                @for (i, file) in files.iter().enumerate() { @if i > 0 { (said!(language, ", ", "，")) } code { (tame(file)) } }
                (said!(language, ".", "。"))
            }
        }
    }
}

fn section(section: &Section) -> Markup {
    html! {
        section id=(section.id) {
            h2 { (section.title) }
            @for block in &section.blocks { (self::block(block)) }
        }
    }
}

fn block(block: &Block) -> Markup {
    match block {
        Block::Heading(before, words) => html! { h3 { (chip(before)) " " (tame(words)) } },
        Block::Text(words) => html! { p { (tame(words)) } },
        Block::Table(rows) => table(rows),
        Block::Chart(chart) => html! {
            figure.light { (PreEscaped(&chart.light)) }
            figure.dark { (PreEscaped(&chart.dark)) }
        },
    }
}

fn table(table: &Table) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(tame(&table.caption)) {
            table {
                caption { (tame(&table.caption)) }
                thead { tr {
                    @for (i, column) in table.columns.iter().enumerate() {
                        @let right = table.rows.first().is_some_and(|row| matches!(row.get(i), Some(Cell::Number(_))));
                        th scope="col" class=[right.then_some("n")] { (column) }
                    }
                } }
                tbody { @for row in &table.rows { tr { @for cell in row { (self::cell(cell)) } } } }
            }
        }
    }
}

fn cell(cell: &Cell) -> Markup {
    match cell {
        Cell::Text(words) => html! { td class=[(words.len() > 40).then_some("long")] { (tame(words)) } },
        Cell::Number(figure) => html! { td.n { (tame(figure)) } },
        Cell::Code(name) => html! { td { code { (tame(name)) } } },
        Cell::Chip(verdict) => html! { td { (chip(verdict)) } },
    }
}

fn chip(chip: &Chip) -> Markup {
    html! { span class=(format!("chip {}", tone(chip.tone))) { (tame(&chip.word)) } }
}

fn tone(tone: Tone) -> &'static str {
    match tone {
        Tone::Pass => "pass",
        Tone::Warn => "warn",
        Tone::Fail => "fail",
        Tone::Undecided => "undecided",
        Tone::Neutral => "neutral",
    }
}
