//! `k3_dflash_specdecode_acceptance` and its Mac twin: how many drafted tokens the verifier accepts.

use super::{Case, Family, Summary, no_gate, picked};
use crate::Finding;
use crate::json::{At, eq};
use crate::normalise::DFLASH;
use crate::text;
use serde_json::{Value, json};

pub(super) const FAMILY: Family =
    Family { holds: |shape| DFLASH.contains(&shape), summary, rules, verdict: no_gate };

const LOSSLESS: &str = "/aggregate/lossless_vs_ar";

fn summary(case: &Case) -> Summary {
    let keys = ["lossless_vs_ar", "acceptance_rate", "acceptance_length"];
    Summary {
        n: case.value.list("/per_prompt").map(|prompts| prompts.len() as u64),
        recall: None,
        claimed: picked(case.value, "/aggregate", &keys),
    }
}

fn rules(case: &Case, out: &mut Vec<Finding>) {
    let Some(prompts) = case.value.list("/per_prompt") else { return };
    lossless(case.value, prompts, out);
    acceptance(case.value, prompts, out);
    if prompts.len() < 20 {
        let message = text!("the acceptance rests on {} prompts", "接受率只基于 {} 个提示词", prompts.len());
        out.push(Finding::new("FEW_PROMPTS", "/per_prompt", message, json!({ "n": prompts.len() })));
    }
}

fn lossless(value: &Value, prompts: &[Value], out: &mut Vec<Finding>) {
    let flags: Vec<Option<bool>> = prompts.iter().map(|prompt| prompt.flag("/lossless_vs_ar")).collect();
    let lossy: Vec<usize> = (0..flags.len()).filter(|i| flags[*i] == Some(false)).collect();
    if let Some(first) = lossy.first() {
        let message = text!(
            "speculative texts differ from the greedy ones in prompts {lossy:?}",
            "提示词 {lossy:?} 的推测解码文本与贪心解码不同"
        );
        let pointer = format!("/per_prompt/{first}/lossless_vs_ar");
        out.push(Finding::new("LOSSLESS_VIOLATION", pointer, message, json!({ "samples": lossy })));
    } else if flags.is_empty() || flags.contains(&None) {
        return;
    }
    if let Some(claimed) = value.flag(LOSSLESS).filter(|claimed| *claimed != lossy.is_empty()) {
        let message = text!(
            "lossless is stored as {claimed}; {} prompts are not",
            "lossless 存储为 {claimed}；有 {} 个提示词并非无损",
            lossy.len()
        );
        out.push(Finding::new("STATUS_CONTRADICTION", LOSSLESS, message, json!({})));
    }
}

fn acceptance(value: &Value, prompts: &[Value], out: &mut Vec<Finding>) {
    let accepts: Option<Vec<Vec<f64>>> =
        prompts.iter().map(|prompt| prompt.numbers("/block_accepts")).collect();
    let Some(accepts) = accepts.map(|accepts| accepts.concat()) else { return };
    let (accepted, blocks) = (accepts.iter().sum::<f64>(), accepts.len() as f64);
    let stored = |key: &str| value.number(&format!("/aggregate/{key}"));
    let differs =
        |key: &str, want: f64| stored(key).is_some_and(|stored| want.is_finite() && !eq(stored, want));
    let drafted = stored("total_drafted").unwrap_or(f64::NAN);
    let wrong = [
        ("total_accepted", accepted),
        ("total_blocks", blocks),
        ("acceptance_length", accepted / blocks + 1.0),
        ("acceptance_rate", accepted / drafted),
    ]
    .into_iter()
    .find(|(key, want)| differs(key, *want));
    if let Some((key, want)) = wrong {
        let message = text!(
            "{key} does not follow from {blocks} blocks with {accepted} accepted tokens: {want}",
            "{key} 与 {blocks} 个块、{accepted} 个被接受的词元不符：应为 {want}"
        );
        out.push(Finding::new("ACCEPTANCE_MISMATCH", format!("/aggregate/{key}"), message, json!({})));
    }
}
