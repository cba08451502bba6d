//! How many agents fit: load test, memory pressure, deployment benchmark.

use super::{Case, Family, Summary, no_gate, rows};
use crate::Finding;
use crate::json::{At, round};
use crate::text;
use serde_json::{Map, Value, json};

pub(super) const LOAD_TEST: Family = Family {
    holds: |shape| shape == "grpc_agent_capacity_loadtest",
    summary: |_| Summary::default(),
    rules: load_test,
    verdict: no_gate,
};

pub(super) const PRESSURE: Family = Family {
    holds: |shape| shape == "mlx_multitenant_pressure",
    summary: |_| Summary::default(),
    rules: pressure,
    verdict: no_gate,
};

pub(super) const DEPLOYMENT: Family = Family {
    holds: |shape| shape == "mlx_kakeya_deployment_benchmark",
    summary: |_| Summary::default(),
    rules: deployment,
    verdict: no_gate,
};

fn load_test(case: &Case, out: &mut Vec<Finding>) {
    let pointer = "/config/verifier_id";
    if let Some(verifier) = case.value.text(pointer).filter(|verifier| !verifier.contains("gemma-4")) {
        let message = text!(
            "{verifier} was measured, not the verifier of the claim",
            "测量的是 {verifier}，不是所声明的验证模型"
        );
        let data = json!({ "verifier": verifier, "backend": case.value.at("/config/backend") });
        out.push(Finding::new("PROXY_MODEL", pointer, message, data));
    }
    let pointer = "/summary/node_kv_upper_bound_mb";
    if let Some(bound) = case.value.number(pointer).filter(|bound| *bound != 0.0) {
        let message = text!(
            "{bound} MB is sessions times bytes per session, not a measurement",
            "{bound} MB 是会话数乘以每会话字节数，不是测量值"
        );
        out.push(Finding::new("MEM_ANALYTIC", pointer, message, json!({ "value_mb": bound })));
    }
}

/// One field of every mode in `/results`.
fn by_mode(case: &Case, field: &str) -> Map<String, Value> {
    let modes = case.value.at("/results").and_then(Value::as_object).into_iter().flatten();
    modes.map(|(mode, block)| (mode.clone(), json!(block.at(field)))).collect()
}

fn pressure(case: &Case, out: &mut Vec<Finding>) {
    let measured = by_mode(case, "/max_agents_measured");
    let agents = |mode: &str| measured.get(mode).and_then(Value::as_f64);
    let Some((bounded, native)) = agents("s5").zip(agents("native")).filter(|(_, native)| *native != 0.0)
    else {
        return;
    };
    let ratio = bounded / native;
    let pointer = "/ab/agent_capacity_x";
    if let Some(claimed) = case.value.number(pointer).filter(|claimed| *claimed > ratio) {
        let message = text!(
            "{claimed}× the agents are claimed from a formula; {bounded} against {native} ran",
            "由公式声明可容纳 {claimed} 倍的智能体；实际运行的是 {bounded} 对 {native}"
        );
        let data = json!({
            "measured": measured,
            "derived": by_mode(case, "/derived_max_agents_in_kv_budget"),
            "measured_ratio": round(ratio, 2),
            "claimed_ratio": claimed,
        });
        out.push(Finding::new("CAPACITY_DERIVED_NOT_MEASURED", pointer, message, data));
    }
}

fn deployment(case: &Case, out: &mut Vec<Finding>) {
    never_ran(case, out);
    for (pointer, row) in rows(case.value, "/results") {
        peak(&pointer, row, out);
    }
    let message =
        text!("speed and memory stand without any measure of quality", "只有速度和内存，没有任何质量度量");
    out.push(Finding::new("NO_RECALL", "/results", message, json!({})));
}

fn never_ran(case: &Case, out: &mut Vec<Finding>) {
    let failed: Vec<(String, &Value)> =
        rows(case.value, "/results").filter(|(_, row)| row.pointer("/kakeya/error").is_some()).collect();
    if let Some((first, _)) = failed.first() {
        let contexts: Vec<_> = failed.iter().map(|(_, row)| row.at("/context_length")).collect();
        let rows = rows(case.value, "/results").count();
        let message = text!(
            "the bounded arm ended in an error in {} of {rows} rows",
            "有界实验臂在 {rows} 行中有 {} 行以错误结束",
            failed.len()
        );
        let pointer = format!("{first}/kakeya/error");
        out.push(Finding::new("SUT_NEVER_RAN", pointer, message, json!({ "contexts": contexts })));
    }
}

fn peak(pointer: &str, row: &Value, out: &mut Vec<Finding>) {
    let peaks = row.number("/kakeya/peak_memory_bytes").zip(row.number("/vanilla/peak_memory_bytes"));
    let Some((sut, oracle)) = peaks.filter(|(sut, oracle)| sut > oracle) else { return };
    if row.at("/kakeya/kv_bytes").is_some() {
        let message = text!(
            "the bounded arm's peak of {sut} bytes is above the reference's {oracle}",
            "有界实验臂的峰值 {sut} 字节高于参考的 {oracle}"
        );
        let data = json!({ "ctx": row.at("/context_length"), "sut_peak": sut, "oracle_peak": oracle });
        let pointer = format!("{pointer}/kakeya/peak_memory_bytes");
        out.push(Finding::new("MEM_PEAK_NOT_LOWER", pointer, message, data));
    }
}
