//! The [`Backend`] on candle: CPU or CUDA, arithmetic in f32. What it fuses on the CPU is in `portable` for the rest.

#[cfg_attr(not(feature = "cuda"), path = "candle/no_cuda.rs")]
mod cuda;
mod portable;

use crate::backend::{Activation, Backend, Mask, Numbers, Segment, Stored};
use crate::{Error, numeric};
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, DType, Device, InplaceOp1, Layout, Shape, Tensor,
};
use cuda::Gpu;
use protocol::DeviceMemory;
use rayon::prelude::*;
use safetensors::Dtype;
use std::borrow::Cow;
use std::ops::Range;

/// Version of candle that this program is built with; a test holds it against `Cargo.lock`.
pub const VERSION: &str = "0.11.1";

/// Queries that are scored at once. Bounds the score matrix to block × (window + block) on sliding layers.
const BLOCK: usize = 128;

/// Up to this many experts, all of them in one matrix product beat gathering rows by expert.
const DENSE_EXPERTS: usize = 16;

/// From this many rows on, expanding a quantised weight for one product of matrices beats a product for each row.
const EXPANDED_ROWS: usize = 16;

/// candle on one device.
#[derive(Clone, Debug)]
pub struct Candle {
    device: Device,
    gpu: Option<Gpu>,
    /// Whether the fused operations of the CPU are left alone.
    portable: bool,
}

impl Candle {
    /// The CPU.
    pub fn cpu() -> Self {
        Self { device: Device::Cpu, gpu: None, portable: false }
    }

    /// The CPU with the operations that CUDA computes with: their test where no GPU is.
    pub fn portable() -> Self {
        Self { portable: true, ..Self::cpu() }
    }

    /// The device. Fails where this program or this machine has none that computes.
    pub fn open(device: protocol::Device) -> Result<Self, Error> {
        match device {
            protocol::Device::Cpu => Ok(Self::cpu()),
            protocol::Device::Cuda => Self::cuda(),
            protocol::Device::Metal => Err(Error::Device {
                device: "Metal",
                reason: "candle does not compute on it here".into(),
                hint: "use --backend mlx, or --device cpu",
            }),
        }
    }

    /// The first NVIDIA GPU, after a small product on it has come out right: its kernels fit only one generation.
    fn cuda() -> Result<Self, Error> {
        let gpu = Gpu::open()?;
        let candle = Self { device: gpu.device(), gpu: Some(gpu), portable: true };
        candle.probe().map_err(|error| Error::Device {
            device: "CUDA",
            reason: format!("a small product fails on it: {error}"),
            hint: "use a GPU of the generation that the program was built for: H100 or H200, unless CUDA_COMPUTE_CAP said otherwise",
        })?;
        Ok(candle)
    }

    /// Name of the GPU; none on the CPU.
    pub fn gpu_name(&self) -> Option<String> {
        self.gpu.as_ref().map(Gpu::name)
    }

    /// Version of the GPU's driver; none on the CPU, and where the system does not tell.
    pub fn gpu_driver(&self) -> Option<String> {
        self.gpu.as_ref().and_then(Gpu::driver)
    }

    /// Multiplies two small matrices whose product is known and gives the seconds it took.
    pub fn probe(&self) -> Result<f64, Error> {
        const SIZE: usize = 128;
        let start = std::time::Instant::now();
        let ramp: Vec<f32> = (0..SIZE * SIZE).map(|i| (i % SIZE) as f32).collect();
        let ones = Tensor::ones((SIZE, SIZE), DType::F32, &self.device)?;
        let product = Tensor::from_vec(ramp, (SIZE, SIZE), &self.device)?.matmul(&ones)?;
        let expected = (SIZE * (SIZE - 1) / 2) as f32;
        let wrong = product.flatten_all()?.to_vec1::<f32>()?.into_iter().find(|value| *value != expected);
        match wrong {
            Some(value) => {
                Err(Error::Tensor(format!("a matrix product gave {value} where {expected} is right")))
            }
            None => Ok(start.elapsed().as_secs_f64()),
        }
    }
}

/// Rotary tables, [T, d/2] each.
pub struct Angles {
    cos: Tensor,
    sin: Tensor,
}

/// A matrix [out, in].
pub enum Weight {
    /// Plain f32.
    Dense(Tensor),
    /// Blocks of a GGUF file, as they are.
    Blocks(Box<QTensor>),
}

