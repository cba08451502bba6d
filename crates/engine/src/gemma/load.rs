//! Reading a decoder from a checkpoint.

use super::{Gemma, KvSource, Layer, Mlp, Moe, PerLayerEmbedding, PerLayerInput};
use crate::Error;
use crate::backend::Backend;
use crate::config::Config;
use crate::weights::Weights;
use protocol::{LayerGeometry, LayerKind};
use std::path::Path;

impl<B: Backend> Gemma<B> {
    /// Loads the folder of a Hugging Face checkpoint: `config.json` (nested or flat) and safetensors.
    pub fn load(backend: B, folder: &Path) -> Result<Self, Error> {
        let outer = Config::read(folder.join("config.json"))?;
        let (config, prefix) = match outer.section("text_config") {
            Some(text) => (text, "model.language_model."),
            None => (outer, "model."),
        };
        let model: String = config.require("model_type")?;
        if model != "gemma4_text" {
            return Err(config.error("model_type", format!("is {model:?}; this program runs gemma4_text")));
        }
        let weights = Weights::open(&backend, folder, "model")?;
        let loader = Loader::new(&config, &weights, prefix)?;
        let layers =
            (0..loader.layers.len()).map(|i| loader.layer(&backend, i)).collect::<Result<Vec<_>, _>>()?;
        let (embedding, norm, per_layer) = (
            loader.matrix("embed_tokens.weight", [loader.vocabulary, loader.hidden])?,
            loader.tensor("norm.weight", &[loader.hidden])?,
            loader.per_layer_embedding()?,
        );
        let (sliding_frequencies, full_frequencies) = frequencies(&config)?;
        let (vocabulary, hidden, eps, window) = (
            loader.vocabulary,
            loader.hidden,
            config.require("rms_norm_eps")?,
            config.count("sliding_window")?,
        );
        let softcap = match config.value.get("final_logit_softcapping") {
            Some(_) => config.optional("final_logit_softcapping")?,
            None => {
                return Err(config.error("final_logit_softcapping", "is missing; state null for no softcap"));
            }
        };
        if !config.require::<bool>("tie_word_embeddings")? {
            return Err(config.error("tie_word_embeddings", "false is not supported yet"));
        }
        let activation: String = config.require("hidden_activation")?;
        if activation != "gelu_pytorch_tanh" {
            return Err(config.error("hidden_activation", format!("{activation:?} is not supported yet")));
        }
        let (weights_dtype, files) = (weights.dtypes(), weights.files.clone());
        Ok(Self {
            vocabulary,
            hidden,
            eps,
            softcap,
            window,
            sliding_frequencies,
            full_frequencies,
            embedding,
            norm,
            per_layer,
            layers,
            weights_dtype,
            files,
            backend,
        })
    }
}

/// Reads layers out of a checkpoint.
struct Loader<'a, B: Backend> {
    config: &'a Config,
    weights: &'a Weights<'a, B>,
    prefix: &'static str,
    layers: Vec<LayerKind>,
    vocabulary: usize,
    hidden: usize,
    intermediate: usize,
    heads: usize,
    shared: usize,
    k_is_v: bool,
    per_layer_width: usize,
}

