//! The gates: for each, every rung and platform, one cell with a verdict and its reason.
//!
//! Three honest outcomes (pass, fail, undecided) and two warnings (vacuous, missing).

use crate::audit::{Audit, Verdict};
use crate::finding::INTEGRITY;
use crate::identity::Platform;
use crate::json::round;
use crate::model::{Arm, MemoryFigure, MemoryKind, Niah, NiahKind, Restoration};
use crate::policy::{Policy, Thresholds};
use crate::recompute::Paired;
use crate::stats::{pairs_needed, upper_bound};
use crate::{Finding, Recomputed, Text, text};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use ts_rs::TS;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, TS, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GateKind {
    /// A platform has evidence, with both arms, at every rung of the policy's ladder.
    Coverage,
    /// The recalls of the arm under test and its oracle lie within the margin.
    Recall,
    /// Every evicted position of every layer was injected.
    Restoration,
    /// The measured memory stays under the limit.
    Memory,
}

impl GateKind {
    /// The gate in words.
    fn title(self, limits: &Thresholds) -> Text {
        match self {
            Self::Coverage => text!("Every rung measured", "每个梯级都已测量"),
            Self::Recall => {
                text!("Recall within {} pp", "召回率相差 {} 个百分点以内", limits.recall_margin_pp)
            }
            Self::Restoration => text!("Restoration ran", "恢复已执行"),
            Self::Memory => text!("Memory under {} GiB", "内存低于 {} GiB", limits.memory_limit_gib),
        }
    }
}

/// Outcome of one gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, TS, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GateVerdict {
    /// It does not hold.
    Fail,
    /// It would hold whatever the claim is.
    Vacuous,
    /// Nothing measured it.
    Missing,
    /// The point estimate holds, the samples are too few to prove it.
    Undecided,
    /// It holds, and the samples prove it.
    Pass,
}

impl GateVerdict {
    /// The outcome in a word.
    pub fn label(self) -> Text {
        match self {
            Self::Pass => text!("pass", "通过"),
            Self::Fail => text!("fail", "不通过"),
            Self::Undecided => text!("undecided", "未定"),
            Self::Vacuous => text!("vacuous", "空洞"),
            Self::Missing => text!("missing", "缺失"),
        }
    }
}

/// One gate on one rung of one platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS, JsonSchema)]
pub struct GateCell {
    /// Which gate.
    pub gate: GateKind,
    /// The gate in words, with its threshold.
    pub title: Text,
    /// Rung, in padding lines, or line bounds; `all` where the whole ladder is asked for.
    pub rung: String,
    /// Platform.
    pub platform: Platform,
    /// Outcome.
    pub verdict: GateVerdict,
    /// The numbers, in short.
    pub figures: Text,
    /// One sentence why.
    pub why: Text,
    /// Further clean pairs that would decide it.
    pub samples_needed: Option<u64>,
    /// The file that the cell rests on; null where it rests on all of them.
    pub file: Option<PathBuf>,
}

/// Every gate.
#[derive(Clone, Debug, PartialEq, Serialize, TS, JsonSchema)]
pub struct GateReport {
    /// The worst outcome of all cells; missing when there is none.
    pub verdict: GateVerdict,
    /// The outcome in a sentence.
    pub headline: Text,
    /// The thresholds that decided.
    pub policy: Policy,
    /// The cells: first what covers the whole ladder, then by rung, platform and gate.
    pub cells: Vec<GateCell>,
    /// Files that carry no needle gate.
    pub ignored: Vec<PathBuf>,
}

/// Decides every gate from audited files.
pub fn gate(audits: &[Audit], policy: &Policy) -> GateReport {
    let limits = &policy.values;
    let needles: Vec<Needle> = audits.iter().filter_map(Needle::of).collect();
    let mut cells: Vec<GateCell> = Vec::new();
    if !needles.is_empty() {
        cells.extend(limits.platforms.iter().map(|platform| coverage(&needles, *platform, limits)));
        cells.extend(rungs(&needles, limits));
    }
    let verdict = cells.iter().map(|cell| cell.verdict).min().unwrap_or(GateVerdict::Missing);
    let ignored =
        audits.iter().filter(|audit| audit.niah.is_none()).map(|audit| audit.path.clone()).collect();
    GateReport { verdict, headline: headline(&cells), policy: policy.clone(), cells, ignored }
}

