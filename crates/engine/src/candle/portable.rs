//! The operations that [`super`] fuses on the CPU, from what candle has on every device: CUDA computes with these, and on
//! the CPU both give the same numbers.

use super::seen;
use crate::Error;
use crate::backend::{Activation, Mask, Segment};
use crate::columns::{Columns, queried};
use candle_core::{D, DType, Device, Tensor};
use candle_nn::ops;
use std::ops::Range;

/// Queries that are scored at once: a prefill chunk. Large, since every operation is a launch.
const BLOCK: usize = 512;

/// `x / sqrt(mean(x²) + eps)` over the last axis, times `weight` if there is one.
pub(super) fn rms_norm(x: &Tensor, weight: Option<&Tensor>, eps: f32) -> Result<Tensor, Error> {
    let x = x.contiguous()?;
    Ok(match weight {
        Some(weight) => ops::rms_norm(&x, weight, eps)?,
        None => ops::rms_norm(&x, &Tensor::ones(x.dim(D::Minus1)?, DType::F32, x.device())?, eps)?,
    })
}

/// Rotates pairs (i, i + d/2) of [n, T, d]; the tables are [T, d/2].
pub(super) fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor, Error> {
    let x = x.unsqueeze(0)?.contiguous()?;
    Ok(candle_nn::rotary_emb::rope(&x, cos, sin)?.squeeze(0)?)
}

/// `activation(gate) · up`, element by element.
pub(super) fn gated(activation: Activation, gate: &Tensor, up: &Tensor) -> Result<Tensor, Error> {
    let activated = match activation {
        Activation::GeluTanh => gate.gelu()?,
        Activation::Silu => gate.silu()?,
    };
    Ok((activated * up)?)
}

/// `gelu(gate) · up` of [T, n·I], each run of I times its weight in [T, n].
pub(super) fn weighted_gelu(gate: &Tensor, up: &Tensor, weights: &Tensor) -> Result<Tensor, Error> {
    let (rows, runs) = weights.dims2()?;
    let runs = gated(Activation::GeluTanh, gate, up)?.reshape((rows, runs, ()))?;
    Ok(runs.broadcast_mul(&weights.unsqueeze(2)?)?.reshape((rows, ()))?)
}

/// Index of the largest element of the last row of [T, vocabulary], the first of equals: candle's kernel names any of
/// them, so the row is looked through here.
pub(super) fn argmax_last(x: &Tensor) -> Result<u32, Error> {
    let row: Vec<f32> = x.get(x.dim(0)? - 1)?.to_vec1()?;
    let mut largest = 0;
    for (index, value) in row.iter().enumerate() {
        if *value > row[largest] {
            largest = index;
        }
    }
    Ok(largest as u32)
}

/// Softmax attention with grouped heads, as [`crate::backend::Backend::attention`] says.
pub(super) fn attention(
    q: &Tensor,
    keys: &[Segment<Tensor>],
    scale: f32,
    mask: Mask,
) -> Result<Tensor, Error> {
    let (heads, queries, dim) = q.dims3()?;
    let (first, groups) = (queried(keys, queries)?, keys[0].k.dim(0)?);
    let rows = heads / groups;
    let mut blocks = Vec::new();
    for start in (0..queries).step_by(BLOCK) {
        let len = BLOCK.min(queries - start);
        let block = first + start..first + start + len;
        let seen = seen(keys, mask, block.clone())?;
        let (k, v) = (joined(&seen, |segment| &segment.k)?, joined(&seen, |segment| &segment.v)?);
        let q = q.narrow(1, start, len)?.contiguous()?.reshape((groups, rows * len, dim))?;
        let scores = (q.matmul(&k.t()?)? * f64::from(scale))?.reshape((groups, rows, len, ()))?;
        let scores = hide(&scores, &visible(&seen, mask, block, q.device())?)?;
        let weights = ops::softmax_last_dim(&scores)?.reshape((groups, rows * len, ()))?;
        let out = weights.matmul(&v)?.reshape((heads, len, dim))?;
        blocks.push(out.transpose(0, 1)?.reshape((len, heads * dim))?);
    }
    Ok(Tensor::cat(&blocks, 0)?)
}

/// A matrix as candle's cuBLAS takes it: its rows, or its columns, follow each other without a gap.
pub(super) fn operand(x: &Tensor) -> Result<Tensor, Error> {
    let (rows, columns) = (x.dim(D::Minus2)?, x.dim(D::Minus1)?);
    let dense = match x.stride() {
        [.., row, column] => (*row, *column) == (columns, 1) || (*row, *column) == (1, rows),
        _ => false,
    };
    if dense { Ok(x.clone()) } else { Ok(x.contiguous()?) }
}

