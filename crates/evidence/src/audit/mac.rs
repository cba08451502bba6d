//! Rules on `k3_integrated_niah_acceptance_mac` (RULES §1.6).

use super::claims::stored_violations;
use super::{Case, repo_gate, schema};
use crate::Finding;
use crate::json::{At, round};
use crate::model::NiahKind;
use crate::normalise::stage_rows;
use crate::recompute::{Analytic, row_prefill};
use crate::text;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const CROSS: &str = "k3_cross_model";
const ORACLE: &str = "oracle_native_ar";
/// Restoring thousands of tokens takes seconds; below this nothing ran (RULES §8).
const RESTORED_AT_LEAST_S: f64 = 0.05;

pub(super) fn rules(case: &Case, out: &mut Vec<Finding>) {
    if !case.is(NiahKind::CrossModelMac) {
        return;
    }
    mode(case, out);
    let never_ran = never_ran(case, out);
    let not_restored = not_restored(case, out);
    budget(case, out);
    spreads(case, out);
    other_drafter(case.value, out);
    let excluded = [(CROSS, CROSS, "cross"), (ORACLE, "oracle", "oracle")]
        .map(|(block, key, arm)| timing(case, [block, key, arm], out));
    decode_only(case, out);
    speedup(case, never_ran || not_restored, excluded.into_iter().flatten().next(), out);
    memory(case, never_ran || not_restored, out);
    violations(case, out);
    lossless(case, out);
}

fn mode(case: &Case, out: &mut Vec<Finding>) {
    let value = case.value;
    if stage_rows(value, CROSS).is_empty() {
        let pointer = "/throughput/k3_cross_model/stage_timings";
        out.push(Finding::new(
            "MISSING_STAGE_TIMINGS",
            pointer,
            text!("no stage timings are recorded", "没有记录分阶段计时"),
            json!({}),
        ));
    }
    if value.is_on("/config/teacher_forced") || value.text("/config/eval_mode") == Some("teacher_forced") {
        out.push(Finding::new(
            "TEACHER_FORCED",
            "/config/eval_mode",
            text!("the answer was in the input", "答案就在输入里"),
            json!({}),
        ));
    }
    if value.pointer("/config/eval_mode").is_none() {
        out.push(Finding::new(
            "EVAL_MODE_UNRECORDED",
            "/config/eval_mode",
            text!("no evaluation mode is recorded", "没有记录评估模式"),
            json!({}),
        ));
    }
}

fn fused(case: &Case) -> bool {
    case.value.text("/config/eval_mode") == Some("free_gen_fused_specdecode")
}

fn never_ran(case: &Case, out: &mut Vec<Finding>) -> bool {
    let rows = stage_rows(case.value, CROSS);
    if !fused(case) || rows.is_empty() || repo_gate::blocks(rows) != 0.0 {
        return false;
    }
    let modes: BTreeSet<&str> = rows.iter().filter_map(|row| row.text("/fused/adaptive_mode")).collect();
    let data = json!({ "blocks": 0, "adaptive_mode": modes });
    out.push(Finding::new(
        "SUT_NEVER_RAN",
        "/throughput/k3_cross_model",
        text!("the fused engine produced 0 blocks", "融合引擎产生了 0 个块"),
        data,
    ));
    true
}

/// Inferred from timing, for files without counters; counters decide where there are any (see `own`).
fn not_restored(case: &Case, out: &mut Vec<Finding>) -> bool {
    if !case.niah.s5 || case.niah.provenance.is_some() {
        return false;
    }
    let seconds: Vec<f64> =
        stage_rows(case.value, CROSS).iter().filter_map(|row| row.number("/build_restoration_s")).collect();
    let Some(longest) = seconds.iter().copied().reduce(f64::max).filter(|max| *max < RESTORED_AT_LEAST_S)
    else {
        return false;
    };
    let tokens = case.niah.prompt_tokens_max;
    let message = text!(
        "building the restoration took at most {longest} s for prompts of up to {} tokens",
        "建立恢复至多用了 {longest} 秒，而提示词长达 {} 个词元",
        tokens.unwrap_or(0)
    );
    let data =
        json!({ "build_restoration_s_max": longest, "n_rows": seconds.len(), "prompt_tokens_max": tokens });
    let pointer = "/throughput/k3_cross_model/stage_timings/0/build_restoration_s";
    out.push(Finding::new("RESTORATION_NOT_EXECUTED", pointer, message, data));
    true
}