/// Experts laid out for one product over all of them: gate and up [E·I, H], down [H, E·I].
pub struct Experts {
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    factors: Vec<f32>,
    inner: usize,
}

impl Backend for Candle {
    type Tensor = Tensor;
    type Angles = Angles;
    type Weight = Weight;
    type Experts = Experts;

    fn tensor(&self, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Result<Tensor, Error> {
        let dtype = match dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => return Err(Error::Tensor(format!("weights of type {other:?} are not supported"))),
        };
        Ok(Tensor::from_raw_buffer(bytes, dtype, shape, &self.device)?.to_dtype(DType::F32)?)
    }

    fn weight(&self, stored: Stored) -> Result<Weight, Error> {
        match stored {
            Stored::Blocks { shape, format, bytes } => {
                Ok(Weight::Blocks(Box::new(self.blocks(shape, format, bytes)?)))
            }
            plain => Ok(Weight::Dense(self.expand(plain)?)),
        }
    }

    fn experts(&self, gate: Stored, up: Stored, down: Stored, factors: Vec<f32>) -> Result<Experts, Error> {
        let (gate, up, down) = (self.expand(gate)?, self.expand(up)?, self.expand(down)?);
        let (experts, inner, hidden) = gate.dims3()?;
        let rows = |x: Tensor| Ok::<_, Error>(x.reshape((experts * inner, hidden))?);
        let down = down.permute((1, 0, 2))?.reshape((hidden, experts * inner))?;
        Ok(Experts { gate: rows(gate)?, up: rows(up)?, down, factors, inner })
    }

    fn shape(&self, x: &Tensor) -> Vec<usize> {
        x.dims().to_vec()
    }

    fn bytes(&self, x: &Tensor) -> u64 {
        (x.elem_count() * x.dtype().size_in_bytes()) as u64
    }

    fn to_f32(&self, x: &Tensor) -> Result<Vec<f32>, Error> {
        Ok(x.flatten_all()?.to_vec1()?)
    }

    fn embed(&self, table: &Weight, ids: &[u32], scale: f32) -> Result<Tensor, Error> {
        let ids = Tensor::new(ids, &self.device)?;
        let rows = match table {
            Weight::Dense(table) => table.index_select(&ids, 0)?,
            Weight::Blocks(table) => table.embedding(&ids)?,
        };
        Ok((rows * f64::from(scale))?)
    }

    fn linear(&self, x: &Tensor, weight: &Weight) -> Result<Tensor, Error> {
        match weight {
            Weight::Dense(weight) => product(x, weight),
            Weight::Blocks(weight) if x.dim(0)? < EXPANDED_ROWS => {
                Ok(x.contiguous()?.apply_op1_no_bwd(weight.as_ref())?)
            }
            Weight::Blocks(weight) => product(x, &weight.dequantize(&self.device)?),
        }
    }

    fn add(&self, a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
        Ok((a + b)?)
    }

    fn scale(&self, x: &Tensor, factor: f32) -> Result<Tensor, Error> {
        Ok((x * f64::from(factor))?)
    }

    fn rms_norm(&self, x: &Tensor, weight: Option<&Tensor>, eps: f32) -> Result<Tensor, Error> {
        if self.portable {
            return portable::rms_norm(x, weight, eps);
        }
        let (x, norm) = (x.contiguous()?, RmsNorm(eps));
        Ok(match weight {
            Some(weight) => x.apply_op2_no_bwd(weight, &norm)?,
            None => x.apply_op1_no_bwd(&norm)?,
        })
    }

    fn split_heads(&self, x: &Tensor, heads: usize) -> Result<Tensor, Error> {
        let (positions, width) = x.dims2()?;
        Ok(x.reshape((positions, heads, width / heads))?)
    }

    fn squeeze(&self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(x.squeeze(0)?)
    }

