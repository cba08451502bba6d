//! The report as Markdown for a pull request.

use crate::document::{Block, Cell, Chip, GateDocument, Section, Table, Tone};
use crate::text::tame;
use evidence::{Language, said};
use std::fmt::Write;

/// GitHub refuses longer comments.
const LIMIT: usize = 65_536;
/// Rows that a table of a long section may have, tried in turn until the report fits.
const ROWS: [usize; 6] = [usize::MAX, 200, 60, 20, 6, 1];
/// Headings, texts and tables that a long section may have for each row that its tables may have.
const PARTS_A_ROW: usize = 4;
/// Characters of one cell; a hostile text must not fill the comment.
const CELL: usize = 400;

/// Renders the report as Markdown of at most 65,536 characters, the most that a GitHub comment takes. Charts are left
/// out (their tables are not); when space is short, long tables are cut and say how many rows they lost.
pub fn markdown(document: &GateDocument) -> String {
    let mut out = String::new();
    for rows in ROWS {
        out = render(document, rows);
        if out.chars().count() <= LIMIT {
            return out;
        }
    }
    cut(&out, document.sign_off.language)
}

/// Whole lines as long as they fit: the most important sections come first.
fn cut(text: &str, language: Language) -> String {
    let note = said!(
        language,
        "\n\n</details>\n\n**Cut here: the rest does not fit into a comment. The HTML report holds it.**\n",
        "\n\n</details>\n\n**在此截断：其余部分放不进一条评论，见 HTML 报告。**\n"
    );
    let mut room = LIMIT - note.chars().count();
    let mut kept = String::new();
    for line in text.lines() {
        let needed = line.chars().count() + 1;
        if needed > room {
            break;
        }
        room -= needed;
        kept.push_str(line);
        kept.push('\n');
    }
    kept + &note
}

fn render(document: &GateDocument, rows: usize) -> String {
    let sign_off = &document.sign_off;
    let language = sign_off.language;
    let verdict = chip(&Chip::of_gate(document.verdict, language));
    let headline = escape(&document.headline);
    let mut out =
        said!(language, "## Gate: {verdict}\n\n{headline}\n\n", "## 门禁：{verdict}\n\n{headline}\n\n");
    if !document.demo_files.is_empty() {
        let title = said!(language, "DEMO PACK.", "演示包。");
        let _ = writeln!(out, "> [!WARNING]\n> **{title}** {}\n", crate::demo(language));
    }
    for section in &document.sections {
        self::section(&mut out, section, rows, language);
    }
    let reviewer = stated(&sign_off.reviewer, &said!(language, "nobody signed yet", "尚无人签署"));
    let _ = writeln!(out, "### {}\n", said!(language, "Sign-off", "签署"));
    let _ = writeln!(out, "{}\n", said!(language, "Reviewer: {reviewer}", "审阅人：{reviewer}"));
    for line in sign_off.notes.lines().take(200) {
        let _ = writeln!(out, "> {}  ", escape(line));
    }
    let unknown = said!(language, "(not stated)", "（未注明）");
    let made = stated(&sign_off.generated_at, &unknown);
    let version = stated(&sign_off.program_version, &unknown);
    let foot = said!(
        language,
        "Made {made} by Kakeya Gate {version}. The HTML report holds the charts.",
        "由 Kakeya Gate {version} 于 {made} 生成。图表见 HTML 报告。"
    );
    let _ = writeln!(out, "\n<sub>{foot}</sub>");
    out
}

fn stated(text: &str, otherwise: &str) -> String {
    if text.trim().is_empty() { otherwise.to_owned() } else { escape(text) }
}

fn section(out: &mut String, section: &Section, rows: usize, language: Language) {
    let title = &section.title;
    let _ = match section.long {
        true => writeln!(out, "<details><summary><b>{title}</b></summary>\n"),
        false => writeln!(out, "### {title}\n"),
    };
    let most = if section.long { rows.saturating_mul(PARTS_A_ROW) } else { usize::MAX };
    for block in section.blocks.iter().take(most) {
        match block {
            Block::Heading(before, words) => {
                let _ = writeln!(out, "**{} · {}**\n", chip(before), escape(words));
            }
            Block::Text(words) => {
                let _ = writeln!(out, "{}\n", escape(words));
            }
            Block::Table(table) => self::table(out, table, rows, language),
            Block::Chart(_) => {}
        }
    }
    let left = section.blocks.len().saturating_sub(most);
    if left > 0 {
        let more = said!(
            language,
            "… and {left} more parts in the HTML report.",
            "… 另有 {left} 个部分见 HTML 报告。"
        );
        let _ = writeln!(out, "{more}\n");
    }
    if section.long {
        let _ = writeln!(out, "</details>\n");
    }
}

