//! `k2a_production_smoke_ladder_mac`: one run for each context length, copied from its own report.

use super::{Case, Family, Summary, no_gate, no_oracle, rows};
use crate::Finding;
use crate::audit::claims::too_small;
use crate::audit::kinds::GIB;
use crate::json::{At, eq, round};
use crate::text;
use serde_json::{Value, json};

pub(super) const FAMILY: Family =
    Family { holds: |shape| shape == "k2a_production_smoke_ladder_mac", summary, rules, verdict: no_gate };

const SAMPLES: &str = "/rungs/0/metrics/samples_total";

fn summary(case: &Case) -> Summary {
    let rungs = case.value.list("/rungs");
    let recall = |rung: &Value| {
        let ctx = rung.at("/ctx_lines")?;
        Some((format!("ctx{ctx}"), rung.number("/metrics/recall")))
    };
    Summary {
        n: case.value.whole(SAMPLES),
        recall: rungs.map(|rungs| rungs.iter().filter_map(recall).collect()),
        claimed: rungs.map(|rungs| rungs.iter().map(claimed).collect()),
    }
}

/// The rung's own summary behind its context length.
fn claimed(rung: &Value) -> Value {
    let mut claimed = json!({ "ctx": rung.at("/ctx_lines") });
    for (key, value) in rung.at("/summary").and_then(Value::as_object).into_iter().flatten() {
        claimed[key] = value.clone();
    }
    claimed
}

fn rules(case: &Case, out: &mut Vec<Finding>) {
    for (pointer, rung) in rows(case.value, "/rungs") {
        recall(&pointer, rung, out);
        memory(&pointer, rung, out);
        latency(&pointer, rung, out);
    }
    every_rung(case.value, out);
    no_oracle("/rungs", out);
    out.extend(case.value.whole(SAMPLES).and_then(|n| too_small(n, SAMPLES)));
}

fn recall(pointer: &str, rung: &Value, out: &mut Vec<Finding>) {
    if let Some(recall) = rung.number("/metrics/recall").filter(|recall| *recall < 1.0) {
        let ctx = rung.at("/ctx_lines");
        let message = ctx.map_or_else(
            || text!("recall is {recall}", "召回率为 {recall}"),
            |lines| text!("recall is {recall} at {lines} lines", "召回率为 {recall}（{lines} 行）"),
        );
        let data = json!({ "ctx": ctx });
        out.push(Finding::new("RECALL_MISS", format!("{pointer}/metrics/recall"), message, data));
    }
}

fn memory(pointer: &str, rung: &Value, out: &mut Vec<Finding>) {
    let Some(bytes) = rung.number("/metrics/driver_allocated_bytes") else { return };
    let (gib, ctx) = (round(bytes / GIB, 2), rung.at("/ctx_lines"));
    let under = bytes < 24.0 * GIB;
    if !under {
        let message =
            text!("the driver holds {gib} GiB, the machine has 24", "驱动占用 {gib} GiB，机器有 24");
        let pointer = format!("{pointer}/metrics/driver_allocated_bytes");
        out.push(Finding::new("MEM_OVER_24GIB", pointer, message, json!({ "ctx": ctx, "driver_gib": gib })));
    }
    if let Some(claimed) = rung.flag("/summary/memory_under_24gb").filter(|claimed| *claimed != under) {
        let message = text!(
            "under 24 GiB is stored as {claimed}, the driver holds {gib} GiB",
            "“低于 24 GiB”存储为 {claimed}，而驱动占用 {gib} GiB"
        );
        let data = json!({ "field": "memory_under_24gb", "ctx": ctx });
        let pointer = format!("{pointer}/summary/memory_under_24gb");
        out.push(Finding::new("GATE_VALUE_MISMATCH", pointer, message, data));
    }
}

fn latency(pointer: &str, rung: &Value, out: &mut Vec<Finding>) {
    let number = |key: &str| rung.number(&format!("/metrics/{key}"));
    let (Some(mean), Some(tokens), Some(claimed)) =
        (number("mean_latency_s"), number("decode_tokens"), number("sec_per_token"))
    else {
        return;
    };
    if tokens != 0.0 && (mean / tokens - claimed).abs() > 1e-9 {
        let message = text!(
            "{claimed} s a token is stored, {mean} s for {tokens} tokens is another",
            "存储为每词元 {claimed} 秒，而 {mean} 秒除以 {tokens} 个词元并非此值"
        );
        let pointer = format!("{pointer}/metrics/sec_per_token");
        out.push(Finding::new("LATENCY_STAT_MISMATCH", pointer, message, json!({})));
    }
}

/// What shows only when all rungs are alike.
fn every_rung(value: &Value, out: &mut Vec<Finding>) {
    let rungs = value.list("/rungs").unwrap_or_default();
    let every = |test: fn(&Value) -> bool| !rungs.is_empty() && rungs.iter().all(test);
    if every(|rung| rung.number("/metrics/effective_attention_fraction") == Some(1.0)) {
        let message = text!(
            "the attention fraction of every rung is 1.0: a length divided by itself",
            "每个梯级的注意力比例都是 1.0：一个长度除以它自己"
        );
        let pointer = "/rungs/0/metrics/effective_attention_fraction";
        out.push(Finding::new("ARCH_GATE_TAUTOLOGY", pointer, message, json!({ "value": 1.0 })));
    }
    if every(labelled_gb) {
        let message = text!(
            "driver_allocated_gb holds GiB: times 2³⁰ it is the bytes",
            "driver_allocated_gb 存的是 GiB：乘以 2³⁰ 即为字节数"
        );
        let data = json!({ "field": "driver_allocated_gb" });
        let pointer = "/rungs/0/metrics/driver_allocated_gb";
        out.push(Finding::new("UNIT_GIB_LABELLED_GB", pointer, message, data));
    }
}

fn labelled_gb(rung: &Value) -> bool {
    let labelled = rung.number("/metrics/driver_allocated_gb");
    let bytes = rung.number("/metrics/driver_allocated_bytes");
    labelled.zip(bytes).is_some_and(|(gb, bytes)| eq(gb * GIB, bytes))
}
