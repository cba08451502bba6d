//! What tells Gemma 3 from Gemma 4, as data: a Gemma 3 configuration is told in the words of Gemma 4's.

use crate::Error;
use crate::config::Config;
use serde_json::{Value, json};

/// What a checkpoint's configuration does not spell out.
pub(super) struct Traits {
    /// Added to every stored norm weight.
    pub norm_offset: f32,
    /// Whether V is normed.
    pub v_norm: bool,
    /// Whether layers end with a scalar of their own.
    pub layer_scalar: bool,
    /// Factor on the scores of attention.
    pub scale: f32,
}

/// The traits of the family that `config` names, and all its keys.
pub(super) fn read(config: Config) -> Result<(Config, Traits), Error> {
    let model: String = config.require("model_type")?;
    let (config, traits) = match model.as_str() {
        "gemma4_text" => (config, Traits { norm_offset: 0.0, v_norm: true, layer_scalar: true, scale: 1.0 }),
        "gemma3_text" => gemma3(config)?,
        _ => {
            let reason = format!("is {model:?}; this program runs gemma3_text and gemma4_text");
            return Err(config.error("model_type", reason));
        }
    };
    refuse_the_unsupported(&config)?;
    Ok((config, traits))
}

/// Source: transformers 5.24 `modeling_gemma3.py`. Unlike Gemma 4's, the defaults of its implementations agree, and
/// published configurations leave them out.
fn gemma3(config: Config) -> Result<(Config, Traits), Error> {
    let config = config.with_defaults(json!({
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "final_logit_softcapping": null,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": true,
    }));
    let rope = match config.section("rope_parameters") {
        Some(rope) => rope.value,
        None => json!({
            "full_attention": scaled_rope(&config)?,
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": config.require::<f64>("rope_local_base_freq")?,
            },
        }),
    };
    let per_head: f32 = config.require("query_pre_attn_scalar")?;
    if !(per_head > 0.0 && per_head.is_finite()) {
        return Err(config.error("query_pre_attn_scalar", format!("is {per_head}; it must be positive")));
    }
    let head_dim = config.count("head_dim")?;
    let config = config.with(json!({
        "rope_parameters": rope,
        "global_head_dim": head_dim,
        "attention_k_eq_v": false,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": false,
    }));
    let scale = per_head.sqrt().recip();
    Ok((config, Traits { norm_offset: 1.0, v_norm: false, layer_scalar: false, scale }))
}

/// Rotation of full layers in the older form of the configuration.
fn scaled_rope(config: &Config) -> Result<Value, Error> {
    let theta: f64 = config.require("rope_theta")?;
    let Some(scaling) = config.section("rope_scaling") else {
        return Ok(json!({"rope_type": "default", "rope_theta": theta}));
    };
    let kind: Option<String> = scaling.optional("rope_type")?;
    let kind: String = kind.map_or_else(|| scaling.require("type"), Ok)?;
    Ok(json!({"rope_type": kind, "rope_theta": theta, "factor": scaling.optional::<f64>("factor")?}))
}

/// Switches that change the arithmetic in ways that no published checkpoint of these families uses.
fn refuse_the_unsupported(config: &Config) -> Result<(), Error> {
    let refuse = |key: &str, value: Value| Err(config.error(key, format!("{value} is not supported yet")));
    for key in ["attn_logit_softcapping", "attention_bias", "use_bidirectional_attention"] {
        match config.value.get(key) {
            // "vision" concerns image tokens, which no text prompt has.
            None | Some(Value::Null | Value::Bool(false)) => {}
            Some(Value::String(kind)) if key == "use_bidirectional_attention" && kind == "vision" => {}
            Some(value) => return refuse(key, value.clone()),
        }
    }
    if !config.require::<bool>("tie_word_embeddings")? {
        return refuse("tie_word_embeddings", json!(false));
    }
    match config.require::<String>("hidden_activation")?.as_str() {
        "gelu_pytorch_tanh" => Ok(()),
        other => refuse("hidden_activation", json!(other)),
    }
}
