//! Verifier, tokenizer, drafter and f_θ.

use crate::check::{Check, Finding, Group, Row};
use crate::weights::{self, json};
use protocol::Pack;
use serde_json::Value;
use std::path::PathBuf;

const VERIFIER_CONFIG: Row = Row {
    id: "verifier-config",
    group: Group::Verifier,
    title: "Configuration",
    why: "The engine must know the architecture; the libraries' defaults differ, so every key must be stated.",
};
const VERIFIER_WEIGHTS: Row = Row {
    id: "verifier-weights",
    group: Group::Verifier,
    title: "Weights complete",
    why: "A missing shard or a pointer file fails after minutes of loading, or worse, does not fail.",
};
const TOKENIZER_FILES: Row = Row {
    id: "tokenizer-files",
    group: Group::Tokenizer,
    title: "Tokenizer and chat template",
    why: "Without the model's own template the prompt is another prompt.",
};
const SPECIAL_TOKENS: Row = Row {
    id: "tokenizer-special-tokens",
    group: Group::Tokenizer,
    title: "Special tokens",
    why: "Loaders expect extra_special_tokens to be an object; some converters write a list.",
};
const DRAFTER_WEIGHTS: Row = Row {
    id: "drafter-weights",
    group: Group::Drafter,
    title: "Drafter",
    why: "The drafter runs over the evicted tokens; f_θ projects its K/V.",
};
const F_THETA_WEIGHTS: Row = Row {
    id: "f-theta-weights",
    group: Group::FTheta,
    title: "Projection",
    why: "An untrained or pointer f_θ restores noise.",
};
const DIMENSIONS: Row = Row {
    id: "f-theta-dimensions",
    group: Group::FTheta,
    title: "Dimensions agree",
    why: "f_θ must produce each layer's K/V heads and take the drafter's.",
};
const ALL: [&Row; 7] = [
    &VERIFIER_CONFIG,
    &VERIFIER_WEIGHTS,
    &TOKENIZER_FILES,
    &SPECIAL_TOKENS,
    &DRAFTER_WEIGHTS,
    &F_THETA_WEIGHTS,
    &DIMENSIONS,
];

/// The rows of a pack whose manifest cannot be used.
pub(crate) fn skipped() -> Vec<Check> {
    ALL.iter().map(|row| row.look(|| Err(Finding::skipped("the manifest cannot be used")))).collect()
}

pub(crate) fn checks(pack: &Pack) -> Vec<Check> {
    vec![
        VERIFIER_CONFIG.look(|| verifier_config(pack)),
        VERIFIER_WEIGHTS.look(|| verifier_weights(pack)),
        TOKENIZER_FILES.look(|| tokenizer_files(pack)),
        SPECIAL_TOKENS.look(|| special_tokens(pack)),
        DRAFTER_WEIGHTS.look(|| drafter(pack)),
        F_THETA_WEIGHTS.look(|| f_theta(pack)),
        DIMENSIONS.look(|| dimensions(pack)),
    ]
}

/// The text part of the verifier's configuration.
fn text_config(pack: &Pack) -> Result<Value, Finding> {
    let config = json(&pack.verifier().join("config.json"))?;
    Ok(config.get("text_config").filter(|text| text.is_object()).cloned().unwrap_or(config))
}

fn count(config: &Value, key: &str, file: &str) -> Result<u64, Finding> {
    let value = config.get(key).and_then(Value::as_u64).filter(|value| *value > 0);
    value.ok_or_else(|| {
        Finding::fail(format!("{file} has no positive {key}"), format!("state {key} in {file}"))
    })
}

