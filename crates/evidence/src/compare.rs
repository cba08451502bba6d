//! Two files side by side, on separate axes (RULES §7).

use crate::audit::Audit;
use crate::model::{Acceptance, Arm, MemoryFigure, MemoryKind, Niah, NiahKind, Row};
use crate::{Text, text};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use ts_rs::TS;

/// How two files belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PairClass {
    /// Two platforms.
    #[serde(rename = "cuda-mac")]
    CrossPlatform,
    /// An identity run against the other file's oracle.
    CrossOracle,
    /// The same run twice.
    Repeat,
    /// One platform, something changed on purpose.
    Ab,
}

/// Whether the two may be laid side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PairVerdict {
    /// Yes.
    Diffable,
    /// With a grain of salt.
    DiffableWithWarning,
    /// No (an axis may still be comparable in part).
    NotComparable,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AxisName {
    /// Hits over samples.
    Recall,
    /// Hit by hit.
    PerSample,
    /// Rates.
    Throughput,
    /// Bytes.
    Memory,
    /// Drafted tokens that the verifier accepts; only for speculative-decoding acceptance runs.
    Acceptance,
}

impl AxisName {
    /// The axis in words.
    pub fn label(self) -> Text {
        match self {
            Self::Recall => text!("recall", "召回率"),
            Self::PerSample => text!("sample by sample", "逐样本"),
            Self::Throughput => text!("throughput", "吞吐量"),
            Self::Memory => text!("memory", "内存"),
            Self::Acceptance => text!("acceptance", "接受率"),
        }
    }
}

/// How far an axis may be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS, JsonSchema)]
#[serde(tag = "scope", content = "limit", rename_all = "kebab-case")]
pub enum Scope {
    /// As it stands.
    Whole,
    /// Within the stated limit.
    Part(Text),
    /// Not.
    No,
}

/// One axis of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS, JsonSchema)]
pub struct Axis {
    /// Which.
    pub name: AxisName,
    /// How far.
    pub scope: Scope,
    /// The first thing that differs, or why the axis holds.
    pub reason: Text,
}

/// One setting of both files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS, JsonSchema)]
pub struct Factor {
    /// Name.
    pub name: Text,
    /// Value in the first file.
    pub a: Text,
    /// Value in the second.
    pub b: Text,
    /// Whether they differ.
    pub differs: bool,
    /// Whether it is the kind of thing that an experiment changes on purpose.
    pub treatment: bool,
}

/// One memory figure that either file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS, JsonSchema)]
pub struct MemoryRow {
    /// Arm.
    pub arm: String,
    /// What it is.
    pub label: Text,
    /// How it came about.
    pub kind: MemoryKind,
    /// Bytes in the first file.
    pub a: Option<u64>,
    /// Bytes in the second.
    pub b: Option<u64>,
}

/// What one arm said to one prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS, JsonSchema)]
pub struct SampleCell {
    /// Text.
    pub text: String,
    /// Strict hit.
    pub hit: bool,
}

/// One sample of both files.
#[derive(Clone, Debug, PartialEq, Serialize, TS, JsonSchema)]
pub struct SampleRow {
    /// Index.
    pub index: usize,
    /// The code to recall, in the first file.
    pub answer: String,
    /// Depth of the needle, in the first file.
    pub depth: Option<f64>,
    /// Whether both files put the same prompt.
    pub same_prompt: bool,
    /// First file, oracle.
    pub oracle_a: Option<SampleCell>,
    /// Second file, oracle.
    pub oracle_b: Option<SampleCell>,
    /// First file, system under test.
    pub sut_a: Option<SampleCell>,
    /// Second file, system under test.
    pub sut_b: Option<SampleCell>,
}