    fn angles(&self, inverse_frequencies: &[f32], positions: Range<usize>) -> Result<Angles, Error> {
        let (shape, width) = ((positions.len(), inverse_frequencies.len()), inverse_frequencies.len());
        let (mut cos, mut sin) = (vec![1f32; positions.len() * width], vec![0f32; positions.len() * width]);
        // A bounded cache asks anew for all its positions at every token, and most pairs of full layers do not turn.
        let rows = cos.par_chunks_mut(width).zip(sin.par_chunks_mut(width)).zip(positions);
        rows.with_min_len(256).for_each(|((cos, sin), position)| {
            for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(inverse_frequencies) {
                if *frequency != 0.0 {
                    (*sin, *cos) = (position as f32 * frequency).sin_cos();
                }
            }
        });
        let table = |values| Tensor::from_vec(values, shape, &self.device);
        Ok(Angles { cos: table(cos)?, sin: table(sin)? })
    }

    fn rope(&self, x: &Tensor, angles: &Angles) -> Result<Tensor, Error> {
        portable::rope(x, &angles.cos, &angles.sin)
    }

    fn weighted_rope(&self, x: &Tensor, weight: &Tensor, angles: &Angles) -> Result<Tensor, Error> {
        if self.portable {
            return portable::rope(&x.broadcast_mul(weight)?, &angles.cos, &angles.sin);
        }
        let weight = weight.to_vec1()?;
        Ok(x.contiguous()?.apply_op3_no_bwd(&angles.cos, &angles.sin, &WeightedRope(weight))?)
    }

    fn head_major(&self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(x.transpose(0, 1)?.contiguous()?)
    }

    fn attention(
        &self,
        q: &Tensor,
        keys: &[Segment<Tensor>],
        scale: f32,
        mask: Mask,
    ) -> Result<Tensor, Error> {
        if self.portable {
            return portable::attention(q, keys, scale, mask);
        }
        let (heads, queries, dim) = q.dims3()?;
        let (groups, first) = queried(keys, queries)?;
        let rows = heads / groups;
        let mut blocks = Vec::new();
        for start in (0..queries).step_by(BLOCK) {
            let len = BLOCK.min(queries - start);
            let block = first + start..first + start + len;
            let seen = seen(keys, mask, block.clone())?;
            let q = q.narrow(1, start, len)?.contiguous()?.reshape((groups, rows * len, dim))?;
            let scores = scores(&q, &seen)?;
            let columns = Columns(seen.iter().map(|segment| segment.positions.clone()).collect());
            scores.inplace_op1(&MaskedSoftmax { mask, columns, block, scale })?;
            let out = weighted(&scores, &seen)?.reshape((heads, len, dim))?;
            blocks.push(out.transpose(0, 1)?.reshape((len, heads * dim))?);
        }
        Ok(if blocks.len() == 1 { blocks.swap_remove(0) } else { Tensor::cat(&blocks, 0)? })
    }

    fn attention_mass(
        &self,
        q: &Tensor,
        keys: &[Segment<Tensor>],
        scale: f32,
        mask: Mask,
        range: Range<usize>,
    ) -> Result<f64, Error> {
        let (heads, queries, dim) = q.dims3()?;
        let (groups, first) = queried(keys, queries)?;
        let position = first + queries - 1;
        let seen = seen(keys, mask, position..position + 1)?;
        let columns = Columns(seen.iter().map(|segment| segment.positions.clone()).collect());
        let last = q.narrow(1, queries - 1, 1)?.contiguous()?.reshape((groups, heads / groups, dim))?;
        let mut scores = self.to_f32(&scores(&last, &seen)?)?;
        let (early, near) = mask.visible(position, position + 1);
        let (early, near, range) = (columns.of(early), columns.of(near), columns.of(range));
        let mass = |row: &mut [f32]| {
            numeric::softmax(row, scale, early.clone(), near.clone());
            row[range.clone()].iter().copied().map(f64::from).sum::<f64>()
        };
        Ok(scores.chunks_mut(columns.count()).map(mass).sum::<f64>() / heads as f64)
    }

    fn gated(&self, activation: Activation, gate: &Tensor, up: &Tensor) -> Result<Tensor, Error> {
        if self.portable {
            return portable::gated(activation, gate, up);
        }
        Ok(gate.contiguous()?.apply_op2_no_bwd(&up.contiguous()?, &Gated(activation))?)
    }

    fn mixture(&self, x: &Tensor, scores: &Tensor, top_k: usize, experts: &Experts) -> Result<Tensor, Error> {
        let count = experts.factors.len();
        let mut weights = self.to_f32(scores)?;
        weights.chunks_mut(count).for_each(|row| route(row, top_k, &experts.factors));
        if count <= DENSE_EXPERTS {
            self.dense(x, weights, experts)
        } else {
            self.gathered(x, &weights, experts)
        }
    }

