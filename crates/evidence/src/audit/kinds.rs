//! Rules on one kind or two (RULES §1.4, §1.5, §1.7).

use super::{Case, schema};
use crate::Finding;
use crate::identity::{Identity, Platform, Role};
use crate::json::{At, round};
use crate::model::NiahKind;
use crate::read::{File, Place};
use crate::text;
use serde_json::{Map, Value, json};
use std::path::Path;

pub(super) const GIB: f64 = 1_073_741_824.0;
/// f_θ folders that are published with the reference project, by their last path component.
const PUBLISHED: [&str; 1] = ["f_theta_v5_s5_sliding"];

pub(super) fn rules(case: &Case, out: &mut Vec<Finding>) {
    match case.niah.kind {
        NiahKind::SameCheckpoint => same_checkpoint(case, out),
        NiahKind::CrossModel => cross_model(case, out),
        NiahKind::CrossModelMac => {}
    }
    if case.is(NiahKind::CrossModel) || case.is(NiahKind::CrossModelMac) {
        exact_layers(case, out);
    }
    peak(case, out);
    if !case.is(NiahKind::CrossModel) {
        memory_absent(case, out);
    }
}

fn same_checkpoint(case: &Case, out: &mut Vec<Finding>) {
    let message = text!(
        "proposer and verifier are one checkpoint: restored K/V are the true ones",
        "提议者与验证模型是同一检查点：恢复的 K/V 就是真实的 K/V"
    );
    out.push(Finding::new("SELF_PROJECTION", "/config/model", message, json!({})));
    if schema(case.value).is_none_or(|version| version < 4) {
        let message = text!("this schema records no per-sample rates", "此格式不记录逐样本速率");
        out.push(Finding::new("THROUGHPUT_ABSENT", "/schema_version", message, json!({})));
    }
    if case.value.pointer("/config/attn_impl").is_none() {
        let message = text!("the attention implementation is not recorded", "没有记录注意力实现");
        out.push(Finding::new("ATTN_IMPL_UNRECORDED", "/config/attn_impl", message, json!({})));
    }
    driver_memory(case, out);
}

fn driver_memory(case: &Case, out: &mut Vec<Finding>) {
    let arms = case.value.at("/memory/per_config").and_then(Value::as_object);
    if case.platform != Platform::Mac || no_memory(case.value) {
        return;
    }
    let driver = arms
        .into_iter()
        .flatten()
        .filter_map(|(arm, block)| Some((arm.clone(), block.number("/driver_allocated_bytes")? / GIB)));
    let all: Vec<(String, f64)> = driver.collect();
    let table = |rows: Vec<&(String, f64)>| {
        Value::Object(
            rows.into_iter().map(|(arm, gib)| (arm.clone(), json!(round(*gib, 2)))).collect::<Map<_, _>>(),
        )
    };
    let data = json!({ "device": "mps", "driver_gib": table(all.iter().collect()) });
    let message = text!(
        "the device has no peak counter; the driver's allocation was sampled",
        "此设备没有峰值计数器；采样的是驱动的分配量"
    );
    out.push(Finding::new("MEM_NO_PEAK_COUNTER", "/memory/per_config", message, data));
    let over: Vec<_> = all.iter().filter(|(_, gib)| *gib >= 24.0).collect();
    if !over.is_empty() {
        let highest = over.iter().map(|(_, gib)| *gib).fold(0.0, f64::max);
        let message = text!(
            "the driver holds up to {highest:.2} GiB, the machine has 24",
            "驱动最多占用 {highest:.2} GiB，机器有 24"
        );
        let data = json!({ "driver_gib": table(over) });
        out.push(Finding::new("MEM_OVER_24GIB", "/memory/per_config", message, data));
    }
}