/// Counts over the leading samples that both files put: all of them, or the common beginning of two datasets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, TS, JsonSchema)]
pub struct Agreement {
    /// Samples compared.
    pub n: usize,
    /// Same hit or miss of the systems under test.
    pub same_flags: usize,
    /// Samples in which the systems under test differ, one hit, one miss.
    pub differing: Vec<usize>,
    /// Same text of the systems under test.
    pub same_sut_texts: usize,
    /// Same text of the oracles.
    pub same_oracle_texts: usize,
    /// Same text of the first file's system under test and the second file's oracle.
    pub same_cross_texts: usize,
    /// Hits of the systems under test, first and second file; null when one did not run.
    pub sut_hits: Option<[u64; 2]>,
    /// Hits of the oracles.
    pub oracle_hits: Option<[u64; 2]>,
}

/// Two files side by side.
#[derive(Clone, Debug, PartialEq, Serialize, TS, JsonSchema)]
pub struct Comparison {
    /// First file: the baseline.
    pub a: PathBuf,
    /// Second file.
    pub b: PathBuf,
    /// How they belong together.
    pub class: PairClass,
    /// Whether they may be laid side by side.
    pub verdict: PairVerdict,
    /// Axis by axis.
    pub axes: Vec<Axis>,
    /// The axes that may be compared, in RULES §7.3's words: true, false or how far; empty when none may.
    #[ts(type = "Record<string, boolean | string>")]
    pub comparable: Map<String, Value>,
    /// Settings of both.
    pub factors: Vec<Factor>,
    /// 100·(hits of b − hits of a)/n of the systems under test, percentage points; null unless recall is comparable.
    pub delta_pp: Option<f64>,
    /// Codec off against on: whether recall falls by at most 1 percentage point; null for other pairs.
    pub codec_within_1pp: Option<bool>,
    /// Whether both systems under test peaked at the same byte; null unless both measured a peak.
    pub peak_equal: Option<bool>,
    /// Memory figures, side by side but never across kinds.
    pub memory: Vec<MemoryRow>,
    /// Agreement.
    pub agreement: Agreement,
    /// Sample by sample.
    pub samples: Vec<SampleRow>,
}

/// Compares `b` with the baseline `a`.
pub fn compare(a: &Audit, b: &Audit) -> Comparison {
    let Some((left, right)) = a.niah.as_ref().zip(b.niah.as_ref()) else { return compare_others(a, b) };
    let pair = Pair { a, b, left, right, factors: factors(left, right) };
    let class = pair.class();
    let (verdict, axes) = pair.judge();
    let samples = samples(left, right);
    let agreement = agreement(&samples);
    let delta_pp = pair.delta(class, &axes);
    let codec = class == PairClass::Ab && pair.differs("codec");
    Comparison {
        comparable: comparable(class, verdict, &axes),
        codec_within_1pp: delta_pp.filter(|_| codec).map(|delta| pair.codec_on_minus_off(delta) >= -1.0),
        peak_equal: peak(left).zip(peak(right)).map(|(a, b)| a == b),
        memory: memory(left, right),
        factors: pair.factors,
        delta_pp,
        agreement,
        samples,
        class,
        verdict,
        axes,
        ..unrelated(a, b)
    }
}

fn unrelated(a: &Audit, b: &Audit) -> Comparison {
    let platforms_differ = a.identity.platform != b.identity.platform;
    Comparison {
        a: a.path.clone(),
        b: b.path.clone(),
        class: if platforms_differ { PairClass::CrossPlatform } else { PairClass::Ab },
        verdict: PairVerdict::NotComparable,
        axes: all_axes(
            &Scope::No,
            &text!("one of the files is no needle evidence", "其中一个文件不是大海捞针证据"),
        ),
        comparable: Map::new(),
        factors: Vec::new(),
        delta_pp: None,
        codec_within_1pp: None,
        peak_equal: None,
        memory: Vec::new(),
        agreement: Agreement::default(),
        samples: Vec::new(),
    }
}

/// Files that are not both needle evidence: two acceptance runs may share their first prompts, nothing else compares.
fn compare_others(a: &Audit, b: &Audit) -> Comparison {
    let mut comparison = unrelated(a, b);
    let Some((left, right)) = a.acceptance.as_ref().zip(b.acceptance.as_ref()) else { return comparison };
    let (scope, reason) = acceptance_scope(left, right);
    comparison.axes = all_axes(&Scope::No, &text!("acceptance runs carry no needle", "接受率运行不含针"));
    comparison.axes.push(Axis { name: AxisName::Acceptance, scope, reason });
    comparison.comparable = comparable(comparison.class, comparison.verdict, &comparison.axes);
    comparison
}