fn budget(case: &Case, out: &mut Vec<Finding>) {
    let Some(tokens) = case.niah.max_new_tokens else { return };
    let counted = case.niah.sut().is_some() && case.niah.n > 0;
    let code = match tokens {
        0..6 if counted => "GEN_BUDGET_TOO_SMALL",
        0..=8 => "GEN_BUDGET_TIGHT",
        _ => return,
    };
    let message =
        text!("{tokens} new tokens; a code needs 6 to 8", "只有 {tokens} 个新词元；一个代号需要 6 到 8 个");
    out.push(Finding::new(code, "/config/max_new_tokens", message, json!({ "max_new_tokens": tokens })));
}

fn spreads(case: &Case, out: &mut Vec<Finding>) {
    let Some(spreads) = case.recomputed.spreads else { return };
    for (code, arm, ratio, limit) in [
        ("PREFILL_SPREAD", "cross", spreads.cross_prefill, 3.0),
        ("PREFILL_SPREAD", "oracle", spreads.oracle_prefill, 3.0),
        ("DECODE_SPREAD", "cross", spreads.cross_decode, 2.0),
        ("DECODE_SPREAD", "oracle", spreads.oracle_decode, 2.0),
    ] {
        if let Some(ratio) = ratio.filter(|ratio| *ratio > limit) {
            let block = if arm == "cross" { CROSS } else { ORACLE };
            let message = text!(
                "{arm}: the slowest sample took {ratio}× the fastest",
                "{arm}：最慢样本的用时是最快样本的 {ratio} 倍"
            );
            let pointer = format!("/throughput/{block}/stage_timings");
            out.push(Finding::new(code, pointer, message, json!({ "arm": arm, "ratio": ratio })));
        }
    }
}

/// f_θ ran with another drafter than the one that it was trained on (RULES §1.7, §8).
pub(super) fn other_drafter(value: &Value, out: &mut Vec<Finding>) {
    let Some((drafter, f_theta)) = value.text("/config/drafter_id").zip(value.text("/config/f_theta_dir"))
    else {
        return;
    };
    if !drafter.contains("kakeya-baseline") && f_theta.contains("v5") {
        let message = text!(
            "{f_theta} was trained on the kakeya-baseline drafter; {drafter} ran",
            "{f_theta} 是用 kakeya-baseline 草稿模型训练的；运行的却是 {drafter}"
        );
        let data = json!({ "drafter": drafter, "f_theta": f_theta });
        out.push(Finding::new("FTHETA_DRAFTER_MISMATCH", "/config/drafter_id", message, data));
    }
}

/// Sums and rates of one arm's throughput block. Returns the true end-to-end rate when the wall time leaves prefill out.
fn timing(case: &Case, [block_key, key, arm]: [&str; 3], out: &mut Vec<Finding>) -> Option<f64> {
    let pointer = format!("/throughput/{block_key}");
    let block = case.value.at(&pointer)?;
    let tokens: Option<f64> =
        case.result(key).numbers("/per_sample_decode_tokens").map(|tokens| tokens.iter().sum());
    let wall = block.number("/wall_seconds");
    if let Some((claimed, sum)) = block.number("/tokens").zip(tokens).filter(|(claimed, sum)| claimed != sum)
    {
        let message = text!(
            "{arm}: {claimed} tokens stored, the samples sum to {sum}",
            "{arm}：存储为 {claimed} 个词元，各样本之和为 {sum}"
        );
        let data = json!({ "arm": arm, "claimed": claimed, "recomputed": sum });
        out.push(Finding::new("TOKENS_SUM_MISMATCH", format!("{pointer}/tokens"), message, data));
    }
    if let (Some(claimed), Some(sum), Some(wall)) = (block.number("/tokens_per_second"), tokens, wall) {
        let rate = sum / wall;
        if wall != 0.0 && (rate - claimed).abs() > 2e-3 * rate.max(0.1) {
            let message = text!(
                "{arm}: {claimed} tokens/s stored, tokens over wall time give {rate:.4}",
                "{arm}：存储为 {claimed} 词元/秒，词元数除以总时间得 {rate:.4}"
            );
            let data = json!({ "arm": arm, "claimed": claimed, "recomputed": round(rate, 4) });
            out.push(Finding::new("TOK_S_MISMATCH", format!("{pointer}/tokens_per_second"), message, data));
        }
    }
    wall_scope(stage_rows(case.value, block_key), wall?, tokens, arm, &pointer, out)
}

