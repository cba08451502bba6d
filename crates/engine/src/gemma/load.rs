//! Reading a decoder from a checkpoint.

use super::family::{self, Traits};
use super::{Gemma, KvSource, Layer, Mlp, Moe, PerLayerEmbedding, PerLayerInput};
use crate::Error;
use crate::backend::Backend;
use crate::config::Config;
use crate::gguf::Gguf;
use crate::quantisation::Quantisation;
use crate::weights::Weights;
use protocol::{LayerGeometry, LayerKind, VerifierFacts};
use safetensors::Dtype;
use std::path::{Path, PathBuf};

impl<B: Backend> Gemma<B> {
    /// Loads a folder: `config.json` (nested or flat) with safetensors, as Hugging Face or MLX store them, or one GGUF
    /// file.
    pub fn load(backend: B, folder: &Path) -> Result<Self, Error> {
        let Checkpoint { config, weights, traits, files } = Checkpoint::open(&backend, folder)?;
        let loader = Loader::new(&config, &weights, traits)?;
        let layers =
            (0..loader.layers.len()).map(|i| loader.layer(&backend, i)).collect::<Result<Vec<_>, _>>()?;
        let (embedding, norm, per_layer) = (
            loader.matrix("embed_tokens.weight", [loader.vocabulary, loader.hidden])?,
            loader.norm("norm", loader.hidden)?,
            loader.per_layer_embedding()?,
        );
        let (sliding_frequencies, full_frequencies) = frequencies(&config)?;
        let softcap = match config.value.get("final_logit_softcapping") {
            Some(_) => config.optional("final_logit_softcapping")?,
            None => {
                return Err(config.error("final_logit_softcapping", "is missing; state null for no softcap"));
            }
        };
        Ok(Self {
            vocabulary: loader.vocabulary,
            hidden: loader.hidden,
            eps: config.require("rms_norm_eps")?,
            softcap,
            window: config.count("sliding_window")?,
            sliding_frequencies,
            full_frequencies,
            embedding,
            norm,
            per_layer,
            layers,
            weights_dtype: weights.dtypes(),
            files,
            backend,
        })
    }
}

/// What the configuration of a folder says of its decoder, without a look at its weights.
pub fn outline(folder: &Path) -> Result<VerifierFacts, Error> {
    let config = match Gguf::find(folder)? {
        Some(gguf) => gguf.config()?,
        None => Config::read(folder.join("config.json"))?,
    };
    Quantisation::read(&config)?;
    let (config, _) = family::read(config.section("text_config").unwrap_or(config))?;
    frequencies(&config)?;
    Ok(VerifierFacts {
        model: config.require("model_type")?,
        layers: layer_kinds(&config)?,
        window: config.count("sliding_window")?,
        experts: config
            .require::<bool>("enable_moe_block")?
            .then(|| config.count("num_experts"))
            .transpose()?,
    })
}

/// What a folder holds.
struct Checkpoint<'a, B: Backend> {
    config: Config,
    weights: Weights<'a, B>,
    traits: Traits,
    files: Vec<PathBuf>,
}

impl<'a, B: Backend> Checkpoint<'a, B> {
    fn open(backend: &'a B, folder: &Path) -> Result<Self, Error> {
        if let Some(gguf) = Gguf::find(folder)? {
            let (config, traits) = family::read(gguf.config()?)?;
            let weights = Weights::of_gguf(backend, &gguf)?;
            // llama.cpp's converter has added the 1 already.
            let traits = Traits { norm_offset: 0.0, ..traits };
            return Ok(Self { config, traits, files: weights.files.clone(), weights });
        }
        let outer = Config::read(folder.join("config.json"))?;
        let quantisation = Quantisation::read(&outer)?;
        let mut files = vec![outer.path().to_owned()];
        let (config, traits) = family::read(outer.section("text_config").unwrap_or(outer))?;
        let weights = Weights::open(backend, folder, "model")?.quantised(quantisation);
        files.extend(weights.files.iter().cloned());
        Ok(Self { config, weights, traits, files })
    }
}