fn acceptance_scope(a: &Acceptance, b: &Acceptance) -> (Scope, Text) {
    let settings = [
        (text!("block size", "块大小"), a.block_size, b.block_size),
        (text!("denoising steps", "去噪步数"), a.num_steps, b.num_steps),
        (text!("token budget", "词元上限"), a.max_new_tokens, b.max_new_tokens),
    ];
    if let Some((name, a, b)) = settings.into_iter().find(|(_, a, b)| a != b) {
        return (Scope::No, differs(&name, &shown(a), &shown(b)));
    }
    let m = a.prompts.len().min(b.prompts.len());
    if m == 0 || a.prompts[..m] != b.prompts[..m] {
        return (Scope::No, text!("the prompts differ", "提示词不同"));
    }
    let reason = text!(
        "the first {m} prompts are the same; verifier and drafter may not be",
        "前 {m} 个提示词相同；验证模型和草稿模型未必相同"
    );
    (Scope::Part(text!("first {m} prompts only, with warning", "仅前 {m} 个提示词，附警告")), reason)
}

/// RULES §7.3, last column.
fn comparable(class: PairClass, verdict: PairVerdict, axes: &[Axis]) -> Map<String, Value> {
    let full = class == PairClass::CrossPlatform && verdict != PairVerdict::NotComparable;
    let mut keys = Map::new();
    for axis in axes {
        let key = match axis.name {
            AxisName::Recall => "recall",
            AxisName::PerSample => "per_sample_flags",
            AxisName::Throughput => "throughput",
            AxisName::Memory => "memory",
            AxisName::Acceptance => "acceptance",
        };
        let value = match &axis.scope {
            Scope::Whole => json!(true),
            Scope::Part(limit) => json!(limit.en()),
            Scope::No => json!(false),
        };
        if full || (axis.scope != Scope::No && axis.name != AxisName::PerSample) {
            keys.insert(key.to_owned(), value);
        }
    }
    if full {
        keys.insert("latency".to_owned(), json!(false));
    }
    keys
}

fn peak(niah: &Niah) -> Option<u64> {
    let of_sut =
        |figure: &&MemoryFigure| figure.arm == niah.kind.sut() && figure.kind == MemoryKind::AllocatorPeak;
    niah.memory.iter().find(of_sut).map(|figure| figure.bytes)
}

fn all_axes(scope: &Scope, reason: &Text) -> Vec<Axis> {
    [AxisName::Recall, AxisName::PerSample, AxisName::Throughput, AxisName::Memory]
        .map(|name| Axis { name, scope: scope.clone(), reason: reason.clone() })
        .to_vec()
}

struct Pair<'a> {
    a: &'a Audit,
    b: &'a Audit,
    left: &'a Niah,
    right: &'a Niah,
    factors: Vec<Factor>,
}