/// K/V heads and head dimension of every verifier layer.
fn geometry(pack: &Pack) -> Result<Vec<(u64, u64)>, Finding> {
    let config = text_config(pack)?;
    let number = |key| count(&config, key, "the verifier's config.json");
    let shared_kv = config.get("attention_k_eq_v").and_then(Value::as_bool).unwrap_or(false);
    let full_heads =
        if shared_kv { number("num_global_key_value_heads")? } else { number("num_key_value_heads")? };
    let (full, sliding) =
        ((full_heads, number("global_head_dim")?), (number("num_key_value_heads")?, number("head_dim")?));
    let kinds = config.get("layer_types").and_then(Value::as_array);
    let Some(kinds) = kinds.filter(|kinds| kinds.len() as u64 == number("num_hidden_layers").unwrap_or(0))
    else {
        let measured = "layer_types does not name every layer";
        return Err(Finding::fail(measured, "state layer_types in the verifier's config.json"));
    };
    Ok(kinds.iter().map(|kind| if kind == "full_attention" { full } else { sliding }).collect())
}

fn verifier_config(pack: &Pack) -> Result<Finding, Finding> {
    let config = text_config(pack)?;
    let kind = config.get("model_type").and_then(Value::as_str).unwrap_or("none");
    if !["gemma4", "gemma4_text"].contains(&kind) {
        let measured = format!("model_type is {kind}");
        return Err(Finding::fail(measured, "this engine runs gemma4 and gemma4_text verifiers"));
    }
    let layers = geometry(pack)?;
    let types = config
        .get("layer_types")
        .and_then(Value::as_array)
        .map_or(0, |kinds| kinds.iter().filter(|kind| **kind == "full_attention").count());
    let window = count(&config, "sliding_window", "the verifier's config.json")?;
    let experts = config.get("num_experts").and_then(Value::as_u64);
    let mixture = experts.map_or_else(String::new, |experts| format!(" · {experts} experts"));
    Ok(Finding::pass(format!("{kind} · {} layers, {types} full · window {window}{mixture}", layers.len())))
}

fn verifier_weights(pack: &Pack) -> Result<Finding, Finding> {
    let summary = weights::safetensors(&pack.verifier())?;
    let has_embedding = summary.tensors.iter().any(|name| name.ends_with("embed_tokens.weight"));
    if !has_embedding {
        return Err(Finding::fail(
            "no embed_tokens.weight in the headers",
            "copy every shard of the verifier",
        ));
    }
    let (files, tensors) = (summary.files, summary.tensors.len());
    Ok(Finding::pass(format!(
        "{files} file(s), {tensors} tensors, {:.2} MB, sizes match headers",
        summary.bytes as f64 / 1e6
    )))
}

fn tokenizer_files(pack: &Pack) -> Result<Finding, Finding> {
    let folder = pack.verifier();
    let tokenizer = json(&folder.join("tokenizer.json"))?;
    if !tokenizer.get("model").is_some_and(Value::is_object) {
        return Err(Finding::fail("tokenizer.json has no model", "copy tokenizer.json again"));
    }
    let tokens = tokenizer.pointer("/model/vocab").map_or(0, |vocab| {
        vocab.as_object().map(serde_json::Map::len).or_else(|| vocab.as_array().map(Vec::len)).unwrap_or(0)
    });
    let place = template(&folder).ok_or_else(|| {
        Finding::fail(
            "no chat template",
            "add chat_template.jinja, or chat_template to tokenizer_config.json",
        )
    })?;
    Ok(Finding::pass(format!("{tokens} tokens, chat template in {place}")))
}

fn template(folder: &std::path::Path) -> Option<&'static str> {
    if folder.join("chat_template.jinja").is_file() {
        return Some("chat_template.jinja");
    }
    let config = json(&folder.join("tokenizer_config.json")).ok()?;
    config.get("chat_template").filter(|template| !template.is_null()).map(|_| "tokenizer_config.json")
}

