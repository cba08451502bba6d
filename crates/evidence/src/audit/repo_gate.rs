//! The reference's own gate on Mac files, in its order (EVIDENCE §3.1). Its codes are a vocabulary of their own.

use super::schema;
use crate::json::{At, spread};
use crate::normalise::stage_rows;
use crate::recompute::row_prefill;
use serde_json::Value;

/// Codes that the reference's gate reports; `as_schema` reads the file as if it had that version.
pub(crate) fn repo_gate(value: &Value, as_schema: Option<i64>) -> Vec<&'static str> {
    if as_schema.or_else(|| schema(value)).is_none_or(|version| version < 2) {
        return vec!["LEGACY_SCHEMA"];
    }
    let rows = stage_rows(value, "k3_cross_model");
    let flags: Vec<Option<bool>> = rows.iter().map(|row| row.at("/restoration_active").map(truthy)).collect();
    let known: Vec<bool> = flags.iter().flatten().copied().collect();
    let all_active = !known.is_empty() && known.iter().all(|active| *active);
    let none_active = !known.is_empty() && known.iter().all(|active| !*active);
    let recall_claimed = value.at("/gate/recall_cross_model").is_some();
    let mut codes = Vec::new();
    let mut fire = |code, fires: bool| codes.extend(fires.then_some(code));
    fire("MISSING_STAGE_TIMINGS", rows.is_empty());
    fire("MISSING_RESTORATION_FLAG", flags.iter().any(Option::is_none));
    fire("MIXED_RESTORATION_PATHS", !known.is_empty() && !all_active && !none_active);
    let declared_baseline =
        value.text("/results/k3_cross_model/system_under_test") == Some("native_ar_baseline");
    fire("BASELINE_AS_SUT", none_active && !declared_baseline);
    fire("BASELINE_RECALL_CLAIM", none_active && recall_claimed);
    fire("RECALL_SCOPE", recall_claimed && !all_active);
    let fused = value.text("/config/eval_mode") == Some("free_gen_fused_specdecode");
    fire("FUSED_NEVER_RAN", fused && blocks(rows) <= 0.0);
    if value.at("/throughput/cross_model_speedup_vs_oracle_ar").is_some() {
        codes.extend(speedup(value, rows, none_active));
    }
    let saved = value.at("/memory/savings_vs_naive_pct").is_some();
    if saved && !value.is_on("/memory/s5/formula_matches_run") {
        codes.push("MEMORY_CLAIM_MISMATCH");
    }
    codes
}

/// Python's truth of a JSON value.
pub(super) fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// Blocks of speculative decoding in all; missing counts as 0, true as 1.
pub(super) fn blocks(rows: &[Value]) -> f64 {
    rows.iter()
        .filter_map(|row| row.at("/fused/blocks"))
        .map(|blocks| blocks.as_f64().unwrap_or_else(|| f64::from(u8::from(blocks.as_bool() == Some(true)))))
        .sum()
}

fn speedup(value: &Value, rows: &[Value], none_active: bool) -> Vec<&'static str> {
    let oracle_rows = stage_rows(value, "oracle_native_ar");
    let mut codes = Vec::new();
    let mut fire = |code, fires: bool| codes.extend(fires.then_some(code));
    fire("SPEEDUP_SELF_COMPARISON", none_active);
    fire("SPEEDUP_SAMPLES", rows.len() < 5 || oracle_rows.len() < 5);
    let tokens = |arm: &str| {
        let tokens = value.numbers(&format!("/results/{arm}/per_sample_decode_tokens"))?;
        crate::json::median(&tokens)
    };
    let enough = tokens("k3_cross_model")
        .zip(tokens("oracle"))
        .is_some_and(|(cross, oracle)| cross.min(oracle) >= 32.0);
    fire("SPEEDUP_DECODE_TOKENS", !enough);
    fire("SPEEDUP_DECODE_ONLY_MISSING", value.at("/throughput/decode_only/speedup").is_none());
    let scope = |block: &str| value.at(&format!("/throughput/{block}/timing_scope"));
    fire("SPEEDUP_SCOPE_MISMATCH", scope("k3_cross_model") != scope("oracle_native_ar"));
    let oracle_loop = value.text("/throughput/oracle_native_ar/decode_loop");
    fire("SPEEDUP_ORACLE_LOOP", oracle_loop != Some("generate_step"));
    for arm_rows in [rows, oracle_rows] {
        let wide = spread(arm_rows.iter().filter_map(row_prefill)).is_some_and(|ratio| ratio > 3.0);
        fire("SPEEDUP_PREFILL_VARIANCE", wide);
    }
    codes
}
