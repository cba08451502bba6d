//! Rules on our own blocks: counters and digests prove what names and flags cannot.

use super::Case;
use crate::Finding;
use crate::json::{At, eq};
use crate::model::{Distance, NiahKind, dataset_digest};
use crate::text;
use serde_json::json;

/// Hostile bounds must not keep the audit busy: longer datasets (some 500 MB of text) are not hashed.
const REGENERATE_LINES: u64 = 8_000_000;

pub(super) fn rules(case: &Case, out: &mut Vec<Finding>) {
    counters(case, out);
    dataset(case, out);
    control(case, out);
    fidelity(case, out);
    teacher_forced(case, out);
}

/// Every evicted position of every layer of the arm under test must have been injected.
fn counters(case: &Case, out: &mut Vec<Finding>) {
    let Some(sut) = case.niah.sut().filter(|_| case.niah.provenance.is_some()) else { return };
    let pointer = format!("/restoration/{}", sut.key);
    let message = match case.niah.restored(&sut.key) {
        None => text!("{} has no restoration counters", "{} 没有恢复计数器", sut.key),
        Some(counters) if counters.evicted_positions == 0 => {
            text!(
                "{}: the prompts fit into sink and window; nothing was evicted",
                "{}：提示词完全放得进 sink 和窗口；没有位置被逐出",
                sut.key
            )
        }
        Some(counters) if !counters.is_complete() => {
            let short = counters.layers.iter().find(|layer| layer.injected() != counters.evicted_positions);
            let (layer, got) = short.map_or((0, 0), |layer| (layer.layer, layer.injected()));
            text!(
                "{}: layer {layer} got {got} of {} evicted positions",
                "{}：第 {layer} 层注入了 {got} 个被逐出的位置，应为 {} 个",
                sut.key,
                counters.evicted_positions
            )
        }
        Some(_) => return,
    };
    out.push(Finding::new("RESTORATION_NOT_EXECUTED", pointer, message, json!({ "arm": sut.key })));
}

/// The regenerated prompts, in the recorded variant, must have the recorded digest.
fn dataset(case: &Case, out: &mut Vec<Finding>) {
    let Some(provenance) = &case.niah.provenance else { return };
    let recorded = &provenance.dataset;
    let lines: u64 = case.niah.samples.iter().map(|sample| u64::from(sample.padding_lines)).sum();
    if lines > REGENERATE_LINES {
        return;
    }
    let regenerated = dataset_digest(&case.niah.samples, recorded.prompt_variant);
    if regenerated != recorded.sha256 {
        let message = text!(
            "the prompts of the recorded seed and bounds do not have the recorded digest",
            "由所记录的种子和行数范围生成的提示词，其摘要与所记录的不符"
        );
        let data = json!({ "claimed": recorded.sha256, "recomputed": regenerated });
        out.push(Finding::new("DATASET_LENGTH_MISMATCH", "/provenance/dataset/sha256", message, data));
    }
}

/// A control that recalls as much as the arm under test: what the control leaves out carries nothing.
fn control(case: &Case, out: &mut Vec<Finding>) {
    let Some(sut) = case.niah.sut().filter(|sut| sut.hits > 0) else { return };
    let controls = ["sink_window", "no_restoration", "random_restoration", "v03_sink_window"];
    for arm in controls.iter().filter_map(|key| case.niah.arm(key)).filter(|arm| arm.hits >= sut.hits) {
        let message = text!(
            "{} recalls {}/{}, the restored arm {}/{}",
            "{} 召回 {}/{}，恢复实验臂召回 {}/{}",
            arm.key,
            arm.hits,
            arm.n,
            sut.hits,
            sut.n
        );
        let pointer = format!("/results/{}", arm.key);
        let data = json!({ "arm": arm.key, "hits": arm.hits, "restored": sut.hits });
        out.push(Finding::new("RESTORATION_NOT_LOAD_BEARING", pointer, message, data));
    }
}

/// Means and worst cases follow from the samples.
fn fidelity(case: &Case, out: &mut Vec<Finding>) {
    for arm in &case.niah.fidelity {
        let values = |pick: fn(&Distance) -> f64| arm.samples.iter().map(pick).collect::<Vec<_>>();
        let follows = |pick: fn(&Distance) -> f64| {
            let values = values(pick);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let worst = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            eq(pick(&arm.mean), mean) && eq(pick(&arm.worst), worst)
        };
        if !(follows(|distance| distance.max_abs_logit_difference) && follows(|distance| distance.kl)) {
            let message = text!(
                "{}: mean or worst distance does not follow from the samples",
                "{}：平均或最差距离与各样本不符",
                arm.key
            );
            let pointer = format!("/fidelity/{}", arm.key);
            out.push(Finding::new("FIDELITY_STAT_MISMATCH", pointer, message, json!({ "arm": arm.key })));
        }
    }
}

/// On the Mac's kind the rule is the reference's own (see `mac`).
fn teacher_forced(case: &Case, out: &mut Vec<Finding>) {
    if case.value.is_on("/config/teacher_forced") && !case.is(NiahKind::CrossModelMac) {
        let message = text!("the answer was fed whatever was predicted", "无论预测了什么，喂入的都是答案");
        out.push(Finding::new("TEACHER_FORCED", "/config/teacher_forced", message, json!({})));
    }
}
