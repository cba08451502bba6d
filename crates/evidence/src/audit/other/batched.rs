//! Sessions in one batch against the same sessions one after another, and sessions through the server.

use super::{Case, Family, Summary, no_gate, rows, speedup};
use crate::Finding;
use crate::audit::repo_gate::truthy;
use crate::json::{At, eq};
use crate::text;
use serde_json::{Value, json};

const BATCHED_KINDS: [&str; 3] =
    ["mlx_batched_multitenant", "mlx_upstream_batch_probe", "k3_served_batched_scheduler"];

pub(super) const BATCHED: Family = Family {
    holds: |shape| BATCHED_KINDS.contains(&shape),
    summary: batched_summary,
    rules: batched_rules,
    verdict: no_gate,
};

pub(super) const SERVED_SESSIONS: Family = Family {
    holds: |shape| shape == "k3_grpc_multitenant_e2e",
    summary: sessions_summary,
    rules: sessions_rules,
    verdict: no_gate,
};

/// The batched arm, under either of its names, with its pointer.
fn batched_arm<'a>(case: &Case<'a>) -> Option<(&'static str, &'a Value)> {
    ["/batched", "/batched_scheduler"].into_iter().find_map(|at| Some((at, case.value.at(at)?)))
}

fn batched_summary(case: &Case) -> Summary {
    let batched = batched_arm(case).and_then(|(_, arm)| arm.number("/recall"));
    let recall = [("serialized", case.value.number("/serialized/recall")), ("batched", batched)];
    Summary {
        n: case.value.whole("/config/sessions"),
        recall: Some(recall.map(|(arm, recall)| (arm.to_owned(), recall)).into()),
        claimed: None,
    }
}

fn batched_rules(case: &Case, out: &mut Vec<Finding>) {
    let claim = "/batched_speedup_vs_serialized";
    let Some((name, arm)) = batched_arm(case) else { return };
    if let Some(recall) = arm.number("/recall").filter(|recall| *recall < 1.0) {
        let message = text!(
            "the batched sessions recall {recall} of their codes: the speed is that of wrong answers",
            "批处理会话对代号的召回率为 {recall}：这个速度是错误答案的速度"
        );
        let data = json!({ "recall": recall, "speedup": case.value.at(claim) });
        out.push(Finding::new("SPEEDUP_AT_BROKEN_RECALL", claim, message, data));
    }
    let rate = format!("{name}/aggregate_tps");
    speedup(case.value, [claim, &rate, "/serialized/aggregate_tps"], 0.01, out);
}

/// Whether the code is in the text that a session got; None without both.
fn hit(session: &Value) -> Option<bool> {
    Some(session.text("/decoded")?.contains(session.text("/answer")?))
}

/// Share of the sessions that got their code; None if one of them cannot be judged.
fn recounted(case: &Case) -> Option<f64> {
    let hits: Vec<bool> = rows(case.value, "/results").map(|(_, row)| hit(row)).collect::<Option<_>>()?;
    let correct = hits.iter().filter(|hit| **hit).count();
    (!hits.is_empty()).then(|| correct as f64 / hits.len() as f64)
}

fn sessions_summary(case: &Case) -> Summary {
    Summary {
        n: case.value.list("/results").map(|sessions| sessions.len() as u64),
        recall: Some(vec![("sessions".to_owned(), recounted(case))]),
        claimed: None,
    }
}

fn sessions_rules(case: &Case, out: &mut Vec<Finding>) {
    let stored = |row: &Value| row.at("/recall").map(truthy);
    let wrong = rows(case.value, "/results")
        .find(|(_, row)| stored(row).zip(hit(row)).is_some_and(|(stored, again)| stored != again));
    let claimed = case.value.number("/per_session_recall");
    let mean = claimed.zip(recounted(case)).filter(|(claimed, again)| !eq(*claimed, *again));
    let (pointer, message) = match (wrong, mean) {
        (Some((row, _)), _) => (
            row + "/recall",
            text!("a stored flag is not what the session's text shows", "存储的标志与会话文本所示不符"),
        ),
        (None, Some((claimed, again))) => (
            "/per_session_recall".to_owned(),
            text!(
                "a recall of {claimed} is stored, the texts give {again}",
                "存储的召回率为 {claimed}，由文本得出 {again}"
            ),
        ),
        (None, None) => return,
    };
    out.push(Finding::new("RECALL_FLAG_MISMATCH", pointer, message, json!({})));
}
