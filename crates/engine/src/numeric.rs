//! Inner loops on slices of f32, written so that the compiler vectorises them: inlined into [`vectorised`]
//! they use the widest vectors of this processor, whatever the program was built for.

use pulp::{Arch, Simd, WithSimd};
use std::ops::Range;

/// Runs loops compiled for the widest vectors of this processor. They must be an `#[inline(always)]` closure that calls
/// nothing but inlined functions: what stays a call stays compiled for the oldest processor. (Handed to `dispatch` as they
/// are, closures are reached through a shim, which is such a call.)
#[inline(always)]
pub(crate) fn vectorised<R>(loops: impl FnOnce() -> R) -> R {
    struct Loops<F>(F);
    impl<R, F: FnOnce() -> R> WithSimd for Loops<F> {
        type Output = R;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> R {
            self.0()
        }
    }
    Arch::new().dispatch(Loops(loops))
}

/// e^x within 2 units in the last place; 0 below -87. The library function costs several times as much, since it does
/// not vectorise. Splits x = n·ln 2 + r and evaluates a polynomial on |r| ≤ ln 2 / 2.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23: adding it rounds to an integer
    let clamped = x.clamp(-87.0, 88.0);
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, clamped));
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = r.mul_add(p, coefficient);
    }
    let power = f32::from_bits(shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    let value = ((p * r).mul_add(r, r) + 1.0) * power;
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
#[inline(always)]
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

/// Adds `factor · x` to `out`.
#[inline(always)]
pub(crate) fn add_scaled(out: &mut [f32], x: &[f32], factor: f32) {
    out.iter_mut().zip(x).for_each(|(out, x)| *out = factor.mul_add(*x, *out));
}

/// Sum of products, in four vectors of running sums, so that no addition waits for the one before.
#[inline(always)]
pub(crate) fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (S::as_simd_f32s(a), S::as_simd_f32s(b));
    let ((a, a_few), (b, b_few)) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    let mut sums = [simd.splat_f32s(0.0); 4];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum = simd.mul_add_f32s(*a, *b, *sum);
        }
    }
    for (a, b) in a_few.iter().zip(b_few) {
        sums[0] = simd.mul_add_f32s(*a, *b, sums[0]);
    }
    let sum = simd.add_f32s(simd.add_f32s(sums[0], sums[1]), simd.add_f32s(sums[2], sums[3]));
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    simd.reduce_sum_f32s(sum) + rest
}

/// [`dot`] in double precision.
#[inline(always)]
pub(crate) fn dot_f64<S: Simd>(simd: S, a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (S::as_simd_f64s(a), S::as_simd_f64s(b));
    let ((a, a_few), (b, b_few)) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    let mut sums = [simd.splat_f64s(0.0); 4];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum = simd.mul_add_f64s(*a, *b, *sum);
        }
    }
    for (a, b) in a_few.iter().zip(b_few) {
        sums[0] = simd.mul_add_f64s(*a, *b, sums[0]);
    }
    let sum = simd.add_f64s(simd.add_f64s(sums[0], sums[1]), simd.add_f64s(sums[2], sums[3]));
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    simd.reduce_sum_f64s(sum) + rest
}

/// The largest element of `row`; negative infinity if it is empty.
#[inline(always)]
fn largest(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let mut chunks = row.chunks_exact(16);
    for chunk in &mut chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane = if *x > *lane { *x } else { *lane });
    }
    lanes.iter().chain(chunks.remainder()).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// Replaces every x of `row` by e^(scale · (x - max)) and gives their sum.
#[inline(always)]
fn exponentials(row: &mut [f32], scale: f32, max: f32) -> f32 {
    let mut lanes = [0f32; 16];
    let mut chunks = row.chunks_exact_mut(16);
    for chunk in &mut chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *x = exp((*x - max) * scale);
            *lane += *x;
        }
    }
    let rest = chunks.into_remainder();
    rest.iter_mut().for_each(|x| *x = exp((*x - max) * scale));
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

/// Softmax of `scale · row` over the columns `visible`, before the division by the sum: that factor is what it gives, to
/// be applied to the shorter result. Other columns of `spans` become 0; columns outside them are left alone.
#[inline(always)]
pub(crate) fn softmax(
    row: &mut [f32],
    scale: f32,
    visible: [Range<usize>; 2],
    spans: &[Range<usize>; 2],
) -> f32 {
    let max = visible.iter().map(|range| largest(&row[range.clone()])).fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for range in &visible {
        sum += exponentials(&mut row[range.clone()], scale, max);
    }
    for span in spans {
        let mut from = span.start;
        for range in &visible {
            let (start, end) = (range.start.clamp(from, span.end), range.end.clamp(from, span.end));
            row[from..start].fill(0.0);
            from = end;
        }
        row[from..span.end].fill(0.0);
    }
    1.0 / sum
}