fn headline(cells: &[GateCell]) -> Text {
    if cells.is_empty() {
        return text!(
            "No needle evidence was given: nothing can be decided.",
            "没有大海捞针证据：无法判定。"
        );
    }
    let count = |verdict| cells.iter().filter(|cell| cell.verdict == verdict).count();
    let parts: Vec<Text> = [
        (GateVerdict::Fail, text!("fail", "不通过")),
        (GateVerdict::Vacuous, text!("vacuous", "空洞")),
        (GateVerdict::Missing, text!("not measured", "未测量")),
        (GateVerdict::Undecided, text!("undecided for want of proof", "因证据不足而未定")),
        (GateVerdict::Pass, text!("pass", "通过")),
    ]
    .into_iter()
    .map(|(verdict, words)| (count(verdict), words))
    .filter(|(count, _)| *count > 0)
    .map(|(count, words)| text!(language => "{count} {}", "{count} 项{}", words.said(language)))
    .collect();
    let listed = Text::join(&parts, &text!(", ", "，"));
    text!(language => "{} gates: {}.", "{} 项门禁：{}。", cells.len(), listed.said(language))
}

/// A file of needle evidence.
struct Needle<'a> {
    audit: &'a Audit,
    niah: &'a Niah,
    recomputed: &'a Recomputed,
}

impl<'a> Needle<'a> {
    fn of(audit: &'a Audit) -> Option<Self> {
        Some(Self { audit, niah: audit.niah.as_ref()?, recomputed: audit.recomputed.as_ref()? })
    }

    fn finding(&self, codes: &[&str]) -> Option<&'a Finding> {
        self.audit.findings.iter().find(|finding| codes.contains(&finding.code))
    }

    /// Rung and platform, in the order of the report. Off the ladder the line bounds stand for the rung.
    fn place(&self) -> (u64, u64, Platform) {
        let [low, high] = self.niah.lines().unwrap_or_default();
        let (lines, most) = self.niah.rung.map_or((low, high), |rung| (u64::from(rung), 0));
        (lines, most, self.audit.identity.platform)
    }
}

struct Outcome {
    verdict: GateVerdict,
    figures: Text,
    why: Text,
    samples_needed: Option<u64>,
}

impl Outcome {
    fn new(verdict: GateVerdict, figures: Text, why: Text) -> Self {
        Self { verdict, figures, why, samples_needed: None }
    }

    /// Nothing was measured.
    fn missing(why: Text) -> Self {
        Self::new(GateVerdict::Missing, Text::same("–"), why)
    }
}

/// The cells of every file, by rung, platform and gate.
fn rungs(needles: &[Needle], limits: &Thresholds) -> Vec<GateCell> {
    type Gate = fn(&Needle, &Thresholds) -> Outcome;
    const GATES: [(GateKind, Gate); 3] =
        [(GateKind::Recall, recall), (GateKind::Restoration, restoration), (GateKind::Memory, memory)];
    let mut asked: Vec<(&Needle, GateKind, Gate)> =
        needles.iter().flat_map(|needle| GATES.map(|(gate, decide)| (needle, gate, decide))).collect();
    asked.sort_by_key(|(needle, gate, _)| (needle.place(), *gate));
    let cell = |(needle, gate, decide): (&Needle, GateKind, Gate)| {
        let outcome = decide(needle, limits);
        GateCell {
            gate,
            title: gate.title(limits),
            rung: needle.audit.rung_label(),
            platform: needle.audit.identity.platform,
            verdict: outcome.verdict,
            figures: outcome.figures,
            why: outcome.why,
            samples_needed: outcome.samples_needed,
            file: Some(needle.audit.path.clone()),
        }
    };
    asked.into_iter().map(cell).collect()
}

