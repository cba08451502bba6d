//! Findings, and what each code means to a reader.

use serde::Serialize;
use serde_json::{Map, Value};
use ts_rs::TS;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, TS)]
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
    pub message: String,
    /// Why it matters.
    pub why: &'static str,
    /// What would fix it.
    pub fix: &'static str,
    /// The numbers, by name.
    #[ts(type = "Record<string, unknown>")]
    pub data: Map<String, Value>,
}

impl Finding {
    /// A finding whose severity, reason and remedy come from the dictionary.
    pub(crate) fn new(
        code: &'static str,
        pointer: impl Into<String>,
        message: impl Into<String>,
        data: Value,
    ) -> Self {
        let (severity, why, fix) = meaning(code);
        let data = if let Value::Object(data) = data { data } else { Map::new() };
        Self { code, severity, pointer: pointer.into(), message: message.into(), why, fix, data }
    }
}

/// Codes after which no verdict but fail is possible: stored numbers that do not follow from stored rows (RULES §6.3).
pub(crate) const INTEGRITY: [&str; 18] = [
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
];

/// Severity of a code, why it matters, what would fix it.
fn meaning(code: &str) -> (Severity, &'static str, &'static str) {
    use Severity::{Error, Info, Warn};
    const RERUN: &str = "Run again and keep the file as the program writes it.";
    const EDITED: &str =
        "A stored number that does not follow from its own rows was edited or written by a faulty program.";
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
        | "EVIDENCE_VIOLATIONS_MISMATCH" => (Error, EDITED, RERUN),
        "DATASET_LENGTH_MISMATCH" => (
            Error,
            "The prompts that ran are not those of the recorded seed and bounds, so answers and depths are unknown.",
            "Record the seed, the bounds and the prompt variant that really ran, or run again.",
        ),
        "UNDECLARED_PROMPT_VARIANT" => (
            Error,
            "The prompts were rewritten, which the config does not say: results do not compare with the standard prompt.",
            "Record the prompt variant, or run the standard prompt.",
        ),
        "OUTPUT_DEGENERATE" => (
            Error,
            "A text that ends in one repeated phrase shows a broken decode loop, even where the code appears in it.",
            "Fix the decode loop and run again; do not count the sample.",
        ),
        "ORACLE_MISSING" => (
            Error,
            "Recall without the full-memory oracle on the same prompts says nothing about what eviction cost.",
            "Run the oracle arm on the same samples.",
        ),
        "DELTA_ON_ZERO_RECALL" => (
            Error,
            "Zero against zero is no difference whatever restoration does.",
            "Use a prompt or a model with which the oracle recalls the code.",
        ),
        "ARCH_TRUE_AT_ZERO_RECALL" => (
            Error,
            "The architecture is called correct while the arm recalls nothing.",
            "Compute the gate from counters of what was injected.",
        ),
        "RESTORATION_NOT_EXECUTED" => (
            Error,
            "The arm is called restored, yet nothing (or not everything) was restored: it measured another model.",
            "Run again in a mode that injects, and keep its counters.",
        ),
        "SUT_NEVER_RAN" => (
            Error,
            "The system under test produced no block: the numbers are those of a fallback.",
            "Run again without the fallback.",
        ),
        "GEN_BUDGET_TOO_SMALL" => (
            Error,
            "A code needs 6 to 8 tokens; with fewer no answer can hold it.",
            "Generate at least 12 tokens; 24 is the ladder's standard.",
        ),
        "PREFILL_SPREAD" => (
            Error,
            "Prefill times of like prompts differ so much that the clock measured something else, such as compilation.",
            "Warm up first, then measure.",
        ),
        "PREFILL_EXCLUDED_FROM_WALL" => (
            Error,
            "The wall time leaves the prefill out, so the rate is not what a user waits for.",
            "Report end-to-end time, or call the figure decode only.",
        ),
        "SPEEDUP_SELF_COMPARISON" => (
            Error,
            "Both arms ran the same native path; the ratio is noise.",
            "Compare against an arm that really restores.",
        ),
        "SPEEDUP_SCOPE_MISMATCH" => (
            Error,
            "One arm's time holds the prefill, the other's does not.",
            "Divide figures of the same scope.",
        ),
        "MEM_FORMULA_NOT_THE_RUN" => (
            Error,
            "The memory formula describes a cache that this run did not use.",
            "Report what was allocated in this run.",
        ),
        "LOSSLESS_VIOLATION" => (
            Error,
            "Speculative decoding must give the greedy text; it did not.",
            "Fix acceptance or rollback, then run again.",
        ),
        "MISSING_STAGE_TIMINGS" => (
            Warn,
            "Without stage timings nothing shows that restoration ran.",
            "Run with a program that records them.",
        ),
        "CASE_SENSITIVE_MISS" => (
            Warn,
            "The code is there in another letter case or format; the strict rule counts a miss.",
            "Read both figures; decide with the strict one.",
        ),
        "SUBSTRING_OVERMATCH" => (
            Warn,
            "The answer only appears as the beginning of a longer number.",
            "Read the text; the strict rule counts a hit.",
        ),
        "LATENCY_SPREAD" => (
            Warn,
            "Rates of near-identical work differ more than threefold: first-use costs are in the measurement.",
            "Warm up, and let the arms take turns.",
        ),
        "ARCH_GATE_TAUTOLOGY" => (
            Warn,
            "The attention fraction is a length divided by itself; it cannot come out wrong.",
            "Rely on the restoration counters instead.",
        ),
        "GATE_EMPTY" => (Warn, "The file claims nothing that could be checked.", "Run both arms."),
        "ARMS_TEXT_IDENTICAL" => (
            Warn,
            "Both arms wrote the same texts: either restoration is perfect, or both ran the same path.",
            "Look at the restoration counters.",
        ),
        "ORACLE_WEAK" => (
            Warn,
            "Only samples that the oracle recalls can show a loss; here they are few.",
            "Judge by retention among the oracle's hits.",
        ),
        "N_TOO_SMALL" => (
            Warn,
            "So few samples cannot bound the lost recall to 5 percentage points.",
            "Run at least 59 samples without a loss (72 two-sided).",
        ),
        "FLOAT_BOUNDARY" => (
            Warn,
            "The difference is exactly 5 points; a float comparison decides it by rounding luck.",
            "Compare in integers: 20·|Δhits| ≤ n.",
        ),
        "SELF_PROJECTION" => (
            Warn,
            "Proposer and verifier are one checkpoint: equality follows from identity, no f_θ is tested.",
            "Read it as a plumbing check.",
        ),
        "MEM_OVER_24GIB" => {
            (Warn, "The driver's allocation is above the 24 GiB of the target machine.", "Reduce memory.")
        }
        "MEM_PEAK_NOT_LOWER" => (
            Warn,
            "The bounded arm's measured peak is not below the oracle's: this run shows no saving.",
            "Measure resident K/V, or a longer context.",
        ),
        "ATTN_IMPL_UNRECORDED" => (
            Warn,
            "Eager and fused attention flip samples; which ran is not recorded.",
            "Record the attention in use.",
        ),
        "NO_KV_CACHE_IN_RUN" => (
            Warn,
            "This kind re-forwards the sequence for every token, so the reference keeps no K/V that could be measured.",
            "Take memory and rate from an incremental run.",
        ),
        "IDENTITY_RESTORE" => (
            Warn,
            "The verifier's own K/V were injected: a check of the plumbing, not of f_θ.",
            "Run with f_θ.",
        ),
        "TEACHER_FORCED" => (
            Warn,
            "The answer stands in the input, so recall is not that of free generation.",
            "Run free generation.",
        ),
        "EVAL_MODE_UNRECORDED" => {
            (Warn, "How tokens were generated is not recorded.", "Record the evaluation mode.")
        }
        "GEN_BUDGET_TIGHT" => (
            Warn,
            "A code needs 6 to 8 tokens; a preamble of a word or two cuts it off.",
            "Generate at least 12 tokens.",
        ),
        "S5_EXACT_FULL_ATTN" => (
            Warn,
            "The needle can flow through the exact full-attention layers: recall says nothing about f_θ.",
            "Read the f_θ-only arm or a control beside it.",
        ),
        "DECODE_SPREAD" => (
            Warn,
            "Decode times of like work differ more than twofold.",
            "Warm up and repeat before claiming a rate.",
        ),
        "MEM_ANALYTIC" => {
            (Warn, "The figure is a formula, not a measurement.", "Show it beside a measured figure.")
        }
        "MEM_BASELINE_INFLATED" => (
            Warn,
            "The baseline ignores the model's own sliding window, so the saving is overstated.",
            "Compare with the native cache.",
        ),
        "FTHETA_DRAFTER_MISMATCH" => (
            Warn,
            "f_θ was trained on another drafter than the one that ran.",
            "Run the drafter that f_θ was trained on.",
        ),
        "RESTORATION_NOT_LOAD_BEARING" => (
            Warn,
            "An arm with nothing restored recalls as much as the restored one.",
            "Use a longer haystack or a smaller window, so that the needle is evicted.",
        ),
        "MEMORY_ABSENT" => (Info, "No memory figure is recorded.", "Record measured memory."),
        "MEM_NO_PEAK_COUNTER" => (
            Info,
            "This device has no peak counter; a snapshot can miss the peak.",
            "Sample memory during the run.",
        ),
        "THROUGHPUT_ABSENT" => (Info, "The schema predates per-sample rates.", "Nothing to do."),
        "S5_FLAG_ABSENT" => {
            (Info, "Whether full layers were kept exact is not recorded; read as no.", "Nothing to do.")
        }
        "TEXT_DIVERGENCE" => {
            (Info, "The arms differ in some texts, as a lossy projection may.", "Read the texts.")
        }
        "FTHETA_NOT_IN_CHECKOUT" => (
            Info,
            "The f_θ that ran is not in the workspace, so the run cannot be repeated here.",
            "Publish the f_θ.",
        ),
        "DUPLICATE_EVIDENCE" => (
            Info,
            "The same samples stand in another file: pooling them would count one observation twice.",
            "Count only one of the files.",
        ),
        "NO_KIND" => {
            (Info, "The file does not say what kind it is; it was classified by its keys.", "Nothing to do.")
        }
        "NO_SCHEMA_VERSION" => (Info, "The file carries no schema version.", "Nothing to do."),
        _ => (Info, "", ""),
    }
}
