//! `k3_s6_fidelity_recall_sweep`: recall while true K/V are mixed into restored ones with weight α.

use super::{Case, Family, Summary, no_gate, no_oracle, no_texts, rows};
use crate::Finding;
use crate::audit::claims::too_small;
use crate::json::{At, eq, eq6};
use crate::text;
use serde_json::{Value, json};

pub(super) const FAMILY: Family =
    Family { holds: |shape| shape == "k3_s6_fidelity_recall_sweep", summary, rules, verdict: no_gate };

const SAMPLES: &str = "/config/n_samples";
const BASELINE: &str = "/f_theta_baseline_rel_mse";

fn summary(case: &Case) -> Summary {
    let recall = |row: &Value| Some((format!("alpha={:?}", row.number("/alpha")?), row.number("/recall")));
    Summary {
        n: case.value.whole(SAMPLES),
        recall: case.value.list("/sweep").map(|sweep| sweep.iter().filter_map(recall).collect()),
        claimed: None,
    }
}

fn rules(case: &Case, out: &mut Vec<Finding>) {
    let baseline = case.value.number(&format!("{BASELINE}/overall"));
    for (pointer, row) in rows(case.value, "/sweep") {
        values(&pointer, row, baseline, out);
    }
    order(case.value, out);
    pure(case.value, out);
    // The reference measures the error on its first sample; it writes neither texts nor an oracle.
    if case.value.whole(&format!("{BASELINE}/samples")).is_none_or(|samples| samples < 2) {
        let message = text!("the error of f_θ alone comes from one sample", "仅 f_θ 的误差来自单个样本");
        out.push(Finding::new("MSE_FROM_ONE_SAMPLE", BASELINE, message, json!({ "sample": 0 })));
    }
    if case.value.at("/oracle").is_none() {
        no_oracle("/sweep", out);
    }
    let points = case.value.list("/sweep").unwrap_or_default();
    if points.is_empty() || points.iter().any(|point| point.list("/per_sample_decoded").is_none()) {
        no_texts("/sweep", out);
    }
    out.extend(case.value.whole(SAMPLES).and_then(|n| too_small(n, SAMPLES)));
}

fn values(pointer: &str, row: &Value, baseline: Option<f64>, out: &mut Vec<Finding>) {
    let number = |key: &str| row.number(&format!("/{key}"));
    let rest = number("alpha").zip(baseline).map(|(alpha, baseline)| (1.0 - alpha).powi(2) * baseline);
    let hits = number("samples_correct").zip(number("samples_total").filter(|total| *total != 0.0));
    let share = hits.map(|(correct, total)| correct / total);
    let differs = |key: &str, want: Option<f64>, same: fn(f64, f64) -> bool| {
        number(key).zip(want).is_some_and(|(got, want)| !same(got, want))
    };
    let wrong = if differs("eff_rel_mse_overall", rest, eq6) {
        "eff_rel_mse_overall"
    } else if differs("recall", share, eq) {
        "recall"
    } else {
        return;
    };
    let message = text!(
        "{wrong} does not follow from the row's own numbers and the error of f_θ alone",
        "{wrong} 与该行自身的数字和仅 f_θ 的误差不符"
    );
    let data = json!({ "alpha": row.at("/alpha") });
    out.push(Finding::new("SWEEP_VALUE_MISMATCH", format!("{pointer}/{wrong}"), message, data));
}

fn order(value: &Value, out: &mut Vec<Finding>) {
    let alphas: Vec<f64> = rows(value, "/sweep").filter_map(|(_, row)| row.number("/alpha")).collect();
    if !alphas.is_sorted() {
        out.push(Finding::new(
            "SWEEP_UNORDERED",
            "/sweep",
            text!("α does not ascend", "α 没有按升序排列"),
            json!({}),
        ));
    }
}

/// The row that is f_θ alone.
fn pure(value: &Value, out: &mut Vec<Finding>) {
    let Some((pointer, row)) = rows(value, "/sweep").find(|(_, row)| row.number("/alpha") == Some(0.0))
    else {
        return;
    };
    if row.number("/recall") == Some(0.0) {
        let message = text!("f_θ alone (α = 0) recalls nothing", "仅用 f_θ（α = 0）时什么都没有召回");
        let data = json!({ "alpha": 0, "n": value.at(SAMPLES) });
        out.push(Finding::new("FTHETA_ZERO_RECALL", format!("{pointer}/recall"), message, data));
    }
}
