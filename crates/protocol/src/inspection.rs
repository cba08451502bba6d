//! What an engine finds in a pack without loading its numbers.

use crate::{DeviceMemory, ErrorReport, LayerGeometry};
use niah::Rung;
use serde::{Deserialize, Serialize};

/// One look at a part: how long it took, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look<T> {
    /// Seconds.
    pub seconds: f64,
    /// What was found, or what is wrong.
    pub found: Result<T, ErrorReport>,
}

/// A pack by its headers and configurations, and the engine on the device that a run asks for. A part is none where the
/// pack has none, or where a look before it failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// The device: its memory, where it has its own.
    pub device: Look<Option<DeviceMemory>>,
    /// The engine on that device against outputs that were stored for the demo pack.
    pub self_test: Option<Look<SelfTest>>,
    /// The verifier's configuration.
    pub verifier: Look<VerifierFacts>,
    /// The verifier's tensors: all there, with the dimensions and types that the configuration asks for.
    pub tensors: Look<TensorFacts>,
    /// The tokenizer.
    pub tokenizer: Look<TokenizerFacts>,
    /// The special tokens against the configuration: how many were compared.
    pub special_tokens: Option<Look<usize>>,
    /// The first prompt of each rung, encoded and decoded again.
    pub prompts: Option<Look<Vec<PromptFacts>>>,
    /// The drafter.
    pub drafter: Option<Look<DrafterFacts>>,
    /// f_θ.
    pub f_theta: Option<Look<FThetaFacts>>,
    /// f_θ against drafter and verifier, layer by layer.
    pub dimensions: Option<Look<()>>,
    /// What the run will hold.
    pub forecast: Option<Forecast>,
}

/// The engine against stored outputs of the demo pack.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    /// Arms compared.
    pub arms: usize,
    /// Largest absolute difference of a logit.
    pub difference: f64,
    /// Whether every logit is within 1e-3 + 1e-3 · |stored|.
    pub holds: bool,
    /// Largest absolute difference between the logits of identity and of the oracle, both computed now.
    pub identity: f64,
}

/// The verifier, as its configuration says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifierFacts {
    /// Family, as `gemma3_text`.
    pub model: String,
    /// Kind of each layer.
    pub layers: Vec<crate::LayerKind>,
    /// Native window of sliding layers, positions.
    pub window: usize,
    /// Routed experts; none in a dense model.
    pub experts: Option<usize>,
}

/// The verifier's stored tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorFacts {
    /// Number types, joined by `+`.
    pub types: String,
    /// Geometry of each layer.
    pub layers: Vec<LayerGeometry>,
}

/// The tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerFacts {
    /// Tokens of its vocabulary.
    pub tokens: usize,
    /// Where the chat template was found; none without one.
    pub template: Option<String>,
    /// Ids that end an answer.
    pub stop_tokens: Vec<u32>,
}

/// The first prompt of a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptFacts {
    /// The rung.
    pub rung: Rung,
    /// Its length, tokens.
    pub tokens: usize,
    /// Tokens of the longest code's completion.
    pub answer_tokens: usize,
}

/// The drafter's geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrafterFacts {
    /// Layers.
    pub layers: usize,
    /// K/V heads.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
}

/// f_θ's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FThetaFacts {
    /// Numbers of a latent.
    pub rank: usize,
}

/// What a run will hold, by formula, bytes. Activations come on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// Weights, as the library holds them.
    pub weights: u64,
    /// K/V at the end of the longest answer, and the rows that are injected.
    pub kv: u64,
    /// Positions of that answer's end.
    pub positions: usize,
}
