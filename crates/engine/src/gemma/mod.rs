//! The Gemma 3 and Gemma 4 text decoder, dense and mixture of experts, with the places where K/V are captured and injected.
//!
//! Semantics follow transformers 5.24 `modeling_gemma4.py`; where the references differ, the configuration must say what
//! is meant.

mod cache;
mod family;
mod forward;
mod load;
mod plan;

pub use cache::Cache;
pub use load::outline;
pub use plan::{Evicted, KvLayer, Plan, Sequence, full_bytes, native_bytes};

use crate::Error;
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
    /// The rows that f_θ decodes from the latents, made when they are needed.
    Latent,
    /// Nothing: every later query is kept from seeing them (control).
    Hidden,
}

impl<T> Fill<T> {
    /// In which form a bounded cache keeps it.
    pub fn kept(&self) -> Evicted {
        match self {
            Self::Rows(Source::Capture, _) => Evicted::Resident,
            Self::Rows(..) => Evicted::Apart,
            Self::Latent => Evicted::Latent,
            Self::Hidden => Evicted::Nowhere,
        }
    }
}

/// What f_θ's encoders make of the drafter's K and V, for all layers: [positions, rank] each.
#[derive(Clone, Debug)]
pub struct Latents<T> {
    /// Of the keys.
    pub k: T,
    /// Of the values.
    pub v: T,
}

/// Decodes latents into the raw K/V of a layer.
pub trait Decoder<T> {
    /// K/V of `layer` at the positions of `latents`.
    fn decode(&self, layer: usize, latents: &Latents<T>) -> Result<RawKv<T>, Error>;
}

/// What stands in for the decoder's own K/V at a run of positions, layer by layer.
pub struct Injection<T> {
    /// The evicted positions.
    pub positions: Range<usize>,
    /// For each layer what they get; none on layers that share another layer's K/V.
    pub layers: Vec<Option<Fill<T>>>,
    /// Latents of the positions, where a layer is filled from them.
    pub latents: Option<Latents<T>>,
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
    pub cache: &'a mut Cache<T>,
    /// Decodes the latents of the injection or the cache.
    pub decoder: Option<&'a dyn Decoder<T>>,
    /// Positions that go through the layers at a time.
    pub chunk: usize,
    /// Rows of logits.
    pub rows: Rows,
    /// Raised to give up at the next layer.
    pub cancel: &'a AtomicBool,
}

impl<'a, T> Pass<'a, T> {
    /// A plain pass, at once.
    pub fn plain(cache: &'a mut Cache<T>, rows: Rows, cancel: &'a AtomicBool) -> Self {
        Self {
            mask: None,
            injection: None,
            witness: None,
            watched: 0..0,
            cache,
            decoder: None,
            chunk: usize::MAX,
            rows,
            cancel,
        }
    }
}

/// What is collected on the way through the layers, and where to stop.
struct Capture<T> {
    wanted: Vec<bool>,
    positions: Range<usize>,
    /// For each layer the rows of every chunk.
    layers: Vec<Vec<RawKv<T>>>,
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

    /// Layers that project K/V of their own; none for those that share an earlier one's.
    pub fn kv_layers(&self) -> Vec<Option<KvLayer>> {
        let own = |layer: &Layer<B>| match &layer.kv {
            KvSource::Own { v, .. } => {
                let value_is_key = v.is_none() && layer.v_norm;
                Some(KvLayer { geometry: layer.geometry, value_is_key })
            }
            KvSource::Shared(_) => None,
        };
        self.layers.iter().map(own).collect()
    }

    /// Keys that a query of a sliding layer sees, its own counted.
    pub fn window(&self) -> usize {
        self.window
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
