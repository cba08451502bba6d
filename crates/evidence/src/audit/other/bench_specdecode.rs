//! `k3_specdecode_gpu_bench`: plain, restored and speculative decoding; some files add a cross-host block.

use super::{Case, Family, Summary, no_gate, rows, speedup, step};
use crate::Finding;
use crate::audit::claims::too_small;
use crate::audit::mac::other_drafter;
use crate::json::{At, round, spread};
use crate::text;
use serde_json::{Value, json};

pub(super) const FAMILY: Family =
    Family { holds: |shape| shape == "k3_specdecode_gpu_bench", summary, rules, verdict: no_gate };

const SAMPLES: &str = "/config/n_samples";
const ARMS: [&str; 4] =
    ["ar_incremental", "restored_pertoken", "restored_specdecode", "restored_specdecode_fused"];
const FUSED: &str = "/restored_specdecode_fused";
const FUSED_RATE: &str = "/restored_specdecode_fused/decode_tokens_per_s_mean";
const PLAIN_RATE: &str = "/ar_incremental/decode_tokens_per_s_mean";

fn summary(case: &Case) -> Summary {
    let recall = |arm: &str| {
        let block = case.value.at(&format!("/{arm}"))?;
        Some((arm.to_owned(), block.number("/recall").filter(|_| !block.is_on("/skipped"))))
    };
    Summary {
        n: case.value.whole(SAMPLES),
        recall: Some(ARMS.into_iter().filter_map(recall).collect()),
        claimed: None,
    }
}

fn rules(case: &Case, out: &mut Vec<Finding>) {
    let value = case.value;
    skipped(value, out);
    sample_rates(value, out);
    totals(value, out);
    speedup(value, [&format!("{FUSED}/speedup_over_ar_x"), FUSED_RATE, PLAIN_RATE], 0.006, out);
    renamed(case, out);
    crosshost(value, out);
    let block = if value.at(FUSED).is_some() { FUSED } else { "/restored_specdecode" };
    let message = text!(
        "samples hold token ids without text: recall cannot be recounted",
        "样本只有词元编号没有文本：召回率无法重新计数"
    );
    out.push(Finding::new("TOKENS_ONLY", format!("{block}/per_sample"), message, json!({})));
    other_drafter(value, out);
    out.extend(value.whole(SAMPLES).and_then(|n| too_small(n, SAMPLES)));
}

fn skipped(value: &Value, out: &mut Vec<Finding>) {
    let arm = "restored_specdecode";
    if value.is_on(&format!("/{arm}/skipped")) {
        let pointer = format!("/{arm}/recall");
        let data = json!({ "arm": arm, "recall": value.at(&pointer) });
        let message = text!("{arm} was skipped, yet it carries a recall", "{arm} 被跳过，却带有召回率");
        out.push(Finding::new("SKIPPED_ARM_REPORTS_ZERO", pointer, message, data));
    }
}

/// The stored mean of the samples' rates, and how far they lie apart.
fn sample_rates(value: &Value, out: &mut Vec<Finding>) {
    let samples = value.list(&format!("{FUSED}/per_sample")).unwrap_or_default();
    let rates: Option<Vec<f64>> = samples.iter().map(|row| row.number("/decode_tokens_per_s")).collect();
    let Some(rates) = rates.filter(|rates| !rates.is_empty()) else { return };
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    if let Some(claimed) = value.number(FUSED_RATE).filter(|claimed| (mean - claimed).abs() > 0.01) {
        let message = text!(
            "a mean of {claimed} tokens/s is stored, the samples give {mean:.3}",
            "存储的平均值为 {claimed} 词元/秒，由各样本得出 {mean:.3}"
        );
        let data = json!({ "arm": "fused" });
        out.push(Finding::new("THROUGHPUT_STAT_MISMATCH", FUSED_RATE, message, data));
    }
    if let Some(ratio) = spread(rates).filter(|ratio| *ratio > 1.5) {
        let ratio = round(ratio, 2);
        let message = text!(
            "the fastest sample ran {ratio}× as fast as the slowest",
            "最快样本的速度是最慢样本的 {ratio} 倍"
        );
        let data = json!({ "arm": "fused", "ratio": ratio });
        out.push(Finding::new("DECODE_SPREAD", format!("{FUSED}/per_sample"), message, data));
    }
}

/// A mean of rates weighs short samples as much as long ones; tokens over time is what a user gets.
fn totals(value: &Value, out: &mut Vec<Finding>) {
    if value.at(FUSED).is_none() {
        return;
    }
    let aggregate = aggregate(value);
    let plain = value.number(PLAIN_RATE).filter(|rate| *rate != 0.0);
    let data = json!({
        "mean_of_rates": value.at(FUSED_RATE),
        "aggregate": aggregate.map(|rate| round(rate, 3)),
        "aggregate_speedup": aggregate.zip(plain).map(|(rate, plain)| round(rate / plain, 3)),
    });
    let message = aggregate.map_or_else(
        || text!("the stored rate is a mean of rates", "存储的速率是各速率的平均值"),
        |rate| {
            text!(
                "the stored rate is a mean of rates; tokens over time give {rate:.3}",
                "存储的速率是各速率的平均值；词元数除以时间得 {rate:.3}"
            )
        },
    );
    out.push(Finding::new("MEAN_OF_RATES", FUSED_RATE, message, data));
}

/// All tokens over all decode seconds; None when a sample lacks either.
fn aggregate(value: &Value) -> Option<f64> {
    let samples = value.list(&format!("{FUSED}/per_sample"))?;
    let sum = |key: &str| samples.iter().map(|row| row.number(key)).sum::<Option<f64>>();
    Some(sum("/decode_tokens")? / sum("/decode_s").filter(|seconds| *seconds != 0.0)?)
}

fn renamed(case: &Case, out: &mut Vec<Finding>) {
    let pointer = "/config/output";
    let Some(output) = case.value.text(pointer) else { return };
    if output.rsplit('/').next() != Some(case.name) {
        let message = text!(
            "the run wrote {output}; this file is {}",
            "运行写出的是 {output}；此文件名为 {}",
            case.name
        );
        out.push(Finding::new("FILE_RENAMED", pointer, message, json!({ "config_output": output })));
    }
}

fn crosshost(value: &Value, out: &mut Vec<Finding>) {
    let local = ["/config/grpc_echo_addr", "/config/socket_echo_addr"]
        .into_iter()
        .any(|pointer| value.text(pointer).is_some_and(|address| address.contains("127.0.0.1")));
    let blocks = value.as_object().into_iter().flatten();
    for (key, block) in blocks.filter(|(key, block)| key.starts_with("crosshost") && !block.is_null()) {
        let pointer = format!("/{}", step(key));
        out.push(if local {
            let over_sweep = |key: &str| {
                let values: Vec<_> = rows(block, "/sweep").map(|(_, row)| row.at(key)).collect();
                if values.is_empty() { Value::Null } else { json!(values) }
            };
            let bytes = block.at("/net_bytes_per_block").cloned();
            let data = json!({
                "block": key,
                "net_bytes_per_block": bytes.unwrap_or_else(|| over_sweep("/net_bytes_per_block")),
                "tc_applied": over_sweep("/tc_applied"),
            });
            let message = text!("the other host is this machine: 127.0.0.1", "另一台主机就是本机：127.0.0.1");
            Finding::new("CROSSHOST_IS_LOOPBACK", pointer, message, data)
        } else {
            let message = text!("the network's delay was simulated", "网络延迟是模拟的");
            Finding::new("CROSSHOST_SIMULATED", pointer, message, json!({ "block": key }))
        });
    }
}