impl Pair<'_> {
    fn differs(&self, name: &str) -> bool {
        self.factors.iter().any(|factor| factor.name.en() == name && factor.differs)
    }

    /// Number of leading prompts that both files put.
    fn common_prompts(&self) -> usize {
        self.left.samples.iter().zip(&self.right.samples).take_while(|(a, b)| a == b).count()
    }

    fn same_prompts(&self) -> bool {
        self.left.n == self.right.n
            && !self.left.samples.is_empty()
            && self.left.samples == self.right.samples
            && self.same_lengths()
    }

    /// Prompt lengths sample by sample where both files hold them, else the shortest and the longest.
    fn same_lengths(&self) -> bool {
        let (a, b) = (&self.left.prompt_lens, &self.right.prompt_lens);
        (a.is_empty() || b.is_empty() || a == b)
            && self.left.prompt_tokens_min == self.right.prompt_tokens_min
            && self.left.prompt_tokens_max == self.right.prompt_tokens_max
    }

    fn cross_platform(&self) -> bool {
        self.a.identity.platform != self.b.identity.platform
    }

    fn class(&self) -> PairClass {
        let lacking =
            |niah: &Niah, other: &Niah| niah.identity && niah.oracle().is_none() && other.oracle().is_some();
        let other_oracle = lacking(self.left, self.right) || lacking(self.right, self.left);
        let treated = self.factors.iter().any(|factor| factor.treatment && factor.differs);
        if self.cross_platform() {
            PairClass::CrossPlatform
        } else if self.same_prompts() && other_oracle {
            PairClass::CrossOracle
        } else if self.left.kind == self.right.kind
            && self.same_prompts()
            && !treated
            && !["verifier", "dtype", "weights"].iter().any(|name| self.differs(name))
        {
            PairClass::Repeat
        } else {
            PairClass::Ab
        }
    }

    /// RULES §7.3: the first test that applies.
    fn judge(&self) -> (PairVerdict, Vec<Axis>) {
        let no = |reason: Text| (PairVerdict::NotComparable, all_axes(&Scope::No, &reason));
        if self.left.kind != self.right.kind {
            return no(text!(
                "the kinds differ: decode loop, verifier precision and template are not the same",
                "类型不同：解码循环、验证模型精度和模板不一样"
            ));
        }
        if self.cross_platform() {
            return self.judge_platforms();
        }
        if let Some(reason) = self.prompt_difference() {
            return no(reason);
        }
        if let Some(factor) =
            self.factors.iter().find(|f| ["verifier", "dtype", "weights"].contains(&f.name.en()) && f.differs)
        {
            return no(factor.in_words());
        }
        match self.class() {
            PairClass::CrossOracle | PairClass::Repeat => (PairVerdict::Diffable, self.axes_of_repeat()),
            _ => self.judge_treatment(),
        }
    }

    fn prompt_difference(&self) -> Option<Text> {
        if self.left.samples != self.right.samples || self.left.samples.is_empty() {
            let common = self.common_prompts();
            return Some(if common > 0 && common as u64 == self.left.n.min(self.right.n) {
                text!(
                    "the sample counts differ ({} and {}); the first {common} prompts are the same",
                    "样本数不同（{} 与 {}）；前 {common} 个提示词相同",
                    self.left.n,
                    self.right.n
                )
            } else {
                text!(
                    "the prompts differ: seed or line bounds are not the same",
                    "提示词不同：种子或行数范围不一样"
                )
            });
        }
        (!self.same_lengths()).then(|| {
            text!(
                "the prompt lengths in tokens differ: another template, variant or tokenizer",
                "以词元计的提示词长度不同：模板、变体或分词器不一样"
            )
        })
    }

    fn judge_platforms(&self) -> (PairVerdict, Vec<Axis>) {
        let no = |reason: Text| (PairVerdict::NotComparable, all_axes(&Scope::No, &reason));
        let ignored = ["attention", "warm-up", "stateful"];
        if let Some(factor) = self.factors.iter().find(|f| f.differs && !ignored.contains(&f.name.en())) {
            return no(factor.in_words());
        }
        let with_recall = |mut axes: Vec<Axis>, limit: Text| {
            axes[0].scope = Scope::Part(limit);
            (PairVerdict::NotComparable, axes)
        };
        if let Some(reason) = self.prompt_difference() {
            let common = self.common_prompts();
            let prefix =
                common > 0 && common as u64 == self.left.n.min(self.right.n) && self.left.n != self.right.n;
            let axes = all_axes(&Scope::No, &reason);
            return match common {
                1 if prefix => with_recall(axes, text!("sample 0 only", "仅样本 0")),
                m if prefix => with_recall(axes, text!("first {m} samples only", "仅前 {m} 个样本")),
                _ => (PairVerdict::NotComparable, axes),
            };
        }
        if self.differs("stateful") {
            return no(text!(
                "one run keeps its state between samples, the other does not",
                "一次运行在样本之间保留状态，另一次不保留"
            ));
        }
        let unrecorded = self
            .factors
            .iter()
            .any(|f| f.name.en() == "attention" && f.a == unrecorded() && f.b == unrecorded());
        if self.differs("attention") {
            let axes = all_axes(
                &Scope::No,
                &text!(
                    "the attention implementations differ, which alone flips samples",
                    "注意力实现不同，仅此一项就会使样本翻转"
                ),
            );
            return with_recall(axes, text!("aggregate only", "仅限总数"));
        }
        let rates = self.left.sut().is_some_and(|arm| arm.mean_tok_s.is_some())
            && self.right.sut().is_some_and(|arm| arm.mean_tok_s.is_some());
        let axis = |name, scope, reason| Axis { name, scope, reason };
        let throughput = if rates {
            axis(
                AxisName::Throughput,
                Scope::Part(text!("same definition, different hardware", "定义相同，硬件不同")),
                text!("two machines", "两台机器"),
            )
        } else {
            axis(
                AxisName::Throughput,
                Scope::No,
                text!("rates are compared within one machine only", "速率只在同一台机器内比较"),
            )
        };
        let axes = vec![
            axis(
                AxisName::Recall,
                Scope::Whole,
                text!("same prompts, same model, same settings", "提示词、模型和设置都相同"),
            ),
            axis(
                AxisName::PerSample,
                Scope::Whole,
                text!("same prompts, same model, same settings", "提示词、模型和设置都相同"),
            ),
            throughput,
            axis(
                AxisName::Memory,
                Scope::No,
                text!("the platforms measure different quantities", "两个平台测量的量不同"),
            ),
        ];
        (if unrecorded { PairVerdict::DiffableWithWarning } else { PairVerdict::Diffable }, axes)
    }

    fn axes_of_repeat(&self) -> Vec<Axis> {
        let mut axes = all_axes(
            &Scope::No,
            &text!(
                "a repeat measures the noise of recall; other axes are not claimed",
                "重复运行测量的是召回率的噪声；不涉及其他维度"
            ),
        );
        for axis in &mut axes[..2] {
            (axis.scope, axis.reason) =
                (Scope::Whole, text!("same prompts, same model, same settings", "提示词、模型和设置都相同"));
        }
        axes
    }

    fn judge_treatment(&self) -> (PairVerdict, Vec<Axis>) {
        let treated: Vec<&Factor> =
            self.factors.iter().filter(|factor| factor.treatment && factor.differs).collect();
        let changes = treated.len() + usize::from(self.differs("attention"));
        let verdict = if changes == 1 { PairVerdict::Diffable } else { PairVerdict::DiffableWithWarning };
        let reason =
            self.factors.iter().find(|factor| factor.differs).map_or_else(Text::default, Factor::in_words);
        let both = |has: fn(&Niah) -> bool| has(self.left) && has(self.right);
        let same_kind = self.left.kind == NiahKind::SameCheckpoint;
        let throughput = match self.left.kind {
            NiahKind::SameCheckpoint if both(|n| n.sut().is_some_and(|arm| arm.mean_tok_s.is_some())) => {
                Scope::Whole
            }
            NiahKind::CrossModelMac if both(|n| n.sut().is_some_and(|arm| arm.decode_tok_s.is_some())) => {
                Scope::Part(text!("decode only", "仅解码"))
            }
            _ => Scope::No,
        };
        let memory = if (same_kind || self.left.kind == NiahKind::CrossModel)
            && both(|niah| !niah.memory.is_empty())
        {
            Scope::Whole
        } else {
            Scope::No
        };
        let axis = |name, scope| Axis { name, scope, reason: reason.clone() };
        let axes = vec![
            axis(AxisName::Recall, Scope::Whole),
            axis(AxisName::PerSample, Scope::Whole),
            axis(AxisName::Throughput, throughput),
            axis(AxisName::Memory, memory),
        ];
        (verdict, axes)
    }

    /// The difference of recall, where it means something.
    fn delta(&self, class: PairClass, axes: &[Axis]) -> Option<f64> {
        let whole = |axis: &Axis| axis.name == AxisName::Recall && axis.scope == Scope::Whole;
        axes.iter().find(|axis| whole(axis))?;
        let hits = |arm: Option<&Arm>| arm.map(|arm| arm.hits as f64);
        let (a, b) = if class == PairClass::CrossOracle {
            let (identity, other) =
                if self.left.oracle().is_none() { (self.left, self.right) } else { (self.right, self.left) };
            (hits(other.oracle())?, hits(identity.sut())?)
        } else {
            (hits(self.left.sut())?, hits(self.right.sut())?)
        };
        Some(100.0 * (b - a) / self.left.n as f64)
    }

    /// The difference read as codec on minus codec off, whichever file is first.
    fn codec_on_minus_off(&self, delta: f64) -> f64 {
        if self.right.settings.codec { delta } else { -delta }
    }
}

