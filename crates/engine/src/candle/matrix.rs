//! Products of rows with a stored matrix on the processor; of a few, straight from how it is stored.
//!
//! Decoding multiplies one row at a time: what counts is how fast the matrix is read, so its blocks are expanded row by row
//! in the nearest cache. Sums over plain numbers are kept in double precision, which costs little there, and logits of a
//! deep model feel it: a reference output of the tests moves by 10⁻³ with sums in single precision.

use crate::numeric;
use candle_core::quantized::GgmlDType;
use gemm::{Parallelism, gemm};
use half::f16;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::array::from_fn;
use std::borrow::Cow;
use std::sync::LazyLock;

/// Up to this many rows, reading the matrix once for all of them beats laying it out for a product of matrices.
const FEW: usize = 32;

/// Multiplications of a run of rows that is worked on without a pause.
const SHARE: usize = 1 << 15;

/// Runs that are worth another thread.
const RUNS: usize = 2;

/// A stored matrix, by rows.
#[derive(Clone, Copy)]
pub(crate) enum Matrix<'a> {
    /// Numbers; from one row to the next it is `stride` of them.
    Plain { values: &'a [f32], stride: usize },
    /// GGML's blocks of 32 codes of 5 bits under a half-precision scale.
    Q5_0(&'a [[u8; 22]]),
    /// GGML's blocks of 32 codes of 8 bits under a half-precision scale.
    Q8_0(&'a [[u8; 34]]),
    /// GGML's blocks of 256 codes of 4 bits: 8 runs with a scale and a minimum of 6 bits each.
    Q4K(&'a [[u8; 144]]),
    /// GGML's blocks of 256 codes of 6 bits: 16 runs with a scale of 8 bits each.
    Q6K(&'a [[u8; 210]]),
}

impl<'a> Matrix<'a> {
    /// A matrix stored in blocks; none for formats that are not read here.
    pub fn of(format: GgmlDType, bytes: &'a [u8]) -> Option<Self> {
        match format {
            GgmlDType::Q5_0 => Some(Self::Q5_0(bytes.as_chunks().0)),
            GgmlDType::Q8_0 => Some(Self::Q8_0(bytes.as_chunks().0)),
            GgmlDType::Q4K => Some(Self::Q4K(bytes.as_chunks().0)),
            GgmlDType::Q6K => Some(Self::Q6K(bytes.as_chunks().0)),
            _ => None,
        }
    }

    /// Row `index` of `scratch.len()` numbers, in place or expanded into `scratch`.
    #[inline(always)]
    fn row<'b>(self, index: usize, scratch: &'b mut [f32]) -> &'b [f32]
    where
        'a: 'b,
    {
        match self {
            Self::Plain { values, stride } => return &values[index * stride..][..scratch.len()],
            Self::Q5_0(blocks) => expand(blocks, index, scratch),
            Self::Q8_0(blocks) => expand(blocks, index, scratch),
            Self::Q4K(blocks) => expand(blocks, index, scratch),
            Self::Q6K(blocks) => expand(blocks, index, scratch),
        }
        scratch
    }

    /// `x` [rows, width] times the transpose of the matrix, which has `count` rows: [rows, count].
    pub fn product(self, x: &[f32], width: usize, count: usize) -> Vec<f32> {
        if x.len() <= FEW * width {
            return self.product_of_few(x, width, count);
        }
        let (values, stride) = self.plain(width);
        product_of_many(x, &values, stride, width, count)
    }

    /// Reads the matrix once for all rows of `x`.
    fn product_of_few(self, x: &[f32], width: usize, count: usize) -> Vec<f32> {
        let wide: Vec<f64> = x.iter().copied().map(f64::from).collect();
        let (rows, run) = (x.len() / width, SHARE.div_ceil(x.len()));
        let mut columns = vec![0f32; count * rows];
        columns.par_chunks_mut(run * rows).with_min_len(RUNS).enumerate().for_each_init(
            || (vec![0f32; width], vec![0f64; width]),
            |(scratch, wide_scratch), (part, cells)| {
                let first = part * run;
                Arch::new().dispatch(Columns {
                    matrix: self,
                    first,
                    x,
                    wide: &wide,
                    cells,
                    scratch,
                    wide_scratch,
                });
            },
        );
        if rows == 1 { columns } else { transposed(&columns, rows) }
    }

    /// The matrix as plain numbers, rows of `width`, and how many there are from one row to the next.
    fn plain(self, width: usize) -> (Cow<'a, [f32]>, usize) {
        let numbers = match self {
            Self::Plain { values, stride } => return (Cow::Borrowed(values), stride),
            Self::Q5_0(blocks) => expanded(blocks),
            Self::Q8_0(blocks) => expanded(blocks),
            Self::Q4K(blocks) => expanded(blocks),
            Self::Q6K(blocks) => expanded(blocks),
        };
        (Cow::Owned(numbers), width)
    }
}

/// [`Matrix::product`] of many rows with a plain matrix. candle's own sets the result to 0 first, on one thread.
fn product_of_many(x: &[f32], values: &[f32], stride: usize, width: usize, count: usize) -> Vec<f32> {
    let rows = x.len() / width;
    assert!(count > 0 && x.len() == rows * width && values.len() >= (count - 1) * stride + width);
    let mut out = Vec::with_capacity(rows * count);
    let [out_row, x_row, matrix_row] = [count, width, stride].map(usize::cast_signed);
    let threads = Parallelism::Rayon(rayon::current_num_threads());
    // The rows of both are there, as has just been checked, and every element of the result is written.
    #[allow(unsafe_code)]
    unsafe {
        let (to, x, matrix) = (out.as_mut_ptr(), x.as_ptr(), values.as_ptr());
        let (old, new, conjugate) = (0.0, 1.0, false);
        gemm(
            rows, count, width, to, 1, out_row, false, x, 1, x_row, matrix, matrix_row, 1, old, new,
            conjugate, conjugate, conjugate, threads,
        );
        out.set_len(rows * count);
    }
    out
}

/// A run of columns of a product, for [`Arch::dispatch`].
struct Columns<'a> {
    matrix: Matrix<'a>,
    /// The matrix's row that makes the first column.
    first: usize,
    /// [rows, width]
    x: &'a [f32],
    /// The same.
    wide: &'a [f64],
    /// [columns, rows]
    cells: &'a mut [f32],
    /// Room for a row of the matrix.
    scratch: &'a mut [f32],
    wide_scratch: &'a mut [f64],
}

impl WithSimd for Columns<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { matrix, first, x, wide, cells, scratch, wide_scratch } = self;
        let width = scratch.len();
        for (index, cells) in cells.chunks_exact_mut(x.len() / width).enumerate() {
            let weights = matrix.row(first + index, scratch);
            if let Matrix::Plain { .. } = matrix {
                wide_scratch.iter_mut().zip(weights).for_each(|(wide, weight)| *wide = f64::from(*weight));
                for (cell, x) in cells.iter_mut().zip(wide.chunks_exact(width)) {
                    *cell = numeric::dot_f64(simd, x, wide_scratch) as f32;
                }
            } else {
                for (cell, x) in cells.iter_mut().zip(x.chunks_exact(width)) {
                    *cell = numeric::dot(simd, x, weights);
                }
            }
        }
    }
}

