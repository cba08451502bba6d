//! Kinds without a needle gate: what each states, the rules on it, its verdict (RULES §2, §4, §6.2).

mod batched;
mod bench_e2e;
mod bench_specdecode;
mod capacity;
mod codec;
mod dflash;
mod ladder;
pub(super) mod liveness;
mod platform_tests;
mod primary_decode;
mod serving;
mod sessions;
mod smokes;
mod sweep;
mod training;

pub(super) use primary_decode::nominal_weights;

pub(super) use codec::measured_pass as codec_measured_pass;

use super::Verdict;
use crate::Finding;
use crate::json::{At, round};
use crate::text;
use serde_json::{Map, Value, json};

/// One file of another kind.
pub(super) struct Case<'a> {
    pub value: &'a Value,
    /// Kind, or `nokind:NAME`.
    pub shape: &'a str,
    /// The file's own name; only FILE_RENAMED looks at it.
    pub name: &'a str,
}

/// What a file of another kind states.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Summary {
    /// Samples, sessions, agents or prompts, whichever the kind counts.
    pub n: Option<u64>,
    /// Recall by label; null where the file has none for that row.
    pub recall: Option<Vec<(String, Option<f64>)>>,
    /// What the file claims of itself.
    pub claimed: Option<Value>,
}

/// What the audit knows of one family of kinds.
struct Family {
    /// Whether the family holds a kind or shape.
    holds: fn(&str) -> bool,
    summary: fn(&Case) -> Summary,
    rules: fn(&Case, &mut Vec<Finding>),
    verdict: fn(&Case, &[Finding]) -> Verdict,
}

const FAMILIES: &[Family] = &[
    ladder::FAMILY,
    codec::FAMILY,
    smokes::RESTORED_VERIFIER,
    smokes::FEASIBILITY,
    sweep::FAMILY,
    bench_e2e::FAMILY,
    bench_specdecode::FAMILY,
    dflash::FAMILY,
    training::FAMILY,
    serving::CUDA_MULTITENANT,
    serving::VLLM,
    serving::ENGINE,
    serving::BOUNDED_DECODE,
    batched::BATCHED,
    batched::SERVED_SESSIONS,
    capacity::LOAD_TEST,
    capacity::PRESSURE,
    capacity::DEPLOYMENT,
    primary_decode::PRIMARY_DECODE,
    sessions::LONG_RUN,
    sessions::LONG_SESSION,
    platform_tests::PLATFORM_TESTS,
    platform_tests::PLATFORM_JUNIT,
];

fn family(shape: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| (family.holds)(shape))
}

/// What the file states of itself.
pub(super) fn summary(case: &Case) -> Summary {
    family(case.shape).map_or_else(Summary::default, |family| (family.summary)(case))
}

/// Every rule on the file itself.
pub(super) fn rules(case: &Case, out: &mut Vec<Finding>) {
    if case.value.text("/kind").is_none() {
        let message = text!("the file names no kind", "文件没有注明类型");
        out.push(Finding::new("NO_KIND", "/kind", message, json!({ "shape": case.shape })));
    } else if case.value.at("/schema_version").is_none() {
        let message = text!("the file names no schema version", "文件没有注明格式版本");
        out.push(Finding::new("NO_SCHEMA_VERSION", "/schema_version", message, json!({})));
    }
    if let Some(family) = family(case.shape) {
        (family.rules)(case, out);
    }
}

/// The verdict by the family's own rule; integrity is judged before.
pub(super) fn verdict(case: &Case, findings: &[Finding]) -> Verdict {
    family(case.shape).map_or(Verdict::NotAGateReport, |family| (family.verdict)(case, findings))
}

/// The verdict of kinds without a gate of their own.
fn no_gate(_: &Case, _: &[Finding]) -> Verdict {
    Verdict::NotAGateReport
}

/// A summary that only repeats some keys of the file.
fn claim(value: &Value, pointer: &str, keys: &[&str]) -> Summary {
    Summary { claimed: picked(value, pointer, keys), ..Summary::default() }
}

/// Some keys of the object at a pointer, null where it lacks them.
fn picked(value: &Value, pointer: &str, keys: &[&str]) -> Option<Value> {
    let object = value.at(pointer)?.as_object()?;
    let pairs = keys.iter().map(|key| ((*key).to_owned(), object.get(*key).cloned().unwrap_or_default()));
    Some(Value::Object(pairs.collect::<Map<_, _>>()))
}

/// Elements of the list at a pointer, each with its own pointer; none if there is no list.
fn rows<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = (String, &'a Value)> {
    let list = value.list(pointer).unwrap_or_default();
    list.iter().enumerate().map(move |(i, row)| (format!("{pointer}/{i}"), row))
}

/// A key as one step of a JSON pointer.
fn step(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// SPEEDUP_MISMATCH where rates stand beside the claim: pointers to the claim, the rate above and the rate below.
fn speedup(value: &Value, [claim, above, below]: [&str; 3], tolerance: f64, out: &mut Vec<Finding>) {
    let (Some(claimed), Some(above), Some(below)) =
        (value.number(claim), value.number(above), value.number(below).filter(|rate| *rate != 0.0))
    else {
        return;
    };
    let ratio = above / below;
    if (ratio - claimed).abs() > tolerance {
        let again = round(ratio, 3);
        let message = text!(
            "a ratio of {claimed} is stored, the rates give {again}",
            "存储的比值为 {claimed}，由速率得出 {again}"
        );
        let data = json!({ "claimed": claimed, "recomputed": again });
        out.push(Finding::new("SPEEDUP_MISMATCH", claim, message, data));
    }
}

/// Kinds that never hold an oracle arm.
fn no_oracle(pointer: &str, out: &mut Vec<Finding>) {
    let message = text!("no oracle ran on the same prompts", "没有 oracle 在相同的提示词上运行");
    out.push(Finding::new("ORACLE_MISSING", pointer, message, json!({ "has_sut": true })));
}

/// Kinds that keep no text of a sample.
fn no_texts(pointer: &str, out: &mut Vec<Finding>) {
    let message = text!("no text is kept: recall cannot be recounted", "没有保留文本：召回率无法重新计数");
    out.push(Finding::new("NO_PER_SAMPLE", pointer, message, json!({})));
}