/// Sine and cosine within a unit in the last place, for angles up to 10⁶. In double precision, since an angle is a large
/// number whose rest is wanted; coefficients of FreeBSD's `k_sinf.c` and `k_cosf.c`. The library functions do not vectorise.
#[inline(always)]
pub(crate) fn sin_cos(angle: f32) -> (f32, f32) {
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 · 2^52: adding it rounds to an integer
    const HIGH: f64 = 1.570_796_326_734_125_614_17; // π/2 in 33 bits, so that products with integers are exact
    const LOW: f64 = 6.077_100_506_506_192_249_32e-11; // the rest of π/2
    let x = f64::from(angle);
    let shifted = x.mul_add(std::f64::consts::FRAC_2_PI, ROUND);
    let (n, quadrant) = (shifted - ROUND, shifted.to_bits());
    let r = n.mul_add(-LOW, n.mul_add(-HIGH, x));
    let s = r * r;
    let mut sine = 2.718_311_493_989_821_906_4e-6;
    for coefficient in
        [-1.983_933_483_609_663_173_47e-4, 8.333_329_385_889_463_175_6e-3, -0.166_666_666_416_265_235_595]
    {
        sine = s.mul_add(sine, coefficient);
    }
    sine = (r * s).mul_add(sine, r);
    let mut cosine = 2.439_044_879_627_740_906_54e-5;
    for coefficient in [
        -1.388_676_377_460_992_946_92e-3,
        4.166_662_332_373_906_318_94e-2,
        -0.499_999_997_251_031_003_12,
        1.0,
    ] {
        cosine = s.mul_add(cosine, coefficient);
    }
    let (sine, cosine) = if quadrant & 1 == 0 { (sine, cosine) } else { (cosine, -sine) };
    let sign = if quadrant & 2 == 0 { 1.0 } else { -1.0 };
    ((sign * sine) as f32, (sign * cosine) as f32)
}

/// Fills rows of cosines and sines of `frequencies` times the positions from `first` on.
#[inline(always)]
pub(crate) fn angles(cos: &mut [f32], sin: &mut [f32], frequencies: &[f32], first: usize) {
    let width = frequencies.len();
    let rows = cos.chunks_exact_mut(width).zip(sin.chunks_exact_mut(width));
    for (i, (cos, sin)) in rows.enumerate() {
        let position = (first + i) as f32;
        for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(frequencies) {
            (*sin, *cos) = sin_cos(position * frequency);
        }
    }
}

/// Rotates the first pairs (i, i + d/2) of one head, as many as there are angles.
#[inline(always)]
pub(crate) fn rope(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (left, right) = x.split_at_mut(x.len() / 2);
    for ((left, right), (cos, sin)) in left.iter_mut().zip(right).zip(cos.iter().zip(sin)) {
        (*left, *right) = (*left * cos - *right * sin, *left * sin + *right * cos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_as_good_as_the_library() {
        for i in -870_000..880_000 {
            let x = i as f32 * 1e-4;
            let (ours, theirs) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((ours - theirs).abs() <= 2e-7 * theirs, "{x}: {ours} {theirs}");
        }
        assert_eq!(exp(-1e9), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn sine_and_cosine_are_as_good_as_the_library() {
        let angles = (0..400_000).map(|i| i as f32 * 0.37).chain((0..100_000).map(|i| i as f32 * -1e-4));
        for angle in angles {
            let (sin, cos) = sin_cos(angle);
            let (exact_sin, exact_cos) = f64::from(angle).sin_cos();
            let off = (f64::from(sin) - exact_sin).abs().max((f64::from(cos) - exact_cos).abs());
            assert!(off <= 6.1e-8, "{angle}: {off}");
        }
        assert_eq!(sin_cos(0.0), (0.0, 1.0));
    }

    #[test]
    fn gelu_at_its_ends() {
        assert_eq!(gelu_tanh(0.0), 0.0);
        assert_eq!(gelu_tanh(50.0), 50.0);
        assert!(gelu_tanh(-50.0).abs() < 1e-30);
        assert!((gelu_tanh(1.0) - 0.841_192).abs() < 1e-6);
    }

    #[test]
    fn softmax_clears_what_is_not_seen_of_its_spans_alone() {
        let mut row = [5.0, 1.0, 9.0, 1.0, 1.0, 9.0, 7.0];
        let inverse = softmax(&mut row, 1.0, [1..2, 3..5], &[0..2, 2..6]);
        assert_eq!((row[0] + row[2] + row[5], row[6]), (0.0, 7.0));
        assert_eq!((row[1], inverse), (1.0, 1.0 / 3.0));
    }

    struct Dots<'a>(&'a [f32], &'a [f32]);

    impl WithSimd for Dots<'_> {
        type Output = (f32, f64);

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> (f32, f64) {
            let [a, b] = [self.0, self.1].map(|x| x.iter().copied().map(f64::from).collect::<Vec<_>>());
            (dot(simd, self.0, self.1), dot_f64(simd, &a, &b))
        }
    }

    #[test]
    fn sums_cover_every_length() {
        for len in 0..150 {
            let row: Vec<f32> = (1..=len).map(|i| i as f32).collect();
            let ones = vec![1.0; row.len()];
            let whole = row.iter().sum::<f32>();
            assert_eq!(Arch::new().dispatch(Dots(&row, &ones)), (whole, f64::from(whole)));

            assert_eq!(largest(&row), row.last().copied().unwrap_or(f32::NEG_INFINITY));
            let mut flat = ones.clone();
            assert_eq!(exponentials(&mut flat, 1.0, 1.0), len as f32);
        }
    }
}
