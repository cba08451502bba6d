//! What the models need of a tensor library. Operations sit at the height where candle and MLX both have a fast one.

use crate::Error;
use crate::threads::Awake;
use bytes::Bytes;
use candle_core::quantized::GgmlDType;
use protocol::DeviceMemory;
use safetensors::Dtype;
use std::ops::Range;

/// Which keys a query sees, by their positions in the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// Every key, later ones too (the drafter).
    Everything,
    /// Keys up to the query's own position.
    Causal,
    /// The last `window` keys up to the query's own position, itself counted: `0 ≤ q - k < window`.
    Sliding {
        /// Keys that are seen.
        window: usize,
    },
    /// The first `sink` keys and the last `window` ones up to the query's own position. Source: the reference's
    /// `make_sink_window_4d_mask`; both may not be 0, since then no query would see anything.
    SinkWindow {
        /// First keys, always seen.
        sink: usize,
        /// Last keys, the query's own counted.
        window: usize,
    },
    /// Keys up to the query's own position, but of `from..to` only the query's own.
    Hiding {
        /// First key that is hidden.
        from: usize,
        /// First key after the hidden ones.
        to: usize,
        /// Sees no more than the last `window` keys up to the query's own position.
        window: Option<usize>,
    },
}

impl Mask {
    /// Keys that the query at `position` sees among `len` keys: an early range, and a range that ends at the query.
    /// The two never overlap.
    pub fn visible(self, position: usize, len: usize) -> (Range<usize>, Range<usize>) {
        let end = position + 1;
        match self {
            Self::Everything => (0..0, 0..len),
            Self::Causal => (0..0, 0..end),
            Self::Sliding { window } => (0..0, end.saturating_sub(window)..end),
            Self::SinkWindow { sink, window } => {
                let sinks = sink.min(end);
                (0..sinks, end.saturating_sub(window).max(sinks)..end)
            }
            Self::Hiding { from, to, window } => {
                let low = window.map_or(0, |window| end.saturating_sub(window));
                if position < from {
                    (0..0, low..end)
                } else {
                    (low.min(from)..from, low.max(to.min(position))..end)
                }
            }
        }
    }
}

/// Keys and values of consecutive positions, after norm and rotation: [kv_heads, positions, head_dim] each.
#[derive(Clone, Debug)]
pub struct Segment<T> {
    /// The positions.
    pub positions: Range<usize>,
    /// Keys.
    pub k: T,
    /// Values.
    pub v: T,
}

/// The non-linearity of a gated feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// GELU in its tanh approximation (Gemma 4).
    GeluTanh,
    /// x · sigmoid(x) (the drafter).
    Silu,
}

/// Little-endian numbers as a file holds them.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// Their type.
    pub dtype: Dtype,
    /// The bytes: mapped from the file, at any address.
    pub bytes: Bytes,
}

/// A weight as a file holds it. Every part of an outermost row lies together.
#[derive(Clone, Debug)]
pub enum Stored {
    /// Plain numbers.
    Dense {
        /// Dimensions, outermost first.
        shape: Vec<usize>,
        /// The elements in row-major order.
        values: Numbers,
    },
    /// MLX's affine quantisation: `scale · code + bias`, one scale and one bias for every `group` elements of a row.
    Affine {
        /// Dimensions of the weight that is meant, outermost first.
        shape: Vec<usize>,
        /// Bits of a code; 4 or 8.
        bits: usize,
        /// Elements that share a scale; divides the innermost dimension.
        group: usize,
        /// Codes, the first in the lowest bits of each byte.
        codes: Bytes,
        /// Scales.
        scales: Numbers,
        /// Biases.
        biases: Numbers,
    },
    /// Blocks of GGML's formats, as GGUF files hold them.
    Blocks {
        /// Dimensions of the weight that is meant, outermost first.
        shape: Vec<usize>,
        /// The format.
        format: GgmlDType,
        /// The blocks: mapped from the file, at any address.
        bytes: Bytes,
    },
}

impl Stored {
    /// Gate and up of experts whose two projections lie one under the other: [E, 2I, H] as two of [E, I, H].
    pub fn halves(self) -> (Self, Self) {
        let half = |mut shape: Vec<usize>| {
            shape[1] /= 2;
            shape
        };
        match self {
            Self::Dense { shape, values } => {
                let (gate, up) = values.halves(shape[0]);
                let shape = half(shape);
                (Self::Dense { shape: shape.clone(), values: gate }, Self::Dense { shape, values: up })
            }
            Self::Affine { shape, bits, group, codes, scales, biases } => {
                let (codes, up_codes) = halves(&codes, shape[0]);
                let (scales, up_scales) = scales.halves(shape[0]);
                let (biases, up_biases) = biases.halves(shape[0]);
                let shape = half(shape);
                let gate = Self::Affine { shape: shape.clone(), bits, group, codes, scales, biases };
                let up = Self::Affine {
                    shape,
                    bits,
                    group,
                    codes: up_codes,
                    scales: up_scales,
                    biases: up_biases,
                };
                (gate, up)
            }
            Self::Blocks { shape, format, bytes } => {
                let (gate, up) = halves(&bytes, shape[0]);
                let shape = half(shape);
                (
                    Self::Blocks { shape: shape.clone(), format, bytes: gate },
                    Self::Blocks { shape, format, bytes: up },
                )
            }
        }
    }
}

