//! The gate report as data: every figure once, as the text that both renderers show.

use crate::ReportError;
use crate::arms::{arm_in_words, arm_key_in_words, mark};
use crate::charts::{self, Bar, Chart, DeltaRow, HeatRow, Mark, Panel, RecallPoint, ladder, signed};
use crate::text::platform;
use evidence::stats::Interval;
use evidence::{
    Audit, Comparison, DEPTH_BINS, GateReport, GateVerdict, Grid, GridCell, GridRow, Language, MemoryFigure,
    MemoryKind, Niah, PairClass, PairVerdict, Paired, Policy, Provenance, Restoration, Scope, Severity, Text,
    Thresholds, TimeScope, Verdict, said, text,
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
    /// The language of whoever reads it. What programs read (JUnit) is English.
    pub language: Language,
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
    pub title: String,
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
    pub columns: Vec<String>,
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

/// Heads of columns, each in both languages.
fn heads(language: Language, columns: &[(&str, &str)]) -> Vec<String> {
    columns.iter().map(|(en, zh)| said!(language, "{en}", "{zh}")).collect()
}

fn table(caption: impl Into<String>, columns: &[String], rows: Vec<Vec<Cell>>) -> Block {
    Block::Table(Table { caption: caption.into(), columns: columns.to_vec(), rows })
}

impl Chip {
    /// The verdict of a gate.
    pub fn of_gate(verdict: GateVerdict, language: Language) -> Self {
        let tone = match verdict {
            GateVerdict::Pass => Tone::Pass,
            GateVerdict::Vacuous => Tone::Warn,
            GateVerdict::Undecided => Tone::Undecided,
            GateVerdict::Fail | GateVerdict::Missing => Tone::Fail,
        };
        chip(tone, verdict.label().said(language))
    }

    fn of_audit(verdict: Verdict, language: Language) -> Self {
        match verdict {
            Verdict::Pass => chip(Tone::Pass, said!(language, "pass", "通过")),
            Verdict::Vacuous => chip(Tone::Warn, said!(language, "vacuous", "空洞")),
            Verdict::Fail => chip(Tone::Fail, said!(language, "fail", "不通过")),
            Verdict::Inconclusive => chip(Tone::Undecided, said!(language, "inconclusive", "无结论")),
            Verdict::Legacy => chip(Tone::Warn, said!(language, "legacy schema", "旧版格式")),
            Verdict::NotAGateReport => chip(Tone::Neutral, said!(language, "no gate", "无门禁")),
        }
    }

    fn of_severity(severity: Severity, language: Language) -> Self {
        match severity {
            Severity::Error => chip(Tone::Fail, said!(language, "error", "错误")),
            Severity::Warn => chip(Tone::Warn, said!(language, "warning", "警告")),
            Severity::Info => chip(Tone::Neutral, said!(language, "info", "说明")),
        }
    }
}

/// One needle file with what every table says of it.
struct Run<'a> {
    name: &'a str,
    rung: String,
    platform: String,
    audit: &'a Audit,
    niah: &'a Niah,
    language: Language,
}