    fn concat(&self, axis: usize, parts: &[&Tensor]) -> Result<Tensor, Error> {
        Ok(Tensor::cat(parts, axis)?)
    }

    fn zeros(&self, shape: &[usize]) -> Result<Tensor, Error> {
        Ok(Tensor::zeros(shape, DType::F32, &self.device)?)
    }

    fn write(&self, x: &mut Tensor, axis: usize, start: usize, rows: &Tensor) -> Result<(), Error> {
        Ok(x.slice_set(&rows.contiguous()?, axis, start)?)
    }

    fn view(&self, x: &Tensor, axis: usize, range: Range<usize>) -> Result<Tensor, Error> {
        Ok(x.narrow(axis, range.start, range.len())?)
    }

    fn slice(&self, x: &Tensor, axis: usize, range: Range<usize>) -> Result<Tensor, Error> {
        Ok(x.narrow(axis, range.start, range.len())?.force_contiguous()?)
    }

    fn replace_rows(&self, x: &Tensor, start: usize, rows: &Tensor) -> Result<Tensor, Error> {
        let end = start + rows.dim(0)?;
        Ok(Tensor::cat(&[&x.narrow(0, 0, start)?, rows, &x.narrow(0, end, x.dim(0)? - end)?], 0)?)
    }

    fn softcap(&self, x: &Tensor, cap: f32) -> Result<Tensor, Error> {
        let cap = f64::from(cap);
        Ok(((x / cap)?.tanh()? * cap)?)
    }

    fn argmax_last(&self, x: &Tensor) -> Result<u32, Error> {
        if self.portable {
            return portable::argmax_last(x);
        }
        Ok(x.get(x.dim(0)? - 1)?.argmax(0)?.to_scalar()?)
    }

    fn reset_device_peak(&self) -> Result<(), Error> {
        self.gpu.as_ref().map_or(Ok(()), Gpu::reset_peak)
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        self.gpu.as_ref()?.memory()
    }
}

impl Candle {
    fn blocks(&self, shape: Vec<usize>, format: GgmlDType, bytes: Vec<u8>) -> Result<QTensor, Error> {
        let (format, bytes) = match format {
            // candle has no fast product for 5 bits; 8 bits hold the same codes under the same scale.
            GgmlDType::Q5_0 => {
                let blocks = bytes.as_chunks().0.iter();
                (GgmlDType::Q8_0, blocks.flat_map(numeric::q5_0_as_q8_0).collect())
            }
            other => (other, bytes),
        };
        let storage = QStorage::from_data(Cow::Owned(bytes), &self.device, format)?;
        Ok(QTensor::new(storage, shape)?)
    }

    /// A stored weight as plain f32.
    fn expand(&self, stored: Stored) -> Result<Tensor, Error> {
        match stored {
            Stored::Dense { shape, values } => self.tensor(values.dtype, &shape, &values.bytes),
            Stored::Affine { shape, bits, group, codes, scales, biases } => {
                let floats = |part: Numbers| {
                    let len = part.bytes.len() / (part.dtype.bitsize() / 8).max(1);
                    self.to_f32(&self.tensor(part.dtype, &[len], &part.bytes)?)
                };
                let (scales, biases) = (floats(scales)?, floats(biases)?);
                let mut values = vec![0f32; shape.iter().product()];
                let groups = values.par_chunks_mut(group).zip(codes.par_chunks(group * bits / 8));
                groups.zip(&scales).zip(&biases).with_min_len(256).for_each(
                    |(((out, codes), scale), bias)| {
                        numeric::dequantise(out, codes, bits, *scale, *bias);
                    },
                );
                Ok(Tensor::from_vec(values, shape, &self.device)?)
            }
            Stored::Blocks { shape, format, bytes } => {
                Ok(self.blocks(shape, format, bytes)?.dequantize(&self.device)?)
            }
        }
    }

    /// `gelu(gate) · up` of [T, n·I], each run of I times its weight in [T, n].
    fn weighted_gelu(&self, gate: &Tensor, up: &Tensor, weights: &Tensor) -> Result<Tensor, Error> {
        if self.portable {
            return portable::weighted_gelu(gate, up, weights);
        }
        Ok(gate.apply_op3_no_bwd(up, weights, &WeightedGelu)?)
    }