impl Numbers {
    fn halves(self, count: usize) -> (Self, Self) {
        let (first, second) = halves(&self.bytes, count);
        (Self { dtype: self.dtype, bytes: first }, Self { dtype: self.dtype, bytes: second })
    }
}

/// First and second halves of each of `count` equal parts.
fn halves(bytes: &[u8], count: usize) -> (Bytes, Bytes) {
    let half = bytes.len() / count / 2;
    let side = |odd: usize| {
        bytes.chunks(half.max(1)).skip(odd).step_by(2).flatten().copied().collect::<Vec<_>>().into()
    };
    (side(0), side(1))
}

/// A tensor library on one device. Shapes: T positions, H hidden, n heads of d dimensions. Arithmetic is in f32.
pub trait Backend: Send + 'static {
    /// Whether weights are read; where they are not, every stored array comes without its bytes.
    const NUMBERS: bool = true;
    /// Whether operations only note what is to be computed, so that a step can be put together before its token is known.
    const LATE: bool = false;

    /// An array on the device; cloning shares it.
    type Tensor: Clone + Send;
    /// Token ids, which may still be pending.
    type Ids: Clone;
    /// Rotary angles of a run of positions.
    type Angles;
    /// A matrix that rows are multiplied by, dense or quantised, in the layout that the library multiplies fastest.
    type Weight: Send;
    /// Weights of routed experts in the layout that the library multiplies fastest.
    type Experts: Send;

    /// Puts stored little-endian numbers on the device, in the compute type. Fails on types that are no floats.
    fn tensor(&self, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Result<Self::Tensor, Error>;
    /// Puts a stored matrix [out, in] on the device.
    fn weight(&self, stored: Stored) -> Result<Self::Weight, Error>;
    /// Puts experts on the device: `gate` and `up` [E, I, H], `down` [E, H, I] and one output factor each.
    fn experts(
        &self,
        gate: Stored,
        up: Stored,
        down: Stored,
        factors: Vec<f32>,
    ) -> Result<Self::Experts, Error>;
    /// Dimensions, outermost first.
    fn shape(&self, x: &Self::Tensor) -> Vec<usize>;
    /// Bytes of the elements.
    fn bytes(&self, x: &Self::Tensor) -> u64;
    /// All elements in row-major order.
    fn to_f32(&self, x: &Self::Tensor) -> Result<Vec<f32>, Error>;

    /// Known ids.
    fn ids(&self, ids: &[u32]) -> Self::Ids;
    /// Rows `ids` of `table` times `scale`: [T, H].
    fn embed(&self, table: &Self::Weight, ids: &Self::Ids, scale: f32) -> Result<Self::Tensor, Error>;
    /// `x` [T, in] times the transpose of `weight` [out, in].
    fn linear(&self, x: &Self::Tensor, weight: &Self::Weight) -> Result<Self::Tensor, Error>;
    /// Sum of two arrays of one shape.
    fn add(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor, Error>;
    /// Every element times `factor`.
    fn scale(&self, x: &Self::Tensor, factor: f32) -> Result<Self::Tensor, Error>;
    /// `x / sqrt(mean(x²) + eps)` over the last axis, times `weight` if there is one.
    fn rms_norm(
        &self,
        x: &Self::Tensor,
        weight: Option<&Self::Tensor>,
        eps: f32,
    ) -> Result<Self::Tensor, Error>;
    /// [T, n·d] seen as [T, n, d].
    fn split_heads(&self, x: &Self::Tensor, heads: usize) -> Result<Self::Tensor, Error>;
    /// [1, T, d] as [T, d].
    fn squeeze(&self, x: &Self::Tensor) -> Result<Self::Tensor, Error>;
    /// Angles of positions `positions` for explicit inverse frequencies; 0 leaves a pair of dimensions as it is.
    fn angles(&self, inverse_frequencies: &[f32], positions: Range<usize>) -> Result<Self::Angles, Error>;
    /// Rotates pairs (i, i + d/2) of [n, T, d].
    fn rope(&self, x: &Self::Tensor, angles: &Self::Angles) -> Result<Self::Tensor, Error>;
    /// [`Backend::rope`] of [n, T, d] times `weight` \[d\]: keys from normed values.
    fn weighted_rope(
        &self,
        x: &Self::Tensor,
        weight: &Self::Tensor,
        angles: &Self::Angles,
    ) -> Result<Self::Tensor, Error>;
    /// [T, n, d] as [n, T, d], the layout of [`Backend::attention`] and of K/V caches.
    fn head_major(&self, x: &Self::Tensor) -> Result<Self::Tensor, Error>;
    /// Softmax attention with grouped heads: `q` [n, Tq, d] over the keys of all segments, which are in the order of
    /// their positions → [Tq, n·d]. The queries are the last Tq positions of the last segment.
    fn attention(
        &self,
        q: &Self::Tensor,
        keys: &[Segment<Self::Tensor>],
        scale: f32,
        mask: Mask,
    ) -> Result<Self::Tensor, Error>;
    /// The part of its attention that the last query pays to the positions `range`, mean over heads; `q`, `keys`,
    /// `scale` and `mask` as in [`Backend::attention`].
    fn attention_mass(
        &self,
        q: &Self::Tensor,
        keys: &[Segment<Self::Tensor>],
        scale: f32,
        mask: Mask,
        range: Range<usize>,
    ) -> Result<f64, Error>;
    /// `activation(gate) · up`, element by element.
    fn gated(
        &self,
        activation: Activation,
        gate: &Self::Tensor,
        up: &Self::Tensor,
    ) -> Result<Self::Tensor, Error>;
    /// Mixture of the `top_k` best-scored experts of each row: `x` [T, H], `scores` [T, E] before softmax → [T, H].
    /// Softmax over all experts, renormalised over the chosen, then each expert's factor.
    fn mixture(
        &self,
        x: &Self::Tensor,
        scores: &Self::Tensor,
        top_k: usize,
        experts: &Self::Experts,
    ) -> Result<Self::Tensor, Error>;
    /// Joins arrays along `axis`.
    fn concat(&self, axis: usize, parts: &[&Self::Tensor]) -> Result<Self::Tensor, Error>;
    /// An array of its own for [`Backend::write`], all 0.
    fn zeros(&self, shape: &[usize]) -> Result<Self::Tensor, Error>;
    /// Overwrites `x` from `start` on along `axis` with `rows`. No copy of `x` is made where the library can do without.
    fn write(
        &self,
        x: &mut Self::Tensor,
        axis: usize,
        start: usize,
        rows: &Self::Tensor,
    ) -> Result<(), Error>;
    /// `range` along `axis` without a copy: it shares the memory of `x`.
    fn view(&self, x: &Self::Tensor, axis: usize, range: Range<usize>) -> Result<Self::Tensor, Error>;
    /// A compact copy of `range` along `axis`.
    fn slice(&self, x: &Self::Tensor, axis: usize, range: Range<usize>) -> Result<Self::Tensor, Error>;
    /// `x` [T, …] with its first-axis rows from `start` on replaced by `rows`.
    fn replace_rows(
        &self,
        x: &Self::Tensor,
        start: usize,
        rows: &Self::Tensor,
    ) -> Result<Self::Tensor, Error>;
    /// `cap · tanh(x / cap)`.
    fn softcap(&self, x: &Self::Tensor, cap: f32) -> Result<Self::Tensor, Error>;
    /// Index of the largest element of the last row of [T, vocabulary]; the first of equals. Where the library computes
    /// late, it begins to, and does not wait for it.
    fn argmax_last(&self, x: &Self::Tensor) -> Result<Self::Ids, Error>;
    /// One id, once it is there.
    fn id(&self, id: &Self::Ids) -> Result<u32, Error>;
    /// Keeps what computes at hand until it is dropped, where that would be sent to sleep between operations.
    fn awake(&self) -> Option<Awake> {
        None
    }
    /// Begins to compute what is pending of an array, where the library computes late, and does not wait for it: what comes
    /// next is put together meanwhile.
    fn start(&self, _pending: &Self::Tensor) -> Result<(), Error> {
        Ok(())
    }
    /// Computes what is still pending of arrays, where the library computes late: at the ends of what is timed, and before
    /// more piles up than memory holds.
    fn evaluate(&self, _pending: &[&Self::Tensor]) -> Result<(), Error> {
        Ok(())
    }
    /// Starts a new high-water mark of the device's memory; nothing where the library keeps none.
    fn reset_device_peak(&self) -> Result<(), Error>;
    /// Memory of the device and of the library's allocator since then; none where neither is known.
    fn device_memory(&self) -> Option<DeviceMemory>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hiding_is_the_mask_that_one_would_write_by_hand() {
        for (from, to) in [(4, 20), (0, 20), (0, 1), (19, 20), (7, 7)] {
            for window in [None, Some(1), Some(6), Some(40)] {
                let mask = Mask::Hiding { from, to, window };
                for query in 0..30 {
                    let (early, near) = mask.visible(query, 30);
                    assert!(early.end <= near.start && near.contains(&query), "{mask:?} {query}");
                    for key in 0..30 {
                        let native = key <= query && window.is_none_or(|window| query - key < window);
                        let by_hand = native && (key == query || !(from..to).contains(&key));
                        let sees = early.contains(&key) || near.contains(&key);
                        assert_eq!(sees, by_hand, "{mask:?}: query {query}, key {key}");
                    }
                }
            }
        }
    }
}