impl Run<'_> {
    /// File, rung, platform.
    fn cells(&self) -> Vec<Cell> {
        vec![code(self.name), number(&self.rung), text(&self.platform)]
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
        let language = self.language;
        let stated = |from: &Provenance| {
            said!(language, "{}, {} on {}", "{}，{}，{}", self.platform, from.device, from.host.cpu)
        };
        self.niah.provenance.as_ref().map_or_else(
            || said!(language, "{}, machine not stated", "{}，机器未注明", self.platform),
            stated,
        )
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
        let (names, language) = (names(audits), sign_off.language);
        let mut runs: Vec<Run<'_>> = audits.iter().filter_map(|audit| run(audit, &names, language)).collect();
        runs.sort_by(|a, b| (ladder(&a.rung), &a.platform).cmp(&(ladder(&b.rung), &b.platform)));
        let mut sections = vec![
            gates(gate, &names, language),
            recall(&runs, language)?,
            delta(&runs, &gate.policy.values, language)?,
            memory(&runs, &gate.policy.values, language)?,
            throughput(&runs, language)?,
            depths(audits, language)?,
            restoration(&runs, language),
            comparability(comparisons, &names, language),
            findings(audits, &names, language),
            provenance(&runs, language),
            weights(&runs, language),
            files(audits, &names, language),
            policy(&gate.policy, language),
        ];
        sections.retain(|section| !section.blocks.is_empty());
        Ok(Self {
            verdict: gate.verdict,
            headline: gate.headline.said(language).to_owned(),
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

fn run<'a>(audit: &'a Audit, names: &'a BTreeMap<PathBuf, String>, language: Language) -> Option<Run<'a>> {
    Some(Run {
        name: name_of(&audit.path, names),
        rung: audit.rung_label(),
        platform: platform(audit.identity.platform, language),
        audit,
        niah: audit.niah.as_ref()?,
        language,
    })
}

fn gates(gate: &GateReport, names: &BTreeMap<PathBuf, String>, language: Language) -> Section {
    let rows: Vec<Vec<Cell>> = gate
        .cells
        .iter()
        .map(|cell| {
            vec![
                text(cell.title.said(language)),
                number(if cell.rung == "all" { said!(language, "all", "全部") } else { cell.rung.clone() }),
                text(platform(cell.platform, language)),
                Cell::Chip(Chip::of_gate(cell.verdict, language)),
                text(cell.figures.said(language)),
                text(cell.why.said(language)),
                number(
                    cell.samples_needed.map_or_else(
                        || "–".to_owned(),
                        |more| said!(language, "{more} more", "再 {more} 个"),
                    ),
                ),
                cell.file.as_deref().map_or_else(|| text("–"), |file| code(name_of(file, names))),
            ]
        })
        .collect();
    let columns = heads(
        language,
        &[
            ("gate", "门禁"),
            ("rung", "梯级"),
            ("platform", "平台"),
            ("verdict", "结论"),
            ("figures", "数字"),
            ("why", "原因"),
            ("samples missing", "缺少的样本"),
            ("file", "文件"),
        ],
    );
    let mut blocks = vec![if rows.is_empty() {
        Block::Text(said!(
            language,
            "No needle evidence was given, so no gate can be decided.",
            "没有大海捞针证据，因此无法判定任何门禁。"
        ))
    } else {
        table(
            said!(language, "Every gate on every rung and platform", "每个梯级、每个平台上的每项门禁"),
            &columns,
            rows,
        )
    }];
    if !gate.ignored.is_empty() {
        let ignored: Vec<&str> = gate.ignored.iter().map(|path| name_of(path, names)).collect();
        blocks.push(Block::Text(said!(
            language,
            "Without a needle gate, kept as context: {}.",
            "不含大海捞针门禁，作为背景保留：{}。",
            ignored.join(", ")
        )));
    }
    Section { id: "gates", title: said!(language, "Gates", "门禁"), long: false, blocks }
}

fn percent(fraction: f64) -> String {
    format!("{:.1} %", 100.0 * fraction)
}

fn recall(runs: &[Run<'_>], language: Language) -> Result<Section, ReportError> {
    let mut points = Vec::new();
    let mut rows = Vec::new();
    for run in runs {
        for arm in &run.niah.arms {
            let words = arm_in_words(run.niah, &arm.key, language);
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
    let columns = heads(
        language,
        &[
            ("file", "文件"),
            ("rung", "梯级"),
            ("platform", "平台"),
            ("arm", "实验臂"),
            ("strict hits", "严格命中"),
            ("recall", "召回率"),
            ("exact 95 % interval", "95 % 精确区间"),
            ("ignoring case", "忽略大小写"),
        ],
    );
    Ok(Section {
        id: "recall",
        title: said!(language, "Recall", "召回率"),
        long: false,
        blocks: vec![
            Block::Chart(charts::recall(&points, language)?),
            table(
                said!(
                    language,
                    "Hits recounted from the stored texts, arm by arm",
                    "由存储的文本重新计数的命中，按实验臂列出"
                ),
                &columns,
                rows,
            ),
        ],
    })
}

fn delta(runs: &[Run<'_>], limits: &Thresholds, language: Language) -> Result<Section, ReportError> {
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
                number(said!(
                    language,
                    "{} to {} pp",
                    "{} 到 {} 个百分点",
                    signed(interval.low, 1),
                    signed(interval.high, 1)
                ))
            };
            let arms = run.niah.sut().zip(run.niah.oracle());
            let holds =
                arms.is_some_and(|(sut, oracle)| limits.within_margin(sut.hits, oracle.hits, paired.n));
            let within = if holds {
                chip(Tone::Pass, said!(language, "yes", "是"))
            } else {
                chip(Tone::Fail, said!(language, "no", "否"))
            };
            run.row([
                number(paired.n.to_string()),
                number(said!(language, "{} pp", "{} 个百分点", signed(paired.delta_pp, 2))),
                points(paired.delta_interval_pp),
                points(paired.delta_tango_pp),
                Cell::Chip(within),
                number(format!("{} / {}", paired.gained, paired.lost)),
                number(said!(language, "≤ {:.1} pp", "≤ {:.1} 个百分点", 100.0 * paired.loss_upper95)),
                number(format!("{}/{}", paired.retained, paired.informative_n)),
            ])
        })
        .collect();
    let columns = heads(
        language,
        &[
            ("file", "文件"),
            ("rung", "梯级"),
            ("platform", "平台"),
            ("pairs", "对数"),
            ("delta", "差"),
            ("95 %, conservative", "95 %，保守"),
            ("95 %, Tango", "95 %，Tango"),
            ("within the margin", "在界限内"),
            ("gained / lost", "增加 / 丢失"),
            ("lost recall, one-sided 95 %", "召回损失，单侧 95 %"),
            ("oracle hits kept", "保留的 oracle 命中"),
        ],
    );
    Ok(Section {
        id: "delta",
        title: said!(language, "Recall delta against the oracle", "召回率与 oracle 之差"),
        long: false,
        blocks: vec![
            Block::Chart(charts::deltas(&drawn, margin, language)?),
            table(
                said!(
                    language,
                    "The arm under test against the oracle on the same samples",
                    "相同样本上受测实验臂与 oracle 的对比"
                ),
                &columns,
                rows,
            ),
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

/// What a kind of figure is worth.
fn meaning(kind: MemoryKind) -> Text {
    match kind {
        MemoryKind::AllocatorPeak => {
            text!("The peak counter of the device's allocator", "设备分配器的峰值计数器")
        }
        MemoryKind::DeviceSampled => {
            text!("Device memory in use; a sample can miss the peak", "使用中的设备内存；采样可能错过峰值")
        }
        MemoryKind::ProcessFootprint => text!(
            "Resident set of the whole process, from the operating system",
            "整个进程的常驻内存，由操作系统报告"
        ),
        MemoryKind::KvCounted => text!(
            "Bytes of the K/V tensors that lived, counted: the cache alone",
            "存活的 K/V 张量的字节数，计数所得：仅缓存"
        ),
        MemoryKind::Formula => text!(
            "Computed, not measured: says nothing about this run and decides no gate",
            "计算所得，未测量：说明不了这次运行，也不决定任何门禁"
        ),
    }
}

/// One table per kind of figure: two kinds never stand in one.
fn memory(runs: &[Run<'_>], limits: &Thresholds, language: Language) -> Result<Section, ReportError> {
    let mut panels = Vec::new();
    let mut tables = Vec::new();
    let kinds = [
        MemoryKind::AllocatorPeak,
        MemoryKind::DeviceSampled,
        MemoryKind::ProcessFootprint,
        MemoryKind::KvCounted,
        MemoryKind::Formula,
    ];
    for kind in kinds {
        let figures = runs.iter().flat_map(|run| run.niah.memory.iter().map(move |figure| (run, figure)));
        let figures: Vec<_> = figures.filter(|(_, figure)| figure.kind == kind).collect();
        if figures.is_empty() {
            continue;
        }
        let rows = figures.iter().map(|(run, figure)| {
            run.row([
                text(arm_in_words(run.niah, &figure.arm, language)),
                text(figure.label.said(language)),
                number(bytes(figure.bytes)),
            ])
        });
        let (tone, word) = if kind.is_measured() {
            (Tone::Neutral, said!(language, "measured", "已测量"))
        } else {
            (Tone::Warn, said!(language, "not measured", "未测量"))
        };
        let title = capitalised(kind.label().said(language));
        let shown = format!("{title} ({word})");
        tables.push(Block::Heading(chip(tone, word), title));
        tables.push(table(
            meaning(kind).said(language),
            &heads(
                language,
                &[
                    ("file", "文件"),
                    ("rung", "梯级"),
                    ("platform", "平台"),
                    ("arm", "实验臂"),
                    ("figure", "数字"),
                    ("bytes", "字节"),
                ],
            ),
            rows.collect(),
        ));
        panels.push(Panel {
            title: shown,
            // An own file has a dozen arms with four figures each: the chart shows those that are judged, the table all.
            bars: figures
                .iter()
                .filter(|(run, figure)| {
                    !matches!(
                        mark(run.niah.kind, &figure.arm),
                        Mark::Variant | Mark::Identity | Mark::Control
                    )
                })
                .map(|(run, figure)| memory_bar(run, figure, language))
                .collect(),
            // The limit is for what the device or the process held, not for the cache alone.
            limit: (kind.is_measured() && kind != MemoryKind::KvCounted).then(|| {
                (limits.memory_limit_gib * f64::from(1 << 30), format!("{} GiB", limits.memory_limit_gib))
            }),
        });
    }
    let blocks = if tables.is_empty() {
        vec![Block::Text(said!(language, "No file records a memory figure.", "没有文件记录内存数字。"))]
    } else {
        let title = said!(
            language,
            "Memory of the arm under test and its oracle, one axis for each kind of figure",
            "受测实验臂及其 oracle 的内存，每类数字一条轴"
        );
        std::iter::once(Block::Chart(charts::bars(&title, &panels, language)?)).chain(tables).collect()
    };
    Ok(Section { id: "memory", title: said!(language, "Memory", "内存"), long: false, blocks })
}

fn memory_bar(run: &Run<'_>, figure: &MemoryFigure, language: Language) -> Bar {
    Bar {
        label: run.label(&format!(
            "{}, {}",
            arm_in_words(run.niah, &figure.arm, language),
            figure.label.said(language)
        )),
        platform: run.audit.identity.platform,
        mark: mark(run.niah.kind, &figure.arm),
        value: figure.bytes as f64,
        figure: bytes(figure.bytes),
    }
}

/// Rates, one axis for each machine and for what the time covers: nothing else of them compares.
fn throughput(runs: &[Run<'_>], language: Language) -> Result<Section, ReportError> {
    let mut panels: BTreeMap<(String, TimeScope), Vec<Bar>> = BTreeMap::new();
    let mut rows = Vec::new();
    for run in runs {
        for rate in &run.niah.throughput {
            let words = arm_in_words(run.niah, &rate.arm, language);
            let figure = said!(language, "{:.1} tokens/s", "{:.1} 词元/秒", rate.tok_s);
            rows.push(run.row([
                text(run.machine()),
                text(words.clone()),
                text(rate.scope.label().said(language)),
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
        title: format!("{machine}: {}", scope.label().said(language)),
        bars,
        limit: None,
    };
    let panels: Vec<Panel> = panels.into_iter().map(panel).collect();
    let columns = heads(
        language,
        &[
            ("file", "文件"),
            ("rung", "梯级"),
            ("platform", "平台"),
            ("machine", "机器"),
            ("arm", "实验臂"),
            ("what the time covers", "时间的范围"),
            ("rate", "速率"),
        ],
    );
    let blocks = if rows.is_empty() {
        vec![Block::Text(said!(language, "No file records a rate.", "没有文件记录速率。"))]
    } else {
        vec![
            Block::Chart(charts::bars(
                &said!(language, "Throughput, one axis for each machine", "吞吐量，每台机器一条轴"),
                &panels,
                language,
            )?),
            table(
                said!(language, "Rates are compared within a machine only", "速率只在同一台机器内比较"),
                &columns,
                rows,
            ),
        ]
    };
    Ok(Section { id: "throughput", title: said!(language, "Throughput", "吞吐量"), long: true, blocks })
}

/// Recall by depth and length, pooled over files that hold different samples.
fn depths(audits: &[Audit], language: Language) -> Result<Section, ReportError> {
    let grid = evidence::grid(audits, None);
    if grid.rows.is_empty() {
        return Ok(Section {
            id: "depths",
            title: said!(language, "Depth and length", "深度与长度"),
            long: true,
            blocks: Vec::new(),
        });
    }
    let cells = |row: &GridRow| {
        let [label, counts @ ..] = grid_row(row, language);
        std::iter::once(text(label)).chain(counts.map(number)).collect()
    };
    let caption = said!(
        language,
        "Hits of samples by the needle's depth; files with the same samples count once",
        "按针的深度统计的命中；样本相同的文件只计一次"
    );
    let rows = grid.rows.iter().map(cells).collect();
    let blocks =
        vec![Block::Chart(heat_map(&grid, language)?), table(caption, &grid_columns(language), rows)];
    Ok(Section {
        id: "depths", title: said!(language, "Depth and length", "深度与长度"), long: true, blocks
    })
}

fn grid_columns(language: Language) -> [String; DEPTH_BINS + 2] {
    std::array::from_fn(|at| match at {
        0 => said!(language, "platform, lines, arm", "平台，行数，实验臂"),
        at if at > DEPTH_BINS => said!(language, "all", "全部"),
        at => format!("{}–{} %", 100 * (at - 1) / DEPTH_BINS, 100 * at / DEPTH_BINS),
    })
}

fn grid_row(row: &GridRow, language: Language) -> [String; DEPTH_BINS + 2] {
    let count = |cell: &GridCell| format!("{}/{}", cell.hits, cell.n);
    std::array::from_fn(|at| match at {
        0 => grid_label(row, language),
        at => count(row.depths.get(at - 1).unwrap_or(&row.all)),
    })
}

/// The figures of the heat map: heads of the columns, and rows.
pub fn grid_table(grid: &Grid, language: Language) -> (Vec<String>, Vec<Vec<String>>) {
    let rows = grid.rows.iter().map(|row| grid_row(row, language).to_vec()).collect();
    (grid_columns(language).to_vec(), rows)
}

fn grid_label(row: &GridRow, language: Language) -> String {
    let lines =
        row.rung.map_or_else(|| format!("{}–{}", row.lines[0], row.lines[1]), |rung| rung.to_string());
    format!("{} {lines} · {}", platform(row.platform, language), arm_key_in_words(&row.arm, language))
}

/// Recall by needle depth and context length, as a chart.
///
/// # Errors
/// [`ReportError::Chart`] when it cannot be drawn.
pub fn heat_map(grid: &Grid, language: Language) -> Result<Chart, ReportError> {
    let row = |row: &GridRow| HeatRow {
        label: grid_label(row, language),
        cells: row.depths.iter().map(|cell| (cell.hits, cell.n)).collect(),
    };
    charts::heat(&grid.rows.iter().map(row).collect::<Vec<_>>(), language)
}

fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn restoration(runs: &[Run<'_>], language: Language) -> Section {
    let counted =
        runs.iter().flat_map(|run| run.niah.restoration.iter().map(move |counters| (run, counters)));
    let rows: Vec<Vec<Cell>> =
        counted.map(|(run, counters)| run.row(restoration_cells(run.niah, counters, language))).collect();
    let columns = heads(
        language,
        &[
            ("file", "文件"),
            ("rung", "梯级"),
            ("platform", "平台"),
            ("arm", "实验臂"),
            ("complete", "完整"),
            ("layers", "层"),
            ("evicted positions", "被逐出的位置"),
            ("passes", "次数"),
            ("drafter + f_θ + capture", "草稿模型 + f_θ + 捕获"),
        ],
    );
    let block = if rows.is_empty() {
        Block::Text(said!(
            language,
            "No file holds restoration counters: nothing proves that f_θ and the injection ran.",
            "没有文件含有恢复计数器：没有任何东西证明 f_θ 和注入执行过。"
        ))
    } else {
        table(
            said!(
                language,
                "Counted where the injection happens, summed over samples",
                "在注入发生处计数，各样本合计"
            ),
            &columns,
            rows,
        )
    };
    Section {
        id: "restoration",
        title: said!(language, "Restoration", "恢复"),
        long: false,
        blocks: [Some(block), fidelity(runs, language)].into_iter().flatten().collect(),
    }
}

/// How far each arm's first token is from the oracle's; none for files that do not say.
fn fidelity(runs: &[Run<'_>], language: Language) -> Option<Block> {
    let measured = runs.iter().flat_map(|run| run.niah.fidelity.iter().map(move |arm| (run, arm)));
    let rows: Vec<Vec<Cell>> = measured
        .map(|(run, arm)| {
            run.row([
                text(arm_in_words(run.niah, &arm.key, language)),
                number(format!("{:.3}", arm.mean.max_abs_logit_difference)),
                number(format!("{:.3}", arm.worst.max_abs_logit_difference)),
                number(format!("{:.1e}", arm.mean.kl)),
                number(format!("{:.1e}", arm.worst.kl)),
            ])
        })
        .collect();
    let columns = heads(
        language,
        &[
            ("file", "文件"),
            ("rung", "梯级"),
            ("platform", "平台"),
            ("arm", "实验臂"),
            ("largest |Δlogit|, mean", "最大 |Δlogit|，平均"),
            ("worst", "最差"),
            ("KL, mean", "KL，平均"),
            ("worst", "最差"),
        ],
    );
    (!rows.is_empty()).then(|| {
        table(
            said!(
                language,
                "The first token's distribution against the oracle's",
                "首个词元的分布与 oracle 对比"
            ),
            &columns,
            rows,
        )
    })
}

fn restoration_cells(niah: &Niah, counters: &Restoration, language: Language) -> [Cell; 6] {
    let complete = if counters.is_accounted() {
        chip(Tone::Pass, said!(language, "every position", "每个位置"))
    } else {
        chip(Tone::Fail, said!(language, "incomplete", "不完整"))
    };
    [
        text(arm_in_words(niah, &counters.key, language)),
        Cell::Chip(complete),
        text(counters.layers_in_words().said(language)),
        number(counters.evicted_positions.to_string()),
        number(counters.passes.to_string()),
        number(said!(
            language,
            "{:.2} + {:.2} + {:.2} s",
            "{:.2} + {:.2} + {:.2} 秒",
            counters.drafter_s,
            counters.projection_s,
            counters.capture_s
        )),
    ]
}

fn comparability(
    comparisons: &[Comparison],
    names: &BTreeMap<PathBuf, String>,
    language: Language,
) -> Section {
    let mut blocks = Vec::new();
    for comparison in comparisons {
        let verdict = match comparison.verdict {
            PairVerdict::Diffable => chip(Tone::Pass, said!(language, "comparable", "可比较")),
            PairVerdict::DiffableWithWarning => {
                chip(Tone::Warn, said!(language, "comparable with care", "可比较，但需留意"))
            }
            PairVerdict::NotComparable => chip(Tone::Fail, said!(language, "not comparable", "不可比较")),
        };
        let class = match comparison.class {
            PairClass::CrossPlatform => said!(language, "two platforms", "两个平台"),
            PairClass::CrossOracle => {
                said!(language, "identity against the other file's oracle", "恒等运行对另一文件的 oracle")
            }
            PairClass::Repeat => said!(language, "the same run twice", "同一运行的两次"),
            PairClass::Ab => said!(language, "two runs of one platform", "同一平台的两次运行"),
        };
        let (a, b) = (name_of(&comparison.a, names), name_of(&comparison.b, names));
        blocks.push(Block::Heading(
            verdict,
            said!(language, "{a} against {b}: {class}", "{a} 对比 {b}：{class}"),
        ));
        blocks.push(Block::Text(agreement(comparison, language)));
        let axes = comparison.axes.iter().map(|axis| {
            let scope = match &axis.scope {
                Scope::Whole => chip(Tone::Pass, said!(language, "comparable", "可比较")),
                Scope::Part(limit) => chip(Tone::Warn, limit.said(language)),
                Scope::No => chip(Tone::Fail, said!(language, "not comparable", "不可比较")),
            };
            vec![text(axis.name.label().said(language)), Cell::Chip(scope), text(axis.reason.said(language))]
        });
        blocks.push(table(
            said!(language, "Axis by axis", "逐维度"),
            &heads(language, &[("axis", "维度"), ("scope", "范围"), ("reason", "原因")]),
            axes.collect(),
        ));
        let differing: Vec<Vec<Cell>> = comparison
            .factors
            .iter()
            .filter(|factor| factor.differs)
            .map(|factor| {
                vec![
                    text(factor.name.said(language)),
                    code(factor.a.said(language)),
                    code(factor.b.said(language)),
                ]
            })
            .collect();
        if !differing.is_empty() {
            blocks.push(table(
                said!(language, "What differs", "差异"),
                &heads(
                    language,
                    &[("setting", "设置"), ("first file", "第一个文件"), ("second file", "第二个文件")],
                ),
                differing,
            ));
        }
    }
    Section { id: "comparability", title: said!(language, "Comparability", "可比性"), long: true, blocks }
}

fn agreement(comparison: &Comparison, language: Language) -> String {
    let agreement = &comparison.agreement;
    let delta = comparison.delta_pp.map_or_else(
        || said!(language, "Recall of the two is not subtracted.", "两者的召回率不相减。"),
        |pp| {
            said!(
                language,
                "Recall of the second less recall of the first: {} pp.",
                "第二个减第一个的召回率：{} 个百分点。",
                signed(pp, 2)
            )
        },
    );
    if agreement.n == 0 || comparison.samples.iter().any(|sample| !sample.same_prompt) {
        return said!(
            language,
            "{delta} The prompts are not the same, so samples are not matched.",
            "{delta}提示词不相同，因此样本没有配对。"
        );
    }
    said!(
        language,
        "{delta} Of {} samples, {} have the same hit or miss, {} the same text of the arm under test, {} the \
         same text of the oracle.",
        "{delta}{} 个样本中，{} 个命中情况相同，{} 个受测实验臂文本相同，{} 个 oracle 文本相同。",
        agreement.n,
        agreement.same_flags,
        agreement.same_sut_texts,
        agreement.same_oracle_texts
    )
}

/// By severity, then by code; why and remedy stand once per code, every occurrence below.
fn findings(audits: &[Audit], names: &BTreeMap<PathBuf, String>, language: Language) -> Section {
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
        said!(language, "The audit found nothing to say.", "审计没有意见。")
    } else {
        said!(
            language,
            "{} errors, {} warnings, {} notes.",
            "{} 个错误，{} 个警告，{} 条说明。",
            count(Severity::Error),
            count(Severity::Warn),
            count(Severity::Info)
        )
    })];
    for ((severity, name), found) in &by_code {
        blocks.push(Block::Heading(Chip::of_severity(*severity, language), (*name).to_owned()));
        let Some((_, first)) = found.first() else { continue };
        let (why, fix) = (first.why.said(language), first.fix.said(language));
        if !why.is_empty() {
            blocks.push(Block::Text(said!(language, "{why} {fix}", "{why}{fix}")));
        }
        let rows = found.iter().map(|(audit, finding)| {
            vec![
                code(name_of(&audit.path, names)),
                code(&finding.pointer),
                text(finding.message.said(language)),
            ]
        });
        blocks.push(table(
            said!(language, "Where {name} was found", "发现 {name} 的位置"),
            &heads(language, &[("file", "文件"), ("JSON pointer", "JSON 指针"), ("message", "内容")]),
            rows.collect(),
        ));
    }
    Section { id: "findings", title: said!(language, "Findings", "审计发现"), long: true, blocks }
}

fn provenance(runs: &[Run<'_>], language: Language) -> Section {
    let rows = runs.iter().map(|run| match &run.niah.provenance {
        Some(provenance) => provenance_cells(run, provenance, language),
        None => {
            let mut cells = vec![code(run.name), text(said!(language, "not recorded", "未记录"))];
            cells.extend(std::iter::repeat_n(text("–"), 7));
            cells
        }
    });
    let columns = heads(
        language,
        &[
            ("file", "文件"),
            ("model pack", "模型包"),
            ("program", "程序"),
            ("commit", "提交"),
            ("backend, device", "后端，设备"),
            ("number type", "数值类型"),
            ("host", "主机"),
            ("start – end", "开始 – 结束"),
            ("dataset", "数据集"),
        ],
    );
    let rows: Vec<Vec<Cell>> = rows.collect();
    let blocks = if rows.is_empty() {
        Vec::new()
    } else {
        vec![table(said!(language, "What ran, where and when", "运行了什么，何时何地"), &columns, rows)]
    };
    Section { id: "provenance", title: said!(language, "Provenance", "来源"), long: true, blocks }
}

fn provenance_cells(run: &Run<'_>, from: &Provenance, language: Language) -> Vec<Cell> {
    let host = &from.host;
    let version = from.backend_version.as_deref().map_or_else(String::new, |version| format!(" {version}"));
    let commit = from.git_commit.clone().unwrap_or_else(|| said!(language, "unknown", "未知"));
    let dirty = if from.git_dirty {
        said!(language, " + uncommitted changes", " + 未提交的更改")
    } else {
        String::new()
    };
    vec![
        code(run.name),
        if from.demo {
            text(said!(language, "{} (DEMO PACK)", "{}（演示包）", from.pack_name))
        } else {
            text(&from.pack_name)
        },
        text(&from.program_version),
        code(format!("{commit}{dirty}")),
        text(format!("{}{version}, {}", from.backend, from.device)),
        text(&from.dtype),
        text(said!(
            language,
            "{}, {}, {}, {} cores, {}",
            "{}，{}，{}，{} 核，{}",
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
fn weights(runs: &[Run<'_>], language: Language) -> Section {
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
        let tone = if pack.demo {
            chip(Tone::Warn, said!(language, "DEMO PACK", "演示包"))
        } else {
            chip(Tone::Neutral, said!(language, "pack", "模型包"))
        };
        blocks.push(Block::Heading(tone, format!("{} ({digest})", pack.pack_name)));
        blocks.push(Block::Text(said!(language, "Ran in {}.", "用于 {}。", users.join(", "))));
        let rows = pack.weights.iter().map(|f| vec![code(&f.path), number(bytes(f.bytes)), code(&f.sha256)]);
        blocks.push(table(
            said!(language, "Files of the pack", "模型包的文件"),
            &heads(language, &[("file", "文件"), ("size", "大小"), ("SHA-256", "SHA-256")]),
            rows.collect(),
        ));
    }
    Section { id: "weights", title: said!(language, "Weights", "权重"), long: true, blocks }
}

fn files(audits: &[Audit], names: &BTreeMap<PathBuf, String>, language: Language) -> Section {
    let rows: Vec<Vec<Cell>> = audits
        .iter()
        .map(|audit| {
            vec![
                code(name_of(&audit.path, names)),
                code(audit.identity.kind.clone().unwrap_or_else(|| said!(language, "no kind", "未注明类型"))),
                Cell::Chip(Chip::of_audit(audit.verdict, language)),
                number(bytes(audit.bytes)),
                code(&audit.sha256),
            ]
        })
        .collect();
    let columns = heads(
        language,
        &[
            ("file", "文件"),
            ("kind", "类型"),
            ("verdict of the audit", "审计结论"),
            ("size", "大小"),
            ("SHA-256", "SHA-256"),
        ],
    );
    let blocks = if rows.is_empty() {
        Vec::new()
    } else {
        vec![table(
            said!(language, "Every file that this report rests on", "本报告所依据的每个文件"),
            &columns,
            rows,
        )]
    };
    Section { id: "files", title: said!(language, "Evidence files", "证据文件"), long: true, blocks }
}

fn policy(policy: &Policy, language: Language) -> Section {
    let limits = &policy.values;
    let (margin, confidence) = (limits.recall_margin_pp, limits.confidence);
    let platforms: Vec<&str> = limits.platforms.iter().map(|platform| platform.label()).collect();
    let rungs: Vec<String> = limits.ladder.iter().map(u32::to_string).collect();
    let and = said!(language, " and ", "、");
    let rules = [
        (
            said!(language, "Every rung measured", "每个梯级都已测量"),
            said!(language, "Evidence with both arms at {} padding lines on {}. Missing where a rung has none.", "在 {1} 上，填充行数为 {0} 的每个梯级都须有两个实验臂的证据。没有证据的梯级为缺失。",
                rungs.join(", "),
                platforms.join(&and)
            ),
        ),
        (
            said!(language, "Recall", "召回率"),
            said!(language, "The arm under test and the oracle answer the same prompts. Fail unless |Δhits| ≤ {margin} % of n, in \
                 integers. Pass only when the one-sided exact upper bound, at confidence {confidence}, on the rate of \
                 lost samples is at most {margin} percentage points; until then undecided.", "受测实验臂与 oracle 回答相同的提示词。以整数计，除非 |Δhits| ≤ n 的 {margin} %，否则不通过。只有丢失样本比率的单侧精确上界（置信度 {confidence}）至多为 {margin} 个百分点时才通过；在此之前为未定。"
            ),
        ),
        (
            said!(language, "Restoration ran", "恢复已执行"),
            said!(language, "Run-time counters show that every evicted position of every restored layer was injected, and K/V \
                 restored to itself changes no text. A flag or a time is no proof. Vacuous when nothing was restored, or \
                 no sample's restoration took as long as {} s.", "运行时计数器表明每个恢复层的每个被逐出的位置都已注入，且恢复为自身的 K/V 不改变任何文本。标志或用时不能作为证明。没有恢复任何内容，或没有一个样本的恢复用时达到 {} 秒时为空洞。",
                limits.min_restoration_s
            ),
        ),
        (
            said!(language, "Memory", "内存"),
            said!(language, "The highest figure of device or process that was measured for the arm under test is below {} · 2³⁰ \
                 bytes. Formulas do not count.", "为受测实验臂测量的设备或进程的最高数字低于 {} · 2³⁰ 字节。公式不算。",
                limits.memory_limit_gib
            ),
        ),
        (
            said!(language, "Intervals", "区间"),
            said!(language, "Recall: Clopper–Pearson, two-sided 95 %. Delta: gains and losses each at 97.5 %, which is conservative and \
             drawn; beside it Tango's score interval, which is closer to 95 %.", "召回率：Clopper–Pearson，双侧 95 %。差：增加与丢失各取 97.5 %，较为保守，图中所画即此；旁边是 Tango 得分区间，更接近 95 %。")
                .to_owned(),
        ),
        (
            said!(language, "Outcomes", "结论"),
            said!(language, "Pass, fail, undecided; vacuous (it would hold whatever the claim is) and missing (nothing measured it). \
             The report's verdict is the worst of its gates.", "通过、不通过、未定；空洞（无论声明如何都会成立）和缺失（没有测量）。报告的结论取各门禁中最差的一个。")
                .to_owned(),
        ),
    ];
    let rows = rules.map(|(name, rule)| vec![text(name), text(rule)]).to_vec();
    let source = vec![vec![code(&policy.source), code(&policy.sha256)]];
    Section {
        id: "policy",
        title: said!(language, "Policy", "判定标准"),
        long: true,
        blocks: vec![
            table(
                said!(language, "The rules that decided", "用于判定的规则"),
                &heads(language, &[("rule", "规则"), ("wording", "内容")]),
                rows,
            ),
            table(
                said!(language, "Where the thresholds come from", "阈值的来源"),
                &heads(language, &[("policy", "判定标准"), ("SHA-256", "SHA-256")]),
                source,
            ),
        ],
    }
}