fn wall_scope(
    rows: &[Value],
    wall: f64,
    tokens: Option<f64>,
    arm: &str,
    pointer: &str,
    out: &mut Vec<Finding>,
) -> Option<f64> {
    if rows.is_empty() {
        return None;
    }
    let sum = |key: &str| rows.iter().filter_map(|row| row.number(key)).sum::<f64>();
    let pointer = format!("{pointer}/wall_seconds");
    if rows.iter().all(|row| row.number("/e2e_s").is_some()) {
        let total = sum("/e2e_s");
        if (total - wall).abs() > 0.02 {
            let message = text!(
                "{arm}: {wall} s stored, the samples sum to {total:.3} s",
                "{arm}：存储为 {wall} 秒，各样本之和为 {total:.3} 秒"
            );
            let data = json!({ "arm": arm, "claimed": wall, "recomputed": round(total, 3) });
            out.push(Finding::new("WALL_MISMATCH", pointer, message, data));
        }
        return None;
    }
    if (sum("/decode_s") - wall).abs() >= 0.02 {
        return None;
    }
    let prefill: f64 = rows.iter().filter_map(row_prefill).sum();
    let total = prefill + sum("/decode_s") + sum("/build_restoration_s") + sum("/aux_prompt_capture_s");
    let rate = round(tokens? / Some(total).filter(|total| *total > 0.0)?, 4);
    let message = text!(
        "{arm}: the wall time of {wall} s is decoding alone; with prefill it is {total:.3} s",
        "{arm}：总时间 {wall} 秒只含解码；加上预填充为 {total:.3} 秒"
    );
    let data = json!({ "arm": arm, "wall_seconds": wall, "true_e2e_s": round(total, 3), "true_tok_s": rate });
    out.push(Finding::new("PREFILL_EXCLUDED_FROM_WALL", pointer, message, data));
    Some(rate)
}

fn decode_only(case: &Case, out: &mut Vec<Finding>) {
    let pointer = "/throughput/decode_only";
    let Some((stored, again)) = case.value.at(pointer).zip(case.recomputed.decode_only) else { return };
    let differs = |key: &str, want: f64| stored.number(key) != Some(want);
    if differs("/cross_median_tok_s", again.cross_median_tok_s)
        || differs("/oracle_median_tok_s", again.oracle_median_tok_s)
        || differs("/speedup", again.speedup)
    {
        let message = text!(
            "the rows give a decode-only ratio of {}",
            "由逐行数据得出的仅解码比值为 {}",
            again.speedup
        );
        let data = json!({ "claimed": stored, "recomputed": again });
        out.push(Finding::new("DECODE_ONLY_MISMATCH", pointer, message, data));
    }
}