/// `N` numbers as a format stores them. A trait, since a function handed over is reached through a call, and what is
/// called stays compiled for the oldest processor.
trait Block<const N: usize> {
    /// The numbers.
    fn expand(&self, halves: &[f32; 1 << 16], out: &mut [f32; N]);
}

/// Expands all blocks.
fn expanded<const N: usize, B: Block<N> + Sync>(blocks: &[B]) -> Vec<f32> {
    let halves = &**HALVES;
    let expand = |block: &B| {
        let mut out = [0f32; N];
        numeric::vectorised(
            #[inline(always)]
            || block.expand(halves, &mut out),
        );
        out
    };
    blocks.par_iter().with_min_len(SHARE / N).map(expand).collect::<Vec<_>>().into_flattened()
}

/// Expands the blocks of row `index` into `out`.
#[inline(always)]
fn expand<const N: usize, B: Block<N>>(blocks: &[B], index: usize, out: &mut [f32]) {
    let (out, halves) = (out.as_chunks_mut().0, &**HALVES);
    for (block, out) in blocks[index * out.len()..].iter().zip(out) {
        block.expand(halves, out);
    }
}

/// Every half-precision number, by its bits. Read from a table: blocks are so short that converting their scales would be
/// half of the work.
static HALVES: LazyLock<Box<[f32; 1 << 16]>> = LazyLock::new(|| {
    let numbers: Vec<f32> = (0..=u16::MAX).map(|bits| f16::from_bits(bits).to_f32()).collect();
    numbers.try_into().unwrap_or_else(|_| unreachable!())
});