/// One side of all segments, as one operand; one segment stays where it is.
fn joined(seen: &[Segment<Tensor>], side: fn(&Segment<Tensor>) -> &Tensor) -> Result<Tensor, Error> {
    match seen {
        [segment] => operand(side(segment)),
        _ => Ok(Tensor::cat(&seen.iter().map(side).collect::<Vec<_>>(), 1)?),
    }
}

/// Which of the seen keys each query of `block` sees: [queries, keys] of 0 and 1. Only the bounds of the two ranges of
/// [`Mask::visible`] travel to the device.
fn visible(
    seen: &[Segment<Tensor>],
    mask: Mask,
    block: Range<usize>,
    device: &Device,
) -> Result<Tensor, Error> {
    let end = Columns::of_segments(seen).end();
    let positions = |values: Vec<u32>, shape| Tensor::from_vec(values, shape, device);
    let columns: Vec<u32> =
        seen.iter().flat_map(|segment| segment.positions.clone()).map(|position| position as u32).collect();
    let shape = (1, columns.len());
    let columns = positions(columns, shape)?;
    let (early, near): (Vec<_>, Vec<_>) = block.map(|position| mask.visible(position, end)).unzip();
    let within = |ranges: &[Range<usize>]| {
        let bound = |edge: fn(&Range<usize>) -> usize| {
            positions(ranges.iter().map(|range| edge(range) as u32).collect(), (ranges.len(), 1))
        };
        let (from, to) = (bound(|range| range.start)?, bound(|range| range.end)?);
        columns.broadcast_ge(&from)? * columns.broadcast_lt(&to)?
    };
    Ok((within(&early)? + within(&near)?)?)
}

