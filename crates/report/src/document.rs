//! The gate report as data: every figure once, as the text that both renderers show.

use crate::ReportError;
use crate::charts::{self, Bar, Chart, DeltaRow, HeatRow, Mark, Panel, RecallPoint, ladder, signed};
use evidence::stats::Interval;
use evidence::{
    Audit, Comparison, DEPTH_BINS, GateReport, GateVerdict, Grid, GridCell, GridRow, MemoryFigure,
    MemoryKind, Niah, NiahKind, PairClass, PairVerdict, Paired, Policy, Provenance, Restoration, Scope,
    Severity, Thresholds, TimeScope, Verdict,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the report cannot know from the evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignOff {
    /// The reviewer, as the name shall appear; empty when nobody signed.
    pub reviewer: String,
    /// The reviewer's notes; empty when there are none.
    pub notes: String,
    /// When the report was made, as text with its time zone.
    pub generated_at: String,
    /// Version of the program that made it.
    pub program_version: String,
}

/// A gate report, ready to be rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct GateDocument {
    /// The worst outcome of all gates.
    pub verdict: GateVerdict,
    /// The outcome in a sentence.
    pub headline: String,
    /// Names of the files that the demonstration pack wrote.
    pub demo_files: Vec<String>,
    /// Who made it, and when.
    pub sign_off: SignOff,
    /// The parts, the most important first.
    pub sections: Vec<Section>,
}

/// One part of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Anchor: lower-case letters and hyphens.
    pub id: &'static str,
    /// Heading.
    pub title: &'static str,
    /// Short form folds this part away.
    pub long: bool,
    /// What stands in it.
    pub blocks: Vec<Block>,
}

/// One piece of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A heading within the section, with a chip before it.
    Heading(Chip, String),
    /// A paragraph.
    Text(String),
    /// A table.
    Table(Table),
    /// A chart. The table after it holds the same figures.
    Chart(Chart),
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Column heads.
    pub columns: Vec<&'static str>,
    /// Rows, as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A figure with its unit, set to the right.
    Number(String),
    /// A digest, a pointer, a name from a file.
    Code(String),
    /// A verdict.
    Chip(Chip),
}

/// A verdict in a word, with the colour of its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chip {
    /// Colour.
    pub tone: Tone,
    /// The word: colour alone never tells.
    pub word: String,
}

/// Weight of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// It holds.
    Pass,
    /// With care.
    Warn,
    /// It does not hold, or was not measured.
    Fail,
    /// Not decided.
    Undecided,
    /// Neither good nor bad.
    Neutral,
}

fn text(words: impl Into<String>) -> Cell {
    Cell::Text(words.into())
}

fn number(figure: impl Into<String>) -> Cell {
    Cell::Number(figure.into())
}

fn code(name: impl Into<String>) -> Cell {
    Cell::Code(name.into())
}

fn chip(tone: Tone, word: impl Into<String>) -> Chip {
    Chip { tone, word: word.into() }
}

fn table(caption: impl Into<String>, columns: &[&'static str], rows: Vec<Vec<Cell>>) -> Block {
    Block::Table(Table { caption: caption.into(), columns: columns.to_vec(), rows })
}

impl From<GateVerdict> for Chip {
    fn from(verdict: GateVerdict) -> Self {
        let tone = match verdict {
            GateVerdict::Pass => Tone::Pass,
            GateVerdict::Vacuous => Tone::Warn,
            GateVerdict::Undecided => Tone::Undecided,
            GateVerdict::Fail | GateVerdict::Missing => Tone::Fail,
        };
        chip(tone, verdict.label())
    }
}

impl From<Verdict> for Chip {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Pass => chip(Tone::Pass, "pass"),
            Verdict::Vacuous => chip(Tone::Warn, "vacuous"),
            Verdict::Fail => chip(Tone::Fail, "fail"),
            Verdict::Inconclusive => chip(Tone::Undecided, "inconclusive"),
            Verdict::Legacy => chip(Tone::Warn, "legacy schema"),
            Verdict::NotAGateReport => chip(Tone::Neutral, "no gate"),
        }
    }
}

impl From<Severity> for Chip {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Error => chip(Tone::Fail, "error"),
            Severity::Warn => chip(Tone::Warn, "warning"),
            Severity::Info => chip(Tone::Neutral, "info"),
        }
    }
}

/// One needle file with what every table says of it.
struct Run<'a> {
    name: &'a str,
    rung: String,
    platform: &'static str,
    audit: &'a Audit,
    niah: &'a Niah,
}