/// [`HALVES`] at the number whose bytes these are.
#[inline(always)]
fn half(halves: &[f32; 1 << 16], low: u8, high: u8) -> f32 {
    halves[usize::from(u16::from_le_bytes([low, high]))]
}

/// GGML's 5-bit format: scale, the fifth bits of 32 codes in one word, then the other four bits, first and second half of
/// the block side by side.
impl Block<32> for [u8; 22] {
    #[inline(always)]
    fn expand(&self, halves: &[f32; 1 << 16], out: &mut [f32; 32]) {
        let scale = half(halves, self[0], self[1]);
        let (first, second) = out.split_at_mut(16);
        for i in 0..16 {
            let codes = five_bits(self, i);
            (first[i], second[i]) = (codes.0 * scale, codes.1 * scale);
        }
    }
}

/// Codes `i` and `i + 16` of a block of 5-bit codes.
#[inline(always)]
fn five_bits(block: &[u8; 22], i: usize) -> (f32, f32) {
    let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]) >> i;
    let code = |low: u8, high: u32| ((u32::from(low) | high << 4).cast_signed() - 16) as f32;
    (code(block[6 + i] & 15, high & 1), code(block[6 + i] >> 4, high >> 16 & 1))
}

/// GGML's 8-bit format: scale, 32 signed codes.
impl Block<32> for [u8; 34] {
    #[inline(always)]
    fn expand(&self, halves: &[f32; 1 << 16], out: &mut [f32; 32]) {
        let [low, high, codes @ ..] = self;
        let scale = half(halves, *low, *high);
        *out = from_fn(|i| f32::from(codes[i].cast_signed()) * scale);
    }
}

/// GGML's 4-bit format with minima: scale of the scales, scale of the minima, 8 of each in 6 bits, then codes: the low halves
/// of 32 bytes are a run, their high halves the next.
impl Block<256> for [u8; 144] {
    #[inline(always)]
    fn expand(&self, halves: &[f32; 1 << 16], out: &mut [f32; 256]) {
        let codes = self[16..].as_chunks::<32>().0;
        for (pair, (out, codes)) in out.as_chunks_mut::<64>().0.iter_mut().zip(codes).enumerate() {
            let (low, high) = (scaled_run(self, halves, 2 * pair), scaled_run(self, halves, 2 * pair + 1));
            let (first, second) = out.split_at_mut(32);
            for i in 0..32 {
                first[i] = f32::from(codes[i] & 15) * low.0 - low.1;
                second[i] = f32::from(codes[i] >> 4) * high.0 - high.1;
            }
        }
    }
}

/// Scale and minimum of one of the 8 runs of a block of 4-bit codes.
#[inline(always)]
fn scaled_run(block: &[u8; 144], halves: &[f32; 1 << 16], run: usize) -> (f32, f32) {
    let packed = &block[4..16];
    let (factor, offset) = match run {
        0..4 => (packed[run] & 63, packed[run + 4] & 63),
        _ => {
            let (low, high) = (packed[run + 4], (packed[run - 4] >> 6, packed[run] >> 6));
            (low & 15 | high.0 << 4, low >> 4 | high.1 << 4)
        }
    };
    (
        half(halves, block[0], block[1]) * f32::from(factor),
        half(halves, block[2], block[3]) * f32::from(offset),
    )
}