    /// Every expert on every row in one product; unchosen experts weigh 0.
    fn dense(&self, x: &Tensor, weights: Vec<f32>, experts: &Experts) -> Result<Tensor, Error> {
        let weights = Tensor::from_vec(weights, (x.dim(0)?, experts.factors.len()), &self.device)?;
        let (gate, up) = (product(x, &experts.gate)?, product(x, &experts.up)?);
        let inner = self.weighted_gelu(&gate, &up, &weights)?;
        product(&inner, &experts.down)
    }

    /// Each expert on the rows that chose it.
    fn gathered(&self, x: &Tensor, weights: &[f32], experts: &Experts) -> Result<Tensor, Error> {
        let (count, inner) = (experts.factors.len(), experts.inner);
        let mut out = x.zeros_like()?;
        for expert in 0..count {
            let rows: Vec<u32> =
                (0..x.dim(0)? as u32).filter(|row| weights[*row as usize * count + expert] != 0.0).collect();
            if rows.is_empty() {
                continue;
            }
            let factors: Vec<f32> = rows.iter().map(|row| weights[*row as usize * count + expert]).collect();
            let factors = Tensor::from_vec(factors, (rows.len(), 1), &self.device)?;
            let rows = Tensor::new(rows, &self.device)?;
            let chosen = x.index_select(&rows, 0)?;
            let part = |weight: &Tensor| weight.narrow(0, expert * inner, inner);
            let (gate, up) =
                (product(&chosen, &part(&experts.gate)?)?, product(&chosen, &part(&experts.up)?)?);
            let act = self.weighted_gelu(&gate, &up, &factors)?;
            let down = experts.down.narrow(1, expert * inner, inner)?;
            // The CPU multiplies by columns where they lie.
            let down = if self.portable { portable::operand(&down)? } else { down };
            let result = product(&act, &down)?;
            out = out.index_add(&rows, &result, 0)?;
        }
        Ok(out)
    }
}

/// `x` [T, in] times the transpose of `weight` [out, in].
fn product(x: &Tensor, weight: &Tensor) -> Result<Tensor, Error> {
    Ok(x.matmul(&weight.t()?)?)
}

/// Turns one row of router scores into weights: softmax, the `top_k` largest renormalised, each expert's factor; 0 else.
fn route(row: &mut [f32], top_k: usize, factors: &[f32]) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter_mut().for_each(|score| *score = (*score - max).exp());
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
    let (chosen, rest) = order.split_at(top_k.min(order.len()));
    let sum: f32 = chosen.iter().map(|expert| row[*expert]).sum();
    chosen.iter().for_each(|expert| row[*expert] = row[*expert] / sum * factors[*expert]);
    rest.iter().for_each(|expert| row[*expert] = 0.0);
}

/// K/V heads of the segments, and the position of the first of `queries` queries, which end with the last segment.
fn queried(keys: &[Segment<Tensor>], queries: usize) -> Result<(usize, usize), Error> {
    let last = keys.last().ok_or_else(|| Error::Tensor("attention over no keys".into()))?;
    let first = last.positions.end.checked_sub(queries);
    let first =
        first.ok_or_else(|| Error::Tensor(format!("{queries} queries but fewer positions before them")))?;
    Ok((last.k.dim(0)?, first))
}

/// The parts of the segments that some query of `block` sees.
fn seen(
    keys: &[Segment<Tensor>],
    mask: Mask,
    block: Range<usize>,
) -> candle_core::Result<Vec<Segment<Tensor>>> {
    let end = keys.last().map_or(0, |last| last.positions.end);
    let (first, last) = (mask.visible(block.start, end), mask.visible(block.end - 1, end));
    let early = first.0.start.min(last.0.start)..first.0.end.max(last.0.end);
    let near = first.1.start.min(last.1.start).max(early.end)..last.1.end;
    let mut seen = Vec::new();
    for segment in keys {
        for wanted in [&early, &near] {
            let start = wanted.start.max(segment.positions.start);
            let end = wanted.end.min(segment.positions.end);
            if start < end {
                let part = |x: &Tensor| x.narrow(1, start - segment.positions.start, end - start);
                seen.push(Segment { positions: start..end, k: part(&segment.k)?, v: part(&segment.v)? });
            }
        }
    }
    Ok(seen)
}