impl Run<'_> {
    /// File, rung, platform.
    fn cells(&self) -> Vec<Cell> {
        vec![code(self.name), number(&self.rung), text(self.platform)]
    }

    fn row(&self, rest: impl IntoIterator<Item = Cell>) -> Vec<Cell> {
        let mut cells = self.cells();
        cells.extend(rest);
        cells
    }

    fn paired(&self) -> Option<&Paired> {
        self.audit.recomputed.as_ref()?.paired.as_ref()
    }

    /// What tells a figure of this run from those of the others.
    fn label(&self, words: &str) -> String {
        format!("{} {} · {words}", self.platform, self.rung)
    }

    /// The machine that ran it, as far as the file says.
    fn machine(&self) -> String {
        let stated = |from: &Provenance| format!("{}, {} on {}", self.platform, from.device, from.host.cpu);
        self.niah.provenance.as_ref().map_or_else(|| format!("{}, machine not stated", self.platform), stated)
    }

    /// The file's name without its ending.
    fn stem(&self) -> &str {
        self.name.strip_suffix(".json").unwrap_or(self.name)
    }
}

impl GateDocument {
    /// Lays out the report of these audited files. `comparisons` and `gate` are those of the same files.
    ///
    /// # Errors
    /// [`ReportError::Chart`] when a chart cannot be drawn.
    pub fn new(
        audits: &[Audit],
        comparisons: &[Comparison],
        gate: &GateReport,
        sign_off: SignOff,
    ) -> Result<Self, ReportError> {
        let names = names(audits);
        let mut runs: Vec<Run<'_>> = audits.iter().filter_map(|audit| run(audit, &names)).collect();
        runs.sort_by(|a, b| (ladder(&a.rung), a.platform).cmp(&(ladder(&b.rung), b.platform)));
        let mut sections = vec![
            gates(gate, &names),
            recall(&runs)?,
            delta(&runs, &gate.policy.values)?,
            memory(&runs, &gate.policy.values)?,
            throughput(&runs)?,
            depths(audits)?,
            restoration(&runs),
            comparability(comparisons, &names),
            findings(audits, &names),
            provenance(&runs),
            weights(&runs),
            files(audits, &names),
            policy(&gate.policy),
        ];
        sections.retain(|section| !section.blocks.is_empty());
        Ok(Self {
            verdict: gate.verdict,
            headline: gate.headline.clone(),
            demo_files: audits
                .iter()
                .filter(|a| a.is_demo())
                .map(|a| name_of(&a.path, &names).to_owned())
                .collect(),
            sign_off,
            sections,
        })
    }
}

/// What the report calls each file: its name, with the head of its digest where two have the same.
fn names(audits: &[Audit]) -> BTreeMap<PathBuf, String> {
    let of = |audit: &Audit| {
        let twin = audits.iter().any(|other| other.name == audit.name && other.path != audit.path);
        let digest = audit.sha256.get(..8).unwrap_or_default();
        if twin { format!("{} ({digest})", audit.name) } else { audit.name.clone() }
    };
    audits.iter().map(|audit| (audit.path.clone(), of(audit))).collect()
}

fn name_of<'a>(path: &'a Path, names: &'a BTreeMap<PathBuf, String>) -> &'a str {
    let own = || path.file_name().and_then(|name| name.to_str()).unwrap_or("–");
    names.get(path).map_or_else(own, String::as_str)
}

fn run<'a>(audit: &'a Audit, names: &'a BTreeMap<PathBuf, String>) -> Option<Run<'a>> {
    Some(Run {
        name: name_of(&audit.path, names),
        rung: audit.rung_label(),
        platform: audit.identity.platform.label(),
        audit,
        niah: audit.niah.as_ref()?,
    })
}

/// An arm in words: what it restores is in the name.
fn arm_in_words(niah: &Niah, key: &str) -> String {
    match key {
        "k3_cross_model" if niah.identity => "restored, identity (under test)".to_owned(),
        "k3_cross_model" if niah.s5 => "restored, S5 + f_θ (under test)".to_owned(),
        "k3_cross_model" => "restored, f_θ only (under test)".to_owned(),
        "v04_dlm_restored" => "restored, same checkpoint (under test)".to_owned(),
        other => arm_key_in_words(other),
    }
}

