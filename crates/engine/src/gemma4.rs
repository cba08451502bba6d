//! The Gemma 4 text decoder, dense and mixture of experts, with the places where K/V are captured and injected.
//!
//! Semantics follow transformers 5.24 `modeling_gemma4.py`; where the references differ, the configuration must say what
//! is meant.

use crate::Error;
use crate::backend::{Activation, Backend, Mask};
use crate::config::Config;
use crate::weights::Weights;
use protocol::{LayerGeometry, LayerKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Which rows of logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Every position's.
    All,
    /// The last position's: all that decoding needs. The last layer then works on that row alone.
    Last,
}

/// Raw K and V of one layer, before norm and rotation: [positions, kv_heads, head_dim] each.
#[derive(Clone, Debug)]
pub struct RawKv<T> {
    /// Keys.
    pub k: T,
    /// Values; equal to the keys on layers without a V projection.
    pub v: T,
}

/// Where injected K/V come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Projected by f_θ.
    FTheta,
    /// Captured from a clean forward of the verifier.
    Capture,
}

/// K/V to put in place of the decoder's own at a run of positions, layer by layer.
pub struct Injection<T> {
    /// The evicted positions.
    pub positions: Range<usize>,
    /// For each layer its rows at those positions; none on layers that share another layer's K/V.
    pub layers: Vec<Option<(Source, RawKv<T>)>>,
}

/// Keeps count, at the place where it happens, of what was injected.
pub trait Witness {
    /// `positions` rows of `layer`, `bytes` of K and V together, were replaced by those of `source`.
    fn injected(&mut self, layer: usize, source: Source, positions: usize, bytes: u64);
}

/// K and V of one layer, after norm and rotation, where a layer has its own.
type Held<T> = Option<(T, T)>;

/// K/V of the positions so far, after norm and rotation, [kv_heads, positions, head_dim].
pub struct Cache<T> {
    positions: usize,
    layers: Vec<Held<T>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { positions: 0, layers: Vec::new() }
    }
}

impl<T> Cache<T> {
    /// Positions so far.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Bytes of the arrays that are held.
    pub fn bytes<B: Backend<Tensor = T>>(&self, backend: &B) -> u64 {
        self.layers.iter().flatten().map(|(k, v)| backend.bytes(k) + backend.bytes(v)).sum()
    }
}

/// How one forward pass differs from a plain one.
pub struct Pass<'a, T> {
    /// Replaces the native masks of every layer.
    pub mask: Option<Mask>,
    /// K/V to inject.
    pub injection: Option<&'a Injection<T>>,
    /// Told of every injection.
    pub witness: Option<&'a mut dyn Witness>,
    /// K/V of earlier positions; this pass appends its own.
    pub cache: Option<&'a mut Cache<T>>,
    /// Rows of logits.
    pub rows: Rows,
    /// Raised to give up at the next layer.
    pub cancel: &'a AtomicBool,
}

impl<'a, T> Pass<'a, T> {
    /// A plain pass over a whole sequence.
    pub fn plain(rows: Rows, cancel: &'a AtomicBool) -> Self {
        Self { mask: None, injection: None, witness: None, cache: None, rows, cancel }
    }
}

/// What is collected on the way through the layers, and where to stop.
struct Capture<T> {
    wanted: Vec<bool>,
    positions: Range<usize>,
    layers: Vec<Option<RawKv<T>>>,
}

/// The decoder.
pub struct Gemma4<B: Backend> {
    backend: B,
    hidden: usize,
    eps: f32,
    softcap: Option<f32>,
    window: usize,
    sliding_frequencies: Vec<f32>,
    full_frequencies: Vec<f32>,
    embedding: B::Tensor,
    norm: B::Tensor,
    per_layer: Option<PerLayerEmbedding<B>>,
    layers: Vec<Layer<B>>,
    weights_dtype: String,
    files: Vec<PathBuf>,
}

/// Per-layer embeddings: an extra input of width `width` to every layer.
struct PerLayerEmbedding<B: Backend> {
    width: usize,
    table: B::Tensor,
    projection: B::Tensor,
    norm: B::Tensor,
}