fn cross_model(case: &Case, out: &mut Vec<Finding>) {
    let message = text!(
        "this kind re-forwards the whole sequence for every token",
        "此类运行为每个词元重新前向整个序列"
    );
    if case.niah.provenance.is_none() || case.niah.decode == "reforward" {
        out.push(Finding::new("NO_KV_CACHE_IN_RUN", "/kind", message, json!({})));
    }
    if case.niah.identity {
        let message = text!("the verifier's own K/V were injected", "注入的是验证模型自己的 K/V");
        out.push(Finding::new("IDENTITY_RESTORE", "/config/identity_restore", message, json!({})));
    }
    if case.value.pointer("/config/s5_exact_full_attn").is_none() {
        let message =
            text!("whether full layers were kept exact is not recorded", "没有记录全注意力层是否保持精确");
        out.push(Finding::new("S5_FLAG_ABSENT", "/config/s5_exact_full_attn", message, json!({})));
    }
    let recounted = !case.niah.samples.is_empty();
    let no_hit = case.niah.sut().is_some_and(|sut| recounted && sut.hits == 0);
    if case.value.is_on("/gate/architectural_correctness") && no_hit {
        let message = text!(
            "architectural correctness is true while the arm recalls nothing",
            "该实验臂什么都没有召回，architectural_correctness 却为真"
        );
        out.push(Finding::new(
            "ARCH_TRUE_AT_ZERO_RECALL",
            "/gate/architectural_correctness",
            message,
            json!({}),
        ));
    }
}

fn exact_layers(case: &Case, out: &mut Vec<Finding>) {
    if !case.niah.s5 {
        return;
    }
    let key = if case.is(NiahKind::CrossModel) { "s5_exact_layers" } else { "full_attention_layers" };
    let layers = case.value.at(&format!("/config/{key}"));
    let message = text!("full-attention layers were kept exact (S5)", "全注意力层保持精确（S5）");
    out.push(Finding::new(
        "S5_EXACT_FULL_ATTN",
        "/config/s5_exact_full_attn",
        message,
        json!({ "layers": layers }),
    ));
}

fn peak(case: &Case, out: &mut Vec<Finding>) {
    let base = match case.niah.kind {
        NiahKind::SameCheckpoint if case.platform != Platform::Mac => "/memory/per_config",
        NiahKind::CrossModel => "/memory",
        _ => return,
    };
    let pointer = |arm: &str| format!("{base}/{arm}/peak_allocated_bytes");
    let (sut, oracle) = (pointer(case.niah.kind.sut()), pointer(case.niah.kind.oracle()));
    let peaks = case.value.whole(&sut).zip(case.value.whole(&oracle));
    out.extend(peaks.and_then(|(sut_peak, oracle_peak)| peak_not_lower(&sut, sut_peak, oracle_peak)));
}

/// A bounded arm whose measured peak is not below the reference's (RULES §1.7).
pub(super) fn peak_not_lower(pointer: &str, sut: u64, oracle: u64) -> Option<Finding> {
    if sut < oracle || oracle == 0 {
        return None;
    }
    let ratio = round(sut as f64 / oracle as f64, 4);
    let message = text!("the measured peak is {ratio}× the oracle's", "实测峰值是 oracle 的 {ratio} 倍");
    let data = json!({ "sut_peak": sut, "oracle_peak": oracle, "ratio": ratio });
    Some(Finding::new("MEM_PEAK_NOT_LOWER", pointer, message, data))
}

fn no_memory(value: &Value) -> bool {
    value.at("/memory").is_none_or(|block| block.as_object().is_some_and(Map::is_empty))
}

fn memory_absent(case: &Case, out: &mut Vec<Finding>) {
    if no_memory(case.value) {
        out.push(Finding::new(
            "MEMORY_ABSENT",
            "/memory",
            text!("no memory figure is recorded", "没有记录任何内存数字"),
            json!({}),
        ));
    }
}

/// A file with our provenance carries the digests of its f_θ: it can be told apart without the checkout.
pub(super) fn unpublished(file: &File, identity: &Identity, out: &mut Vec<Finding>) {
    let asked = identity.role == Role::Niah || identity.shape == "k3_s6_fidelity_recall_sweep";
    let folder = file.value.text("/config/f_theta_dir");
    let Some(folder) = folder.filter(|_| asked && file.value.at("/provenance").is_none()) else { return };
    if !published(&file.place, folder) {
        let message = text!("the f_θ {folder} is not in the workspace", "工作区中没有 f_θ {folder}");
        let data = json!({ "f_theta_dir": folder });
        out.push(Finding::new("FTHETA_NOT_IN_CHECKOUT", "/config/f_theta_dir", message, data));
    }
}

/// Whether an f_θ folder lies in the workspace, or is one that the reference project publishes.
fn published(place: &Place, folder: &str) -> bool {
    let path = Path::new(folder);
    let known = path.file_name().is_some_and(|last| PUBLISHED.iter().any(|name| last == *name));
    !folder.starts_with("/tmp") && (known || place.holds_folder(path))
}