/// An arm in words where the file that it stands in is not known.
fn arm_key_in_words(key: &str) -> String {
    if let Some(alpha) = key.strip_prefix("k3_cross_model_alpha_") {
        return format!("restored, {alpha} true K/V mixed in");
    }
    match key {
        "oracle" | "oracle_full_attention" => "oracle",
        "sink_window" | "v03_sink_window" => "sink + window",
        "no_restoration" => "control: hidden in place of f_θ",
        "no_restoration_s5" => "control: hidden in place of f_θ, S5",
        "no_restoration_ftheta_only" => "control: hidden in place of f_θ, f_θ only",
        "random_restoration" => "control: noise in place of f_θ",
        "random_restoration_s5" => "control: noise in place of f_θ, S5",
        "random_restoration_ftheta_only" => "control: noise in place of f_θ, f_θ only",
        "k3_same_checkpoint" => "restored, same checkpoint",
        "k3_cross_model_s5" => "restored, S5 + f_θ",
        "k3_cross_model_ftheta_only" => "restored, f_θ only",
        "k3_identity_restore" => "restored, identity",
        "k3_cross_model" | "v04_dlm_restored" => "restored (under test)",
        "engine_process" => "engine process (all arms)",
        other => other,
    }
    .to_owned()
}

fn mark(kind: NiahKind, key: &str) -> Mark {
    match key {
        key if key == kind.sut() => Mark::Restored,
        key if key == kind.oracle() => Mark::Oracle,
        "k3_identity_restore" | "k3_same_checkpoint" => Mark::Variant,
        key if key.starts_with("k3_cross_model_") => Mark::Variant,
        _ => Mark::Control,
    }
}

fn gates(gate: &GateReport, names: &BTreeMap<PathBuf, String>) -> Section {
    let rows: Vec<Vec<Cell>> = gate
        .cells
        .iter()
        .map(|cell| {
            vec![
                text(&cell.title),
                number(&cell.rung),
                text(cell.platform.label()),
                Cell::Chip(cell.verdict.into()),
                text(&cell.figures),
                text(&cell.why),
                number(cell.samples_needed.map_or_else(|| "–".to_owned(), |more| format!("{more} more"))),
                cell.file.as_deref().map_or_else(|| text("–"), |file| code(name_of(file, names))),
            ]
        })
        .collect();
    let columns = ["gate", "rung", "platform", "verdict", "figures", "why", "samples missing", "file"];
    let mut blocks = vec![if rows.is_empty() {
        Block::Text("No needle evidence was given, so no gate can be decided.".to_owned())
    } else {
        table("Every gate on every rung and platform", &columns, rows)
    }];
    if !gate.ignored.is_empty() {
        let ignored: Vec<&str> = gate.ignored.iter().map(|path| name_of(path, names)).collect();
        blocks.push(Block::Text(format!("Without a needle gate, kept as context: {}.", ignored.join(", "))));
    }
    Section { id: "gates", title: "Gates", long: false, blocks }
}

fn percent(fraction: f64) -> String {
    format!("{:.1} %", 100.0 * fraction)
}

