//! Agents served at once, level by level: CUDA multi-tenant, vLLM, engine throughput, bounded decode.

use super::{Case, Family, Summary, no_gate, rows};
use crate::Finding;
use crate::json::{At, round};
use crate::text;
use serde_json::{Value, json};

pub(super) const CUDA_MULTITENANT: Family = Family {
    holds: |shape| shape == "k3_cuda_multitenant_parallel",
    summary: |case| levels(case, &[(" restored", "/restored_recall"), (" ar", "/ar_recall")]),
    rules: cuda_multitenant,
    verdict: no_gate,
};

pub(super) const VLLM: Family = Family {
    holds: |shape| shape == "vllm_multitenant_parallel",
    summary: |case| levels(case, &[("", "/recall")]),
    rules: vllm,
    verdict: no_gate,
};

pub(super) const ENGINE: Family = Family {
    holds: |shape| shape == "kakeya_engine_throughput",
    summary: |case| levels(case, &[("", "/recall")]),
    rules: engine,
    verdict: no_gate,
};

pub(super) const BOUNDED_DECODE: Family = Family {
    holds: |shape| shape == "gemma_bounded_decode",
    summary: |case| levels(case, &[("", "/recall")]),
    rules: bounded_decode,
    verdict: no_gate,
};

/// Highest number of agents, and the recall of each arm at each level.
fn levels(case: &Case, arms: &[(&str, &str)]) -> Summary {
    let levels: Vec<(u64, &Value)> =
        rows(case.value, "/results").filter_map(|(_, row)| Some((row.whole("/agents")?, row))).collect();
    let recall = levels.iter().flat_map(|(agents, row)| {
        arms.iter().map(move |(arm, field)| (format!("n{agents}{arm}"), row.number(field)))
    });
    Summary {
        n: levels.iter().map(|(agents, _)| *agents).max(),
        recall: Some(recall.collect()),
        claimed: None,
    }
}

/// Pointer of the first level that a test picks, and the numbers of agents of all that it picks.
fn affected<'a>(case: &Case<'a>, picks: impl Fn(&Value) -> bool) -> Option<(String, Vec<Option<&'a Value>>)> {
    let levels: Vec<(String, &Value)> = rows(case.value, "/results").filter(|(_, row)| picks(row)).collect();
    let agents = levels.iter().map(|(_, row)| row.at("/agents")).collect();
    levels.into_iter().next().map(|(first, _)| (first, agents))
}

/// Numbers of agents, as a sentence names them.
fn listed(agents: &[Option<&Value>]) -> String {
    let numbers: Vec<String> = agents.iter().flatten().map(ToString::to_string).collect();
    numbers.join(", ")
}

fn cuda_multitenant(case: &Case, out: &mut Vec<Finding>) {
    let message = text!("recall is stored per level, without the texts", "召回率按级别存储，没有文本");
    out.push(Finding::new("NO_PER_SAMPLE", "/results", message, json!({})));
    if let Some((level, _)) = affected(case, |row| row.number("/peak_gpu_gb").is_some()) {
        let message = text!("each level has one peak for both arms", "每个级别的两个实验臂共用一个峰值");
        out.push(Finding::new("PEAK_SHARED_BY_ARMS", level + "/peak_gpu_gb", message, json!({})));
    }
}

fn vllm(case: &Case, out: &mut Vec<Finding>) {
    let peaks: Vec<Option<&Value>> =
        rows(case.value, "/results").map(|(_, row)| row.at("/torch_peak_alloc_gb")).collect();
    if !peaks.is_empty() && peaks.iter().flatten().all(|peak| peak.as_f64() == Some(0.0)) {
        let message = text!(
            "all {} readings of the peak are 0 or missing",
            "全部 {} 个峰值读数都是 0 或缺失",
            peaks.len()
        );
        let data = json!({ "field": "torch_peak_alloc_gb" });
        out.push(Finding::new("MEM_ZERO_READING", "/results/0/torch_peak_alloc_gb", message, data));
    }
    if case.value.at("/kv_pool").is_none() {
        let message = text!("the size of the K/V pool is not recorded", "没有记录 K/V 池的大小");
        out.push(Finding::new("KV_POOL_NULL", "/kv_pool", message, json!({})));
    }
    decode_rate(case, out);
}

/// A decode rate that is the end-to-end rate with one token less.
fn decode_rate(case: &Case, out: &mut Vec<Finding>) {
    let Some(tokens) = case.value.number("/config/gen_tokens").filter(|tokens| *tokens != 0.0) else {
        return;
    };
    let share = (tokens - 1.0) / tokens;
    let derived = |row: &Value| {
        let rates = row.number("/decode_aggregate_tps").zip(row.number("/e2e_aggregate_tps"));
        rates.is_some_and(|(decode, whole)| whole != 0.0 && (decode / whole - share).abs() < 2e-3)
    };
    if let Some((level, agents)) = affected(case, derived) {
        let ratio = round(share, 4);
        let message = text!(
            "with {} agents decoding runs at {ratio} of the end-to-end rate, as if prefill took no time",
            "智能体数为 {} 时，解码速率是端到端速率的 {ratio}，仿佛预填充不花时间",
            listed(&agents)
        );
        let data = json!({ "agents": agents, "ratio": ratio });
        out.push(Finding::new("DECODE_RATE_IS_E2E", level + "/decode_aggregate_tps", message, data));
    }
}

fn engine(case: &Case, out: &mut Vec<Finding>) {
    out_of_memory(case, out);
    let pointer = "/config/admission_ceiling";
    let Some(ceiling) = case.value.number(pointer) else { return };
    let above =
        |row: &Value| !row.is_on("/oom") && row.number("/agents").is_some_and(|agents| agents > ceiling);
    if let Some((_, agents)) = affected(case, above) {
        let message = text!(
            "the file admits {ceiling} agents; {} ran",
            "文件允许 {ceiling} 个智能体；实际运行了 {} 个",
            listed(&agents)
        );
        let data = json!({ "ceiling": ceiling, "agents": agents });
        out.push(Finding::new("ADMISSION_CEILING_EXCEEDED", pointer, message, data));
    }
}

fn bounded_decode(case: &Case, out: &mut Vec<Finding>) {
    let pointer = "/config/sliding_window";
    let message = text!(
        "the model's own window was shrunk and nothing was restored",
        "缩小了模型自身的窗口，没有恢复任何内容"
    );
    let data = json!({ "sliding_window": case.value.at(pointer) });
    out.push(Finding::new("NO_RESTORATION_CONTROL", pointer, message, data));
    out_of_memory(case, out);
}

fn out_of_memory(case: &Case, out: &mut Vec<Finding>) {
    if let Some((level, agents)) = affected(case, |row| row.is_on("/oom")) {
        let message = text!("memory ran out with {} agents", "智能体数为 {} 时内存耗尽", listed(&agents));
        out.push(Finding::new("OOM", level + "/oom", message, json!({ "agents": agents })));
    }
}