struct Layer<B: Backend> {
    geometry: LayerGeometry,
    heads: usize,
    input_norm: B::Tensor,
    q: B::Tensor,
    q_norm: B::Tensor,
    kv: KvSource<B>,
    o: B::Tensor,
    post_attention_norm: B::Tensor,
    pre_feedforward_norm: B::Tensor,
    post_feedforward_norm: B::Tensor,
    mlp: Mlp<B>,
    moe: Option<Moe<B>>,
    per_layer: Option<PerLayerInput<B>>,
    scalar: f32,
}

enum KvSource<B: Backend> {
    /// Projections of the layer's own; no `v` where V is the raw K.
    Own { k: B::Tensor, v: Option<B::Tensor>, k_norm: B::Tensor },
    /// K/V of an earlier layer.
    Shared(usize),
}

struct Mlp<B: Backend> {
    gate: B::Tensor,
    up: B::Tensor,
    down: B::Tensor,
}

struct Moe<B: Backend> {
    top_k: usize,
    /// `router.scale / √hidden`, the weight of the router's norm.
    router_norm: B::Tensor,
    router: B::Tensor,
    experts: B::Experts,
    post_dense_norm: B::Tensor,
    pre_experts_norm: B::Tensor,
    post_experts_norm: B::Tensor,
}

struct PerLayerInput<B: Backend> {
    gate: B::Tensor,
    projection: B::Tensor,
    norm: B::Tensor,
}