fn recall(runs: &[Run<'_>]) -> Result<Section, ReportError> {
    let mut points = Vec::new();
    let mut rows = Vec::new();
    for run in runs {
        for arm in &run.niah.arms {
            let words = arm_in_words(run.niah, &arm.key);
            points.push(RecallPoint {
                label: run.stem().to_owned(),
                rung: run.rung.clone(),
                platform: run.audit.identity.platform,
                arm: words.clone(),
                mark: mark(run.niah.kind, &arm.key),
                hits: arm.hits,
                n: arm.n,
                low: arm.interval.low,
                high: arm.interval.high,
            });
            rows.push(run.row([
                text(words),
                number(format!("{}/{}", arm.hits, arm.n)),
                number(percent(arm.recall)),
                number(format!("{} – {}", percent(arm.interval.low), percent(arm.interval.high))),
                number(format!("{}/{}", arm.hits_ignoring_case, arm.n)),
            ]));
        }
    }
    let columns =
        ["file", "rung", "platform", "arm", "strict hits", "recall", "exact 95 % interval", "ignoring case"];
    Ok(Section {
        id: "recall",
        title: "Recall",
        long: false,
        blocks: vec![
            Block::Chart(charts::recall(&points)?),
            table("Hits recounted from the stored texts, arm by arm", &columns, rows),
        ],
    })
}

fn delta(runs: &[Run<'_>], limits: &Thresholds) -> Result<Section, ReportError> {
    let margin = limits.recall_margin_pp;
    let paired = || runs.iter().filter_map(|run| Some((run, run.paired()?)));
    let drawn: Vec<DeltaRow> = paired()
        .map(|(run, paired)| DeltaRow {
            label: format!("{} {} · {}", run.platform, run.rung, run.stem()),
            platform: run.audit.identity.platform,
            delta_pp: paired.delta_pp,
            low_pp: paired.delta_interval_pp.low,
            high_pp: paired.delta_interval_pp.high,
            n: paired.n,
        })
        .collect();
    let rows = paired()
        .map(|(run, paired)| {
            let points = |interval: Interval| {
                number(format!("{} to {} pp", signed(interval.low, 1), signed(interval.high, 1)))
            };
            let arms = run.niah.sut().zip(run.niah.oracle());
            let holds =
                arms.is_some_and(|(sut, oracle)| limits.within_margin(sut.hits, oracle.hits, paired.n));
            let within = if holds { chip(Tone::Pass, "yes") } else { chip(Tone::Fail, "no") };
            run.row([
                number(paired.n.to_string()),
                number(format!("{} pp", signed(paired.delta_pp, 2))),
                points(paired.delta_interval_pp),
                points(paired.delta_tango_pp),
                Cell::Chip(within),
                number(format!("{} / {}", paired.gained, paired.lost)),
                number(format!("≤ {:.1} pp", 100.0 * paired.loss_upper95)),
                number(format!("{}/{}", paired.retained, paired.informative_n)),
            ])
        })
        .collect();
    let columns = [
        "file",
        "rung",
        "platform",
        "pairs",
        "delta",
        "95 %, conservative",
        "95 %, Tango",
        "within the margin",
        "gained / lost",
        "lost recall, one-sided 95 %",
        "oracle hits kept",
    ];
    Ok(Section {
        id: "delta",
        title: "Recall delta against the oracle",
        long: false,
        blocks: vec![
            Block::Chart(charts::deltas(&drawn, margin)?),
            table("The arm under test against the oracle on the same samples", &columns, rows),
        ],
    })
}

/// Bytes in the largest binary unit that leaves a figure of at least one.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    units.into_iter().find(|(unit, _)| bytes >= *unit).map_or_else(
        || format!("{bytes} B"),
        |(unit, name)| format!("{:.2} {name}", bytes as f64 / unit as f64),
    )
}