fn unrecorded() -> Text {
    text!("not recorded", "未记录")
}

impl Factor {
    fn in_words(&self) -> Text {
        differs(&self.name, &self.a, &self.b)
    }
}

fn differs(name: &Text, a: &Text, b: &Text) -> Text {
    text!(
        language => "{} differs: {} against {}",
        "{}不同：{} 对 {}",
        name.said(language),
        a.said(language),
        b.said(language)
    )
}

fn shown(value: Option<u64>) -> Text {
    value.map_or_else(unrecorded, Text::same)
}

/// Last component of a path or model id.
pub(crate) fn last_component(id: &str) -> &str {
    id.trim_end_matches('/').rsplit('/').next().unwrap_or(id)
}

/// One setting of one file: name, whether an experiment changes it on purpose, value.
type Setting = (Text, bool, Text);

/// RULES §7.1, in the order in which a difference is named.
pub(crate) fn settings(niah: &Niah) -> [Setting; 14] {
    let last =
        |id: &Option<String>| id.as_deref().map_or_else(unrecorded, |id| Text::same(last_component(id)));
    let on = |flag: bool| if flag { text!("on", "开") } else { text!("off", "关") };
    let (sink, window) = (shown(niah.sink), shown(niah.window));
    let kept = text!(language => "{} + {}", "{} + {}", sink.said(language), window.said(language));
    let recorded = |value: Option<String>| value.map_or_else(unrecorded, Text::same);
    [
        (text!("verifier", "验证模型"), false, last(&niah.verifier)),
        (text!("weights", "权重"), false, recorded(niah.weights_digest())),
        (text!("dtype", "数值类型"), false, Text::same(&niah.settings.dtype)),
        (text!("attention", "注意力"), false, recorded(niah.settings.attention.clone())),
        (text!("drafter", "草稿模型"), true, last(&niah.drafter)),
        (text!("f_θ", "f_θ"), true, last(&niah.f_theta)),
        (text!("S5", "S5"), true, on(niah.s5)),
        (text!("identity", "恒等"), true, on(niah.identity)),
        (text!("codec", "编解码器"), true, on(niah.settings.codec)),
        (text!("stateful", "保留状态"), true, on(niah.settings.stateful)),
        (text!("decode", "解码"), true, Text::same(&niah.decode)),
        (text!("token budget", "词元上限"), true, shown(niah.max_new_tokens)),
        (text!("sink + window", "sink + 窗口"), true, kept),
        (text!("warm-up", "预热"), true, shown(niah.settings.warmup)),
    ]
}