impl<'a, B: Backend> Loader<'a, B> {
    fn new(config: &'a Config, weights: &'a Weights<'a, B>, prefix: &'static str) -> Result<Self, Error> {
        let types: Vec<String> = config.require("layer_types")?;
        let kind = |name: &String| match name.as_str() {
            "sliding_attention" => Ok(LayerKind::Sliding),
            "full_attention" => Ok(LayerKind::Full),
            other => Err(config.error("layer_types", format!("has the unknown kind {other:?}"))),
        };
        let layers = types.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
        let count = config.count("num_hidden_layers")?;
        if layers.len() != count {
            let reason = format!("names {} layers where num_hidden_layers is {count}", layers.len());
            return Err(config.error("layer_types", reason));
        }
        let shared = config.require("num_kv_shared_layers")?;
        if shared >= count {
            return Err(config.error("num_kv_shared_layers", format!("is {shared} of {count} layers")));
        }
        Ok(Self {
            config,
            weights,
            prefix,
            layers,
            vocabulary: config.count("vocab_size")?,
            hidden: config.count("hidden_size")?,
            intermediate: config.count("intermediate_size")?,
            heads: config.count("num_attention_heads")?,
            shared,
            k_is_v: config.require("attention_k_eq_v")?,
            per_layer_width: config.require("hidden_size_per_layer_input")?,
        })
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<B::Tensor, Error> {
        self.weights.tensor(&format!("{}{name}", self.prefix), shape)
    }

    fn matrix(&self, name: &str, shape: [usize; 2]) -> Result<B::Weight, Error> {
        self.weights.matrix(&format!("{}{name}", self.prefix), shape)
    }

    fn geometry(&self, layer: usize) -> Result<LayerGeometry, Error> {
        let (config, kind) = (self.config, self.layers[layer]);
        let full = kind == LayerKind::Full;
        let head_dim = config.count(if full { "global_head_dim" } else { "head_dim" })?;
        let global = if full && self.k_is_v { config.optional("num_global_key_value_heads")? } else { None };
        let kv_heads = global.map_or_else(|| config.count("num_key_value_heads"), Ok)?;
        if kv_heads == 0 || !self.heads.is_multiple_of(kv_heads) {
            let reason = format!("{kv_heads} K/V heads do not divide {} query heads", self.heads);
            return Err(config.error("num_key_value_heads", reason));
        }
        if !head_dim.is_multiple_of(2) {
            return Err(config.error("head_dim", format!("{head_dim} is odd; rotation works on pairs")));
        }
        Ok(LayerGeometry { kind, kv_heads, head_dim })
    }

    fn layer(&self, backend: &B, i: usize) -> Result<Layer<B>, Error> {
        let geometry = self.geometry(i)?;
        let own = self.layers.len() - self.shared;
        let norm = |name: &str, len| self.tensor(&format!("layers.{i}.{name}.weight"), &[len]);
        let get = |name: &str, out, inner| self.matrix(&format!("layers.{i}.{name}.weight"), [out, inner]);
        let (hidden, dim) = (self.hidden, geometry.head_dim);
        let (q_width, kv_width) = (self.heads * dim, geometry.kv_heads * dim);
        let no_v = self.k_is_v && geometry.kind == LayerKind::Full;
        let kv = if i < own {
            let v = if no_v { None } else { Some(get("self_attn.v_proj", kv_width, hidden)?) };
            let k = get("self_attn.k_proj", kv_width, hidden)?;
            KvSource::Own { k, v, k_norm: norm("self_attn.k_norm", dim)? }
        } else {
            let source = self.layers[..own].iter().rposition(|kind| *kind == geometry.kind);
            KvSource::Shared(source.ok_or_else(|| {
                self.config
                    .error("num_kv_shared_layers", format!("layer {i} has no earlier layer of its kind"))
            })?)
        };
        let wide = i >= own && self.config.require::<bool>("use_double_wide_mlp")?;
        let inner = self.intermediate * if wide { 2 } else { 1 };
        let scalar = self.weights.values(&format!("{}layers.{i}.layer_scalar", self.prefix), &[1])?[0];
        Ok(Layer {
            geometry,
            heads: self.heads,
            input_norm: norm("input_layernorm", hidden)?,
            q: get("self_attn.q_proj", q_width, hidden)?,
            q_norm: norm("self_attn.q_norm", dim)?,
            kv,
            o: get("self_attn.o_proj", hidden, q_width)?,
            post_attention_norm: norm("post_attention_layernorm", hidden)?,
            pre_feedforward_norm: norm("pre_feedforward_layernorm", hidden)?,
            post_feedforward_norm: norm("post_feedforward_layernorm", hidden)?,
            mlp: Mlp {
                gate: get("mlp.gate_proj", inner, hidden)?,
                up: get("mlp.up_proj", inner, hidden)?,
                down: get("mlp.down_proj", hidden, inner)?,
            },
            moe: if self.config.require("enable_moe_block")? { Some(self.moe(backend, i)?) } else { None },
            per_layer: match self.per_layer_width {
                0 => None,
                width => Some(PerLayerInput {
                    gate: get("per_layer_input_gate", width, hidden)?,
                    projection: get("per_layer_projection", hidden, width)?,
                    norm: norm("post_per_layer_input_norm", hidden)?,
                }),
            },
            scalar,
        })
    }

    fn moe(&self, backend: &B, i: usize) -> Result<Moe<B>, Error> {
        let (experts, top_k) = (self.config.count("num_experts")?, self.config.count("top_k_experts")?);
        if top_k > experts {
            return Err(self
                .config
                .error("top_k_experts", format!("{top_k} is more than num_experts = {experts}")));
        }
        let (hidden, inner) = (self.hidden, self.config.count("moe_intermediate_size")?);
        let norm = |name: &str, len| self.tensor(&format!("layers.{i}.{name}.weight"), &[len]);
        let get = |name: &str, out, inner| self.matrix(&format!("layers.{i}.{name}.weight"), [out, inner]);
        let name = |name: &str| format!("{}layers.{i}.{name}", self.prefix);
        let stored = |path: &str, shape: [usize; 3]| self.weights.stored(&name(path), &shape);
        let (gate, up) = stored("experts.gate_up_proj", [experts, 2 * inner, hidden])?.halves();
        let down = stored("experts.down_proj", [experts, hidden, inner])?;
        let factors = self.weights.values(&name("router.per_expert_scale"), &[experts])?;
        let router_scale = self.weights.tensor(&name("router.scale"), &[hidden])?;
        Ok(Moe {
            top_k,
            router_norm: backend.scale(&router_scale, (hidden as f32).powf(-0.5))?,
            router: get("router.proj", experts, hidden)?,
            experts: backend.experts(gate, up, down, factors)?,
            post_dense_norm: norm("post_feedforward_layernorm_1", hidden)?,
            pre_experts_norm: norm("pre_feedforward_layernorm_2", hidden)?,
            post_experts_norm: norm("post_feedforward_layernorm_2", hidden)?,
        })
    }

    fn per_layer_embedding(&self) -> Result<Option<PerLayerEmbedding<B>>, Error> {
        let width = self.per_layer_width;
        if width == 0 {
            return Ok(None);
        }
        let all = width * self.layers.len();
        let vocabulary = self.config.count("vocab_size_per_layer_input")?;
        Ok(Some(PerLayerEmbedding {
            width,
            table: self.matrix("embed_tokens_per_layer.weight", [vocabulary, all])?,
            projection: self.matrix("per_layer_model_projection.weight", [all, self.hidden])?,
            norm: self.tensor("per_layer_projection_norm.weight", &[width])?,
        }))
    }
}

/// Inverse frequencies of sliding and of full layers.
fn frequencies(config: &Config) -> Result<(Vec<f32>, Vec<f32>), Error> {
    let rope = config.require_section("rope_parameters")?;
    let one = |key: &str, dim: usize| -> Result<Vec<f32>, Error> {
        let part = rope.require_section(key)?;
        let theta: f64 = part.require("rope_theta")?;
        let factor: f64 = part.optional("factor")?.unwrap_or(1.0);
        let rotated = match part.require::<String>("rope_type")?.as_str() {
            "default" => dim / 2,
            // Only the first pairs turn; the exponent still counts the whole head.
            "proportional" => (part.require::<f64>("partial_rotary_factor")? * dim as f64 / 2.0) as usize,
            other => return Err(part.error("rope_type", format!("{other:?} is not supported yet"))),
        };
        let frequency = |j: usize| theta.powf(-2.0 * j as f64 / dim as f64) / factor;
        Ok((0..dim / 2).map(|j| if j < rotated { frequency(j) as f32 } else { 0.0 }).collect())
    };
    Ok((
        one("sliding_attention", config.count("head_dim")?)?,
        one("full_attention", config.count("global_head_dim")?)?,
    ))
}
