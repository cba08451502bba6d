//! One long session, turn by turn.

use super::{Case, Family, Summary, claim};
use crate::Finding;
use crate::audit::Verdict;
use crate::json::At;
use crate::text;
use serde_json::{Value, json};

pub(super) const LONG_RUN: Family = Family {
    holds: |shape| shape == "bench_session_long_run",
    summary: |case| summary(case, case.value.list("/turns").map(|turns| turns.len() as u64)),
    rules: zero_reading,
    verdict: |_, findings| vacuous_if(findings.iter().any(|finding| finding.code == "MEM_ZERO_READING")),
};

pub(super) const LONG_SESSION: Family = Family {
    holds: |shape| shape == "nokind:bench_long_session",
    summary: |case| summary(case, case.value.whole("/agg/n_turns")),
    rules: errors,
    verdict: |case, _| {
        vacuous_if(case.value.is_on(BOUNDED) && count(case, "/errors") > count(case, "/turns"))
    },
};

/// The claim that the K/V of the session stays bounded.
const BOUNDED: &str = "/agg/kv_bounded";

fn summary(case: &Case, turns: Option<u64>) -> Summary {
    Summary { n: turns, ..claim(case.value, "/agg", &["kv_bounded"]) }
}

fn vacuous_if(nothing_shown: bool) -> Verdict {
    if nothing_shown { Verdict::Vacuous } else { Verdict::NotAGateReport }
}

fn count(case: &Case, pointer: &str) -> usize {
    case.value.list(pointer).map_or(0, <[Value]>::len)
}

fn zero_reading(case: &Case, out: &mut Vec<Finding>) {
    let turns = case.value.list("/turns").unwrap_or_default();
    if !turns.is_empty() && turns.iter().all(|turn| turn.number("/kv_live_bytes") == Some(0.0)) {
        let message =
            text!("the K/V of all {} turns reads 0 bytes", "全部 {} 轮的 K/V 读数都是 0 字节", turns.len());
        let data = json!({
            "field": "kv_live_bytes",
            "turns": turns.len(),
            "claimed_kv_bounded": case.value.at(BOUNDED),
        });
        out.push(Finding::new("MEM_ZERO_READING", "/turns/0/kv_live_bytes", message, data));
    }
}

fn errors(case: &Case, out: &mut Vec<Finding>) {
    let (ok, errors) = (count(case, "/turns"), count(case, "/errors"));
    if errors > 0 {
        let message =
            text!("{errors} requests failed, {ok} turns worked", "{errors} 个请求失败，{ok} 轮成功");
        let data = json!({ "ok": ok, "errors": errors, "claimed_kv_bounded": case.value.at(BOUNDED) });
        out.push(Finding::new("RUN_ERRORS", "/errors", message, data));
    }
    if case.value.is_on("/partial") {
        let message = text!(
            "the file is a checkpoint of a run that had not ended",
            "此文件是一次尚未结束的运行的检查点"
        );
        out.push(Finding::new("PARTIAL_RUN", "/partial", message, json!({})));
    }
}
