//! Findings, and what each code means to a reader.

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
        | "EVIDENCE_VIOLATIONS_MISMATCH"
        | "SWEEP_VALUE_MISMATCH"
        | "ACCEPTANCE_MISMATCH"
        | "JUNIT_COUNT_MISMATCH"
        | "FIDELITY_STAT_MISMATCH" => (Error, EDITED, RERUN),
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
            "The system under test did not run: whatever figures stand here are not its own.",
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
            "A control recalls as much as the restored arm: what it leaves out carries nothing of the recall.",
            "Judge f_θ by an arm that its control fails, such as f_θ on every layer, and by fidelity to the oracle.",
        ),
        "LADDER_SOURCE_MISMATCH" => (
            Error,
            "The ladder repeats a number that the file it was taken from does not hold.",
            "Assemble the ladder again from its files.",
        ),
        "BASELINE_MODEL_MISMATCH" => (
            Error,
            "Latency was compared with a baseline of a much smaller model, so no regression could show.",
            "Record a baseline of the same model and compare again.",
        ),
        "THRESHOLD_MOVED" => (
            Warn,
            "The bound was raised until a measurement that had failed passed: the gate followed the result.",
            "Set bounds before measuring, and give a reason when one is moved.",
        ),
        "REFERENCE_NOT_COMPARABLE" => (
            Warn,
            "The figure beside it comes from other prompts or another model, so the two do not compare.",
            "Embed a reference of the same prompts and verifier.",
        ),
        "DECODE_SLOPE" => (
            Warn,
            "Decoding slows down with context far more than the K/V that the model attends to can explain.",
            "Profile a decode step at the longest context: something scans or copies the whole history.",
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
        "STATUS_CONTRADICTION" => (
            Error,
            "The status says one thing, a measured field of the same file another.",
            "Derive the status from the fields, then run again.",
        ),
        "LOAD_FAILED" => (
            Error,
            "The model did not load, so nothing was measured.",
            "Fix the model's files or the loader; the stored fingerprints say where to look.",
        ),
        "CROSSHOST_IS_LOOPBACK" => (
            Error,
            "Both ends ran on one machine: the figures say nothing about a network.",
            "Run the echo on a second machine.",
        ),
        "RECALL_MISS" => (
            Warn,
            "The code was not recalled at this context length.",
            "Run an oracle there too: without one nobody knows whether eviction lost it.",
        ),
        "CODEC_NO_COMPRESSION" => (
            Warn,
            "The codec's cache is as large as the one without it: only its error was tested.",
            "Measure the bytes that are really kept.",
        ),
        "COMPONENT_SKIPPED" => {
            (Warn, "The run reports success with a part switched off.", "Run again with that part.")
        }
        "DRAFTER_FIDELITY_UNKNOWN" => (
            Warn,
            "A drafter loaded by a class that is not its own also runs forward, with wrong weights.",
            "Record whether its own architecture was loaded.",
        ),
        "FTHETA_ZERO_RECALL" => (
            Warn,
            "With f_θ alone no code is recalled: the recall of other rows comes from true K/V.",
            "Train f_θ further, and judge by the row at α = 0.",
        ),
        "NO_PER_SAMPLE" => {
            (Warn, "Recall is stored as one number; nobody can recount it.", "Keep the text of every sample.")
        }
        "TOKENS_ONLY" => (
            Warn,
            "Token ids without their tokenizer cannot be read, so recall cannot be recounted.",
            "Keep the decoded text too.",
        ),
        "KV_RESIDENT_IS_FORMULA" => (
            Warn,
            "Resident K/V is window times a constant, and leaves out the layers that keep everything.",
            "Count the bytes of the tensors that are held.",
        ),
        "S5_MODE_UNRECORDED" => (
            Warn,
            "Exact layers can carry the code past restoration; which were exact is not recorded.",
            "Record the exact layers.",
        ),
        "SKIPPED_ARM_REPORTS_ZERO" => {
            (Warn, "A zero of an arm that never ran reads as a measured failure.", "Store null.")
        }
        "MEAN_OF_RATES" => (
            Info,
            "A mean of rates favours the fast samples; tokens over time is what a user gets.",
            "Report total tokens over total time.",
        ),
        "UNIT_GIB_LABELLED_GB" => {
            (Info, "A field named GB holds GiB, 7 % more bytes.", "Name the unit that is stored.")
        }
        "SWEEP_UNORDERED" => (Info, "The rows are out of order; a curve must sort them.", "Nothing to do."),
        "MSE_FROM_ONE_SAMPLE" => (
            Info,
            "One sample does not tell how far the error varies.",
            "Average the error over several samples.",
        ),
        "FILE_RENAMED" => (
            Info,
            "The file has another name than the run gave it; other files may point to the old one.",
            "Keep the name.",
        ),
        "CROSSHOST_SIMULATED" => {
            (Info, "Delays were added in software; no network was crossed.", "Measure between two machines.")
        }
        "FEW_PROMPTS" => (Info, "Acceptance varies much between prompts.", "Use at least 20 prompts."),
        "TRAIN_SANITY_ONLY" => (
            Info,
            "A falling loss shows that training works, not that the code is recalled.",
            "Run the needle ladder with this f_θ.",
        ),
        "TRAIN_HAS_NIAH" => (
            Info,
            "Needle prompts were trained on; needle runs of like length are not held out.",
            "Test at lengths and with seeds outside the training set.",
        ),
        "NO_KIND" => {
            (Info, "The file does not say what kind it is; it was classified by its keys.", "Nothing to do.")
        }
        "NO_SCHEMA_VERSION" => (Info, "The file carries no schema version.", "Nothing to do."),
        "MEM_ZERO_READING" => (
            Error,
            "A counter that only reads zero measured nothing, so nothing follows about memory.",
            "Repair the counter and run again.",
        ),
        "SPEEDUP_AT_BROKEN_RECALL" => (
            Error,
            "Wrong answers may come at any speed; a rate counts only where recall holds.",
            "Repair recall first, then measure the speed.",
        ),
        "RUN_ERRORS" => (
            Error,
            "Figures over the requests that worked leave out those that failed.",
            "Find why requests failed and run again without errors.",
        ),
        "DECODE_RATE_IS_E2E" => (
            Warn,
            "The decode rate was derived from the end-to-end time, so prefill is still in it.",
            "Time the decode phase on its own.",
        ),
        "ADMISSION_CEILING_EXCEEDED" => (
            Warn,
            "More agents ran than the file's own formula admits, so its bytes per session are not those of the run.",
            "Measure the bytes per session and derive the ceiling from them.",
        ),
        "MEM_FOOTPRINT_SCOPE" => (
            Warn,
            "A process that holds the model cannot be smaller than half its weights: the counter looks elsewhere.",
            "Count the memory of the process, or the device, that holds weights and cache.",
        ),
        "PROXY_MODEL" => (
            Warn,
            "Memory and latency of another model say little about the one that is claimed.",
            "Measure with the claimed verifier.",
        ),
        "CAPACITY_DERIVED_NOT_MEASURED" => (
            Warn,
            "The claimed capacity comes from a formula; what was run gives less.",
            "Claim the ratio that was measured, or run as many agents as claimed.",
        ),
        "EXIT_NONZERO_NO_FAILURES" => (
            Warn,
            "The suite failed as a whole, though no test did: something outside the tests broke.",
            "Read the log of the run: coverage limits and collection errors are usual causes.",
        ),
        "PEAK_SHARED_BY_ARMS" => (
            Info,
            "One peak for both arms is the larger of the two and shows no saving.",
            "Reset the peak counter between the arms.",
        ),
        "KV_POOL_NULL" => (
            Info,
            "Without the size of the pool, memory per session cannot be worked out.",
            "Record the size of the K/V pool.",
        ),
        "OOM" => (
            Info,
            "The highest levels did not fit; capacity ends below them.",
            "Read capacity from the levels that ran.",
        ),
        "NO_RESTORATION_CONTROL" => (
            Info,
            "What is recalled here comes through the full-attention layers alone: a baseline for restoration.",
            "Set restored runs beside it.",
        ),
        "PARTIAL_RUN" => {
            (Info, "A checkpoint leaves out whatever came after it.", "Read the final report instead.")
        }
        "NO_RECALL" => {
            (Info, "Speed and memory of answers that nobody checked.", "Measure recall in the same run.")
        }
        "TESTS_SKIPPED" => (Info, "A skipped test proves nothing.", "Run the tests where they apply."),
        _ => (Info, "", ""),
    }
}