/// One table per kind of figure: two kinds never stand in one.
fn memory(runs: &[Run<'_>], limits: &Thresholds) -> Result<Section, ReportError> {
    const KINDS: [(MemoryKind, &str); 5] = [
        (MemoryKind::AllocatorPeak, "The peak counter of the device's allocator"),
        (MemoryKind::DeviceSampled, "Device memory in use; a sample can miss the peak"),
        (MemoryKind::ProcessFootprint, "Resident set of the whole process, from the operating system"),
        (MemoryKind::KvCounted, "Bytes of the K/V tensors that lived, counted: the cache alone"),
        (MemoryKind::Formula, "Computed, not measured: says nothing about this run and decides no gate"),
    ];
    let mut panels = Vec::new();
    let mut tables = Vec::new();
    for (kind, meaning) in KINDS {
        let figures = runs.iter().flat_map(|run| run.niah.memory.iter().map(move |figure| (run, figure)));
        let figures: Vec<_> = figures.filter(|(_, figure)| figure.kind == kind).collect();
        if figures.is_empty() {
            continue;
        }
        let rows = figures.iter().map(|(run, figure)| {
            run.row([
                text(arm_in_words(run.niah, &figure.arm)),
                text(&figure.label),
                number(bytes(figure.bytes)),
            ])
        });
        let (tone, word) =
            if kind.is_measured() { (Tone::Neutral, "measured") } else { (Tone::Warn, "not measured") };
        tables.push(Block::Heading(chip(tone, word), capitalised(kind.label())));
        tables.push(table(meaning, &["file", "rung", "platform", "arm", "figure", "bytes"], rows.collect()));
        panels.push(Panel {
            title: format!("{} ({word})", capitalised(kind.label())),
            // An own file has a dozen arms with four figures each: the chart shows those that are judged, the table all.
            bars: figures
                .iter()
                .filter(|(run, figure)| {
                    !matches!(mark(run.niah.kind, &figure.arm), Mark::Variant | Mark::Control)
                })
                .map(|(run, figure)| memory_bar(run, figure))
                .collect(),
            // The limit is for what the device or the process held, not for the cache alone.
            limit: (kind.is_measured() && kind != MemoryKind::KvCounted).then(|| {
                (limits.memory_limit_gib * f64::from(1 << 30), format!("{} GiB", limits.memory_limit_gib))
            }),
        });
    }
    let blocks = if tables.is_empty() {
        vec![Block::Text("No file records a memory figure.".to_owned())]
    } else {
        let title = "Memory of the arm under test and its oracle, one axis for each kind of figure";
        std::iter::once(Block::Chart(charts::bars(title, &panels)?)).chain(tables).collect()
    };
    Ok(Section { id: "memory", title: "Memory", long: false, blocks })
}

fn memory_bar(run: &Run<'_>, figure: &MemoryFigure) -> Bar {
    Bar {
        label: run.label(&format!("{}, {}", arm_in_words(run.niah, &figure.arm), figure.label)),
        platform: run.audit.identity.platform,
        mark: mark(run.niah.kind, &figure.arm),
        value: figure.bytes as f64,
        figure: bytes(figure.bytes),
    }
}

/// Rates, one axis for each machine and for what the time covers: nothing else of them compares.
fn throughput(runs: &[Run<'_>]) -> Result<Section, ReportError> {
    let mut panels: BTreeMap<(String, TimeScope), Vec<Bar>> = BTreeMap::new();
    let mut rows = Vec::new();
    for run in runs {
        for rate in &run.niah.throughput {
            let words = arm_in_words(run.niah, &rate.arm);
            let figure = format!("{:.1} tokens/s", rate.tok_s);
            rows.push(run.row([
                text(run.machine()),
                text(words.clone()),
                text(rate.scope.label()),
                number(&figure),
            ]));
            panels.entry((run.machine(), rate.scope)).or_default().push(Bar {
                label: run.label(&words),
                platform: run.audit.identity.platform,
                mark: mark(run.niah.kind, &rate.arm),
                value: rate.tok_s,
                figure,
            });
        }
    }
    let panel = |((machine, scope), bars): ((String, TimeScope), Vec<Bar>)| Panel {
        title: format!("{machine}: {}", scope.label()),
        bars,
        limit: None,
    };
    let panels: Vec<Panel> = panels.into_iter().map(panel).collect();
    let columns = ["file", "rung", "platform", "machine", "arm", "what the time covers", "rate"];
    let blocks = if rows.is_empty() {
        vec![Block::Text("No file records a rate.".to_owned())]
    } else {
        vec![
            Block::Chart(charts::bars("Throughput, one axis for each machine", &panels)?),
            table("Rates are compared within a machine only", &columns, rows),
        ]
    };
    Ok(Section { id: "throughput", title: "Throughput", long: true, blocks })
}

/// Recall by depth and length, pooled over files that hold different samples.
fn depths(audits: &[Audit]) -> Result<Section, ReportError> {
    let grid = evidence::grid(audits, None);
    if grid.rows.is_empty() {
        return Ok(Section { id: "depths", title: "Depth and length", long: true, blocks: Vec::new() });
    }
    let cells = |row: &GridRow| {
        let [label, counts @ ..] = grid_row(row);
        std::iter::once(text(label)).chain(counts.map(number)).collect()
    };
    let caption = "Hits of samples by the needle's depth; files with the same samples count once";
    let rows = grid.rows.iter().map(cells).collect();
    let blocks = vec![Block::Chart(heat_map(&grid)?), table(caption, &GRID_COLUMNS, rows)];
    Ok(Section { id: "depths", title: "Depth and length", long: true, blocks })
}

const GRID_COLUMNS: [&str; DEPTH_BINS + 2] = [
    "platform, lines, arm",
    "0–10 %",
    "10–20 %",
    "20–30 %",
    "30–40 %",
    "40–50 %",
    "50–60 %",
    "60–70 %",
    "70–80 %",
    "80–90 %",
    "90–100 %",
    "all",
];

fn grid_row(row: &GridRow) -> [String; DEPTH_BINS + 2] {
    let count = |cell: &GridCell| format!("{}/{}", cell.hits, cell.n);
    std::array::from_fn(|at| match at {
        0 => grid_label(row),
        at => count(row.depths.get(at - 1).unwrap_or(&row.all)),
    })
}

/// The figures of the heat map: heads of the columns, and rows.
pub fn grid_table(grid: &Grid) -> (Vec<String>, Vec<Vec<String>>) {
    let columns = GRID_COLUMNS.map(str::to_owned).to_vec();
    (columns, grid.rows.iter().map(|row| grid_row(row).to_vec()).collect())
}

fn grid_label(row: &GridRow) -> String {
    let lines =
        row.rung.map_or_else(|| format!("{}–{}", row.lines[0], row.lines[1]), |rung| rung.to_string());
    format!("{} {lines} · {}", row.platform.label(), arm_key_in_words(&row.arm))
}

/// Recall by needle depth and context length, as a chart.
///
/// # Errors
/// [`ReportError::Chart`] when it cannot be drawn.
pub fn heat_map(grid: &Grid) -> Result<Chart, ReportError> {
    let row = |row: &GridRow| HeatRow {
        label: grid_label(row),
        cells: row.depths.iter().map(|cell| (cell.hits, cell.n)).collect(),
    };
    charts::heat(&grid.rows.iter().map(row).collect::<Vec<_>>())
}

fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn restoration(runs: &[Run<'_>]) -> Section {
    let counted =
        runs.iter().flat_map(|run| run.niah.restoration.iter().map(move |counters| (run, counters)));
    let rows: Vec<Vec<Cell>> =
        counted.map(|(run, counters)| run.row(restoration_cells(run.niah, counters))).collect();
    let columns = [
        "file",
        "rung",
        "platform",
        "arm",
        "complete",
        "layers",
        "evicted positions",
        "passes",
        "drafter + f_θ + capture",
    ];
    let block = if rows.is_empty() {
        Block::Text(
            "No file holds restoration counters: nothing proves that f_θ and the injection ran.".to_owned(),
        )
    } else {
        table("Counted where the injection happens, summed over samples", &columns, rows)
    };
    Section {
        id: "restoration",
        title: "Restoration",
        long: false,
        blocks: [Some(block), fidelity(runs)].into_iter().flatten().collect(),
    }
}

/// How far each arm's first token is from the oracle's; none for files that do not say.
fn fidelity(runs: &[Run<'_>]) -> Option<Block> {
    let measured = runs.iter().flat_map(|run| run.niah.fidelity.iter().map(move |arm| (run, arm)));
    let rows: Vec<Vec<Cell>> = measured
        .map(|(run, arm)| {
            run.row([
                text(arm_in_words(run.niah, &arm.key)),
                number(format!("{:.3}", arm.mean.max_abs_logit_difference)),
                number(format!("{:.3}", arm.worst.max_abs_logit_difference)),
                number(format!("{:.1e}", arm.mean.kl)),
                number(format!("{:.1e}", arm.worst.kl)),
            ])
        })
        .collect();
    let columns = ["file", "rung", "platform", "arm", "largest |Δlogit|, mean", "worst", "KL, mean", "worst"];
    (!rows.is_empty()).then(|| table("The first token's distribution against the oracle's", &columns, rows))
}

fn restoration_cells(niah: &Niah, counters: &Restoration) -> [Cell; 6] {
    let complete = if counters.is_accounted() {
        chip(Tone::Pass, "every position")
    } else {
        chip(Tone::Fail, "incomplete")
    };
    [
        text(arm_in_words(niah, &counters.key)),
        Cell::Chip(complete),
        text(counters.layers_in_words()),
        number(counters.evicted_positions.to_string()),
        number(counters.passes.to_string()),
        number(format!(
            "{:.2} + {:.2} + {:.2} s",
            counters.drafter_s, counters.projection_s, counters.capture_s
        )),
    ]
}

fn comparability(comparisons: &[Comparison], names: &BTreeMap<PathBuf, String>) -> Section {
    let mut blocks = Vec::new();
    for comparison in comparisons {
        let verdict = match comparison.verdict {
            PairVerdict::Diffable => chip(Tone::Pass, "comparable"),
            PairVerdict::DiffableWithWarning => chip(Tone::Warn, "comparable with care"),
            PairVerdict::NotComparable => chip(Tone::Fail, "not comparable"),
        };
        let class = match comparison.class {
            PairClass::CrossPlatform => "two platforms",
            PairClass::CrossOracle => "identity against the other file's oracle",
            PairClass::Repeat => "the same run twice",
            PairClass::Ab => "two runs of one platform",
        };
        let (a, b) = (name_of(&comparison.a, names), name_of(&comparison.b, names));
        blocks.push(Block::Heading(verdict, format!("{a} against {b}: {class}")));
        blocks.push(Block::Text(agreement(comparison)));
        let axes = comparison.axes.iter().map(|axis| {
            let scope = match &axis.scope {
                Scope::Whole => chip(Tone::Pass, "comparable"),
                Scope::Part(limit) => chip(Tone::Warn, limit),
                Scope::No => chip(Tone::Fail, "not comparable"),
            };
            vec![text(axis.name.label()), Cell::Chip(scope), text(&axis.reason)]
        });
        blocks.push(table("Axis by axis", &["axis", "scope", "reason"], axes.collect()));
        let differing: Vec<Vec<Cell>> = comparison
            .factors
            .iter()
            .filter(|factor| factor.differs)
            .map(|factor| vec![text(factor.name), code(&factor.a), code(&factor.b)])
            .collect();
        if !differing.is_empty() {
            blocks.push(table("What differs", &["setting", "first file", "second file"], differing));
        }
    }
    Section { id: "comparability", title: "Comparability", long: true, blocks }
}

fn agreement(comparison: &Comparison) -> String {
    let agreement = &comparison.agreement;
    let delta = comparison.delta_pp.map_or_else(
        || "Recall of the two is not subtracted.".to_owned(),
        |pp| format!("Recall of the second less recall of the first: {} pp.", signed(pp, 2)),
    );
    if agreement.n == 0 || comparison.samples.iter().any(|sample| !sample.same_prompt) {
        return format!("{delta} The prompts are not the same, so samples are not matched.");
    }
    format!(
        "{delta} Of {} samples, {} have the same hit or miss, {} the same text of the arm under test, {} the \
         same text of the oracle.",
        agreement.n, agreement.same_flags, agreement.same_sut_texts, agreement.same_oracle_texts
    )
}

/// By severity, then by code; why and remedy stand once per code, every occurrence below.
fn findings(audits: &[Audit], names: &BTreeMap<PathBuf, String>) -> Section {
    let mut by_code: BTreeMap<(Severity, &str), Vec<(&Audit, &evidence::Finding)>> = BTreeMap::new();
    for audit in audits {
        for finding in &audit.findings {
            by_code.entry((finding.severity, finding.code)).or_default().push((audit, finding));
        }
    }
    let count = |severity: Severity| -> usize {
        by_code.iter().filter(|((s, _), _)| *s == severity).map(|(_, found)| found.len()).sum()
    };
    let mut blocks = vec![Block::Text(if by_code.is_empty() {
        "The audit found nothing to say.".to_owned()
    } else {
        format!(
            "{} errors, {} warnings, {} notes.",
            count(Severity::Error),
            count(Severity::Warn),
            count(Severity::Info)
        )
    })];
    for ((severity, name), found) in &by_code {
        blocks.push(Block::Heading((*severity).into(), (*name).to_owned()));
        let Some((_, first)) = found.first() else { continue };
        if !first.why.is_empty() {
            blocks.push(Block::Text(format!("{} {}", first.why, first.fix)));
        }
        let rows = found.iter().map(|(audit, finding)| {
            vec![code(name_of(&audit.path, names)), code(&finding.pointer), text(&finding.message)]
        });
        blocks.push(table(
            format!("Where {name} was found"),
            &["file", "JSON pointer", "message"],
            rows.collect(),
        ));
    }
    Section { id: "findings", title: "Findings", long: true, blocks }
}

fn provenance(runs: &[Run<'_>]) -> Section {
    let rows = runs.iter().map(|run| match &run.niah.provenance {
        Some(provenance) => provenance_cells(run, provenance),
        None => {
            let mut cells = vec![code(run.name), text("not recorded")];
            cells.extend(std::iter::repeat_n(text("–"), 7));
            cells
        }
    });
    let columns = [
        "file",
        "model pack",
        "program",
        "commit",
        "backend, device",
        "number type",
        "host",
        "start – end",
        "dataset",
    ];
    let rows: Vec<Vec<Cell>> = rows.collect();
    let blocks =
        if rows.is_empty() { Vec::new() } else { vec![table("What ran, where and when", &columns, rows)] };
    Section { id: "provenance", title: "Provenance", long: true, blocks }
}

fn provenance_cells(run: &Run<'_>, from: &Provenance) -> Vec<Cell> {
    let host = &from.host;
    let version = from.backend_version.as_deref().map_or_else(String::new, |version| format!(" {version}"));
    let commit = from.git_commit.as_deref().unwrap_or("unknown");
    let dirty = if from.git_dirty { " + uncommitted changes" } else { "" };
    vec![
        code(run.name),
        if from.demo { text(format!("{} (DEMO PACK)", from.pack_name)) } else { text(&from.pack_name) },
        text(&from.program_version),
        code(format!("{commit}{dirty}")),
        text(format!("{}{version}, {}", from.backend, from.device)),
        text(&from.dtype),
        text(format!(
            "{}, {}, {}, {} cores, {}",
            host.os,
            host.arch,
            host.cpu,
            host.cores,
            bytes(host.memory_bytes)
        )),
        text(format!("{} – {}", from.started, from.ended)),
        code(&from.dataset.sha256),
    ]
}

/// The files of each pack once, however many evidence files it wrote.
fn weights(runs: &[Run<'_>]) -> Section {
    let mut packs: BTreeMap<String, Vec<&Run<'_>>> = BTreeMap::new();
    for run in runs {
        if let Some(digest) = run.niah.weights_digest() {
            packs.entry(digest).or_default().push(run);
        }
    }
    let mut blocks = Vec::new();
    for (digest, runs) in &packs {
        let Some(pack) = runs.first().and_then(|run| run.niah.provenance.as_ref()) else { continue };
        let users: Vec<&str> = runs.iter().map(|run| run.name).collect();
        let tone = if pack.demo { chip(Tone::Warn, "DEMO PACK") } else { chip(Tone::Neutral, "pack") };
        blocks.push(Block::Heading(tone, format!("{} ({digest})", pack.pack_name)));
        blocks.push(Block::Text(format!("Ran in {}.", users.join(", "))));
        let rows = pack.weights.iter().map(|f| vec![code(&f.path), number(bytes(f.bytes)), code(&f.sha256)]);
        blocks.push(table("Files of the pack", &["file", "size", "SHA-256"], rows.collect()));
    }
    Section { id: "weights", title: "Weights", long: true, blocks }
}

fn files(audits: &[Audit], names: &BTreeMap<PathBuf, String>) -> Section {
    let rows: Vec<Vec<Cell>> = audits
        .iter()
        .map(|audit| {
            vec![
                code(name_of(&audit.path, names)),
                code(audit.identity.kind.as_deref().unwrap_or("no kind")),
                Cell::Chip(audit.verdict.into()),
                number(bytes(audit.bytes)),
                code(&audit.sha256),
            ]
        })
        .collect();
    let columns = ["file", "kind", "verdict of the audit", "size", "SHA-256"];
    let blocks = if rows.is_empty() {
        Vec::new()
    } else {
        vec![table("Every file that this report rests on", &columns, rows)]
    };
    Section { id: "files", title: "Evidence files", long: true, blocks }
}

fn policy(policy: &Policy) -> Section {
    let limits = &policy.values;
    let (margin, confidence) = (limits.recall_margin_pp, limits.confidence);
    let platforms: Vec<&str> = limits.platforms.iter().map(|platform| platform.label()).collect();
    let rungs: Vec<String> = limits.ladder.iter().map(u32::to_string).collect();
    let rules = [
        (
            "Every rung measured",
            format!(
                "Evidence with both arms at {} padding lines on {}. Missing where a rung has none.",
                rungs.join(", "),
                platforms.join(" and ")
            ),
        ),
        (
            "Recall",
            format!(
                "The arm under test and the oracle answer the same prompts. Fail unless |Δhits| ≤ {margin} % of n, in \
                 integers. Pass only when the one-sided exact upper bound, at confidence {confidence}, on the rate of \
                 lost samples is at most {margin} percentage points; until then undecided."
            ),
        ),
        (
            "Restoration ran",
            format!(
                "Run-time counters show that every evicted position of every restored layer was injected, and K/V \
                 restored to itself changes no text. A flag or a time is no proof. Vacuous when nothing was restored, or \
                 no sample's restoration took as long as {} s.",
                limits.min_restoration_s
            ),
        ),
        (
            "Memory",
            format!(
                "The highest figure of device or process that was measured for the arm under test is below {} · 2³⁰ \
                 bytes. Formulas do not count.",
                limits.memory_limit_gib
            ),
        ),
        (
            "Intervals",
            "Recall: Clopper–Pearson, two-sided 95 %. Delta: gains and losses each at 97.5 %, which is conservative and \
             drawn; beside it Tango's score interval, which is closer to 95 %."
                .to_owned(),
        ),
        (
            "Outcomes",
            "Pass, fail, undecided; vacuous (it would hold whatever the claim is) and missing (nothing measured it). \
             The report's verdict is the worst of its gates."
                .to_owned(),
        ),
    ];
    let rows = rules.map(|(name, rule)| vec![text(name), text(rule)]).to_vec();
    let source = vec![vec![code(&policy.source), code(&policy.sha256)]];
    Section {
        id: "policy",
        title: "Policy",
        long: true,
        blocks: vec![
            table("The rules that decided", &["rule", "wording"], rows),
            table("Where the thresholds come from", &["policy", "SHA-256"], source),
        ],
    }
}
