//! The layout of needle evidence, typed. What does not fit is named by its pointer; every rule reads it as absent.
//!
//! Unknown keys are no error, and every key may be missing: old schemas lack whole blocks.

use crate::json::{integer, whole};
use crate::model::{Provenance, Restoration};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Number, Value};
use serde_path_to_error::{Path, Segment};
use std::collections::BTreeMap;
use ts_rs::TS;

/// A field of the wrong type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS, JsonSchema)]
pub struct Malformed {
    /// JSON pointer to the field.
    pub pointer: String,
    /// What was expected and what stands there.
    pub message: String,
}

/// A file with more malformed fields than this is malformed throughout; the first ones tell enough.
const MOST: usize = 20;

/// A whole number; 24.0 is one, as 24 is.
struct Integer;

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = Value::from(Number::deserialize(from)?);
        integer(&number).map(|_| Self).ok_or_else(|| D::Error::custom(format!("{number} is no whole number")))
    }
}

/// A whole number of at least 0.
struct Whole;

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = Value::from(Number::deserialize(from)?);
        let not = || D::Error::custom(format!("{number} is no whole number of at least 0"));
        whole(&number).map(|_| Self).ok_or_else(not)
    }
}

type Flags = Option<Vec<Option<bool>>>;
type Numbers = Option<Vec<Option<Number>>>;

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the types are of interest")]
struct Layout {
    schema_version: Option<Number>,
    config: Option<Config>,
    results: Option<BTreeMap<String, Option<Arm>>>,
    attention_window: Option<Windows>,
    memory: Option<Map<String, Value>>,
    throughput: Option<BTreeMap<String, Value>>,
    gate: Option<Gate>,
    kl: Option<Codec>,
    stateful: Option<bool>,
    restoration: Option<BTreeMap<String, Restoration>>,
    stage_timings: Option<BTreeMap<String, Vec<Stage>>>,
    provenance: Option<Provenance>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the types are of interest")]
struct Config {
    n_samples: Option<Whole>,
    seed: Option<Integer>,
    haystack_min_lines: Option<Whole>,
    haystack_max_lines: Option<Whole>,
    sink_size: Option<Whole>,
    window_size: Option<Whole>,
    max_new_tokens: Option<Whole>,
    prompt_token_len_min: Option<Whole>,
    prompt_token_len_max: Option<Whole>,
    prompt_token_lens: Option<Vec<Whole>>,
    decode_warmup_tokens: Option<Whole>,
    model: Option<String>,
    verifier_id: Option<String>,
    verifier_path: Option<String>,
    drafter_id: Option<String>,
    f_theta_dir: Option<String>,
    device: Option<String>,
    dtype: Option<String>,
    attn_impl: Option<String>,
    eval_mode: Option<String>,
    decode: Option<String>,
    s5_exact_full_attn: Option<bool>,
    identity_restore: Option<bool>,
    teacher_forced: Option<bool>,
    compress_full_attn: Option<bool>,
    direct_answer_prompt: Option<bool>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the types are of interest")]
struct Arm {
    recall: Option<Number>,
    samples_correct: Option<Whole>,
    samples_total: Option<Whole>,
    mean_latency_s: Option<Number>,
    median_latency_s: Option<Number>,
    per_sample_decoded: Option<Vec<Option<String>>>,
    per_sample_correct: Flags,
    per_sample_decode_tokens: Numbers,
    per_sample_throughput_tokens_per_sec: Numbers,
    mean_throughput_tokens_per_sec: Option<Number>,
    median_throughput_tokens_per_sec: Option<Number>,
    min_throughput_tokens_per_sec: Option<Number>,
    max_throughput_tokens_per_sec: Option<Number>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the types are of interest")]
struct Windows {
    per_config: Option<BTreeMap<String, Window>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the types are of interest")]
struct Window {
    effective_keys_at_last_query_mean: Option<Number>,
    effective_attention_fraction_mean: Option<Number>,
    per_sample: Option<Vec<WindowRow>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the types are of interest")]
struct WindowRow {
    seq_len: Option<Whole>,
    effective_keys_at_last_query: Option<Whole>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the types are of interest")]
struct Gate {
    architectural_correctness: Option<bool>,
    recall_cross_model: Option<Number>,
    recall_oracle: Option<Number>,
    recall_delta_vs_oracle_pp: Option<Number>,
    recall_delta_within_5pp: Option<bool>,
    evidence_violations: Option<Vec<Value>>,
    v04_vs_oracle_delta: Option<Number>,
    v04_recall_ge_0_95: Option<bool>,
    v04_within_5pct_of_oracle: Option<bool>,
    v04_vs_v03_improvement: Option<Number>,
    v04_dominates_v03: Option<bool>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the types are of interest")]
struct Codec {
    kl_on: Option<bool>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the types are of interest")]
struct Stage {
    prefill_s: Option<Number>,
    decode_s: Option<Number>,
    e2e_s: Option<Number>,
    build_restoration_s: Option<Number>,
    restoration_active: Option<bool>,
}

/// The malformed fields of a needle file, in the order of the layout, each named once.
pub(crate) fn malformed(value: &Value) -> Vec<Malformed> {
    let mut found = Vec::new();
    let mut patched: Option<Value> = None;
    while found.len() < MOST {
        let document = patched.as_ref().unwrap_or(value);
        let Err(error) = serde_path_to_error::deserialize::<_, Layout>(document) else { break };
        let pointer = pointer(error.path());
        let message = error.inner().to_string();
        found.push(Malformed { pointer: pointer.clone(), message });
        let place = patched.get_or_insert_with(|| value.clone()).pointer_mut(&pointer);
        match place.filter(|place| !place.is_null()) {
            Some(place) => *place = Value::Null,
            None => break,
        }
    }
    found
}

fn pointer(path: &Path) -> String {
    path.iter()
        .map(|segment| match segment {
            Segment::Seq { index } => format!("/{index}"),
            Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { variant } => format!("/{variant}"),
            Segment::Unknown => String::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_malformed_field_is_named_by_its_pointer() {
        let value = json!({
            "schema_version": "two",
            "config": { "n_samples": -1, "seed": 42.0, "sink_size": 4.0, "verifier_id": 7, "unknown": [] },
            "results": { "a/b": { "per_sample_decoded": ["x", 3], "samples_correct": 1.5 } },
        });
        let found: Vec<String> =
            malformed(&value).into_iter().map(|m| format!("{}: {}", m.pointer, m.message)).collect();
        insta::assert_snapshot!(found.join("\n"), @r#"
        /schema_version: invalid type: string "two", expected a JSON number
        /config/n_samples: -1 is no whole number of at least 0
        /config/verifier_id: invalid type: integer `7`, expected a string
        /results/a~1b/per_sample_decoded/1: invalid type: integer `3`, expected a string
        /results/a~1b/samples_correct: 1.5 is no whole number of at least 0
        "#);
    }

    #[test]
    fn a_block_of_the_wrong_type_is_named_whole() {
        let found = malformed(&json!({ "config": 7, "results": { "oracle": [] } }));
        let pointers: Vec<&str> = found.iter().map(|field| field.pointer.as_str()).collect();
        assert_eq!(pointers, ["/config", "/results/oracle"]);
        assert!(malformed(&json!({})).is_empty());
    }
}
