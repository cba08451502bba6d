//! The acceptance run of the primary decoder on a Mac: a list of gates, each with its own status.

use super::{Case, Family, Summary, rows};
use crate::Finding;
use crate::audit::Verdict;
use crate::json::At;
use crate::text;
use serde_json::{Map, Value, json};

pub(super) const PRIMARY_DECODE: Family =
    Family { holds: |shape| shape == "primary_decode_mac_acceptance", summary, rules, verdict };

/// The whole status, then that of each gate.
fn summary(case: &Case) -> Summary {
    let statuses =
        rows(case.value, "/gates").filter_map(|(_, gate)| Some((gate.text("/gate")?, gate.at("/status"))));
    let claimed: Map<String, Value> = std::iter::once(("status", case.value.at("/status")))
        .chain(statuses)
        .map(|(name, status)| (name.to_owned(), json!(status)))
        .collect();
    Summary { n: None, recall: None, claimed: Some(Value::Object(claimed)) }
}

fn rules(case: &Case, out: &mut Vec<Finding>) {
    let weights = case.value.text("/config/tokenizer_id").and_then(nominal_weights);
    for (pointer, gate) in rows(case.value, "/gates") {
        contradiction(&pointer, gate, out);
        if let Some(weights) = weights {
            footprint(&pointer, gate, weights, out);
        }
    }
}

fn contradiction(pointer: &str, gate: &Value, out: &mut Vec<Finding>) {
    let field = "/metrics/aggregate/kv_bounded";
    if gate.text("/status") == Some("passed") && gate.flag(field) == Some(false) {
        let message = text!(
            "the gate passed, though its own figures say that the K/V is not bounded",
            "门禁判为通过，但其自身的数字表明 K/V 没有上限"
        );
        let data = json!({
            "gate": gate.at("/gate"),
            "status": "passed",
            "kv_bounded": false,
            "min_kv": gate.at("/metrics/aggregate/min_kv_live_bytes"),
            "max_kv": gate.at("/metrics/aggregate/max_kv_live_bytes"),
        });
        out.push(Finding::new("STATUS_CONTRADICTION", format!("{pointer}{field}"), message, data));
    }
}

/// A process that holds the weights is larger than half of them.
fn footprint(pointer: &str, gate: &Value, weights: f64, out: &mut Vec<Finding>) {
    let field = "/metrics/fresh_process_footprint_bytes";
    let last = "/metrics/final_process_footprint_bytes";
    let Some((fresh, last)) = gate.number(field).zip(gate.number(last)) else { return };
    if fresh.max(last) < weights / 2.0 {
        let message = text!(
            "the counter reads at most {} bytes, while weights of about {weights} bytes are served",
            "计数器读数至多 {} 字节，而提供服务的权重约有 {weights} 字节",
            fresh.max(last)
        );
        let data = json!({ "fresh": fresh, "final": last, "growth": gate.at("/metrics/growth_bytes") });
        out.push(Finding::new("MEM_FOOTPRINT_SCOPE", format!("{pointer}{field}"), message, data));
    }
}

fn verdict(case: &Case, findings: &[Finding]) -> Verdict {
    const DOUBTS: [&str; 3] = ["STATUS_CONTRADICTION", "MEM_FOOTPRINT_SCOPE", "BASELINE_MODEL_MISMATCH"];
    if findings.iter().any(|finding| DOUBTS.contains(&finding.code)) {
        Verdict::Inconclusive
    } else if case.value.text("/status") == Some("passed") {
        Verdict::Pass
    } else {
        Verdict::Fail
    }
}

/// Bytes of the weights that a model's name promises: `…26B…4bit` is 13.0e9 (RULES §0). None if it names no size.
pub(in crate::audit) fn nominal_weights(model: &str) -> Option<f64> {
    let parameters = number_before(model, "B")? * 1e9;
    let bits = number_before(model, "bit").or_else(|| number_before(model, "-bit")).unwrap_or(16.0);
    Some(parameters * bits / 8.0).filter(|bytes| bytes.is_finite())
}

/// The first number that stands right before `unit`.
fn number_before(text: &str, unit: &str) -> Option<f64> {
    text.match_indices(unit).find_map(|(at, _)| {
        let before = &text[..at];
        let name = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        before[name.len()..].trim_start_matches('.').parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::nominal_weights;

    #[test]
    fn a_models_name_gives_the_size_of_its_weights() {
        for (model, want) in [
            ("/Users/x/gemma-4-26B-A4B-it-mlx-4bit", Some(13.0e9)),
            ("gemma-4-26B-A4B 4-bit", Some(13.0e9)),
            ("Qwen/Qwen3-0.6B", Some(1.2e9)),
            ("x.26B", Some(52.0e9)),
            ("Big-4bit", None),
            ("", None),
        ] {
            assert_eq!(nominal_weights(model), want, "{model}");
        }
    }
}