/// Does the platform have a file with both arms at every rung?
fn coverage(needles: &[Needle], platform: Platform, limits: &Thresholds) -> GateCell {
    let mut paired: BTreeMap<u32, bool> = BTreeMap::new();
    for needle in needles.iter().filter(|needle| needle.audit.identity.platform == platform) {
        if let Some(rung) = needle.niah.rung {
            *paired.entry(rung).or_default() |= needle.niah.pair().is_some();
        }
    }
    let rungs = |wanted: Option<bool>| -> Vec<String> {
        let found = limits.ladder.iter().filter(|rung| paired.get(rung).copied() == wanted);
        found.map(u32::to_string).collect()
    };
    let (measured, alone, absent) = (rungs(Some(true)), rungs(Some(false)), rungs(None));
    let mut lacks = Vec::new();
    if !absent.is_empty() {
        lacks.push(text!("no evidence at {}", "{} 处没有证据", absent.join(", ")));
    }
    if !alone.is_empty() {
        lacks.push(text!("only one arm at {}", "{} 处只有一个实验臂", alone.join(", ")));
    }
    let (verdict, why) = if lacks.is_empty() {
        (
            GateVerdict::Pass,
            text!("both arms ran at every rung of the ladder", "两个实验臂在每个梯级都运行过"),
        )
    } else {
        let lacks = Text::join(&lacks, &text!(" and ", "，"));
        let why = text!(language => "{} padding lines", "填充行数：{}", lacks.said(language));
        (GateVerdict::Missing, why)
    };
    GateCell {
        gate: GateKind::Coverage,
        title: GateKind::Coverage.title(limits),
        rung: "all".to_owned(),
        platform,
        verdict,
        figures: text!("{} of {} rungs", "{} / {} 个梯级", measured.len(), limits.ladder.len()),
        why,
        samples_needed: None,
        file: None,
    }
}

/// The margin in integers, then whether the claim says anything, then whether the samples prove it.
fn recall(needle: &Needle, limits: &Thresholds) -> Outcome {
    let (Some((sut, oracle)), Some(paired)) = (needle.niah.pair(), needle.recomputed.paired.as_ref()) else {
        return Outcome::missing(text!(
            "an arm is missing: recall is not judged without its oracle",
            "缺少一个实验臂：没有 oracle 就不判定召回率"
        ));
    };
    let figures = text!("{}/{} vs {}/{}", "{}/{} 对 {}/{}", sut.hits, sut.n, oracle.hits, oracle.n);
    if let Some(finding) = needle.finding(&INTEGRITY) {
        return Outcome::new(GateVerdict::Fail, figures, finding.message.clone());
    }
    if !limits.within_margin(sut.hits, oracle.hits, paired.n) {
        let why = text!(
            "{} of {} samples apart, more than {} pp",
            "{1} 个样本中相差 {0} 个，超过 {2} 个百分点",
            sut.hits.abs_diff(oracle.hits),
            paired.n,
            limits.recall_margin_pp
        );
        return Outcome::new(GateVerdict::Fail, figures, why);
    }
    if let Some(finding) = vacuous(needle) {
        return Outcome::new(GateVerdict::Vacuous, figures, finding.message.clone());
    }
    if needle.audit.verdict == Verdict::Legacy {
        return Outcome::new(
            GateVerdict::Missing,
            figures,
            text!("the file's schema proves too little", "文件的格式能证明的太少"),
        );
    }
    decided(paired, limits, figures)
}

/// Why recall within the margin would say nothing. One checkpoint in both roles restores exactly, unless a codec is on.
fn vacuous<'a>(needle: &Needle<'a>) -> Option<&'a Finding> {
    let exact = needle.niah.kind == NiahKind::SameCheckpoint && !needle.niah.settings.codec;
    let ran = needle.finding(&["RESTORATION_NOT_EXECUTED", "SUT_NEVER_RAN", "DELTA_ON_ZERO_RECALL"]);
    ran.or_else(|| needle.finding(&["SELF_PROJECTION"]).filter(|_| exact))
}

