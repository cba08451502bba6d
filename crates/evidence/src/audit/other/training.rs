//! `k3_f_theta_train`: what training reports of itself. `k3_dflash_alignment_train` states nothing that can be checked.

use super::{Case, Family, claim, no_gate};
use crate::Finding;
use crate::json::{At, eq6, round};
use crate::text;
use serde_json::{Value, json};

pub(super) const FAMILY: Family = Family {
    holds: |shape| shape == "k3_f_theta_train",
    summary: |case| claim(case.value, "", &["loss_reduction_factor"]),
    rules,
    verdict: no_gate,
};

const REDUCTION: &str = "/loss_reduction_factor";

fn rules(case: &Case, out: &mut Vec<Finding>) {
    let value = case.value;
    let losses = value.number("/initial_loss").zip(value.number("/final_loss").filter(|loss| *loss != 0.0));
    let reduction = losses.map(|(first, last)| first / last);
    reduction_stored(value, reduction, out);
    sanity(value, reduction, out);
    needles(value, out);
}

fn reduction_stored(value: &Value, reduction: Option<f64>, out: &mut Vec<Finding>) {
    let Some((claimed, again)) = value.number(REDUCTION).zip(reduction) else { return };
    if !eq6(again, claimed) {
        let message = text!(
            "a loss reduction of {claimed} is stored, the losses give {again}",
            "存储的损失下降倍数为 {claimed}，由损失得出 {again}"
        );
        let data = json!({ "field": "loss_reduction_factor" });
        out.push(Finding::new("GATE_VALUE_MISMATCH", REDUCTION, message, data));
    }
}

fn sanity(value: &Value, reduction: Option<f64>, out: &mut Vec<Finding>) {
    let target = value.number("/final_diagnostic/abs_O_target_mean").filter(|target| *target != 0.0);
    let error = value
        .number("/final_diagnostic/mse_O_mean")
        .zip(target)
        .map(|(error, target)| error / target.powi(2));
    let data = json!({
        "loss_reduction": reduction.map(|reduction| round(reduction, 2)),
        "needed": 5.0,
        "mse_over_target_sq": error.map(|error| round(error, 4)),
        "needed_below": 0.05,
        "second_gate_met": error.map(|error| error < 0.05),
    });
    let message =
        text!("training checks its own loss; recall is not measured", "训练只检查自己的损失；没有测量召回率");
    out.push(Finding::new("TRAIN_SANITY_ONLY", REDUCTION, message, data));
}

fn needles(value: &Value, out: &mut Vec<Finding>) {
    let pointer = "/config/niah_max_lines";
    let Some(most) = value.number(pointer).filter(|lines| *lines != 0.0) else { return };
    let data = json!({
        "n_niah": value.at("/n_niah_prompts"),
        "lines": [value.at("/config/niah_min_lines"), value.at(pointer)],
    });
    let message =
        text!("training used needle prompts of up to {most} lines", "训练用过长达 {most} 行的大海捞针提示词");
    out.push(Finding::new("TRAIN_HAS_NIAH", pointer, message, data));
}