fn factors(left: &Niah, right: &Niah) -> Vec<Factor> {
    settings(left)
        .into_iter()
        .zip(settings(right))
        .map(|((name, treatment, a), (_, _, b))| Factor { name, differs: a != b, a, b, treatment })
        .collect()
}

fn memory(left: &Niah, right: &Niah) -> Vec<MemoryRow> {
    let mut rows: Vec<MemoryRow> = Vec::new();
    for (figures, first) in [(&left.memory, true), (&right.memory, false)] {
        for figure in figures {
            let same = |row: &MemoryRow| {
                row.arm == figure.arm && row.label == figure.label && row.kind == figure.kind
            };
            let at = rows.iter().position(same).unwrap_or_else(|| {
                let (arm, label) = (figure.arm.clone(), figure.label.clone());
                rows.push(MemoryRow { arm, label, kind: figure.kind, a: None, b: None });
                rows.len() - 1
            });
            if first { rows[at].a = Some(figure.bytes) } else { rows[at].b = Some(figure.bytes) }
        }
    }
    rows.sort_by(|a, b| (a.kind, &a.arm).cmp(&(b.kind, &b.arm)));
    rows
}

fn samples(left: &Niah, right: &Niah) -> Vec<SampleRow> {
    let rows = |niah: &Niah, oracle: bool| -> Vec<Row> {
        let arm = if oracle { niah.oracle() } else { niah.sut() };
        arm.map_or_else(Vec::new, |arm| arm.rows.clone())
    };
    let (oracle_a, oracle_b) = (rows(left, true), rows(right, true));
    let (sut_a, sut_b) = (rows(left, false), rows(right, false));
    let cell =
        |rows: &[Row], i: usize| rows.get(i).map(|row| SampleCell { text: row.text.clone(), hit: row.hit });
    let count = [&oracle_a, &oracle_b, &sut_a, &sut_b].iter().map(|rows| rows.len()).max().unwrap_or(0);
    (0..count)
        .map(|i| SampleRow {
            index: i,
            answer: left
                .samples
                .get(i)
                .or(right.samples.get(i))
                .map_or_else(String::new, |prompt| prompt.answer.clone()),
            depth: left
                .samples
                .get(i)
                .map(|prompt| f64::from(prompt.needle_line) / f64::from(prompt.padding_lines)),
            same_prompt: left.samples.get(i).is_some() && left.samples.get(i) == right.samples.get(i),
            oracle_a: cell(&oracle_a, i),
            oracle_b: cell(&oracle_b, i),
            sut_a: cell(&sut_a, i),
            sut_b: cell(&sut_b, i),
        })
        .collect()
}