/// Reads layers out of a checkpoint.
struct Loader<'a, B: Backend> {
    config: &'a Config,
    weights: &'a Weights<'a, B>,
    prefix: &'static str,
    traits: Traits,
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
    fn new(config: &'a Config, weights: &'a Weights<'a, B>, traits: Traits) -> Result<Self, Error> {
        let layers = layer_kinds(config)?;
        let count = layers.len();
        let shared = config.size("num_kv_shared_layers")?;
        if shared >= count {
            return Err(config.error("num_kv_shared_layers", format!("is {shared} of {count} layers")));
        }
        Ok(Self {
            config,
            weights,
            prefix: prefix(weights),
            traits,
            layers,
            vocabulary: config.count("vocab_size")?,
            hidden: config.count("hidden_size")?,
            intermediate: config.count("intermediate_size")?,
            heads: config.count("num_attention_heads")?,
            shared,
            k_is_v: config.require("attention_k_eq_v")?,
            per_layer_width: config.size("hidden_size_per_layer_input")?,
        })
    }

    /// The weight of the norm `path`.
    fn norm(&self, path: &str, len: usize) -> Result<B::Tensor, Error> {
        let name = format!("{}{path}.weight", self.prefix);
        if self.traits.norm_offset == 0.0 {
            return self.weights.tensor(&name, &[len]);
        }
        let values = self.weights.values(&name, &[len])?;
        let bytes: Vec<u8> =
            values.iter().flat_map(|value| (value + self.traits.norm_offset).to_le_bytes()).collect();
        self.weights.backend().tensor(Dtype::F32, &[len], &bytes)
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
        let norm = |name: &str, len| self.norm(&format!("layers.{i}.{name}"), len);
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
        let scalar = match self.traits.layer_scalar {
            true => self.weights.values(&format!("{}layers.{i}.layer_scalar", self.prefix), &[1])?[0],
            false => 1.0,
        };
        Ok(Layer {
            geometry,
            heads: self.heads,
            input_norm: norm("input_layernorm", hidden)?,
            q: get("self_attn.q_proj", q_width, hidden)?,
            q_norm: norm("self_attn.q_norm", dim)?,
            scale: self.traits.scale,
            v_norm: self.traits.v_norm,
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
        let norm = |name: &str, len| self.norm(&format!("layers.{i}.{name}"), len);
        let get = |name: &str, out, inner| self.matrix(&format!("layers.{i}.{name}.weight"), [out, inner]);
        let name = |name: &str| format!("{}layers.{i}.{name}", self.prefix);
        let stored = |path: &str, shape: [usize; 3]| self.weights.stored(&name(path), &shape);
        let (gate, up, down) = if self.weights.has(&name("experts.gate_up_proj")) {
            let (gate, up) = stored("experts.gate_up_proj", [experts, 2 * inner, hidden])?.halves();
            (gate, up, stored("experts.down_proj", [experts, hidden, inner])?)
        } else {
            (
                stored("experts.switch_glu.gate_proj.weight", [experts, inner, hidden])?,
                stored("experts.switch_glu.up_proj.weight", [experts, inner, hidden])?,
                stored("experts.switch_glu.down_proj.weight", [experts, hidden, inner])?,
            )
        };
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
            norm: self.norm("per_layer_projection_norm", width)?,
        }))
    }
}

/// What the names of the decoder's tensors begin with: flat, nested by Hugging Face, nested by MLX.
fn prefix<B: Backend>(weights: &Weights<'_, B>) -> &'static str {
    let known = ["model.language_model.", "language_model.model."];
    let found = known.into_iter().find(|prefix| weights.has(&format!("{prefix}embed_tokens.weight")));
    found.unwrap_or("model.")
}

/// The kind of each layer: named one by one, or every n-th a full one.
fn layer_kinds(config: &Config) -> Result<Vec<LayerKind>, Error> {
    let count = config.count("num_hidden_layers")?;
    if config.value.get("layer_types").is_none() && config.value.get("sliding_window_pattern").is_some() {
        let pattern = config.count("sliding_window_pattern")?;
        let full = |i: usize| (i + 1).is_multiple_of(pattern);
        return Ok((0..count).map(|i| if full(i) { LayerKind::Full } else { LayerKind::Sliding }).collect());
    }
    let types: Vec<String> = config.require("layer_types")?;
    if types.len() != count {
        let reason = format!("names {} layers where num_hidden_layers is {count}", types.len());
        return Err(config.error("layer_types", reason));
    }
    let kind = |name: &String| match name.as_str() {
        "sliding_attention" => Ok(LayerKind::Sliding),
        "full_attention" => Ok(LayerKind::Full),
        other => Err(config.error("layer_types", format!("has the unknown kind {other:?}"))),
    };
    types.iter().map(kind).collect()
}

/// Inverse frequencies of sliding and of full layers.
fn frequencies(config: &Config) -> Result<(Vec<f32>, Vec<f32>), Error> {
    let rope = config.require_section("rope_parameters")?;
    let one = |key: &str, dim: usize| -> Result<Vec<f32>, Error> {
        let part = rope.require_section(key)?;
        let positive = |key: &str, value: f64| match value > 0.0 && value.is_finite() {
            true => Ok(value),
            false => Err(part.error(key, format!("is {value}; it must be positive"))),
        };
        let theta = positive("rope_theta", part.require("rope_theta")?)?;
        let factor = |default: Option<f64>| {
            let stated = part.optional("factor")?.or(default);
            positive("factor", stated.map_or_else(|| part.require("factor"), Ok)?)
        };
        let (rotated, factor) = match part.require::<String>("rope_type")?.as_str() {
            "default" => (dim / 2, 1.0),
            "linear" => (dim / 2, factor(None)?),
            // Only the first pairs turn; the exponent still counts the whole head.
            "proportional" => {
                let part: f64 = part.require("partial_rotary_factor")?;
                ((part * dim as f64 / 2.0) as usize, factor(Some(1.0))?)
            }
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