/// The point estimate holds; do the samples prove it?
fn decided(paired: &Paired, limits: &Thresholds, figures: Text) -> Outcome {
    let bound = round(100.0 * upper_bound(paired.lost, paired.n, limits.confidence), 1);
    let confidence = round(100.0 * limits.confidence, 4);
    let seen = text!("{} lost of {}: lost recall", "{1} 对中丢失 {0}：召回损失", paired.lost, paired.n);
    match pairs_needed(paired.lost, paired.n, limits.margin(), limits.confidence) {
        Some(0) => {
            let why = text!(
                language => "{} is at most {bound} pp (one-sided {confidence} %)",
                "{}至多 {bound} 个百分点（单侧 {confidence} %）",
                seen.said(language)
            );
            Outcome::new(GateVerdict::Pass, figures, why)
        }
        needed => {
            let more = needed.map_or_else(
                || text!("no number of samples would decide it", "多少样本都无法判定"),
                |needed| text!("{needed} more clean pairs decide", "再有 {needed} 对无损样本即可判定"),
            );
            let why = text!(
                language => "{} may be up to {bound} pp; {}",
                "{}可达 {bound} 个百分点；{}",
                seen.said(language),
                more.said(language)
            );
            Outcome { samples_needed: needed, ..Outcome::new(GateVerdict::Undecided, figures, why) }
        }
    }
}

/// Counters prove it, timings can only disprove it, and K/V restored to itself must change no text.
fn restoration(needle: &Needle, limits: &Thresholds) -> Outcome {
    let Some(sut) = needle.niah.sut() else {
        return Outcome::missing(text!("the system under test did not run", "受测系统没有运行"));
    };
    let identity = identity_check(needle.niah);
    if let Some(Err(why)) = identity {
        return Outcome::new(GateVerdict::Fail, Text::same("–"), why);
    }
    match needle.niah.restored(&sut.key) {
        Some(counters) => counted(needle, counters, identity.is_some()),
        None => timed(needle, limits),
    }
}

fn counted(needle: &Needle, counters: &Restoration, identity: bool) -> Outcome {
    let figures = text!(
        "{} layers × {} positions",
        "{} 层 × {} 个位置",
        counters.layers.len(),
        counters.evicted_positions
    );
    if !counters.is_complete() {
        let verdict = if counters.evicted_positions == 0 { GateVerdict::Vacuous } else { GateVerdict::Fail };
        let why = needle.finding(&["RESTORATION_NOT_EXECUTED"]).map_or_else(
            || text!("not every evicted position was injected", "并非每个被逐出的位置都被注入"),
            |finding| finding.message.clone(),
        );
        return Outcome::new(verdict, figures, why);
    }
    let checked = if identity {
        text!("restored to itself, K/V changes no text", "恢复为自身的 K/V 不改变任何文本")
    } else {
        text!("no identity check ran", "没有运行恒等检查")
    };
    let why = text!(
        language => "every evicted position of every layer was injected, f_θ on {} layers, {:.2} s in all; {}",
        "每层的每个被逐出的位置都已注入，f_θ 用于 {} 层，共 {:.2} 秒；{}",
        counters.f_theta_layers(),
        counters.drafter_s + counters.projection_s + counters.capture_s,
        checked.said(language)
    );
    Outcome::new(GateVerdict::Pass, figures, why)
}

