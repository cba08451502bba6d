//! f_θ: from the drafter's K/V to those of every verifier layer, two linear maps each. Source: the reference's
//! `f_theta.py`.

use crate::Error;
use crate::backend::Backend;
use crate::config::Config;
use crate::drafter::{Drafter, DrafterKv};
use crate::gemma::{Gemma, Latents, RawKv};
use crate::weights::Weights;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The projection.
pub struct FTheta<B: Backend> {
    /// `f_theta_config.json` as stored.
    pub config: Value,
    config_path: PathBuf,
    drafter: (usize, usize, usize),
    rank: usize,
    encoder_k: B::Weight,
    encoder_v: B::Weight,
    layers: Vec<Decoder<B>>,
    files: Vec<PathBuf>,
}

struct Decoder<B: Backend> {
    kv_heads: usize,
    head_dim: usize,
    k: B::Weight,
    v: B::Weight,
}

impl<B: Backend> FTheta<B> {
    /// Loads `f_theta_config.json` and `f_theta_weights.safetensors`, or `.pt` where that is all there is.
    pub fn load(backend: &B, folder: &Path) -> Result<Self, Error> {
        let config = Config::read(folder.join("f_theta_config.json"))?;
        let weights = Weights::open(backend, folder, "f_theta_weights")?;
        let count = config.count("verifier_num_layers")?;
        let per_layer = |list: &str, all: &str| -> Result<Vec<usize>, Error> {
            let values: Vec<usize> = match config.optional(list)? {
                Some(values) => values,
                None => vec![config.count(all)?; count],
            };
            if values.len() != count || values.contains(&0) {
                return Err(config.error(list, format!("must hold {count} positive numbers")));
            }
            Ok(values)
        };
        let kv_heads = per_layer("verifier_layer_kv_heads", "verifier_num_kv_heads")?;
        let head_dims = per_layer("verifier_layer_head_dims", "verifier_head_dim")?;
        let drafter = (
            config.count("drafter_num_layers")?,
            config.count("drafter_num_kv_heads")?,
            config.count("drafter_head_dim")?,
        );
        let (rank, width) = (config.count("rank")?, drafter.0 * drafter.1 * drafter.2);
        let layers = kv_heads.into_iter().zip(head_dims).enumerate().map(|(i, (kv_heads, head_dim))| {
            let get =
                |side| weights.matrix(&format!("decoders_{side}.{i}.weight"), [kv_heads * head_dim, rank]);
            Ok::<_, Error>(Decoder { kv_heads, head_dim, k: get("k")?, v: get("v")? })
        });
        Ok(Self {
            layers: layers.collect::<Result<_, _>>()?,
            encoder_k: weights.matrix("encoder_k.weight", [rank, width])?,
            encoder_v: weights.matrix("encoder_v.weight", [rank, width])?,
            drafter,
            rank,
            files: weights.files.clone(),
            config_path: config.path().to_owned(),
            config: config.value,
        })
    }

    /// Checks that this f_θ was made for this drafter and this verifier.
    pub fn check(&self, drafter: &Drafter<B>, verifier: &Gemma<B>) -> Result<(), Error> {
        let name = self.config_path.display();
        let mismatch = |left, right| Err(Error::Mismatch { left, right });
        let found = (drafter.layers(), drafter.kv_heads, drafter.head_dim);
        let words = |(layers, heads, dim)| format!("{layers} layers of {heads} K/V heads × {dim}");
        if self.drafter != found {
            let left = format!("{name} was made for a drafter with {}", words(self.drafter));
            return mismatch(left, format!("the drafter has {}", words(found)));
        }
        if drafter.hidden != verifier.hidden() {
            let left = format!("the drafter's hidden_size is {}", drafter.hidden);
            return mismatch(
                left,
                format!("the verifier's is {}, whose embeddings feed it", verifier.hidden()),
            );
        }
        let geometry = verifier.geometry();
        if geometry.len() != self.layers.len() {
            let left = format!("{name} was made for a verifier of {} layers", self.layers.len());
            return mismatch(left, format!("the verifier has {}", geometry.len()));
        }
        for (i, (ours, theirs)) in self.layers.iter().zip(&geometry).enumerate() {
            if (ours.kv_heads, ours.head_dim) != (theirs.kv_heads, theirs.head_dim) {
                let left = format!("{name} gives layer {i} {} K/V heads × {}", ours.kv_heads, ours.head_dim);
                return mismatch(
                    left,
                    format!("the verifier's layer {i} has {} × {}", theirs.kv_heads, theirs.head_dim),
                );
            }
        }
        Ok(())
    }

    /// Weight files.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Numbers of a latent, of K or of V.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Latents of the positions of `drafter`.
    pub fn encode(&self, b: &B, drafter: &DrafterKv<B::Tensor>) -> Result<Latents<B::Tensor>, Error> {
        Ok(Latents { k: b.linear(&drafter.k, &self.encoder_k)?, v: b.linear(&drafter.v, &self.encoder_v)? })
    }

    /// K/V of `layer` at the positions of `latents`: [positions, kv_heads, head_dim].
    pub fn decode(
        &self,
        b: &B,
        layer: usize,
        latents: &Latents<B::Tensor>,
    ) -> Result<RawKv<B::Tensor>, Error> {
        let layer = &self.layers[layer];
        let part = |x, weight| b.split_heads(&b.linear(x, weight)?, layer.kv_heads);
        Ok(RawKv { k: part(&latents.k, &layer.k)?, v: part(&latents.v, &layer.v)? })
    }
}