impl<B: Backend> Gemma4<B> {
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
            loader.tensor("embed_tokens.weight", &[loader.vocabulary, loader.hidden])?,
            loader.tensor("norm.weight", &[loader.hidden])?,
            loader.per_layer_embedding()?,
        );
        let (sliding_frequencies, full_frequencies) = frequencies(&config)?;
        let (hidden, eps, window) =
            (loader.hidden, config.require("rms_norm_eps")?, config.count("sliding_window")?);
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

    /// The tensor library.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Hidden size.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Geometry of each layer's K/V.
    pub fn geometry(&self) -> Vec<LayerGeometry> {
        self.layers.iter().map(|layer| layer.geometry).collect()
    }

    /// Whether `layer` projects K/V of its own, and whether it projects V.
    pub fn projects(&self, layer: usize) -> (bool, bool) {
        match &self.layers[layer].kv {
            KvSource::Own { v, .. } => (true, v.is_some()),
            KvSource::Shared(_) => (false, false),
        }
    }

    /// Number type of the stored weights.
    pub fn weights_dtype(&self) -> &str {
        &self.weights_dtype
    }

    /// Weight files.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Raw embedding rows times `scale`: [T, hidden].
    pub fn embed(&self, ids: &[u32], scale: f32) -> Result<B::Tensor, Error> {
        let vocabulary = self.backend.shape(&self.embedding)[0];
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
            return Err(Error::Trial(format!(
                "token {id} is outside the verifier's vocabulary of {vocabulary}"
            )));
        }
        self.backend.embed(&self.embedding, ids, scale)
    }

    /// Logits [rows, vocabulary] of `ids`, which follow the cached positions if there is a cache.
    pub fn logits(&self, ids: &[u32], pass: Pass<'_, B::Tensor>) -> Result<B::Tensor, Error> {
        let h = self.layers(ids, pass, None)?;
        let logits = self.backend.linear(&self.norm(&h, &self.norm)?, &self.embedding)?;
        self.softcap.map_or(Ok(logits.clone()), |cap| self.backend.softcap(&logits, cap))
    }

    /// Raw K/V at `positions` of a clean forward over `ids`, for the layers that are `wanted` and have K/V of their own.
    /// Stops as soon as the last of them is known.
    pub fn capture(
        &self,
        ids: &[u32],
        wanted: Vec<bool>,
        positions: Range<usize>,
        cancel: &AtomicBool,
    ) -> Result<Vec<Option<RawKv<B::Tensor>>>, Error> {
        let mut capture = Capture { wanted, positions, layers: self.layers.iter().map(|_| None).collect() };
        self.layers(ids, Pass::plain(Rows::All, cancel), Some(&mut capture))?;
        Ok(capture.layers)
    }

    /// The hidden states after the last layer, or whatever was reached when a capture was complete.
    fn layers(
        &self,
        ids: &[u32],
        mut pass: Pass<'_, B::Tensor>,
        mut capture: Option<&mut Capture<B::Tensor>>,
    ) -> Result<B::Tensor, Error> {
        let b = &self.backend;
        let before = pass.cache.as_ref().map_or(0, |cache| cache.positions);
        let positions = before..before + ids.len();
        let sliding = b.angles(&self.sliding_frequencies, positions.clone())?;
        let full = b.angles(&self.full_frequencies, positions.clone())?;
        let last_captured =
            capture.as_ref().and_then(|capture| capture.wanted.iter().rposition(|wanted| *wanted));
        let keep_all = pass.mask.is_some();
        let mut h = self.embed(ids, (self.hidden as f32).sqrt())?;
        let mut per_layer = self.per_layer_inputs(ids, &h)?;
        let mut memory: Vec<Held<B::Tensor>> = match pass.cache.as_mut() {
            Some(cache) if before > 0 => std::mem::take(&mut cache.layers),
            _ => self.layers.iter().map(|_| None).collect(),
        };
        for (i, layer) in self.layers.iter().enumerate() {
            if pass.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let kind = layer.geometry.kind;
            let angles = if kind == LayerKind::Full { &full } else { &sliding };
            let mut x = self.norm(&h, &layer.input_norm)?;
            if let KvSource::Own { k, v, k_norm } = &layer.kv {
                let mut own = self.project(layer, &x, k, v.as_ref())?;
                if let Some(capture) = capture.as_mut() {
                    capture.take(b, i, &own)?;
                    if last_captured == Some(i) {
                        return Ok(h);
                    }
                }
                if let Some(injection) = pass.injection {
                    let witness = pass.witness.as_mut().map(|witness| &mut **witness as &mut dyn Witness);
                    own = self.inject(i, own, injection, witness)?;
                }
                let k = b.head_major(&b.rope(&self.norm(&own.k, k_norm)?, angles)?)?;
                let v = b.head_major(&b.rms_norm(&own.v, None, self.eps)?)?;
                memory[i] = Some(match memory[i].take() {
                    Some((old_k, old_v)) => (b.concat(1, &[&old_k, &k])?, b.concat(1, &[&old_v, &v])?),
                    None => (k, v),
                });
            }
            // Nobody reads the other rows after the last layer's K/V.
            let narrow = pass.rows == Rows::Last && i + 1 == self.layers.len() && ids.len() > 1;
            let mut own_angles = None;
            if narrow {
                let last = ids.len() - 1..ids.len();
                (h, x) = (b.slice(&h, 0, last.clone())?, b.slice(&x, 0, last.clone())?);
                if let Some(inputs) = per_layer.as_mut() {
                    inputs[i] = b.slice(&inputs[i], 0, last)?;
                }
                let frequencies =
                    if kind == LayerKind::Full { &self.full_frequencies } else { &self.sliding_frequencies };
                own_angles = Some(b.angles(frequencies, positions.end - 1..positions.end)?);
            }
            let q = b.split_heads(&b.linear(&x, &layer.q)?, layer.heads)?;
            let q = b.rope(&self.norm(&q, &layer.q_norm)?, own_angles.as_ref().unwrap_or(angles))?;
            let source = if let KvSource::Shared(source) = layer.kv { source } else { i };
            let (k, v) =
                memory[source].as_ref().ok_or_else(|| Error::Tensor(format!("layer {i} has no K/V")))?;
            let mask = pass.mask.unwrap_or(match kind {
                LayerKind::Full => Mask::Causal,
                LayerKind::Sliding => Mask::Sliding { window: self.window },
            });
            let attention = b.attention(&b.head_major(&q)?, k, v, 1.0, mask)?;
            h = b.add(&h, &self.norm(&b.linear(&attention, &layer.o)?, &layer.post_attention_norm)?)?;
            h = b.add(&h, &self.norm(&self.feed_forward(layer, &h)?, &layer.post_feedforward_norm)?)?;
            if let (Some(inputs), Some(input)) = (&per_layer, &layer.per_layer) {
                let gated = b.gated(Activation::GeluTanh, &b.linear(&h, &input.gate)?, &inputs[i])?;
                h = b.add(&h, &self.norm(&b.linear(&gated, &input.projection)?, &input.norm)?)?;
            }
            h = b.scale(&h, layer.scalar)?;
        }
        if let Some(cache) = pass.cache {
            cache.positions = positions.end;
            cache.layers = if keep_all { memory } else { self.trim(memory)? };
        }
        Ok(h)
    }

    fn norm(&self, x: &B::Tensor, weight: &B::Tensor) -> Result<B::Tensor, Error> {
        self.backend.rms_norm(x, Some(weight), self.eps)
    }

    fn project(
        &self,
        layer: &Layer<B>,
        x: &B::Tensor,
        k: &B::Tensor,
        v: Option<&B::Tensor>,
    ) -> Result<RawKv<B::Tensor>, Error> {
        let heads =
            |weight| self.backend.split_heads(&self.backend.linear(x, weight)?, layer.geometry.kv_heads);
        let k = heads(k)?;
        let v = v.map_or(Ok(k.clone()), heads)?;
        Ok(RawKv { k, v })
    }

    /// Replaces the rows at the evicted positions, before norm and rotation, so that both apply to them as to the own.
    fn inject(
        &self,
        layer: usize,
        own: RawKv<B::Tensor>,
        injection: &Injection<B::Tensor>,
        witness: Option<&mut dyn Witness>,
    ) -> Result<RawKv<B::Tensor>, Error> {
        let b = &self.backend;
        let Some((source, rows)) = &injection.layers[layer] else { return Ok(own) };
        let start = injection.positions.start;
        let restored =
            RawKv { k: b.replace_rows(&own.k, start, &rows.k)?, v: b.replace_rows(&own.v, start, &rows.v)? };
        if let Some(witness) = witness {
            witness.injected(layer, *source, b.shape(&rows.k)[0], b.bytes(&rows.k) + b.bytes(&rows.v));
        }
        Ok(restored)
    }

    fn feed_forward(&self, layer: &Layer<B>, h: &B::Tensor) -> Result<B::Tensor, Error> {
        let b = &self.backend;
        let x = self.norm(h, &layer.pre_feedforward_norm)?;
        let (gate, up) = (b.linear(&x, &layer.mlp.gate)?, b.linear(&x, &layer.mlp.up)?);
        let dense = b.linear(&b.gated(Activation::GeluTanh, &gate, &up)?, &layer.mlp.down)?;
        let Some(moe) = &layer.moe else { return Ok(dense) };
        // The router reads the residual stream itself, not the normed input of the experts.
        let scores = b.linear(&self.norm(h, &moe.router_norm)?, &moe.router)?;
        let x = self.norm(h, &moe.pre_experts_norm)?;
        let mixture = b.mixture(&x, &scores, moe.top_k, &moe.experts)?;
        b.add(&self.norm(&dense, &moe.post_dense_norm)?, &self.norm(&mixture, &moe.post_experts_norm)?)
    }

    /// For each layer its extra input [T, width].
    fn per_layer_inputs(&self, ids: &[u32], h: &B::Tensor) -> Result<Option<Vec<B::Tensor>>, Error> {
        let b = &self.backend;
        let Some(ple) = &self.per_layer else { return Ok(None) };
        let count = self.layers.len();
        let token = b.split_heads(&b.embed(&ple.table, ids, (ple.width as f32).sqrt())?, count)?;
        let context = b.scale(&b.linear(h, &ple.projection)?, (self.hidden as f32).powf(-0.5))?;
        let context = self.norm(&b.split_heads(&context, count)?, &ple.norm)?;
        let both = b.head_major(&b.scale(&b.add(&context, &token)?, 0.5f32.sqrt())?)?;
        let part = |i| b.squeeze(&b.slice(&both, 0, i..i + 1)?);
        (0..count).map(part).collect::<Result<_, _>>().map(Some)
    }

    /// Drops what a sliding layer cannot see any more: the next query and the `window - 1` keys before it remain.
    fn trim(&self, memory: Vec<Held<B::Tensor>>) -> Result<Vec<Held<B::Tensor>>, Error> {
        let b = &self.backend;
        let trimmed = |(layer, kv): (&Layer<B>, Held<B::Tensor>)| {
            let Some((k, v)) = kv else { return Ok(None) };
            let held = b.shape(&k)[1];
            if layer.geometry.kind == LayerKind::Full || held < self.window {
                return Ok(Some((k, v)));
            }
            let range = held + 1 - self.window..held;
            Ok(Some((b.slice(&k, 1, range.clone())?, b.slice(&v, 1, range)?)))
        };
        self.layers.iter().zip(memory).map(trimmed).collect()
    }
}

