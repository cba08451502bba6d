//! `k3_e2e_gpu_bench`: plain decoding against restored decoding, one row for each haystack.

use super::{Case, Family, Summary, no_gate, no_texts, rows, speedup};
use crate::Finding;
use crate::audit::claims::too_small;
use crate::audit::kinds::peak_not_lower;
use crate::audit::mac::other_drafter;
use crate::json::{At, round};
use crate::text;
use serde_json::{Value, json};

pub(super) const FAMILY: Family =
    Family { holds: |shape| shape == "k3_e2e_gpu_bench", summary, rules, verdict: no_gate };

const SAMPLES: &str = "/config/n_samples";
/// Bytes of K/V of the 25 sliding layers for sink and window, 68 positions (RULES §8).
const SLIDING_BYTES: u64 = 25 * 68 * 8192;
/// Bytes of K/V of the five full layers, for each token of the context (RULES §8).
const FULL_BYTES_PER_TOKEN: u64 = 20_480;

fn summary(case: &Case) -> Summary {
    let recall = |row: &Value| {
        let lines = row.at("/haystack_lines")?;
        let of = |arm: &str| (format!("{lines}l {arm}"), row.number(&format!("/{arm}/recall")));
        Some([of("ar"), of("restored")])
    };
    let results = case.value.list("/results");
    Summary {
        n: case.value.whole(SAMPLES),
        recall: results.map(|rows| rows.iter().filter_map(recall).flatten().collect()),
        claimed: None,
    }
}

fn rules(case: &Case, out: &mut Vec<Finding>) {
    let value = case.value;
    for (pointer, row) in rows(value, "/results") {
        resident(&pointer, row, window_bytes(value), out);
        peak(&pointer, row, out);
        let claim = format!("{pointer}/comparison/throughput_ratio_restored_over_ar");
        let rate = |arm: &str| format!("{pointer}/{arm}/decode_tokens_per_s");
        speedup(value, [&claim, &rate("restored"), &rate("ar")], 0.001, out);
    }
    let config = value.at("/config").and_then(Value::as_object);
    if config.is_some_and(|config| !config.keys().any(|key| key.contains("exact"))) {
        let message = text!("which layers stayed exact is not recorded", "没有记录哪些层保持精确");
        out.push(Finding::new("S5_MODE_UNRECORDED", "/config", message, json!({})));
    }
    no_texts("/results", out);
    other_drafter(value, out);
    out.extend(value.whole(SAMPLES).and_then(|n| too_small(n, SAMPLES)));
}

/// Two-byte K and V of every layer, for sink and window.
fn window_bytes(value: &Value) -> Option<f64> {
    let tokens = value.number("/config/sink_size")? + value.number("/config/window_size")?;
    let dims = ["num_hidden_layers", "num_key_value_heads", "head_dim"];
    let per_layer = dims.iter().map(|key| value.number(&format!("/verifier_dims/{key}")));
    Some(tokens * per_layer.product::<Option<f64>>()? * 4.0)
}

fn resident(pointer: &str, row: &Value, window: Option<f64>, out: &mut Vec<Finding>) {
    let Some(claimed) = row.number("/restored/resident_kv_bytes") else { return };
    let tokens = row.whole("/restored/effective_context_tokens");
    let with_exact =
        tokens.and_then(|tokens| tokens.checked_mul(FULL_BYTES_PER_TOKEN)?.checked_add(SLIDING_BYTES));
    let saving = row.number("/ar/kv_bytes_final").zip(with_exact);
    let data = json!({
        "lines": row.at("/haystack_lines"),
        "claimed": row.at("/restored/resident_kv_bytes"),
        "equal": window.map(|window| window == claimed),
        "claimed_saving_x": row.at("/comparison/kv_memory_saving_x"),
        "with_exact_layers_bytes": with_exact,
        "saving_with_exact_layers_x": saving.map(|(plain, bytes)| round(plain / bytes as f64, 1)),
    });
    let message = text!(
        "{claimed} bytes of resident K/V are a formula that leaves out the exact layers",
        "{claimed} 字节的常驻 K/V 是公式，漏掉了精确的层"
    );
    let pointer = format!("{pointer}/restored/resident_kv_bytes");
    out.push(Finding::new("KV_RESIDENT_IS_FORMULA", pointer, message, data));
}

fn peak(pointer: &str, row: &Value, out: &mut Vec<Finding>) {
    let peak = |arm: &str| row.whole(&format!("/{arm}/peak_mem_bytes"));
    let Some((sut, oracle)) = peak("restored").zip(peak("ar")) else { return };
    if let Some(mut finding) = peak_not_lower(&format!("{pointer}/restored/peak_mem_bytes"), sut, oracle) {
        finding.data.insert("lines".to_owned(), json!(row.at("/haystack_lines")));
        out.push(finding);
    }
}
