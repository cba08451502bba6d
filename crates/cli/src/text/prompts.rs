//! Regenerated prompts and the depth × length grid as text.

use super::table;
use api::{PromptSet, PromptsView};
use evidence::{DEPTH_BINS, Grid, GridCell, GridRow, shown_path};
use report::tame;
use std::fmt::Write;

fn percent(fraction: f64) -> String {
    format!("{:.1} %", 100.0 * fraction)
}

pub(crate) fn prompts(view: &PromptsView) -> String {
    let mut out: String = view.sets.iter().map(set).collect();
    if view.sets.iter().flat_map(|set| &set.prompts).any(|prompt| prompt.token_depth.is_some()) {
        let _ = writeln!(out, "token depth: {}", view.token_depth);
    }
    out
}

fn set(set: &PromptSet) -> String {
    let [low, high] = set.lines;
    let name = set.path.as_deref().map_or_else(|| "dataset".to_owned(), tame);
    let mut out = format!(
        "{name}\nseed {}, {low}–{high} padding lines, prompt {}\n",
        set.seed,
        super::word(&set.prompt_variant)
    );
    let header = ["sample", "answer", "lines", "needle after", "line depth", "token depth"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(set.prompts.iter().map(|prompt| {
        vec![
            prompt.index.to_string(),
            prompt.answer.clone(),
            prompt.padding_lines.to_string(),
            prompt.needle_line.to_string(),
            percent(prompt.line_depth),
            prompt.token_depth.map_or_else(|| "–".to_owned(), percent),
        ]
    }));
    out += &table(&rows);
    if let Some(marked) = &set.sample {
        let _ = writeln!(out, "\n{}>>> {} <<<{}", marked.before, marked.needle, marked.after);
    }
    out.push('\n');
    out
}

fn cell(cell: &GridCell) -> String {
    if cell.n == 0 { "·".to_owned() } else { format!("{}/{}", cell.hits, cell.n) }
}

fn row(row: &GridRow) -> Vec<String> {
    let [low, high] = row.lines;
    let lines = row.rung.map_or_else(|| format!("{low}–{high}"), |rung| rung.to_string());
    let mut cells = vec![tame(&row.arm), row.platform.label().to_owned(), lines, row.files.to_string()];
    cells.extend(row.depths.iter().chain([&row.all]).map(cell));
    cells
}

pub(crate) fn grid(grid: &Grid) -> String {
    let mut header = ["arm", "platform", "lines", "files"].map(str::to_owned).to_vec();
    header.extend((0..DEPTH_BINS).map(|bin| format!("{}–{} %", 10 * bin, 10 * (bin + 1))));
    header.push("all".to_owned());
    let rows: Vec<Vec<String>> = [header].into_iter().chain(grid.rows.iter().map(row)).collect();
    let mut out = table(&rows);
    out += "Hits of samples by depth of the needle, as a fraction of the padding lines.\n";
    for left_out in &grid.left_out {
        let [path, same_as] = [&left_out.path, &left_out.same_as].map(|path| tame(&shown_path(path)));
        let _ = writeln!(out, "not counted: {path} holds the same samples of the same system as {same_as}");
    }
    out
}