impl<T: Clone> Capture<T> {
    fn take<B: Backend<Tensor = T>>(
        &mut self,
        backend: &B,
        layer: usize,
        own: &RawKv<T>,
    ) -> Result<(), Error> {
        if self.wanted[layer] {
            let part = |x| backend.slice(x, 0, self.positions.clone());
            self.layers[layer] = Some(RawKv { k: part(&own.k)?, v: part(&own.v)? });
        }
        Ok(())
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
        self.weights.get(&format!("{}{name}", self.prefix), shape)
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
        let get = |name: &str, shape: &[usize]| self.tensor(&format!("layers.{i}.{name}"), shape);
        let (hidden, dim) = (self.hidden, geometry.head_dim);
        let (q_width, kv_width) = (self.heads * dim, geometry.kv_heads * dim);
        let no_v = self.k_is_v && geometry.kind == LayerKind::Full;
        let kv = if i < own {
            let v = if no_v { None } else { Some(get("self_attn.v_proj.weight", &[kv_width, hidden])?) };
            let k = get("self_attn.k_proj.weight", &[kv_width, hidden])?;
            KvSource::Own { k, v, k_norm: get("self_attn.k_norm.weight", &[dim])? }
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
            input_norm: get("input_layernorm.weight", &[hidden])?,
            q: get("self_attn.q_proj.weight", &[q_width, hidden])?,
            q_norm: get("self_attn.q_norm.weight", &[dim])?,
            kv,
            o: get("self_attn.o_proj.weight", &[hidden, q_width])?,
            post_attention_norm: get("post_attention_layernorm.weight", &[hidden])?,
            pre_feedforward_norm: get("pre_feedforward_layernorm.weight", &[hidden])?,
            post_feedforward_norm: get("post_feedforward_layernorm.weight", &[hidden])?,
            mlp: Mlp {
                gate: get("mlp.gate_proj.weight", &[inner, hidden])?,
                up: get("mlp.up_proj.weight", &[inner, hidden])?,
                down: get("mlp.down_proj.weight", &[hidden, inner])?,
            },
            moe: if self.config.require("enable_moe_block")? { Some(self.moe(backend, i)?) } else { None },
            per_layer: match self.per_layer_width {
                0 => None,
                width => Some(PerLayerInput {
                    gate: get("per_layer_input_gate.weight", &[width, hidden])?,
                    projection: get("per_layer_projection.weight", &[hidden, width])?,
                    norm: get("post_per_layer_input_norm.weight", &[hidden])?,
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
        let get = |name: &str, shape: &[usize]| self.tensor(&format!("layers.{i}.{name}"), shape);
        let gate_up = get("experts.gate_up_proj", &[experts, 2 * inner, hidden])?;
        let down = get("experts.down_proj", &[experts, hidden, inner])?;
        let factors = backend.to_f32(&get("router.per_expert_scale", &[experts])?)?;
        Ok(Moe {
            top_k,
            router_norm: backend.scale(&get("router.scale", &[hidden])?, (hidden as f32).powf(-0.5))?,
            router: get("router.proj.weight", &[experts, hidden])?,
            experts: backend.experts(&gate_up, &down, factors)?,
            post_dense_norm: get("post_feedforward_layernorm_1.weight", &[hidden])?,
            pre_experts_norm: get("pre_feedforward_layernorm_2.weight", &[hidden])?,
            post_experts_norm: get("post_feedforward_layernorm_2.weight", &[hidden])?,
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
            table: self.tensor("embed_tokens_per_layer.weight", &[vocabulary, all])?,
            projection: self.tensor("per_layer_model_projection.weight", &[all, self.hidden])?,
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