fn special_tokens(pack: &Pack) -> Result<Finding, Finding> {
    let config = json(&pack.verifier().join("tokenizer_config.json"))?;
    match config.get("extra_special_tokens") {
        None | Some(Value::Null) => Ok(Finding::pass("no extra_special_tokens")),
        Some(Value::Object(tokens)) => {
            Ok(Finding::pass(format!("{} extra special tokens, an object", tokens.len())))
        }
        Some(Value::Array(list)) => {
            let measured =
                format!("extra_special_tokens is a list of {}; loaders expect an object", list.len());
            Err(Finding::fail(
                measured,
                "turn the list into an object (name → token) in tokenizer_config.json; keep a copy",
            ))
        }
        Some(_) => {
            let measured = "extra_special_tokens is neither an object nor a list";
            Err(Finding::fail(measured, "make it an object (name → token) in tokenizer_config.json"))
        }
    }
}

fn part(path: Option<PathBuf>, name: &str) -> Result<PathBuf, Finding> {
    path.ok_or_else(|| Finding::skipped(format!("the pack has no {name}")))
}

fn drafter(pack: &Pack) -> Result<Finding, Finding> {
    let folder = part(pack.drafter(), "drafter")?;
    let config = json(&folder.join("config.json"))?;
    let layers = count(&config, "num_hidden_layers", "the drafter's config.json")?;
    let summary = weights::safetensors(&folder)?;
    Ok(Finding::pass(format!("{layers} layers, {:.2} MB, not a pointer", summary.bytes as f64 / 1e6)))
}

fn f_theta(pack: &Pack) -> Result<Finding, Finding> {
    let folder = part(pack.f_theta(), "f_θ")?;
    let config = json(&folder.join("f_theta_config.json"))?;
    let rank = count(&config, "rank", "f_theta_config.json")?;
    Ok(Finding::pass(format!("rank {rank}, {}", weights::f_theta(&folder)?)))
}

/// f_θ against the verifier, layer by layer, and against the drafter.
fn dimensions(pack: &Pack) -> Result<Finding, Finding> {
    let folder = part(pack.f_theta(), "f_θ")?;
    let f_theta = json(&folder.join("f_theta_config.json"))?;
    let layers = geometry(pack)?;
    let number = |key| count(&f_theta, key, "f_theta_config.json");
    let differ = |what: String, ours: u64, theirs: u64, of: &str| {
        let measured = format!("{what}: f_θ has {ours}, the {of} {theirs}");
        Err(Finding::fail(measured, format!("use the f_θ that was trained on this {of}")))
    };
    if number("verifier_num_layers")? != layers.len() as u64 {
        return differ("layers".to_owned(), number("verifier_num_layers")?, layers.len() as u64, "verifier");
    }
    let per_layer = |key: &str, fallback: &'static str, layer: usize| {
        let list = f_theta.get(key).and_then(Value::as_array);
        list.and_then(|list| list.get(layer)).and_then(Value::as_u64).map_or_else(|| number(fallback), Ok)
    };
    for (layer, (heads, dim)) in layers.iter().enumerate() {
        let ours = per_layer("verifier_layer_kv_heads", "verifier_num_kv_heads", layer)?;
        if ours != *heads {
            return differ(format!("K/V heads of layer {layer}"), ours, *heads, "verifier");
        }
        let ours = per_layer("verifier_layer_head_dims", "verifier_head_dim", layer)?;
        if ours != *dim {
            return differ(format!("head dimension of layer {layer}"), ours, *dim, "verifier");
        }
    }
    let drafter = json(&part(pack.drafter(), "drafter")?.join("config.json"))?;
    for (key, theirs) in [
        ("drafter_num_layers", "num_hidden_layers"),
        ("drafter_num_kv_heads", "num_key_value_heads"),
        ("drafter_head_dim", "head_dim"),
    ] {
        let (ours, theirs) = (number(key)?, count(&drafter, theirs, "the drafter's config.json")?);
        if ours != theirs {
            return differ(key.to_owned(), ours, theirs, "drafter");
        }
    }
    let mut shapes: Vec<String> = layers.iter().map(|(heads, dim)| format!("{heads} × {dim}")).collect();
    shapes.sort();
    shapes.dedup();
    Ok(Finding::pass(format!("{} layers, K/V heads × dimension {}", layers.len(), shapes.join(" and "))))
}