type Cell = Option<SampleCell>;
type Same = fn(&SampleCell, &SampleCell) -> bool;

fn agreement(rows: &[SampleRow]) -> Agreement {
    let shared: Vec<&SampleRow> = rows.iter().take_while(|row| row.same_prompt).collect();
    let both = |a: &Cell, b: &Cell, same: Same| a.as_ref().zip(b.as_ref()).is_some_and(|(a, b)| same(a, b));
    let same_text: Same = |a, b| a.text == b.text;
    let count = |same: &dyn Fn(&SampleRow) -> bool| shared.iter().filter(|row| same(row)).count();
    let differs = |row: &&&SampleRow| both(&row.sut_a, &row.sut_b, |a, b| a.hit != b.hit);
    Agreement {
        n: shared.len(),
        same_flags: count(&|row| both(&row.sut_a, &row.sut_b, |a, b| a.hit == b.hit)),
        differing: shared.iter().filter(differs).map(|row| row.index).collect(),
        same_sut_texts: count(&|row| both(&row.sut_a, &row.sut_b, same_text)),
        same_oracle_texts: count(&|row| both(&row.oracle_a, &row.oracle_b, same_text)),
        same_cross_texts: count(&|row| both(&row.sut_a, &row.oracle_b, same_text)),
        sut_hits: hits(&shared, |row| &row.sut_a).zip(hits(&shared, |row| &row.sut_b)).map(<[u64; 2]>::from),
        oracle_hits: hits(&shared, |row| &row.oracle_a)
            .zip(hits(&shared, |row| &row.oracle_b))
            .map(<[u64; 2]>::from),
    }
}

/// Hits of one arm over the shared samples; None when it did not answer all of them.
fn hits(shared: &[&SampleRow], cell: fn(&SampleRow) -> &Cell) -> Option<u64> {
    let hits = shared.iter().map(|row| cell(row).as_ref().map(|cell| u64::from(cell.hit)));
    if shared.is_empty() { None } else { hits.sum() }
}
