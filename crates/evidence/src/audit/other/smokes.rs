//! `k1d_dlm_restored_verifier_smoke` and `k3_feasibility_smoke`: does it load, does it run forward.

use super::{Case, Family, claim};
use crate::Finding;
use crate::audit::Verdict;
use crate::json::At;
use crate::text;
use serde_json::{Value, json};

pub(super) const RESTORED_VERIFIER: Family = Family {
    holds: |shape| shape == "k1d_dlm_restored_verifier_smoke",
    summary: |case| claim(case.value, "/smoke_gate", &["pass"]),
    rules: self_projection,
    verdict: |case, _| if no_eviction_changes_nothing(case.value) { Verdict::Pass } else { Verdict::Fail },
};

pub(super) const FEASIBILITY: Family = Family {
    holds: |shape| shape == "k3_feasibility_smoke",
    summary: |case| claim(case.value, "/summary", &["status"]),
    rules: feasibility,
    verdict: |case, _| feasible(case.value),
};

/// Divergence from the oracle in the configuration of that name.
fn divergence(value: &Value, name: &str) -> Option<f64> {
    let configs = value.list("/configs")?;
    configs.iter().find(|config| config.text("/name") == Some(name))?.number("/kl_vs_oracle")
}

fn self_projection(case: &Case, out: &mut Vec<Finding>) {
    let message = text!(
        "proposer and verifier are one checkpoint: restored K/V are the true ones",
        "提议者与验证模型是同一检查点：恢复的 K/V 就是真实的 K/V"
    );
    let data = json!({ "kl_evicting": divergence(case.value, "v04_sink_4_window_64") });
    out.push(Finding::new("SELF_PROJECTION", "/model", message, data));
}

fn no_eviction_changes_nothing(value: &Value) -> bool {
    let configs = value.list("/configs").unwrap_or_default();
    let broken = configs.iter().any(|config| config.is_on("/any_nan") || config.is_on("/any_inf"));
    let kept = divergence(value, "v04_no_eviction").zip(value.number("/smoke_gate/no_eviction_kl_threshold"));
    !broken && kept.is_some_and(|(divergence, threshold)| divergence <= threshold)
}

const STATUS: &str = "/summary/status";
const FORWARD: &str = "/summary/drafter_forward_ok";
const FAITHFUL: &str = "/summary/drafter_faithful_transformers_load";

fn failed(value: &Value) -> bool {
    value.text(STATUS).is_some_and(|status| status.starts_with("fail"))
}

/// The first of the four that applies: each hides the next.
fn feasibility(case: &Case, out: &mut Vec<Finding>) {
    let value = case.value;
    let Some(status) = value.text(STATUS) else { return };
    out.push(if failed(value) {
        let data = json!({ "fingerprints": value.at("/summary/known_bug_fingerprints_matched") });
        Finding::new(
            "LOAD_FAILED",
            STATUS,
            text!("the run ended with {status}", "运行以 {status} 结束"),
            data,
        )
    } else if value.is_on("/config/skip_drafter") {
        let message =
            text!("the drafter was switched off, the status is {status}", "草稿模型被关闭，状态为 {status}");
        Finding::new("COMPONENT_SKIPPED", "/config/skip_drafter", message, json!({ "component": "drafter" }))
    } else if !value.is_on(FORWARD) {
        let forward = value.at(FORWARD);
        let data = json!({ "status": status, "drafter_forward_ok": forward, "faithful": value.at(FAITHFUL) });
        let message = text!(
            "the status is {status}, but the drafter never ran forward",
            "状态为 {status}，但草稿模型从未前向运行"
        );
        Finding::new("STATUS_CONTRADICTION", STATUS, message, data)
    } else if value.pointer(FAITHFUL).is_none() {
        let message = text!(
            "whether the drafter loaded as its own architecture is not recorded",
            "没有记录草稿模型是否以自己的架构加载"
        );
        Finding::new("DRAFTER_FIDELITY_UNKNOWN", FAITHFUL, message, json!({}))
    } else {
        return;
    });
}

/// RULES §6.2, in order.
fn feasible(value: &Value) -> Verdict {
    let forward = value.flag(FORWARD);
    if failed(value) {
        Verdict::Fail
    } else if value.is_on("/config/skip_drafter") {
        Verdict::Inconclusive
    } else if forward == Some(false) {
        Verdict::Fail
    } else if forward.is_none() {
        Verdict::Inconclusive
    } else if value.pointer(FAITHFUL).is_none() {
        Verdict::Vacuous
    } else {
        Verdict::Pass
    }
}
