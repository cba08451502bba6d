//! The DFlash-style drafter, as far as f_θ needs it: raw K/V of every layer over a whole sequence.
//!
//! Source: the reference's `dflash_drafter.py`. Attention is not causal, so K/V of an old position change with every
//! token that follows.

use crate::Error;
use crate::backend::{Activation, Backend, Mask, Segment};
use crate::config::Config;
use crate::weights::Weights;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The drafter.
pub struct Drafter<B: Backend> {
    /// Hidden size.
    pub hidden: usize,
    /// K/V heads of every layer.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
    heads: usize,
    eps: f32,
    frequencies: Vec<f32>,
    layers: Vec<Layer<B>>,
    files: Vec<PathBuf>,
}

struct Layer<B: Backend> {
    input_norm: B::Tensor,
    k: B::Weight,
    v: B::Weight,
    /// None on the last layer, whose K/V are all that is wanted.
    rest: Option<Rest<B>>,
}

struct Rest<B: Backend> {
    q: B::Weight,
    o: B::Weight,
    q_norm: B::Tensor,
    k_norm: B::Tensor,
    post_attention_norm: B::Tensor,
    gate: B::Weight,
    up: B::Weight,
    down: B::Weight,
}

/// K and V of every drafter layer side by side, layer-major: [T, layers · kv_heads · head_dim] each.
pub struct DrafterKv<T> {
    /// Keys.
    pub k: T,
    /// Values.
    pub v: T,
}

impl<B: Backend> Drafter<B> {
    /// Loads `config.json` and `model.safetensors` of a folder.
    pub fn load(backend: &B, folder: &Path) -> Result<Self, Error> {
        let config = Config::read(folder.join("config.json"))?;
        let weights = Weights::open(backend, folder, "model")?;
        let hidden = config.count("hidden_size")?;
        let count = config.count("num_hidden_layers")?;
        let heads = config.count("num_attention_heads")?;
        let kv_heads = config.count("num_key_value_heads")?;
        let head_dim = config.optional("head_dim")?.unwrap_or(hidden / heads);
        let inner = config.count("intermediate_size")?;
        let theta: f64 = config.require("rope_theta")?;
        if !heads.is_multiple_of(kv_heads) || head_dim == 0 || !head_dim.is_multiple_of(2) {
            let reason =
                format!("{heads} heads, {kv_heads} K/V heads and head_dim {head_dim} do not fit together");
            return Err(config.error("num_key_value_heads", reason));
        }
        let layer = |i: usize| {
            let norm = |name: &str, len| weights.tensor(&format!("layers.{i}.{name}.weight"), &[len]);
            let get =
                |name: &str, out, inner| weights.matrix(&format!("layers.{i}.{name}.weight"), [out, inner]);
            let rest = || {
                Ok::<_, Error>(Rest {
                    q: get("self_attn.q_proj", heads * head_dim, hidden)?,
                    o: get("self_attn.o_proj", hidden, heads * head_dim)?,
                    q_norm: norm("self_attn.q_norm", head_dim)?,
                    k_norm: norm("self_attn.k_norm", head_dim)?,
                    post_attention_norm: norm("post_attention_layernorm", hidden)?,
                    gate: get("mlp.gate_proj", inner, hidden)?,
                    up: get("mlp.up_proj", inner, hidden)?,
                    down: get("mlp.down_proj", hidden, inner)?,
                })
            };
            Ok::<_, Error>(Layer {
                input_norm: norm("input_layernorm", hidden)?,
                k: get("self_attn.k_proj", kv_heads * head_dim, hidden)?,
                v: get("self_attn.v_proj", kv_heads * head_dim, hidden)?,
                rest: if i + 1 < count { Some(rest()?) } else { None },
            })
        };
        let layers = (0..count).map(layer).collect::<Result<_, _>>()?;
        let frequencies =
            (0..head_dim / 2).map(|j| theta.powf(-2.0 * j as f64 / head_dim as f64) as f32).collect();
        let (eps, files) = (config.require("rms_norm_eps")?, weights.files.clone());
        Ok(Self { hidden, kv_heads, head_dim, heads, eps, frequencies, layers, files })
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Weight files.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Raw K/V of every layer for the embedded sequence `h` [T, hidden], at positions 0 to T - 1.
    pub fn capture(
        &self,
        b: &B,
        mut h: B::Tensor,
        cancel: &AtomicBool,
    ) -> Result<DrafterKv<B::Tensor>, Error> {
        let angles = b.angles(&self.frequencies, 0..b.shape(&h)[0])?;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for layer in &self.layers {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let x = self.norm(b, &h, &layer.input_norm)?;
            let (k, v) = (b.linear(&x, &layer.k)?, b.linear(&x, &layer.v)?);
            if let Some(rest) = &layer.rest {
                let rotated = |x: &B::Tensor, heads, norm| {
                    b.rope(&b.head_major(&self.norm(b, &b.split_heads(x, heads)?, norm)?)?, &angles)
                };
                let q = rotated(&b.linear(&x, &rest.q)?, self.heads, &rest.q_norm)?;
                let keys = Segment {
                    positions: 0..b.shape(&h)[0],
                    k: rotated(&k, self.kv_heads, &rest.k_norm)?,
                    v: b.head_major(&b.split_heads(&v, self.kv_heads)?)?,
                };
                let scale = (self.head_dim as f32).powf(-0.5);
                let attention = b.attention(&q, &[keys], scale, Mask::Everything)?;
                h = b.add(&h, &b.linear(&attention, &rest.o)?)?;
                let y = self.norm(b, &h, &rest.post_attention_norm)?;
                let gated =
                    b.gated(Activation::Silu, &b.linear(&y, &rest.gate)?, &b.linear(&y, &rest.up)?)?;
                h = b.add(&h, &b.linear(&gated, &rest.down)?)?;
            }
            keys.push(k);
            values.push(v);
        }
        let join = |parts: &[B::Tensor]| b.concat(1, &parts.iter().collect::<Vec<_>>());
        Ok(DrafterKv { k: join(&keys)?, v: join(&values)? })
    }

    fn norm(&self, b: &B, x: &B::Tensor, weight: &B::Tensor) -> Result<B::Tensor, Error> {
        b.rms_norm(x, Some(weight), self.eps)
    }
}
