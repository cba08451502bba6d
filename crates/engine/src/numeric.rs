//! Inner loops on slices of f32, written so that the compiler vectorises them.

use std::ops::Range;

/// e^x within 2 units in the last place; 0 below -87. The library function costs several times as much, since it does
/// not vectorise. Splits x = n·ln 2 + r and evaluates a polynomial on |r| ≤ ln 2 / 2.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23: adding it rounds to an integer
    let clamped = x.clamp(-87.0, 88.0);
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (clamped - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + coefficient;
    }
    let power = f32::from_bits(shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    let value = (p * r * r + r + 1.0) * power;
    if x < -87.0 { 0.0 } else { value }
}

/// GELU in its tanh approximation: `0.5 (1 + tanh u) = 1 / (1 + e^(-2u))`.
#[inline(always)]
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
    x / (1.0 + exp(-TWICE_SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)))
}

/// x · sigmoid(x).
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `activation(gate) · up`.
#[inline(always)]
pub(crate) fn gated(out: &mut [f32], gate: &[f32], up: &[f32], activation: impl Fn(f32) -> f32) {
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = activation(*gate) * up;
    }
}

/// `x / sqrt(mean(x²) + eps)`, times `weight` if there is one. In double precision up to the result: roundings of norms are
/// what the logits of a deep model feel most.
pub(crate) fn rms_norm(out: &mut [f32], x: &[f32], weight: Option<&[f32]>, eps: f32) {
    let (chunks, rest) = x.as_chunks::<8>();
    let mut lanes = [0f64; 8];
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane += f64::from(*x) * f64::from(*x));
    }
    let sum = lanes.iter().sum::<f64>() + rest.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>();
    let factor = (sum / x.len() as f64 + f64::from(eps)).sqrt().recip();
    match weight {
        Some(weight) => {
            for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
                *out = (f64::from(*x) * factor * f64::from(*weight)) as f32;
            }
        }
        None => out.iter_mut().zip(x).for_each(|(out, x)| *out = (f64::from(*x) * factor) as f32),
    }
}

/// `scale · code + bias` for codes of `bits` bits, the first in the lowest bits of each byte.
pub(crate) fn dequantise(out: &mut [f32], codes: &[u8], bits: usize, scale: f32, bias: f32) {
    let mask = u8::MAX >> (8 - bits);
    for (values, byte) in out.chunks_mut(8 / bits).zip(codes) {
        for (i, value) in values.iter_mut().enumerate() {
            *value = f32::from((byte >> (i * bits)) & mask) * scale + bias;
        }
    }
}

/// A block of GGML's 5-bit format as one of its 8-bit format. Both hold a half-precision scale and 32 codes; here a code's
/// low bits lie in `block[6..]`, first and second half of the block side by side, its fifth in the word `block[2..6]`.
pub(crate) fn q5_0_as_q8_0(block: &[u8; 22]) -> [u8; 34] {
    let [d0, d1, h0, h1, h2, h3, low @ ..] = block;
    let high = u32::from_le_bytes([*h0, *h1, *h2, *h3]);
    let code = |low: u8, i: usize| (low | ((high >> i & 1) as u8) << 4).wrapping_sub(16);
    let mut out = [0; 34];
    (out[0], out[1]) = (*d0, *d1);
    for (i, low) in low.iter().enumerate() {
        (out[2 + i], out[18 + i]) = (code(low & 15, i), code(low >> 4, i + 16));
    }
    out
}

/// Softmax of `scale · row` over the columns `first` and `second`; every other column becomes 0.
pub(crate) fn softmax(row: &mut [f32], scale: f32, first: Range<usize>, second: Range<usize>) {
    let mut max = f32::NEG_INFINITY;
    for range in [first.clone(), second.clone()] {
        let mut lanes = [f32::NEG_INFINITY; 8];
        let mut chunks = row[range].chunks_exact(8);
        for chunk in &mut chunks {
            lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane = if *x > *lane { *x } else { *lane });
        }
        max = lanes.iter().chain(chunks.remainder()).copied().fold(max, f32::max);
    }
    let mut sum = 0.0;
    for range in [first.clone(), second.clone()] {
        row[range.clone()].iter_mut().for_each(|x| *x = exp((*x - max) * scale));
        let mut lanes = [0f32; 8];
        let mut chunks = row[range].chunks_exact(8);
        for chunk in &mut chunks {
            lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane += x);
        }
        sum += lanes.iter().chain(chunks.remainder()).sum::<f32>();
    }
    let inverse = 1.0 / sum;
    for range in [first.clone(), second.clone()] {
        row[range].iter_mut().for_each(|x| *x *= inverse);
    }
    row[..first.start].fill(0.0);
    row[first.end..second.start].fill(0.0);
    row[second.end..].fill(0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_as_good_as_the_library() {
        for i in -870_000..880_000 {
            let x = i as f32 * 1e-4;
            let (ours, theirs) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((ours - theirs).abs() <= 3e-7 * theirs, "{x}: {ours} {theirs}");
        }
        assert_eq!(exp(-1e9), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn gelu_at_its_ends() {
        assert_eq!(gelu_tanh(0.0), 0.0);
        assert_eq!(gelu_tanh(50.0), 50.0);
        assert!(gelu_tanh(-50.0).abs() < 1e-30);
        assert!((gelu_tanh(1.0) - 0.841_192).abs() < 1e-6);
    }

    #[test]
    fn softmax_leaves_nothing_outside_its_ranges() {
        let mut row = [5.0, 1.0, 9.0, 1.0, 1.0, 9.0];
        softmax(&mut row, 1.0, 1..2, 3..5);
        assert_eq!(row[0] + row[2] + row[5], 0.0);
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!((row[1] - 1.0 / 3.0).abs() < 1e-6);
    }
}