/// Scores [groups, rows, queries, keys] with those that `visible` leaves out at −∞.
fn hide(scores: &Tensor, visible: &Tensor) -> Result<Tensor, Error> {
    let nothing = Tensor::new(f32::NEG_INFINITY, scores.device())?.broadcast_as(scores.shape())?;
    Ok(visible.broadcast_as(scores.shape())?.where_cond(scores, &nothing)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Backend, Numbers, Stored};
    use crate::candle::Candle;
    use safetensors::Dtype;

    /// What the CPU's own operations are held against: the portable ones, and CUDA where this machine has it.
    fn others() -> Vec<Candle> {
        std::iter::once(Candle::portable()).chain(Candle::open(protocol::Device::Cuda)).collect()
    }

    fn bytes(count: usize, step: f32) -> Vec<u8> {
        (0..count).flat_map(|i| (2.0 * (i as f32 * step).sin()).to_le_bytes()).collect()
    }

    fn wave(candle: &Candle, shape: &[usize], step: f32) -> Tensor {
        candle.tensor(Dtype::F32, shape, &bytes(shape.iter().product(), step)).unwrap()
    }

    /// Runs `work` on the CPU's own operations and on all others, and demands the same numbers to 1e-5.
    fn same(what: &str, work: impl Fn(&Candle) -> Tensor) {
        let values = |candle: &Candle| {
            let result = work(candle);
            (candle.shape(&result), candle.to_f32(&result).unwrap())
        };
        let (shape, ours) = values(&Candle::cpu());
        assert!(ours.iter().any(|value| value.abs() > 0.1), "{what}: nothing to compare");
        for other in others() {
            let (other_shape, theirs) = values(&other);
            assert_eq!(shape, other_shape, "{what}");
            let worst = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-5, "{what}: {worst} on {:?}", other.device);
        }
    }

    #[test]
    fn attention_is_the_same_under_every_mask() {
        let (heads, groups, dim, len) = (4, 2, 16, 1300);
        for mask in [
            Mask::Everything,
            Mask::Causal,
            Mask::Sliding { window: 50 },
            Mask::SinkWindow { sink: 4, window: 64 },
            Mask::Hiding { from: 4, to: 1236, window: None },
            Mask::Hiding { from: 4, to: 236, window: Some(128) },
            Mask::Hiding { from: 0, to: 1299, window: Some(128) },
        ] {
            for (queries, cuts) in
                [(len, vec![]), (len, vec![4, 600]), (700, vec![300]), (1, vec![1299]), (1, vec![])]
            {
                same(&format!("{mask:?}, {queries} queries, keys cut at {cuts:?}"), |candle| {
                    let q = wave(candle, &[heads, queries, dim], 0.71);
                    // Room behind the keys, as a cache has it.
                    let side = |step| wave(candle, &[groups, len + 60, dim], step);
                    // Values that do not cancel out over many keys.
                    let (k, v) = (side(1.37), side(3e-5));
                    let edges = [&[0], &cuts[..], &[len]].concat();
                    let segment = |edge: &[usize]| {
                        let part = |x: &Tensor| candle.view(x, 1, edge[0]..edge[1]).unwrap();
                        Segment { positions: edge[0]..edge[1], k: part(&k), v: part(&v) }
                    };
                    let keys: Vec<_> = edges.windows(2).map(segment).collect();
                    candle.attention(&q, &keys, 0.3, mask).unwrap()
                });
            }
        }
    }

    #[test]
    fn norms_rotations_and_gates_are_the_same() {
        for width in [8, 96, 640] {
            same("RMS norm", |candle| candle.rms_norm(&wave(candle, &[7, width], 0.7), None, 1e-6).unwrap());
            same("weighted RMS norm", |candle| {
                let weight = wave(candle, &[width], 0.3);
                candle.rms_norm(&wave(candle, &[3, 5, width], 0.7), Some(&weight), 1e-6).unwrap()
            });
            same("RoPE", |candle| {
                let frequencies: Vec<f32> = (0..width / 2).map(|i| 0.9_f32.powi(i as i32)).collect();
                let angles = candle.angles(&frequencies, 9..20).unwrap();
                candle.rope(&wave(candle, &[3, 11, width], 0.7), &angles).unwrap()
            });
            same("weighted RoPE", |candle| {
                let angles = candle.angles(&vec![0.3; width / 2], 9..20).unwrap();
                let weight = wave(candle, &[width], 0.3);
                candle.weighted_rope(&wave(candle, &[3, 11, width], 0.7), &weight, &angles).unwrap()
            });
            for activation in [Activation::GeluTanh, Activation::Silu] {
                same("gate", |candle| {
                    let (gate, up) = (wave(candle, &[9, width], 0.7), wave(candle, &[9, width], 1.9));
                    candle.gated(activation, &gate, &up).unwrap()
                });
            }
        }
    }

    #[test]
    fn experts_are_the_same_dense_and_gathered() {
        let (inner, hidden, rows) = (6, 8, 11);
        for count in [5, 40] {
            same(&format!("{count} experts"), |candle| {
                let stored = |shape: &[usize], step| {
                    let values =
                        Numbers { dtype: Dtype::F32, bytes: bytes(shape.iter().product(), step).into() };
                    Stored::Dense { shape: shape.to_vec(), values }
                };
                let (gate, up) = stored(&[count, 2 * inner, hidden], 0.7).halves();
                let factors = (0..count).map(|i| 0.5 + i as f32 / 20.0).collect();
                let down = stored(&[count, hidden, inner], 1.3);
                let experts = candle.experts(gate, up, down, factors).unwrap();
                let x = candle.scale(&wave(candle, &[rows, hidden], 0.9), 0.2).unwrap();
                candle.mixture(&x, &wave(candle, &[rows, count], 2.1), 2, &experts).unwrap()
            });
        }
    }

    #[test]
    fn the_first_of_equal_logits_wins_everywhere() {
        let row = [0.5_f32, -1.0, 2.5, 0.0, 2.5, 2.5, 1.0, 2.0];
        let bytes: Vec<u8> = [[9.0; 8], row].concat().into_iter().flat_map(f32::to_le_bytes).collect();
        for candle in others().into_iter().chain([Candle::cpu()]) {
            let logits = candle.tensor(Dtype::F32, &[2, 8], &bytes).unwrap();
            assert_eq!(candle.id(&candle.argmax_last(&logits).unwrap()).unwrap(), 2);
        }
    }

    #[test]
    fn only_what_cublas_cannot_take_is_copied() {
        let x = wave(&Candle::cpu(), &[3, 8, 4], 0.7);
        let gaps = [x.clone(), x.t().unwrap(), x.narrow(1, 2, 5).unwrap(), x.narrow(2, 1, 2).unwrap()];
        let copied = gaps.map(|x| operand(&x).unwrap().stride() != x.stride());
        assert_eq!(copied, [false, false, false, true]);
    }
}