/// Products of queries [groups, rows, d] with all keys, side by side.
fn scores(q: &Tensor, seen: &[Segment<Tensor>]) -> candle_core::Result<Tensor> {
    let parts = seen.iter().map(|segment| q.matmul(&segment.k.t()?)).collect::<Result<Vec<_>, _>>()?;
    if let [scores] = &parts[..] { Ok(scores.clone()) } else { Tensor::cat(&parts, 2) }
}

/// Sums of all values, weighted.
fn weighted(weights: &Tensor, seen: &[Segment<Tensor>]) -> candle_core::Result<Tensor> {
    let (mut column, mut sum) = (0, None);
    for segment in seen {
        let part = weights.narrow(2, column, segment.positions.len())?.matmul(&segment.v)?;
        column += segment.positions.len();
        sum = Some(match sum {
            Some(sum) => (sum + part)?,
            None => part,
        });
    }
    sum.map_or_else(|| candle_core::bail!("a query sees no key"), Ok)
}

/// Which position each column of a score matrix belongs to: runs of consecutive positions.
struct Columns(Vec<Range<usize>>);

impl Columns {
    fn count(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }

    /// Columns of the positions `range`.
    fn of(&self, range: Range<usize>) -> Range<usize> {
        // Positions that have no column lie between two runs.
        let before = |position: usize| {
            self.0.iter().map(|run| position.clamp(run.start, run.end) - run.start).sum::<usize>()
        };
        before(range.start)..before(range.end)
    }
}

/// Softmax over the visible keys of every row of scores [groups, repeat · block, columns]; 0 elsewhere.
struct MaskedSoftmax {
    mask: Mask,
    columns: Columns,
    /// Positions of the queries.
    block: Range<usize>,
    scale: f32,
}

impl InplaceOp1 for MaskedSoftmax {
    fn name(&self) -> &'static str {
        "masked-softmax"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let scores = f32_mut(storage, layout)?;
        let end = self.columns.0.last().map_or(0, |run| run.end);
        scores.par_chunks_mut(self.columns.count()).with_min_len(16).enumerate().for_each(|(row, scores)| {
            let (early, near) = self.mask.visible(self.block.start + row % self.block.len(), end);
            numeric::softmax(scores, self.scale, self.columns.of(early), self.columns.of(near));
        });
        Ok(())
    }
}

/// Over the last axis, with the epsilon; a second array is the weight.
struct RmsNorm(f32);

impl RmsNorm {
    fn rows(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        weight: Option<&[f32]>,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let x = f32_ref(x, layout)?;
        let width = layout.dims().last().copied().unwrap_or(1).max(1);
        let mut out = vec![0f32; x.len()];
        let rows = out.par_chunks_mut(width).zip(x.par_chunks(width));
        rows.with_min_len(4096usize.div_ceil(width))
            .for_each(|(out, x)| numeric::rms_norm(out, x, weight, self.0));
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

impl CustomOp1 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        self.rows(x, layout, None)
    }
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        self.rows(x, layout, Some(f32_ref(weight, weight_layout)?))
    }
}

/// Rows of [n, T, d] times the weight, their pairs (i, i + d/2) turned by cos and sin [T, d/2].
struct WeightedRope(Vec<f32>);

impl CustomOp3 for WeightedRope {
    fn name(&self) -> &'static str {
        "weighted-rope"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        cos: &CpuStorage,
        cos_layout: &Layout,
        sin: &CpuStorage,
        sin_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (x, cos, sin) = (f32_ref(x, x_layout)?, f32_ref(cos, cos_layout)?, f32_ref(sin, sin_layout)?);
        let (half, dim) = (self.0.len() / 2, self.0.len());
        let (low, high) = self.0.split_at(half);
        let mut out = vec![0f32; x.len()];
        let positions = cos.len() / half;
        let rows = out.par_chunks_mut(dim).zip(x.par_chunks(dim)).enumerate();
        rows.with_min_len(1024).for_each(|(row, (out, x))| {
            let at = row % positions * half;
            let (cos, sin) = (&cos[at..at + half], &sin[at..at + half]);
            let ((a, b), (out_a, out_b)) = (x.split_at(half), out.split_at_mut(half));
            for i in 0..half {
                let (a, b) = (a[i] * low[i], b[i] * high[i]);
                out_a[i] = a * cos[i] - b * sin[i];
                out_b[i] = a * sin[i] + b * cos[i];
            }
        });
        Ok((CpuStorage::F32(out), x_layout.shape().clone()))
    }
}