fn speedup(case: &Case, same_path: bool, true_rate: Option<f64>, out: &mut Vec<Finding>) {
    let value = case.value;
    let Some(claimed) = case.recomputed.claimed_speedup else { return };
    let pointer = "/throughput/cross_model_speedup_vs_oracle_ar";
    let rate = |block: &str| value.number(&format!("/throughput/{block}/tokens_per_second"));
    if let Some((cross, oracle)) = rate(CROSS).zip(rate(ORACLE)).filter(|(_, oracle)| *oracle != 0.0) {
        let again = round(cross / oracle, 3);
        if (again - claimed).abs() > 0.002 {
            let message = text!(
                "a speed-up of {claimed} is stored, the rates give {again}",
                "存储的加速比为 {claimed}，由速率得出 {again}"
            );
            let data = json!({ "claimed": claimed, "recomputed": again });
            out.push(Finding::new("SPEEDUP_MISMATCH", pointer, message, data));
        }
    }
    if repo_gate::blocks(stage_rows(value, CROSS)) == 0.0 && same_path {
        let message = text!(
            "the speed-up of {claimed} compares the native path with itself",
            "加速比 {claimed} 是原生路径与其自身比较的结果"
        );
        out.push(Finding::new("SPEEDUP_SELF_COMPARISON", pointer, message, json!({ "claimed": claimed })));
    }
    if let Some((rate, oracle)) = true_rate.zip(rate(ORACLE)).filter(|(_, oracle)| *oracle != 0.0) {
        let again = round(rate / oracle, 3);
        let message = text!(
            "the speed-up of {claimed} leaves prefill out of one arm; end to end it is {again}",
            "加速比 {claimed} 在一个实验臂中漏掉了预填充；端到端为 {again}"
        );
        let data = json!({ "claimed": claimed, "true_e2e_speedup": again });
        out.push(Finding::new("SPEEDUP_SCOPE_MISMATCH", pointer, message, data));
    }
}

fn memory(case: &Case, same_path: bool, out: &mut Vec<Finding>) {
    let value = case.value;
    if value.at("/memory/s5").is_none() {
        return;
    }
    memory_sums(value, out);
    let table = case.recomputed.analytic.as_ref();
    if let Some(table) = table {
        memory_claims(value, table, out);
    }
    memory_scope(value, table, out);
    if same_path {
        let message = text!(
            "the run used the native cache; the formula describes another",
            "这次运行用的是原生缓存；公式描述的是另一种缓存"
        );
        let data = json!({ "claimed_savings_pct": value.number(SAVINGS) });
        out.push(Finding::new("MEM_FORMULA_NOT_THE_RUN", "/memory/s5", message, data));
    }
}

const SAVINGS: &str = "/memory/savings_vs_naive_pct";

/// The stored saving and the stored unbounded cache against the table.
fn memory_claims(value: &Value, table: &Analytic, out: &mut Vec<Finding>) {
    let savings = value.number(SAVINGS).zip(table.savings_pct);
    if let Some((claimed, again)) = savings.filter(|(claimed, again)| claimed != again) {
        let message = text!(
            "a saving of {claimed} % is stored, the table gives {again} %",
            "存储的节省为 {claimed} %，由表格得出 {again} %"
        );
        let data = json!({ "claimed": claimed, "recomputed": again });
        out.push(Finding::new("SAVINGS_MISMATCH", SAVINGS, message, data));
    }
    let naive_mb = megabytes(table.naive);
    let pointer = "/memory/naive_full_kv/total_resident_mb";
    if let Some(claimed) = value.number(pointer).filter(|claimed| *claimed != naive_mb) {
        let message = text!(
            "{claimed} MB is stored for the unbounded cache, the table gives {naive_mb}",
            "无界缓存存储为 {claimed} MB，由表格得出 {naive_mb}"
        );
        let data = json!({ "claimed": claimed, "recomputed": naive_mb });
        out.push(Finding::new("NAIVE_MISMATCH", pointer, message, data));
    }
}

