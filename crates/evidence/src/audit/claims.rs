//! Rules on the prompts' identity, the gate and its statistics (RULES §1.2, §1.3).

use super::Case;
use crate::Finding;
use crate::json::{At, eq6, round};
use crate::model::NiahKind;
use crate::recompute::within_5pp;
use crate::stats::clopper_pearson;
use crate::text;
use serde_json::{Value, json};

pub(super) fn rules(case: &Case, out: &mut Vec<Finding>) {
    prompt_variant(case, out);
    oracle_missing(case, out);
    texts(case, out);
    oracle_floor(case, out);
    too_few(case, out);
    within(case, out);
    gate_values(case, out);
}

/// Where our own digest proves the dataset, the digest decides (see `own`); elsewhere the slope of the prompt lengths.
fn prompt_variant(case: &Case, out: &mut Vec<Finding>) {
    let Some(fit) = case.niah.prompt_fit.as_ref().filter(|_| case.niah.provenance.is_none()) else { return };
    match fit.variant {
        "unknown" => {
            let message = fit.tokens_per_line.map_or_else(
                || {
                    text!(
                        "prompt lengths fit no single number of tokens a line; the known prompts have 20 or 18",
                        "提示词长度不对应任何固定的每行词元数；已知的提示词为 20 或 18"
                    )
                },
                |line| {
                    text!(
                        "prompt lengths fit {line} tokens a line; the known prompts have 20 or 18",
                        "提示词长度对应每行 {line} 个词元；已知的提示词为 20 或 18"
                    )
                },
            );
            let data = json!({ "fp": { "tokens_per_line": fit.tokens_per_line, "overhead": fit.overhead } });
            out.push(Finding::new("DATASET_LENGTH_MISMATCH", "/config/seed", message, data));
        }
        "direct_answer_18tok" if !case.value.is_on("/config/direct_answer_prompt") => {
            let message = text!(
                "prompts have 18 tokens a line, the standard prompt has 20; the config does not say why",
                "提示词每行 18 个词元，标准提示词为 20；配置没有说明原因"
            );
            let data = json!({ "tokens_per_line": 18, "expected": 20 });
            out.push(Finding::new(
                "UNDECLARED_PROMPT_VARIANT",
                "/config/direct_answer_prompt",
                message,
                data,
            ));
        }
        _ => {}
    }
}

fn oracle_missing(case: &Case, out: &mut Vec<Finding>) {
    if case.niah.pair().is_some() {
        return;
    }
    let message = if case.niah.sut().is_some() {
        text!("the oracle arm is missing", "缺少 oracle 实验臂")
    } else {
        text!("the system under test arm is missing", "缺少受测系统的实验臂")
    };
    let data = json!({
        "has_sut": case.niah.sut().is_some(),
        "claimed_within_5pp": case.value.at("/gate/recall_delta_within_5pp"),
    });
    out.push(Finding::new("ORACLE_MISSING", "/results", message, data));
    let empty =
        case.value.at("/gate").is_none_or(|gate| gate.as_object().is_some_and(serde_json::Map::is_empty));
    if empty {
        out.push(Finding::new(
            "GATE_EMPTY",
            "/gate",
            text!("the gate block is empty", "门禁块是空的"),
            json!({}),
        ));
    }
}

fn texts(case: &Case, out: &mut Vec<Finding>) {
    let Some(paired) = &case.recomputed.paired else { return };
    let (same, n) = (paired.identical_texts, paired.n);
    if same == n {
        let message = text!(
            "both arms wrote the same text on {n} of {n} samples",
            "两个实验臂在 {n} / {n} 个样本上写出了相同的文本"
        );
        out.push(Finding::new("ARMS_TEXT_IDENTICAL", "/results", message, json!({ "same": same, "n": n })));
    } else {
        let message = text!(
            "both arms wrote the same text on {same} of {n} samples",
            "两个实验臂在 {same} / {n} 个样本上写出了相同的文本"
        );
        out.push(Finding::new("TEXT_DIVERGENCE", "/results", message, json!({ "identical": same, "n": n })));
    }
}

fn oracle_floor(case: &Case, out: &mut Vec<Finding>) {
    let Some((sut, oracle)) = case.niah.recounted() else { return };
    let n = case.niah.n;
    let pointer = format!("/results/{}", oracle.key);
    if oracle.hits == 0 {
        let message = text!(
            "the oracle recalls 0 of {n}, the arm under test {}",
            "oracle 在 {n} 个中召回 0 个，受测实验臂召回 {} 个",
            sut.hits
        );
        let data = json!({ "oracle": 0, "cross": sut.hits, "n": n });
        out.push(Finding::new("DELTA_ON_ZERO_RECALL", pointer, message, data));
    } else if 20 * u128::from(oracle.hits) < 19 * u128::from(n) {
        let retained = case.recomputed.paired.as_ref().map_or(0, |paired| paired.retained);
        let interval = clopper_pearson(retained, oracle.hits, 0.05).rounded(4);
        let message = text!(
            "the oracle recalls only {} of {n}: just those can show a loss",
            "oracle 在 {n} 个中只召回 {} 个：只有这些样本能显出损失",
            oracle.hits
        );
        let data = json!({
            "oracle_recall": oracle.recall,
            "informative_n": oracle.hits,
            "retention_cp95": [interval.low, interval.high],
        });
        out.push(Finding::new("ORACLE_WEAK", pointer, message, data));
    }
}

