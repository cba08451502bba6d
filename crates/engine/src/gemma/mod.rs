//! The Gemma 3 and Gemma 4 text decoder, dense and mixture of experts, with the places where K/V are captured and injected.
//!
//! Semantics follow transformers 5.24 `modeling_gemma4.py`; where the references differ, the configuration must say what
//! is meant.

mod cache;
mod family;
mod forward;
mod load;

pub use cache::Cache;

use crate::backend::{Backend, Mask};
use protocol::LayerGeometry;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

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
    /// A mixture of both.
    Mix,
    /// Noise (control).
    Noise,
}

/// What becomes of the evicted positions in one layer.
pub enum Fill<T> {
    /// They get these rows.
    Rows(Source, RawKv<T>),
    /// Nothing: every later query is kept from seeing them (control).
    Hidden,
}

/// What stands in for the decoder's own K/V at a run of positions, layer by layer.
pub struct Injection<T> {
    /// The evicted positions.
    pub positions: Range<usize>,
    /// For each layer what they get; none on layers that share another layer's K/V.
    pub layers: Vec<Option<Fill<T>>>,
}

/// Keeps count, at the place where it happens, of what was injected and of what it is attended to.
pub trait Witness {
    /// `positions` rows of `layer`, `bytes` of K and V together, were replaced by those of `source` in `seconds`.
    fn injected(&mut self, layer: usize, source: Source, positions: usize, bytes: u64, seconds: f64);
    /// `positions` rows of `layer` were hidden.
    fn hidden(&mut self, layer: usize, positions: usize);
    /// The last query of `layer` pays `mass` of its attention, mean over heads, to the evicted positions.
    fn attended(&mut self, layer: usize, mass: f64);
}

/// How one forward pass differs from a plain one.
pub struct Pass<'a, T> {
    /// Replaces the native masks of every layer.
    pub mask: Option<Mask>,
    /// K/V to inject.
    pub injection: Option<&'a Injection<T>>,
    /// Told of every injection.
    pub witness: Option<&'a mut dyn Witness>,
    /// The positions whose share of the last query's attention the witness is told; empty for none.
    pub watched: Range<usize>,
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
        Self { mask: None, injection: None, witness: None, watched: 0..0, cache: None, rows, cancel }
    }
}

/// What is collected on the way through the layers, and where to stop.
struct Capture<T> {
    wanted: Vec<bool>,
    positions: Range<usize>,
    layers: Vec<Option<RawKv<T>>>,
}

/// The decoder.
pub struct Gemma<B: Backend> {
    backend: B,
    vocabulary: usize,
    hidden: usize,
    eps: f32,
    softcap: Option<f32>,
    window: usize,
    sliding_frequencies: Vec<f32>,
    full_frequencies: Vec<f32>,
    embedding: B::Weight,
    norm: B::Tensor,
    per_layer: Option<PerLayerEmbedding<B>>,
    layers: Vec<Layer<B>>,
    weights_dtype: String,
    files: Vec<PathBuf>,
}

/// Per-layer embeddings: an extra input of width `width` to every layer.
struct PerLayerEmbedding<B: Backend> {
    width: usize,
    table: B::Weight,
    projection: B::Weight,
    norm: B::Tensor,
}

struct Layer<B: Backend> {
    geometry: LayerGeometry,
    heads: usize,
    input_norm: B::Tensor,
    q: B::Weight,
    q_norm: B::Tensor,
    /// Factor on the scores of attention.
    scale: f32,
    /// Whether V is normed, without a weight.
    v_norm: bool,
    kv: KvSource<B>,
    o: B::Weight,
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
    Own { k: B::Weight, v: Option<B::Weight>, k_norm: B::Tensor },
    /// K/V of an earlier layer.
    Shared(usize),
}

struct Mlp<B: Backend> {
    gate: B::Weight,
    up: B::Weight,
    down: B::Weight,
}

struct Moe<B: Backend> {
    top_k: usize,
    /// `router.scale / √hidden`, the weight of the router's norm.
    router_norm: B::Tensor,
    router: B::Weight,
    experts: B::Experts,
    post_dense_norm: B::Tensor,
    pre_experts_norm: B::Tensor,
    post_experts_norm: B::Tensor,
}

struct PerLayerInput<B: Backend> {
    gate: B::Weight,
    projection: B::Weight,
    norm: B::Tensor,
}

impl<B: Backend> Gemma<B> {
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

    /// Files that were read: configuration and weights.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }
}
