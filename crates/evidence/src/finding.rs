//! Findings, and what each code means to a reader.

use crate::{Text, text};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use ts_rs::TS;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, TS, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The claim does not hold, or cannot.
    Error,
    /// The claim needs care.
    Warn,
    /// Good to know.
    Info,
}

/// One thing that the audit has to say about a file.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct Finding {
    /// Stable code.
    pub code: &'static str,
    /// Weight.
    pub severity: Severity,
    /// JSON pointer to the place in the file.
    pub pointer: String,
    /// One sentence with the numbers.
    pub message: Text,
    /// Why it matters.
    pub why: Text,
    /// What would fix it.
    pub fix: Text,
    /// The numbers, by name.
    #[ts(type = "Record<string, unknown>")]
    pub data: Map<String, Value>,
}

impl Finding {
    /// A finding whose severity, reason and remedy come from the dictionary.
    pub(crate) fn new(code: &'static str, pointer: impl Into<String>, message: Text, data: Value) -> Self {
        let (severity, why, fix) = meaning(code);
        let data = if let Value::Object(data) = data { data } else { Map::new() };
        Self { code, severity, pointer: pointer.into(), message, why, fix, data }
    }
}

/// Codes after which no verdict but fail is possible: stored numbers that do not follow from stored rows (RULES §6.3).
pub(crate) const INTEGRITY: [&str; 23] = [
    "ARRAY_LEN_MISMATCH",
    "RECALL_FLAG_MISMATCH",
    "RECALL_VALUE_MISMATCH",
    "THROUGHPUT_STAT_MISMATCH",
    "LATENCY_STAT_MISMATCH",
    "GATE_VALUE_MISMATCH",
    "WITHIN_5PP_MISMATCH",
    "ATTN_WINDOW_MISMATCH",
    "TOKENS_SUM_MISMATCH",
    "TOK_S_MISMATCH",
    "WALL_MISMATCH",
    "DECODE_ONLY_MISMATCH",
    "SPEEDUP_MISMATCH",
    "MEM_SUM_MISMATCH",
    "SAVINGS_MISMATCH",
    "NAIVE_MISMATCH",
    "EVIDENCE_VIOLATIONS_MISMATCH",
    "DATASET_LENGTH_MISMATCH",
    "LADDER_SOURCE_MISMATCH",
    "SWEEP_VALUE_MISMATCH",
    "ACCEPTANCE_MISMATCH",
    "JUNIT_COUNT_MISMATCH",
    "FIDELITY_STAT_MISMATCH",
];