struct Gated(Activation);

impl CustomOp2 for Gated {
    fn name(&self) -> &'static str {
        "gated"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gate_layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (gate, up) = (f32_ref(gate, gate_layout)?, f32_ref(up, up_layout)?);
        let mut out = vec![0f32; gate.len()];
        out.par_chunks_mut(4096).zip(gate.par_chunks(4096)).zip(up.par_chunks(4096)).for_each(
            |((out, gate), up)| match self.0 {
                Activation::GeluTanh => numeric::gated(out, gate, up, numeric::gelu_tanh),
                Activation::Silu => numeric::gated(out, gate, up, numeric::silu),
            },
        );
        Ok((CpuStorage::F32(out), gate_layout.shape().clone()))
    }
}

/// `gelu(gate) · up` of [T, n·I], each run of I times its weight in [T, n].
struct WeightedGelu;

impl CustomOp3 for WeightedGelu {
    fn name(&self) -> &'static str {
        "weighted-gelu"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gate_layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
        weights: &CpuStorage,
        weights_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (gate, up) = (f32_ref(gate, gate_layout)?, f32_ref(up, up_layout)?);
        let weights = f32_ref(weights, weights_layout)?;
        let inner = gate.len() / weights.len();
        let mut out = vec![0f32; gate.len()];
        let runs =
            out.par_chunks_mut(inner).zip(gate.par_chunks(inner)).zip(up.par_chunks(inner)).zip(weights);
        runs.with_min_len(64).filter(|(_, weight)| **weight != 0.0).for_each(
            |(((out, gate), up), weight)| {
                numeric::gated(out, gate, up, numeric::gelu_tanh);
                out.iter_mut().for_each(|value| *value *= weight);
            },
        );
        Ok((CpuStorage::F32(out), gate_layout.shape().clone()))
    }
}

fn f32_ref<'a>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(values), Some((start, end))) => Ok(&values[start..end]),
        _ => candle_core::bail!("needs a contiguous f32 array"),
    }
}