fn too_few(case: &Case, out: &mut Vec<Finding>) {
    let paired = case.recomputed.paired.as_ref();
    if paired.map_or(case.niah.pair().is_some(), |paired| !paired.within_5pp) {
        return;
    }
    let Some(mut finding) = too_small(case.niah.n, "/config/n_samples") else { return };
    let mut attach = |key: &str, value: Value| finding.data.insert(key.to_owned(), value);
    attach("needed_one_sided", json!(59));
    attach("needed_two_sided", json!(72));
    if let Some(paired) = paired {
        attach("loss_upper95_one_sided", json!(paired.loss_upper95));
        attach("loss_upper975", json!(paired.loss_upper975));
        finding.message.push(&text!(
            "; lost recall is bounded to {:.1} points at best",
            "；召回损失至多只能界定在 {:.1} 个百分点内",
            100.0 * paired.loss_upper95
        ));
    }
    out.push(finding);
}

/// Too few samples to bound a loss to 5 points, if they are (RULES §1.3).
pub(super) fn too_small(n: u64, pointer: &str) -> Option<Finding> {
    if n >= 72 || n == 0 {
        return None;
    }
    let flip = round(100.0 / n as f64, 2);
    let message =
        text!("n = {n}: one sample weighs {flip} points", "n = {n}：一个样本相当于 {flip} 个百分点");
    Some(Finding::new("N_TOO_SMALL", pointer, message, json!({ "n": n, "flip_pp": flip })))
}

fn within(case: &Case, out: &mut Vec<Finding>) {
    let Some((sut, oracle)) = case.niah.recounted() else { return };
    let n = case.niah.n;
    let exact = 20 * sut.hits.abs_diff(oracle.hits) == n;
    let two_sided = ("/gate/recall_delta_within_5pp", within_5pp(sut.hits, oracle.hits, n));
    let one_sided = ("/gate/v04_within_5pct_of_oracle", 20 * oracle.hits.saturating_sub(sut.hits) <= n);
    let (pointer, recomputed) = if case.value.pointer(two_sided.0).is_some() { two_sided } else { one_sided };
    if let Some(claimed) = case.value.flag(pointer).filter(|claimed| *claimed != recomputed) {
        let message = text!(
            "stored {claimed}; {}/{n} against {}/{n} gives {recomputed}",
            "存储值为 {claimed}；{}/{n} 对 {}/{n} 得出 {recomputed}",
            sut.hits,
            oracle.hits
        );
        let data = json!({ "claimed": claimed, "recomputed": recomputed });
        out.push(Finding::new("WITHIN_5PP_MISMATCH", pointer, message, data));
    }
    if exact {
        let message = text!(
            "{}/{n} against {}/{n} is exactly 5 points",
            "{}/{n} 对 {}/{n} 正好相差 5 个百分点",
            sut.hits,
            oracle.hits
        );
        out.push(Finding::new("FLOAT_BOUNDARY", "/gate", message, json!({ "delta_pp": 5.0 })));
    }
}

fn gate_values(case: &Case, out: &mut Vec<Finding>) {
    let Some((sut, oracle)) = case.niah.recounted() else { return };
    let n = case.niah.n as f64;
    let delta = sut.hits as f64 - oracle.hits as f64;
    for (field, recomputed) in [
        ("recall_delta_vs_oracle_pp", 100.0 * delta.abs() / n),
        ("v04_vs_oracle_delta", delta / n),
        ("recall_cross_model", sut.recall),
        ("recall_oracle", oracle.recall),
    ] {
        let pointer = format!("/gate/{field}");
        if let Some(claimed) = case.value.number(&pointer).filter(|claimed| !eq6(*claimed, recomputed)) {
            let message = text!(
                "{field} is stored as {claimed}; the texts give {recomputed}",
                "{field} 存储为 {claimed}；由文本得出 {recomputed}"
            );
            let data = json!({ "field": field, "claimed": claimed, "recomputed": recomputed });
            out.push(Finding::new("GATE_VALUE_MISMATCH", pointer, message, data));
        }
    }
    if case.is(NiahKind::SameCheckpoint) {
        same_checkpoint_gate(case, sut.hits, out);
    }
}

fn same_checkpoint_gate(case: &Case, hits: u64, out: &mut Vec<Finding>) {
    let n = case.niah.n;
    let mut mismatch = |field: &str| {
        let message = text!("{field} does not follow from the texts", "{field} 与文本不符");
        out.push(Finding::new(
            "GATE_VALUE_MISMATCH",
            format!("/gate/{field}"),
            message,
            json!({ "field": field }),
        ));
    };
    if case
        .value
        .flag("/gate/v04_recall_ge_0_95")
        .is_some_and(|claimed| claimed != (20 * u128::from(hits) >= 19 * u128::from(n)))
    {
        mismatch("v04_recall_ge_0_95");
    }
    let Some(baseline) = case.niah.arm("v03_sink_window") else { return };
    let gain = (hits as f64 - baseline.hits as f64) / n as f64;
    let wrong_gain =
        case.value.number("/gate/v04_vs_v03_improvement").is_some_and(|claimed| !close(claimed, gain));
    let wrong_order =
        case.value.flag("/gate/v04_dominates_v03").is_some_and(|claimed| claimed != (hits > baseline.hits));
    if wrong_gain || wrong_order {
        mismatch("v04_vs_v03");
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12_f64.max(1e-9 * a.abs().max(b.abs()))
}

/// The codes in `/gate/evidence_violations`, null for an entry without one; None when the field is absent or null.
pub(super) fn stored_violations(value: &Value) -> Option<Vec<Option<&str>>> {
    let list = value.list("/gate/evidence_violations")?;
    Some(list.iter().map(|entry| entry.text("/code")).collect())
}