/// GGML's 6-bit format: for each half of its 256 codes 64 bytes with the low four bits and, for both halves behind each
/// other, 32 with the high two; then 16 signed scales of runs of 16 codes, and the scale of the scales.
impl Block<256> for [u8; 210] {
    #[inline(always)]
    fn expand(&self, halves: &[f32; 1 << 16], out: &mut [f32; 256]) {
        let scale = half(halves, self[208], self[209]);
        for (part, out) in out.as_chunks_mut::<128>().0.iter_mut().enumerate() {
            let (low, high) = (&self[64 * part..][..64], &self[128 + 32 * part..][..32]);
            let scales = &self[192 + 8 * part..][..8];
            for (quarter, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                let low = &low[quarter % 2 * 32..][..32];
                let (low_shift, high_shift) = (quarter / 2 * 4, quarter * 2);
                for (run, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                    let factor = scale * f32::from(scales[2 * quarter + run].cast_signed());
                    let (low, high) = (&low[16 * run..][..16], &high[16 * run..][..16]);
                    *out = from_fn(|i| {
                        let code = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
                        f32::from(code.wrapping_sub(32).cast_signed()) * factor
                    });
                }
            }
        }
    }
}

/// [n, rows] as [rows, n].
fn transposed(columns: &[f32], rows: usize) -> Vec<f32> {
    (0..rows).flat_map(|row| columns.iter().skip(row).step_by(rows)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::QTensor;
    use candle_core::{Device, Tensor};

    fn wave(count: usize, step: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * step).sin() * (1.0 + (i % 7) as f32)).collect()
    }

    #[test]
    fn blocks_expand_to_the_numbers_that_candle_reads() {
        for format in [GgmlDType::Q5_0, GgmlDType::Q8_0, GgmlDType::Q4K, GgmlDType::Q6K] {
            let values = Tensor::from_vec(wave(5 * 512, 0.37), (5, 512), &Device::Cpu).unwrap();
            let stored = QTensor::quantize(&values, format).unwrap();
            let bytes = stored.data().unwrap();
            let ours = Matrix::of(format, &bytes).unwrap().plain(512).0;
            let theirs = stored.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap();
            assert_eq!(ours.len(), 5 * 512);
            for (ours, theirs) in ours.iter().zip(theirs.to_vec1::<f32>().unwrap()) {
                assert!((ours - theirs).abs() <= 1e-6 * theirs.abs(), "{format:?}: {ours} {theirs}");
            }
        }
    }

    #[test]
    fn a_product_is_the_sum_over_the_columns() {
        let (width, count) = (256, 300);
        let matrix = wave(width * count, 0.21);
        let values = Tensor::from_vec(matrix.clone(), (count, width), &Device::Cpu).unwrap();
        let stored = QTensor::quantize(&values, GgmlDType::Q4K).unwrap();
        let bytes = stored.data().unwrap();
        let blocks = Matrix::of(GgmlDType::Q4K, &bytes).unwrap();
        // Rows with something between them that nobody may read.
        let apart: Vec<f32> =
            matrix.chunks(width).flat_map(|row| row.iter().copied().chain([f32::NAN; 8])).collect();
        for (matrix, stored) in [
            (matrix.clone(), Matrix::Plain { values: &matrix, stride: width }),
            (matrix.clone(), Matrix::Plain { values: &apart, stride: width + 8 }),
            (blocks.plain(width).0.into_owned(), blocks),
        ] {
            for rows in [1, 2, FEW, FEW + 1, 3 * FEW] {
                let x = wave(rows * width, 0.77);
                let ours = stored.product(&x, width, count);
                assert_eq!(ours.len(), rows * count);
                for (i, cell) in ours.iter().enumerate() {
                    let (x, row) = (&x[i / count * width..][..width], &matrix[i % count * width..][..width]);
                    let products = x.iter().zip(row).map(|(a, b)| f64::from(*a) * f64::from(*b));
                    let (sum, size) = products.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
                    assert!((f64::from(*cell) - sum).abs() <= 3e-7 * size, "{cell} {sum} {size}");
                }
            }
        }
    }
}