/// Without counters: a time too short shows that nothing ran, a longer one does not show what was injected.
fn timed(needle: &Needle, limits: &Thresholds) -> Outcome {
    let longest = needle.recomputed.restoration_s;
    let figures =
        longest.map_or_else(|| Text::same("–"), |seconds| text!("{seconds:.3} s", "{seconds:.3} 秒"));
    if let Some(finding) = needle.finding(&["RESTORATION_NOT_EXECUTED", "SUT_NEVER_RAN"]) {
        return Outcome::new(GateVerdict::Vacuous, figures, finding.message.clone());
    }
    let shortest = limits.min_restoration_s;
    match longest {
        None => Outcome::missing(text!(
            "the file holds no restoration counters: a flag is no proof",
            "文件没有恢复计数器：标志不能作为证明"
        )),
        Some(seconds) if seconds < shortest => {
            let why = text!(
                "no sample's restoration took as long as {shortest} s: nothing was restored",
                "没有一个样本的恢复用时达到 {shortest} 秒：没有恢复任何内容"
            );
            Outcome::new(GateVerdict::Vacuous, figures, why)
        }
        Some(_) => {
            let why = text!(
                "restoration took time, but no counters tell what was injected: a time is no proof",
                "恢复花了时间，但没有计数器说明注入了什么：用时不能作为证明"
            );
            Outcome::new(GateVerdict::Undecided, figures, why)
        }
    }
}

/// The verifier's own K/V, restored, must give the oracle's texts. None when no such arm ran beside an oracle.
fn identity_check(niah: &Niah) -> Option<Result<(), Text>> {
    let own = niah.arm("k3_identity_restore").or_else(|| niah.sut().filter(|_| niah.identity))?;
    let oracle = niah.oracle()?;
    let texts = |arm: &Arm| arm.rows.iter().map(|row| row.text.clone()).collect::<Vec<_>>();
    let (own_texts, oracle_texts) = (texts(own), texts(oracle));
    if own_texts == oracle_texts && own.hits == oracle.hits {
        return Some(Ok(()));
    }
    let same = own_texts.iter().zip(&oracle_texts).filter(|(own, oracle)| own == oracle).count();
    Some(Err(text!(
        "restored to itself, K/V changes the texts: {same} of {} equal the oracle's, {} hits against {}",
        "恢复为自身的 K/V 改变了文本：{} 段中有 {same} 段与 oracle 相同，命中 {} 对 {}",
        oracle.n,
        own.hits,
        oracle.hits
    )))
}

/// Figures of the whole machine or process that were measured while the system under test ran. The oracle, which keeps
/// every K/V, need not fit; K/V alone and formulas do not tell what the machine holds.
fn memory(needle: &Needle, limits: &Thresholds) -> Outcome {
    const MEASURED: [MemoryKind; 3] =
        [MemoryKind::AllocatorPeak, MemoryKind::DeviceSampled, MemoryKind::ProcessFootprint];
    let other_arm = |key: &str| key != needle.niah.kind.sut() && needle.niah.arm(key).is_some();
    let figures = || needle.niah.memory.iter().filter(|figure| !other_arm(&figure.arm));
    let highest = |measured: bool| {
        let kind = |figure: &&MemoryFigure| MEASURED.contains(&figure.kind) == measured;
        figures().filter(kind).max_by_key(|figure| figure.bytes)
    };
    let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / (1_u64 << 30) as f64);
    match (highest(true), highest(false)) {
        (Some(figure), _) => {
            let under = figure.bytes < limits.memory_limit_bytes();
            let verdict = if under { GateVerdict::Pass } else { GateVerdict::Fail };
            let kind = figure.kind.label();
            let why =
                text!(language => "{} ({})", "{}（{}）", figure.label.said(language), kind.said(language));
            Outcome::new(verdict, Text::same(gib(figure.bytes)), why)
        }
        (None, Some(figure)) => {
            let kind = figure.kind.label();
            Outcome::missing(text!(
                language => "nothing of device or process was measured; {} of {} is a {}",
                "没有测量设备或进程的内存；{} {} 属于“{}”",
                figure.label.said(language),
                gib(figure.bytes),
                kind.said(language)
            ))
        }
        (None, None) => Outcome::missing(text!(
            "no memory figure was measured in this run",
            "这次运行没有测量任何内存数字"
        )),
    }
}