/// What a formula is worth; null where the table does not add up to a number.
fn memory_scope(value: &Value, table: Option<&Analytic>, out: &mut Vec<Finding>) {
    let formula_mb = table.map(|table| megabytes(table.total));
    let data = json!({
        "claimed_savings_pct": value.number(SAVINGS),
        "formula_mb": formula_mb,
        "measured_peak_mb": value.at("/memory/measured_peak_mb"),
        "formula_matches_run": value.at("/memory/s5/formula_matches_run"),
    });
    let message = formula_mb.map_or_else(
        || text!("the resident K/V is a formula", "常驻 K/V 是公式"),
        |mb| text!("the resident K/V of {mb} MB is a formula", "常驻 K/V {mb} MB 是公式"),
    );
    out.push(Finding::new("MEM_ANALYTIC", "/memory/s5", message, data));
    let data = json!({
        "naive_mb": table.map(|table| megabytes(table.naive)),
        "native_hybrid_mb": table.map(|table| megabytes(table.native)),
        "savings_vs_native_pct": table.and_then(|table| table.savings_vs_native_pct),
    });
    let shown = table.and_then(|table| Some((megabytes(table.native), table.savings_vs_native_pct?)));
    let message = shown.map_or_else(
        || {
            text!(
                "the saving is against a cache larger than the model's own",
                "节省是相对于比模型自身更大的缓存而言的"
            )
        },
        |(mb, saving)| {
            text!(
                "against the model's native cache of {mb} MB the saving is {saving} %",
                "相对于模型 {mb} MB 的原生缓存，节省为 {saving} %"
            )
        },
    );
    out.push(Finding::new("MEM_BASELINE_INFLATED", "/memory/naive_full_kv", message, data));
}

/// 10⁶ bytes, 2 decimals.
fn megabytes(bytes: f64) -> f64 {
    round(bytes / 1e6, 2)
}

fn memory_sums(value: &Value, out: &mut Vec<Finding>) {
    let Some(layers) = value.list("/memory/s5/per_layer") else { return };
    let sum = |wanted: Option<bool>| -> f64 {
        let chosen = layers.iter().filter(|layer| wanted.is_none() || layer.flag("/exact") == wanted);
        chosen.filter_map(|layer| layer.number("/resident_bytes")).sum()
    };
    let differs =
        |key: &str, want: f64| value.number(&format!("/memory/s5/{key}")).is_some_and(|got| got != want);
    if differs("total_resident_bytes", sum(None))
        || differs("sliding_resident_bytes", sum(Some(false)))
        || differs("full_resident_bytes", sum(Some(true)))
    {
        let message = text!("resident bytes are not the sum of the layers", "常驻字节数不等于各层之和");
        out.push(Finding::new("MEM_SUM_MISMATCH", "/memory/s5/total_resident_bytes", message, json!({})));
    }
}

fn violations(case: &Case, out: &mut Vec<Finding>) {
    let Some(stored) = stored_violations(case.value) else { return };
    let again = case.recomputed.repo_gate_codes.clone().unwrap_or_default();
    if !stored.iter().copied().eq(again.iter().copied().map(Some)) {
        let unnamed = text!("an entry without a code", "没有代码的条目");
        let named = |language| -> Vec<&str> {
            stored.iter().map(|code| code.unwrap_or_else(|| unnamed.said(language))).collect()
        };
        let message = text!(
            language => "stored violations {:?}, the reference's gate gives {again:?}",
            "存储的违规为 {:?}，参考实现的门禁得出 {again:?}",
            named(language)
        );
        let data = json!({ "claimed": stored, "recomputed": again });
        out.push(Finding::new("EVIDENCE_VIOLATIONS_MISMATCH", "/gate/evidence_violations", message, data));
    }
}

fn lossless(case: &Case, out: &mut Vec<Finding>) {
    let Some((sut, oracle)) = case.niah.pair() else { return };
    if !fused(case) || schema(case.value).is_none_or(|version| version < 2) {
        return;
    }
    let differing: Vec<usize> =
        sut.rows.iter().zip(&oracle.rows).filter(|(s, o)| s.text != o.text).map(|(s, _)| s.index).collect();
    if !differing.is_empty() {
        let tokens = |arm: &str| case.result(arm).at("/per_sample_decode_tokens");
        let message = text!(
            "speculative texts differ from the greedy ones in samples {differing:?}",
            "样本 {differing:?} 的推测解码文本与贪心解码不同"
        );
        let data =
            json!({ "samples": differing, "tokens_cross": tokens(CROSS), "tokens_oracle": tokens("oracle") });
        out.push(Finding::new("LOSSLESS_VIOLATION", "/results/k3_cross_model", message, data));
    }
}