fn table(out: &mut String, table: &Table, most: usize, language: Language) {
    let Some(first) = table.rows.first() else { return };
    let rule = first.iter().map(|cell| if matches!(cell, Cell::Number(_)) { "--:" } else { "---" });
    let heads: Vec<String> = table.columns.iter().map(|column| escape(column)).collect();
    let _ = writeln!(out, "| {} |\n| {} |", heads.join(" | "), rule.collect::<Vec<_>>().join(" | "));
    for row in table.rows.iter().take(most) {
        let _ = writeln!(out, "| {} |", row.iter().map(cell).collect::<Vec<_>>().join(" | "));
    }
    let left = table.rows.len().saturating_sub(most);
    if left > 0 {
        let _ = writeln!(out, "\n{}", crate::more(left, language));
    }
    out.push('\n');
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Text(words) | Cell::Number(words) => escape(words),
        Cell::Code(name) => format!("<code>{}</code>", escape(name)),
        Cell::Chip(verdict) => chip(verdict),
    }
}

/// A sign that needs no colour, and the word.
fn chip(chip: &Chip) -> String {
    let sign = match chip.tone {
        Tone::Pass => "✅ ",
        Tone::Warn => "⚠️ ",
        Tone::Fail => "❌ ",
        Tone::Undecided => "❔ ",
        Tone::Neutral => "",
    };
    format!("{sign}{}", escape(&chip.word))
}

/// Text that stays text: no markup, no table cell, no mention of a person, an issue, a link or a formula.
pub fn escape(text: &str) -> String {
    const GAP: &str = "&#8203;";
    let short: String = text.chars().take(CELL).collect();
    let mut out = String::new();
    for c in tame(&short).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '$' => out.push_str("&#36;"),
            '@' | '#' => {
                out.push(c);
                out.push_str(GAP);
            }
            '/' if out.ends_with(':') => {
                out.push_str(GAP);
                out.push(c);
            }
            '.' if out.ends_with(['w', 'W']) => {
                out.push_str(GAP);
                out.push(c);
            }
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '!' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    if short.len() < text.len() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_files_stays_text() {
        let hostile = "a|b `c` <img src=x onerror=y> @octocat #12 http://x www.x [l](u) $x$ ![i](u)\n# h";
        insta::assert_snapshot!(
            escape(hostile),
            @r"a\|b \`c\` &lt;img src=x onerror=y&gt; @&#8203;octocat #&#8203;12 http:&#8203;//x www&#8203;.x \[l\](u) &#36;x&#36; \!\[i\](u) #&#8203; h"
        );
    }

    #[test]
    fn a_comment_never_grows_too_long() {
        let row = || vec![Cell::Text("@".repeat(9_000)), Cell::Code("x".repeat(9_000))];
        let table = |n: usize| {
            Block::Table(Table {
                caption: String::new(),
                columns: vec!["a".into(), "b".into()],
                rows: (0..n).map(|_| row()).collect(),
            })
        };
        let section = |n: usize, blocks: usize| Section {
            id: "findings",
            title: "Findings".into(),
            long: true,
            blocks: (0..blocks).map(|_| table(n)).collect(),
        };
        for (n, blocks) in [(1, 1), (300, 1), (70, 60)] {
            let document = GateDocument {
                verdict: evidence::GateVerdict::Fail,
                headline: "|".repeat(100_000),
                demo_files: Vec::new(),
                sign_off: crate::SignOff::default(),
                sections: vec![section(n, blocks)],
            };
            let text = markdown(&document);
            assert!(text.chars().count() <= LIMIT);
            assert_eq!(n > 1, text.contains("more in the HTML report"), "{n} rows");
        }
    }
}
