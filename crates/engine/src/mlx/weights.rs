//! Weights as MLX multiplies them.

use super::lengths;
use crate::backend::{Numbers, Stored};
use crate::{Error, gguf, numeric};
use candle_core::Device;
use mlx_rs::{Array, Dtype as Type, ops};
use safetensors::Dtype;

/// Elements of a group that MLX has kernels for.
const GROUPS: [usize; 3] = [32, 64, 128];

/// A matrix [out, in], or such a matrix for each of several experts.
pub enum Weight {
    /// Plain f32.
    Dense(Array),
    /// Affine codes, as they are.
    Affine(Box<Affine>),
}

/// MLX's affine quantisation.
pub struct Affine {
    /// Codes, packed into words along the last axis.
    codes: Array,
    /// Scales and biases, one of each for a group along the last axis.
    scales: Array,
    biases: Array,
    bits: i32,
    group: i32,
}

impl Weight {
    /// Puts a stored weight on the device. Codes of a group that MLX has no kernels for, and blocks of GGML, are
    /// expanded.
    pub(super) fn of(stored: Stored) -> Result<Self, Error> {
        match stored {
            Stored::Dense { shape, values } => Ok(Self::Dense(floats(values.dtype, &shape, &values.bytes)?)),
            Stored::Affine { shape, bits, group, codes, scales, biases } if GROUPS.contains(&group) => {
                let last = |len: usize| [&shape[..shape.len() - 1], &[len]].concat();
                let inner = shape[shape.len() - 1];
                let side = |part: &Numbers| floats(part.dtype, &last(inner / group), &part.bytes);
                let words: Vec<u32> =
                    codes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
                Ok(Self::Affine(Box::new(Affine {
                    codes: Array::from_slice(&words, &lengths(&last(inner * bits / 32))),
                    scales: side(&scales)?,
                    biases: side(&biases)?,
                    bits: bits as i32,
                    group: group as i32,
                })))
            }
            Stored::Affine { shape, bits, group, codes, scales, biases } => {
                let (scales, biases) = (numbers(&scales)?, numbers(&biases)?);
                let mut values = vec![0f32; shape.iter().product()];
                let groups = values.chunks_mut(group).zip(codes.chunks(group * bits / 8));
                for (((out, codes), scale), bias) in groups.zip(scales).zip(biases) {
                    numeric::dequantise(out, codes, bits, scale, bias);
                }
                Ok(Self::Dense(Array::from_slice(&values, &lengths(&shape))))
            }
            Stored::Blocks { shape, format, bytes } => {
                let values = gguf::blocks(&shape, format, &bytes, &Device::Cpu)?.dequantize(&Device::Cpu)?;
                let values: Vec<f32> = values.flatten_all()?.to_vec1()?;
                Ok(Self::Dense(Array::from_slice(&values, &lengths(&shape))))
            }
        }
    }

    /// The rows `ids` of a matrix.
    pub(super) fn rows(&self, ids: &Array) -> Result<Array, Error> {
        match self {
            Self::Dense(rows) => Ok(rows.take_axis(ids, 0)?),
            Self::Affine(affine) => {
                let Affine { codes, scales, biases, bits, group } = &**affine;
                let rows = |part: &Array| part.take_axis(ids, 0);
                Ok(ops::dequantize(rows(codes)?, rows(scales)?, &rows(biases)?, *group, *bits)?)
            }
        }
    }

    /// `x` [T, in] times the transpose of a matrix.
    pub(super) fn product(&self, x: &Array) -> Result<Array, Error> {
        match self {
            Self::Dense(rows) => Ok(x.matmul(rows.swap_axes(-1, -2)?)?),
            Self::Affine(affine) => {
                let Affine { codes, scales, biases, bits, group } = &**affine;
                Ok(ops::quantized_matmul(x, codes, scales, biases, true, *group, *bits)?)
            }
        }
    }

    /// `x` […, 1, in] times the transposes of the matrices `chosen` […] → […, 1, out].
    pub(super) fn products(&self, x: &Array, chosen: &Array, sorted: bool) -> Result<Array, Error> {
        match self {
            Self::Dense(rows) => Ok(ops::gather_mm(x, rows.swap_axes(-1, -2)?, None, chosen, sorted)?),
            Self::Affine(affine) => {
                let Affine { codes, scales, biases, bits, group } = &**affine;
                Ok(ops::gather_qmm(x, codes, scales, biases, None, chosen, true, *group, *bits, sorted)?)
            }
        }
    }

    /// Experts and rows of each: [E, out, …].
    pub(super) fn experts(&self) -> (i32, i32) {
        let rows = match self {
            Self::Dense(rows) => rows,
            Self::Affine(affine) => &affine.codes,
        };
        (rows.dim(0), rows.dim(1))
    }

    /// The matrices of all experts one under the other: [E, out, in] as [E·out, in].
    pub(super) fn stacked(&self) -> Result<Self, Error> {
        let (experts, out) = self.experts();
        self.each(|part| Ok(part.reshape(&[experts * out, -1])?))
    }

    /// The matrices of all experts side by side: [E, out, in] as [out, E·in].
    pub(super) fn beside(&self) -> Result<Self, Error> {
        let (_, out) = self.experts();
        self.each(|part| Ok(part.swap_axes(0, 1)?.reshape(&[out, -1])?.contiguous()?))
    }

    /// The weight with every array of it changed alike.
    fn each(&self, change: impl Fn(&Array) -> Result<Array, Error>) -> Result<Self, Error> {
        let done = |part: &Array| {
            let changed = change(part)?;
            changed.eval()?;
            Ok::<_, Error>(changed)
        };
        Ok(match self {
            Self::Dense(rows) => Self::Dense(done(rows)?),
            Self::Affine(affine) => Self::Affine(Box::new(Affine {
                codes: done(&affine.codes)?,
                scales: done(&affine.scales)?,
                biases: done(&affine.biases)?,
                ..**affine
            })),
        })
    }
}

/// Stored little-endian numbers as an array of f32. Fails on types that are no floats.
pub(super) fn floats(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Result<Array, Error> {
    let shape = lengths(shape);
    let halves = |dtype: Type| {
        let words: Vec<u16> = bytes.as_chunks().0.iter().map(|word| u16::from_le_bytes(*word)).collect();
        let array = Array::from_slice(&words, &shape).view_dtype(dtype)?.as_dtype(Type::Float32)?;
        // At once, so that no model is in memory twice.
        array.eval()?;
        Ok(array)
    };
    match dtype {
        Dtype::F32 => {
            let words: Vec<f32> = bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
            Ok(Array::from_slice(&words, &shape))
        }
        Dtype::F16 => halves(Type::Float16),
        Dtype::BF16 => halves(Type::Bfloat16),
        other => Err(Error::Tensor(format!("weights of type {other:?} are not supported"))),
    }
}

/// Stored numbers as they are read here.
fn numbers(part: &Numbers) -> Result<Vec<f32>, Error> {
    let len = part.bytes.len() / (part.dtype.bitsize() / 8).max(1);
    let array = floats(part.dtype, &[len], &part.bytes)?;
    array.to_vec_exact().map_err(|error| Error::Tensor(error.to_string()))
}