/// Severity of a code, why it matters, what would fix it.
fn meaning(code: &str) -> (Severity, Text, Text) {
    use Severity::{Error, Info, Warn};
    match code {
        "ARRAY_LEN_MISMATCH"
        | "RECALL_FLAG_MISMATCH"
        | "RECALL_VALUE_MISMATCH"
        | "THROUGHPUT_STAT_MISMATCH"
        | "LATENCY_STAT_MISMATCH"
        | "GATE_VALUE_MISMATCH"
        | "WITHIN_5PP_MISMATCH"
        | "ATTN_WINDOW_MISMATCH"
        | "TOKENS_SUM_MISMATCH"
        | "TOK_S_MISMATCH"
        | "WALL_MISMATCH"
        | "DECODE_ONLY_MISMATCH"
        | "SPEEDUP_MISMATCH"
        | "MEM_SUM_MISMATCH"
        | "SAVINGS_MISMATCH"
        | "NAIVE_MISMATCH"
        | "EVIDENCE_VIOLATIONS_MISMATCH"
        | "SWEEP_VALUE_MISMATCH"
        | "ACCEPTANCE_MISMATCH"
        | "JUNIT_COUNT_MISMATCH"
        | "FIDELITY_STAT_MISMATCH" => (
            Error,
            text!(
                "A stored number that does not follow from its own rows was edited or written by a faulty program.",
                "与自身逐行数据不符的存储数字，不是被改过，就是由有缺陷的程序写出的。"
            ),
            text!(
                "Run again and keep the file as the program writes it.",
                "重新运行，并原样保留程序写出的文件。"
            ),
        ),
        "DATASET_LENGTH_MISMATCH" => (
            Error,
            text!(
                "The prompts that ran are not those of the recorded seed and bounds, so answers and depths are unknown.",
                "实际运行的提示词并非由所记录的种子和行数范围生成，因此答案与深度都无从得知。"
            ),
            text!(
                "Record the seed, the bounds and the prompt variant that really ran, or run again.",
                "记录真正运行的种子、行数范围和提示词变体，或重新运行。"
            ),
        ),
        "UNDECLARED_PROMPT_VARIANT" => (
            Error,
            text!(
                "The prompts were rewritten, which the config does not say: results do not compare with the standard prompt.",
                "提示词被改写而配置没有说明：结果不能与标准提示词比较。"
            ),
            text!(
                "Record the prompt variant, or run the standard prompt.",
                "记录提示词变体，或运行标准提示词。"
            ),
        ),
        "OUTPUT_DEGENERATE" => (
            Error,
            text!(
                "A text that ends in one repeated phrase shows a broken decode loop, even where the code appears in it.",
                "以同一短语反复结尾的文本说明解码循环有误，即使其中出现了代号也一样。"
            ),
            text!(
                "Fix the decode loop and run again; do not count the sample.",
                "修复解码循环后重新运行；不要计入该样本。"
            ),
        ),
        "ORACLE_MISSING" => (
            Error,
            text!(
                "Recall without the full-memory oracle on the same prompts says nothing about what eviction cost.",
                "没有同一批提示词上的全记忆 oracle，召回率说明不了逐出的代价。"
            ),
            text!("Run the oracle arm on the same samples.", "在相同样本上运行 oracle 实验臂。"),
        ),
        "DELTA_ON_ZERO_RECALL" => (
            Error,
            text!(
                "Zero against zero is no difference whatever restoration does.",
                "零对零，无论恢复做了什么都没有差异。"
            ),
            text!(
                "Use a prompt or a model with which the oracle recalls the code.",
                "换用 oracle 能召回代号的提示词或模型。"
            ),
        ),
        "ARCH_TRUE_AT_ZERO_RECALL" => (
            Error,
            text!(
                "The architecture is called correct while the arm recalls nothing.",
                "该实验臂什么都没有召回，架构却被判为正确。"
            ),
            text!("Compute the gate from counters of what was injected.", "用注入计数器来计算这一门禁。"),
        ),
        "RESTORATION_NOT_EXECUTED" => (
            Error,
            text!(
                "The arm is called restored, yet nothing (or not everything) was restored: it measured another model.",
                "该实验臂称为“恢复”，却没有（或没有全部）恢复：测到的是另一个模型。"
            ),
            text!(
                "Run again in a mode that injects, and keep its counters.",
                "以会注入的模式重新运行，并保留其计数器。"
            ),
        ),
        "SUT_NEVER_RAN" => (
            Error,
            text!(
                "The system under test did not run: whatever figures stand here are not its own.",
                "受测系统没有运行：这里的任何数字都不属于它。"
            ),
            text!("Run again without the fallback.", "关闭后备路径后重新运行。"),
        ),
        "GEN_BUDGET_TOO_SMALL" => (
            Error,
            text!(
                "A code needs 6 to 8 tokens; with fewer no answer can hold it.",
                "一个代号需要 6 到 8 个词元；更少则任何回答都放不下。"
            ),
            text!(
                "Generate at least 12 tokens; 24 is the ladder's standard.",
                "至少生成 12 个词元；各梯级的标准是 24。"
            ),
        ),
        "PREFILL_SPREAD" => (
            Error,
            text!(
                "Prefill times of like prompts differ so much that the clock measured something else, such as compilation.",
                "相近提示词的预填充时间相差太大，说明计时混入了别的东西，例如编译。"
            ),
            text!("Warm up first, then measure.", "先预热，再测量。"),
        ),
        "PREFILL_EXCLUDED_FROM_WALL" => (
            Error,
            text!(
                "The wall time leaves the prefill out, so the rate is not what a user waits for.",
                "总时间不含预填充，因此这个速率不是用户实际等待的速率。"
            ),
            text!(
                "Report end-to-end time, or call the figure decode only.",
                "报告端到端时间，或注明该数字仅为解码。"
            ),
        ),
        "SPEEDUP_SELF_COMPARISON" => (
            Error,
            text!(
                "Both arms ran the same native path; the ratio is noise.",
                "两个实验臂走的是同一条原生路径；这个比值只是噪声。"
            ),
            text!("Compare against an arm that really restores.", "与真正恢复的实验臂比较。"),
        ),
        "SPEEDUP_SCOPE_MISMATCH" => (
            Error,
            text!(
                "One arm's time holds the prefill, the other's does not.",
                "一个实验臂的时间含预填充，另一个不含。"
            ),
            text!("Divide figures of the same scope.", "用范围相同的数字相除。"),
        ),
        "MEM_FORMULA_NOT_THE_RUN" => (
            Error,
            text!(
                "The memory formula describes a cache that this run did not use.",
                "内存公式描述的缓存并不是这次运行所用的。"
            ),
            text!("Report what was allocated in this run.", "报告这次运行中实际分配的内存。"),
        ),
        "LOSSLESS_VIOLATION" => (
            Error,
            text!(
                "Speculative decoding must give the greedy text; it did not.",
                "推测解码必须给出贪心解码的文本；这里没有。"
            ),
            text!("Fix acceptance or rollback, then run again.", "修复接受或回滚逻辑后重新运行。"),
        ),
        "MISSING_STAGE_TIMINGS" => (
            Warn,
            text!(
                "Without stage timings nothing shows that restoration ran.",
                "没有分阶段计时，就没有任何东西能说明恢复执行过。"
            ),
            text!("Run with a program that records them.", "用会记录它们的程序运行。"),
        ),
        "CASE_SENSITIVE_MISS" => (
            Warn,
            text!(
                "The code is there in another letter case or format; the strict rule counts a miss.",
                "代号以另一种大小写或格式出现；严格规则计为未命中。"
            ),
            text!("Read both figures; decide with the strict one.", "两个数字都看；以严格的为准。"),
        ),
        "SUBSTRING_OVERMATCH" => (
            Warn,
            text!(
                "The answer only appears as the beginning of a longer number.",
                "答案只作为更长数字的开头出现。"
            ),
            text!("Read the text; the strict rule counts a hit.", "请阅读文本；严格规则计为命中。"),
        ),
        "LATENCY_SPREAD" => (
            Warn,
            text!(
                "Rates of near-identical work differ more than threefold: first-use costs are in the measurement.",
                "几乎相同的工作，速率相差三倍以上：测量中含有首次使用的开销。"
            ),
            text!("Warm up, and let the arms take turns.", "先预热，并让各实验臂轮流运行。"),
        ),
        "ARCH_GATE_TAUTOLOGY" => (
            Warn,
            text!(
                "The attention fraction is a length divided by itself; it cannot come out wrong.",
                "注意力比例是一个长度除以它自己，不可能出错。"
            ),
            text!("Rely on the restoration counters instead.", "改为依据恢复计数器。"),
        ),
        "GATE_EMPTY" => (
            Warn,
            text!("The file claims nothing that could be checked.", "此文件没有任何可核对的声明。"),
            text!("Run both arms.", "运行两个实验臂。"),
        ),
        "ARMS_TEXT_IDENTICAL" => (
            Warn,
            text!(
                "Both arms wrote the same texts: either restoration is perfect, or both ran the same path.",
                "两个实验臂写出了相同的文本：要么恢复完美，要么两者走了同一条路径。"
            ),
            text!("Look at the restoration counters.", "查看恢复计数器。"),
        ),
        "ORACLE_WEAK" => (
            Warn,
            text!(
                "Only samples that the oracle recalls can show a loss; here they are few.",
                "只有 oracle 召回的样本才能显出损失；这里很少。"
            ),
            text!("Judge by retention among the oracle's hits.", "按 oracle 命中样本中的保留率来判断。"),
        ),
        "N_TOO_SMALL" => (
            Warn,
            text!(
                "So few samples cannot bound the lost recall to 5 percentage points.",
                "样本这么少，无法把召回损失界定在 5 个百分点内。"
            ),
            text!(
                "Run at least 59 samples without a loss (72 two-sided).",
                "至少运行 59 个无损失的样本（双侧为 72 个）。"
            ),
        ),
        "FLOAT_BOUNDARY" => (
            Warn,
            text!(
                "The difference is exactly 5 points; a float comparison decides it by rounding luck.",
                "差异正好是 5 个点；浮点比较的结果取决于舍入的运气。"
            ),
            text!("Compare in integers: 20·|Δhits| ≤ n.", "用整数比较：20·|Δhits| ≤ n。"),
        ),
        "SELF_PROJECTION" => (
            Warn,
            text!(
                "Proposer and verifier are one checkpoint: equality follows from identity, no f_θ is tested.",
                "提议者与验证模型是同一检查点：相等源于恒等，没有测试任何 f_θ。"
            ),
            text!("Read it as a plumbing check.", "把它看作管路检查。"),
        ),
        "MEM_OVER_24GIB" => (
            Warn,
            text!(
                "The driver's allocation is above the 24 GiB of the target machine.",
                "驱动的分配超过目标机器的 24 GiB。"
            ),
            text!("Reduce memory.", "减少内存。"),
        ),
        "MEM_PEAK_NOT_LOWER" => (
            Warn,
            text!(
                "The bounded arm's measured peak is not below the oracle's: this run shows no saving.",
                "有界实验臂的实测峰值不低于 oracle 的：这次运行没有显示节省。"
            ),
            text!("Measure resident K/V, or a longer context.", "测量常驻 K/V，或使用更长的上下文。"),
        ),
        "ATTN_IMPL_UNRECORDED" => (
            Warn,
            text!(
                "Eager and fused attention flip samples; which ran is not recorded.",
                "eager 与融合注意力会使部分样本翻转；没有记录用的是哪一种。"
            ),
            text!("Record the attention in use.", "记录所用的注意力实现。"),
        ),
        "NO_KV_CACHE_IN_RUN" => (
            Warn,
            text!(
                "This kind re-forwards the sequence for every token, so the reference keeps no K/V that could be measured.",
                "此类运行为每个词元重新前向整个序列，因此参考实现没有可测量的 K/V。"
            ),
            text!("Take memory and rate from an incremental run.", "从增量运行中取内存和速率。"),
        ),
        "IDENTITY_RESTORE" => (
            Warn,
            text!(
                "The verifier's own K/V were injected: a check of the plumbing, not of f_θ.",
                "注入的是验证模型自己的 K/V：检查的是管路，不是 f_θ。"
            ),
            text!("Run with f_θ.", "用 f_θ 运行。"),
        ),
        "TEACHER_FORCED" => (
            Warn,
            text!(
                "The answer stands in the input, so recall is not that of free generation.",
                "答案就在输入里，因此召回率不是自由生成的召回率。"
            ),
            text!("Run free generation.", "运行自由生成。"),
        ),
        "EVAL_MODE_UNRECORDED" => (
            Warn,
            text!("How tokens were generated is not recorded.", "没有记录词元是如何生成的。"),
            text!("Record the evaluation mode.", "记录评估模式。"),
        ),
        "GEN_BUDGET_TIGHT" => (
            Warn,
            text!(
                "A code needs 6 to 8 tokens; a preamble of a word or two cuts it off.",
                "一个代号需要 6 到 8 个词元；一两个词的开场白就会把它截断。"
            ),
            text!("Generate at least 12 tokens.", "至少生成 12 个词元。"),
        ),
        "S5_EXACT_FULL_ATTN" => (
            Warn,
            text!(
                "The needle can flow through the exact full-attention layers: recall says nothing about f_θ.",
                "针可以经由精确的全注意力层传过来：召回率说明不了 f_θ。"
            ),
            text!("Read the f_θ-only arm or a control beside it.", "同时看仅 f_θ 的实验臂或对照。"),
        ),
        "DECODE_SPREAD" => (
            Warn,
            text!(
                "Decode times of like work differ more than twofold.",
                "相近的工作，解码时间相差两倍以上。"
            ),
            text!("Warm up and repeat before claiming a rate.", "先预热并重复测量，再声明速率。"),
        ),
        "MEM_ANALYTIC" => (
            Warn,
            text!("The figure is a formula, not a measurement.", "这个数字是公式，不是测量值。"),
            text!("Show it beside a measured figure.", "把它列在实测数字旁边。"),
        ),
        "MEM_BASELINE_INFLATED" => (
            Warn,
            text!(
                "The baseline ignores the model's own sliding window, so the saving is overstated.",
                "基线忽略了模型自身的滑动窗口，因此夸大了节省。"
            ),
            text!("Compare with the native cache.", "与原生缓存比较。"),
        ),
        "FTHETA_DRAFTER_MISMATCH" => (
            Warn,
            text!(
                "f_θ was trained on another drafter than the one that ran.",
                "训练 f_θ 用的草稿模型不是运行的那一个。"
            ),
            text!("Run the drafter that f_θ was trained on.", "运行训练 f_θ 所用的草稿模型。"),
        ),
        "RESTORATION_NOT_LOAD_BEARING" => (
            Warn,
            text!(
                "A control recalls as much as the restored arm: what it leaves out carries nothing of the recall.",
                "某个对照的召回与恢复实验臂一样多：它所省去的部分对召回没有任何作用。"
            ),
            text!(
                "Judge f_θ by an arm that its control fails, such as f_θ on every layer, and by fidelity to the oracle.",
                "用其对照会失败的实验臂来判断 f_θ，例如每层都用 f_θ，并看相对 oracle 的保真度。"
            ),
        ),
        "LADDER_SOURCE_MISMATCH" => (
            Error,
            text!(
                "The ladder repeats a number that the file it was taken from does not hold.",
                "汇总重复的数字在它所取自的文件中并不存在。"
            ),
            text!("Assemble the ladder again from its files.", "从各文件重新汇总。"),
        ),
        "BASELINE_MODEL_MISMATCH" => (
            Error,
            text!(
                "Latency was compared with a baseline of a much smaller model, so no regression could show.",
                "延迟是与小得多的模型的基线比较的，因此任何退化都显不出来。"
            ),
            text!("Record a baseline of the same model and compare again.", "记录同一模型的基线后重新比较。"),
        ),
        "THRESHOLD_MOVED" => (
            Warn,
            text!(
                "The bound was raised until a measurement that had failed passed: the gate followed the result.",
                "上限被调高，直到原先失败的测量通过为止：门禁迁就了结果。"
            ),
            text!(
                "Set bounds before measuring, and give a reason when one is moved.",
                "先定上限再测量；移动上限时说明理由。"
            ),
        ),
        "REFERENCE_NOT_COMPARABLE" => (
            Warn,
            text!(
                "The figure beside it comes from other prompts or another model, so the two do not compare.",
                "旁边的数字来自另外的提示词或另一个模型，因此两者不可比较。"
            ),
            text!(
                "Embed a reference of the same prompts and verifier.",
                "嵌入提示词和验证模型都相同的参考。"
            ),
        ),
        "DECODE_SLOPE" => (
            Warn,
            text!(
                "Decoding slows down with context far more than the K/V that the model attends to can explain.",
                "解码随上下文变慢的程度远超模型所关注的 K/V 能解释的程度。"
            ),
            text!(
                "Profile a decode step at the longest context: something scans or copies the whole history.",
                "在最长的上下文处剖析一个解码步：有什么在扫描或复制整个历史。"
            ),
        ),
        "MEMORY_ABSENT" => (
            Info,
            text!("No memory figure is recorded.", "没有记录任何内存数字。"),
            text!("Record measured memory.", "记录实测内存。"),
        ),
        "MEM_NO_PEAK_COUNTER" => (
            Info,
            text!(
                "This device has no peak counter; a snapshot can miss the peak.",
                "此设备没有峰值计数器；快照可能错过峰值。"
            ),
            text!("Sample memory during the run.", "在运行期间采样内存。"),
        ),
        "THROUGHPUT_ABSENT" => (
            Info,
            text!("The schema predates per-sample rates.", "此格式早于逐样本速率。"),
            text!("Nothing to do.", "无需处理。"),
        ),
        "S5_FLAG_ABSENT" => (
            Info,
            text!(
                "Whether full layers were kept exact is not recorded; read as no.",
                "没有记录全注意力层是否保持精确；按“否”处理。"
            ),
            text!("Nothing to do.", "无需处理。"),
        ),
        "TEXT_DIVERGENCE" => (
            Info,
            text!(
                "The arms differ in some texts, as a lossy projection may.",
                "两个实验臂有些文本不同，有损投影可能如此。"
            ),
            text!("Read the texts.", "阅读这些文本。"),
        ),
        "FTHETA_NOT_IN_CHECKOUT" => (
            Info,
            text!(
                "The f_θ that ran is not in the workspace, so the run cannot be repeated here.",
                "运行所用的 f_θ 不在工作区中，因此无法在这里重复这次运行。"
            ),
            text!("Publish the f_θ.", "发布该 f_θ。"),
        ),
        "DUPLICATE_EVIDENCE" => (
            Info,
            text!(
                "The same samples stand in another file: pooling them would count one observation twice.",
                "另一个文件中有相同的样本：合并它们会把一次观测计算两次。"
            ),
            text!("Count only one of the files.", "只计其中一个文件。"),
        ),
        "STATUS_CONTRADICTION" => (
            Error,
            text!(
                "The status says one thing, a measured field of the same file another.",
                "状态是一个说法，同一文件中的实测字段是另一个说法。"
            ),
            text!("Derive the status from the fields, then run again.", "由各字段推出状态，然后重新运行。"),
        ),
        "LOAD_FAILED" => (
            Error,
            text!(
                "The model did not load, so nothing was measured.",
                "模型没有加载成功，因此什么都没有测到。"
            ),
            text!(
                "Fix the model's files or the loader; the stored fingerprints say where to look.",
                "修复模型文件或加载器；所存的特征会指出该看哪里。"
            ),
        ),
        "CROSSHOST_IS_LOOPBACK" => (
            Error,
            text!(
                "Both ends ran on one machine: the figures say nothing about a network.",
                "两端在同一台机器上运行：这些数字说明不了网络。"
            ),
            text!("Run the echo on a second machine.", "在第二台机器上运行回显端。"),
        ),
        "RECALL_MISS" => (
            Warn,
            text!("The code was not recalled at this context length.", "在这个上下文长度上没有召回代号。"),
            text!(
                "Run an oracle there too: without one nobody knows whether eviction lost it.",
                "也在那里运行 oracle：没有它，谁也不知道是不是逐出造成的损失。"
            ),
        ),
        "CODEC_NO_COMPRESSION" => (
            Warn,
            text!(
                "The codec's cache is as large as the one without it: only its error was tested.",
                "编解码器的缓存与不用它时一样大：只测试了它的误差。"
            ),
            text!("Measure the bytes that are really kept.", "测量真正保留的字节数。"),
        ),
        "COMPONENT_SKIPPED" => (
            Warn,
            text!("The run reports success with a part switched off.", "运行报告成功，但有一部分被关闭了。"),
            text!("Run again with that part.", "开启该部分后重新运行。"),
        ),
        "DRAFTER_FIDELITY_UNKNOWN" => (
            Warn,
            text!(
                "A drafter loaded by a class that is not its own also runs forward, with wrong weights.",
                "用不属于它的类加载的草稿模型也能前向运行，只是权重是错的。"
            ),
            text!("Record whether its own architecture was loaded.", "记录加载的是不是它自己的架构。"),
        ),
        "FTHETA_ZERO_RECALL" => (
            Warn,
            text!(
                "With f_θ alone no code is recalled: the recall of other rows comes from true K/V.",
                "只用 f_θ 时没有召回任何代号：其他行的召回来自真实 K/V。"
            ),
            text!(
                "Train f_θ further, and judge by the row at α = 0.",
                "继续训练 f_θ，并按 α = 0 的那一行判断。"
            ),
        ),
        "NO_PER_SAMPLE" => (
            Warn,
            text!(
                "Recall is stored as one number; nobody can recount it.",
                "召回率只存为一个数字；谁也无法重新计数。"
            ),
            text!("Keep the text of every sample.", "保留每个样本的文本。"),
        ),
        "TOKENS_ONLY" => (
            Warn,
            text!(
                "Token ids without their tokenizer cannot be read, so recall cannot be recounted.",
                "没有分词器，词元编号无法读出，因此召回率无法重新计数。"
            ),
            text!("Keep the decoded text too.", "同时保留解码后的文本。"),
        ),
        "KV_RESIDENT_IS_FORMULA" => (
            Warn,
            text!(
                "Resident K/V is window times a constant, and leaves out the layers that keep everything.",
                "常驻 K/V 是窗口乘以常数，漏掉了保留全部内容的层。"
            ),
            text!("Count the bytes of the tensors that are held.", "统计实际持有的张量的字节数。"),
        ),
        "S5_MODE_UNRECORDED" => (
            Warn,
            text!(
                "Exact layers can carry the code past restoration; which were exact is not recorded.",
                "精确的层可以绕过恢复把代号带过来；没有记录哪些层是精确的。"
            ),
            text!("Record the exact layers.", "记录精确的层。"),
        ),
        "SKIPPED_ARM_REPORTS_ZERO" => (
            Warn,
            text!(
                "A zero of an arm that never ran reads as a measured failure.",
                "从未运行的实验臂的零，看起来像实测的失败。"
            ),
            text!("Store null.", "存为 null。"),
        ),
        "MEAN_OF_RATES" => (
            Info,
            text!(
                "A mean of rates favours the fast samples; tokens over time is what a user gets.",
                "速率的平均值偏向快的样本；用户得到的是词元数除以时间。"
            ),
            text!("Report total tokens over total time.", "报告总词元数除以总时间。"),
        ),
        "UNIT_GIB_LABELLED_GB" => (
            Info,
            text!(
                "A field named GB holds GiB, 7 % more bytes.",
                "名为 GB 的字段存的是 GiB，多出 7 % 的字节。"
            ),
            text!("Name the unit that is stored.", "按所存的单位命名。"),
        ),
        "SWEEP_UNORDERED" => (
            Info,
            text!(
                "The rows are out of order; a curve must sort them.",
                "各行没有按顺序排列；画曲线时必须排序。"
            ),
            text!("Nothing to do.", "无需处理。"),
        ),
        "MSE_FROM_ONE_SAMPLE" => (
            Info,
            text!("One sample does not tell how far the error varies.", "一个样本说明不了误差的波动有多大。"),
            text!("Average the error over several samples.", "对多个样本的误差取平均。"),
        ),
        "FILE_RENAMED" => (
            Info,
            text!(
                "The file has another name than the run gave it; other files may point to the old one.",
                "文件名与运行所给的不同；其他文件可能指向旧名称。"
            ),
            text!("Keep the name.", "保留原名。"),
        ),
        "CROSSHOST_SIMULATED" => (
            Info,
            text!(
                "Delays were added in software; no network was crossed.",
                "延迟由软件添加；没有经过任何网络。"
            ),
            text!("Measure between two machines.", "在两台机器之间测量。"),
        ),
        "FEW_PROMPTS" => (
            Info,
            text!("Acceptance varies much between prompts.", "不同提示词的接受率差别很大。"),
            text!("Use at least 20 prompts.", "至少使用 20 个提示词。"),
        ),
        "TRAIN_SANITY_ONLY" => (
            Info,
            text!(
                "A falling loss shows that training works, not that the code is recalled.",
                "损失下降说明训练有效，不说明能召回代号。"
            ),
            text!("Run the needle ladder with this f_θ.", "用这个 f_θ 运行大海捞针的各梯级。"),
        ),
        "TRAIN_HAS_NIAH" => (
            Info,
            text!(
                "Needle prompts were trained on; needle runs of like length are not held out.",
                "训练用过大海捞针提示词；长度相近的运行不是留出测试。"
            ),
            text!(
                "Test at lengths and with seeds outside the training set.",
                "在训练集以外的长度和种子上测试。"
            ),
        ),
        "NO_KIND" => (
            Info,
            text!(
                "The file does not say what kind it is; it was classified by its keys.",
                "文件没有说明自己的类型；按其键来分类。"
            ),
            text!("Nothing to do.", "无需处理。"),
        ),
        "NO_SCHEMA_VERSION" => (
            Info,
            text!("The file carries no schema version.", "文件没有格式版本号。"),
            text!("Nothing to do.", "无需处理。"),
        ),
        "MEM_ZERO_READING" => (
            Error,
            text!(
                "A counter that only reads zero measured nothing, so nothing follows about memory.",
                "只读出零的计数器什么也没测到，因此关于内存得不出任何结论。"
            ),
            text!("Repair the counter and run again.", "修复计数器后重新运行。"),
        ),
        "SPEEDUP_AT_BROKEN_RECALL" => (
            Error,
            text!(
                "Wrong answers may come at any speed; a rate counts only where recall holds.",
                "错误的答案可以要多快有多快；召回成立时速率才有意义。"
            ),
            text!("Repair recall first, then measure the speed.", "先修复召回，再测速度。"),
        ),
        "RUN_ERRORS" => (
            Error,
            text!(
                "Figures over the requests that worked leave out those that failed.",
                "只统计成功请求的数字漏掉了失败的请求。"
            ),
            text!(
                "Find why requests failed and run again without errors.",
                "查明请求为何失败，然后在没有错误的情况下重新运行。"
            ),
        ),
        "DECODE_RATE_IS_E2E" => (
            Warn,
            text!(
                "The decode rate was derived from the end-to-end time, so prefill is still in it.",
                "解码速率由端到端时间推出，因此仍含预填充。"
            ),
            text!("Time the decode phase on its own.", "单独给解码阶段计时。"),
        ),
        "ADMISSION_CEILING_EXCEEDED" => (
            Warn,
            text!(
                "More agents ran than the file's own formula admits, so its bytes per session are not those of the run.",
                "运行的智能体多于文件自己的公式所允许的，因此其每会话字节数不是这次运行的。"
            ),
            text!(
                "Measure the bytes per session and derive the ceiling from them.",
                "测量每会话字节数，并由此推出上限。"
            ),
        ),
        "MEM_FOOTPRINT_SCOPE" => (
            Warn,
            text!(
                "A process that holds the model cannot be smaller than half its weights: the counter looks elsewhere.",
                "持有模型的进程不可能小于其权重的一半：计数器看的是别处。"
            ),
            text!(
                "Count the memory of the process, or the device, that holds weights and cache.",
                "统计持有权重和缓存的进程或设备的内存。"
            ),
        ),
        "PROXY_MODEL" => (
            Warn,
            text!(
                "Memory and latency of another model say little about the one that is claimed.",
                "另一个模型的内存和延迟说明不了所声明的模型。"
            ),
            text!("Measure with the claimed verifier.", "用所声明的验证模型测量。"),
        ),
        "CAPACITY_DERIVED_NOT_MEASURED" => (
            Warn,
            text!(
                "The claimed capacity comes from a formula; what was run gives less.",
                "声明的容量来自公式；实际运行的结果更少。"
            ),
            text!(
                "Claim the ratio that was measured, or run as many agents as claimed.",
                "声明实测的比值，或运行所声明数量的智能体。"
            ),
        ),
        "EXIT_NONZERO_NO_FAILURES" => (
            Warn,
            text!(
                "The suite failed as a whole, though no test did: something outside the tests broke.",
                "没有测试失败，整个套件却失败了：测试之外的东西出了问题。"
            ),
            text!(
                "Read the log of the run: coverage limits and collection errors are usual causes.",
                "阅读运行日志：常见原因是覆盖率下限和收集错误。"
            ),
        ),
        "PEAK_SHARED_BY_ARMS" => (
            Info,
            text!(
                "One peak for both arms is the larger of the two and shows no saving.",
                "两个实验臂共用一个峰值，那是两者中较大的，显不出节省。"
            ),
            text!("Reset the peak counter between the arms.", "在两个实验臂之间重置峰值计数器。"),
        ),
        "KV_POOL_NULL" => (
            Info,
            text!(
                "Without the size of the pool, memory per session cannot be worked out.",
                "不知道池的大小，就算不出每会话的内存。"
            ),
            text!("Record the size of the K/V pool.", "记录 K/V 池的大小。"),
        ),
        "OOM" => (
            Info,
            text!(
                "The highest levels did not fit; capacity ends below them.",
                "最高的几级放不下；容量止于其下。"
            ),
            text!("Read capacity from the levels that ran.", "从运行成功的级别读取容量。"),
        ),
        "NO_RESTORATION_CONTROL" => (
            Info,
            text!(
                "What is recalled here comes through the full-attention layers alone: a baseline for restoration.",
                "这里的召回只经由全注意力层得来：它是恢复的基线。"
            ),
            text!("Set restored runs beside it.", "把恢复的运行放在旁边。"),
        ),
        "PARTIAL_RUN" => (
            Info,
            text!("A checkpoint leaves out whatever came after it.", "检查点漏掉了它之后的一切。"),
            text!("Read the final report instead.", "改为阅读最终报告。"),
        ),
        "NO_RECALL" => (
            Info,
            text!("Speed and memory of answers that nobody checked.", "只有速度和内存，回答没有人核对过。"),
            text!("Measure recall in the same run.", "在同一次运行中测量召回率。"),
        ),
        "TESTS_SKIPPED" => (
            Info,
            text!("A skipped test proves nothing.", "跳过的测试什么也证明不了。"),
            text!("Run the tests where they apply.", "在适用的环境中运行这些测试。"),
        ),
        _ => (Info, Text::default(), Text::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::meaning;
    use crate::Language;

    /// Every code that stands in the dictionary above, by its own text.
    #[test]
    fn every_code_is_explained_in_every_language() {
        let dictionary = include_str!("finding.rs").split("#[cfg(test)]").next().unwrap_or_default();
        let is_code =
            |word: &&str| word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase() || "_59".contains(c));
        let codes: Vec<&str> = dictionary.split('"').filter(is_code).collect();
        assert!(codes.len() > 90, "{}", codes.len());
        for code in codes {
            let (_, why, fix) = meaning(code);
            for text in [why, fix] {
                assert!(!text.en().is_empty() && text.en() != text.said(Language::Zh), "{code}: {text:?}");
            }
        }
    }
}