fn f32_mut<'a>(storage: &'a mut CpuStorage, layout: &Layout) -> candle_core::Result<&'a mut [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(values), Some((start, end))) => Ok(&mut values[start..end]),
        _ => candle_core::bail!("needs a contiguous f32 array"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_under_every_mask_is_the_plain_sum_over_the_keys_it_sees() {
        let (candle, groups, repeat, dim, len) = (Candle::cpu(), 2, 2, 4, 300);
        let heads = groups * repeat;
        let wave = |count: usize, step: f32| {
            let values: Vec<f32> = (0..count * len * dim).map(|i| 2.0 * (i as f32 * step).sin()).collect();
            Tensor::from_vec(values, (count, len, dim), &candle.device).unwrap()
        };
        let (q, k, v) = (wave(heads, 0.71), wave(groups, 1.37), wave(groups, 0.53));
        let [qs, ks, vs] = [&q, &k, &v].map(|x| candle.to_f32(x).unwrap());
        let row = |x: &[f32], head: usize, at: usize| x[(head * len + at) * dim..][..dim].to_vec();
        for mask in [
            Mask::Causal,
            Mask::Sliding { window: 50 },
            Mask::SinkWindow { sink: 4, window: 64 },
            Mask::Hiding { from: 4, to: 236, window: None },
            Mask::Hiding { from: 4, to: 236, window: Some(128) },
            Mask::Hiding { from: 0, to: 299, window: Some(128) },
        ] {
            let segments = |ends: &[usize]| {
                let starts = [&[0], ends].concat();
                let part = |(start, end): (&usize, &usize)| {
                    let part = |x: &Tensor| x.narrow(1, *start, end - start).unwrap();
                    Segment { positions: *start..*end, k: part(&k), v: part(&v) }
                };
                starts.iter().zip(ends).map(part).collect::<Vec<_>>()
            };
            let (whole, parts) = (segments(&[len]), segments(&[4, 130, len]));
            let ours = candle.to_f32(&candle.attention(&q, &whole, 0.5, mask).unwrap()).unwrap();
            let in_parts = candle.to_f32(&candle.attention(&q, &parts, 0.5, mask).unwrap()).unwrap();
            assert!(ours.iter().zip(&in_parts).all(|(a, b)| (a - b).abs() < 1e-5), "{mask:?} in parts");
            let watched = 4..236;
            let mut mass = 0.0;
            for (head, query) in (0..heads).flat_map(|head| (0..len).map(move |query| (head, query))) {
                let (early, near) = mask.visible(query, len);
                let keys: Vec<usize> = early.chain(near).collect();
                let score = |key: &usize| {
                    let (q, k) = (row(&qs, head, query), row(&ks, head / repeat, *key));
                    (0.5 * q.iter().zip(&k).map(|(a, b)| a * b).sum::<f32>()).exp()
                };
                let scores: Vec<f32> = keys.iter().map(score).collect();
                let sum: f32 = scores.iter().sum();
                for d in 0..dim {
                    let weighted =
                        keys.iter().zip(&scores).map(|(key, s)| s * row(&vs, head / repeat, *key)[d]);
                    let expected = weighted.sum::<f32>() / sum;
                    let got = ours[(query * heads + head) * dim + d];
                    assert!(
                        (got - expected).abs() < 1e-4,
                        "{mask:?}: head {head}, query {query}: {got} {expected}"
                    );
                }
                if query == len - 1 {
                    let seen = keys.iter().zip(&scores).filter(|(key, _)| watched.contains(*key));
                    mass += f64::from(seen.map(|(_, s)| s).sum::<f32>() / sum) / heads as f64;
                }
            }
            for keys in [whole, parts] {
                let got = candle.attention_mass(&q, &keys, 0.5, mask, watched.clone()).unwrap();
                assert!((got - mass).abs() < 1e-5, "{mask:?}: {got} {mass}");
            }
        }
    }

    #[test]
    fn five_bits_in_eight_are_the_same_numbers() {
        let values: Vec<f32> = (0..640).map(|i| (i as f32 * 0.37).sin() * (1.0 + i as f32)).collect();
        let values = Tensor::from_vec(values, (5, 128), &Device::Cpu).unwrap();
        let stored = QTensor::quantize(&values, GgmlDType::Q5_0).unwrap();
        let bytes = stored.data().unwrap().into_owned();
        let ours = Candle::cpu().blocks(vec![5, 128], GgmlDType::Q5_0, bytes).unwrap();
        assert_eq!(ours.dtype(), GgmlDType::Q8_0);
        let flat = |x: &QTensor| {
            x.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
        };
        assert_eq!(flat(&ours), flat(&stored));
    }

    #[test]
    fn gathered_experts_equal_dense_ones() {
        let (count, inner, hidden, rows) = (5, 6, 8, 11);
        let candle = Candle::cpu();
        let wave = |shape: &[usize], step: f32| {
            let values: Vec<f32> = (0..shape.iter().product()).map(|i| (i as f32 * step).sin()).collect();
            Tensor::from_vec(values, shape, &candle.device).unwrap()
        };
        let factors = vec![0.5, 1.0, 1.5, 2.0, 0.25];
        let stored = |shape: &[usize], step| {
            let values = candle.to_f32(&wave(shape, step)).unwrap();
            let bytes = values.into_iter().flat_map(f32::to_le_bytes).collect();
            Stored::Dense { shape: shape.to_vec(), values: Numbers { dtype: Dtype::F32, bytes } }
        };
        let (gate, up) = stored(&[count, 2 * inner, hidden], 0.7).halves();
        let experts = candle.experts(gate, up, stored(&[count, hidden, inner], 1.3), factors).unwrap();
        let x = wave(&[rows, hidden], 0.9);
        let mut weights = candle.to_f32(&wave(&[rows, count], 2.1)).unwrap();
        weights.chunks_mut(count).for_each(|row| route(row, 2, &experts.factors));
        let gathered = candle.to_f32(&candle.gathered(&x, &weights, &experts).unwrap()).unwrap();
        let dense = candle.to_f32(&candle.dense(&x, weights, &experts).unwrap()).unwrap();
        assert!(dense.iter().any(|value| value.abs() > 0.1));
        assert!(gathered.iter().zip(&dense).all(|(a, b)| (a - b).abs() < 1e-5));
    }
}
