//! The [`Backend`] on candle: CPU or CUDA, arithmetic in f32. What it fuses on the CPU is in `portable` for the rest.

mod attention;
#[cfg_attr(not(feature = "cuda"), path = "candle/no_cuda.rs")]
mod cuda;
mod matrix;
mod portable;

use crate::backend::{Activation, Backend, Mask, Numbers, Segment, Stored};
use crate::columns::{self, Columns, queried};
use crate::threads::Awake;
use crate::{Error, gguf, numeric};
use attention::{Attention, Keys, Rows};
use candle_core::quantized::QTensor;
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, DType, Device, Layout, Shape, Storage, Tensor,
};
use cuda::Gpu;
use matrix::Matrix;
use protocol::DeviceMemory;
use rayon::prelude::*;
use safetensors::Dtype;
use std::ops::Range;

/// Version of candle that this program is built with; a test holds it against `Cargo.lock`.
pub const VERSION: &str = "0.11.1";

/// Elements that are worth handing to another thread.
const SHARE: usize = 1 << 14;

/// Up to this many experts, all of them in one matrix product beat gathering rows by expert.
const DENSE_EXPERTS: usize = 16;

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

/// Rotary tables, [T, pairs] each; pairs beyond them do not turn.
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
    type Ids = Vec<u32>;
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
                Ok(Weight::Blocks(Box::new(gguf::blocks(&shape, format, &bytes, &self.device)?)))
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

    fn ids(&self, ids: &[u32]) -> Vec<u32> {
        ids.to_vec()
    }

    fn embed(&self, table: &Weight, ids: &Vec<u32>, scale: f32) -> Result<Tensor, Error> {
        let ids = Tensor::new(&ids[..], &self.device)?;
        let rows = match table {
            Weight::Dense(table) => table.index_select(&ids, 0)?,
            Weight::Blocks(table) => table.embedding(&ids)?,
        };
        Ok((rows * f64::from(scale))?)
    }

    fn linear(&self, x: &Tensor, weight: &Weight) -> Result<Tensor, Error> {
        match weight {
            Weight::Dense(weight) => self.product(x, weight),
            Weight::Blocks(weight) if self.portable => product(x, &weight.dequantize(&self.device)?),
            Weight::Blocks(weight) => self.product_with_blocks(x, weight),
        }
    }

    fn add(&self, a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
        if self.portable {
            return Ok((a + b)?);
        }
        Ok(a.contiguous()?.apply_op2_no_bwd(&b.contiguous()?, &Sum)?)
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
        let width = if self.portable { inverse_frequencies.len() } else { turning(inverse_frequencies) };
        let frequencies = &inverse_frequencies[..width];
        let (mut cos, mut sin) = (vec![0f32; positions.len() * width], vec![0f32; positions.len() * width]);
        // A bounded cache asks anew for all its positions at every token.
        const ROWS: usize = 64;
        let rows = cos.par_chunks_mut(ROWS * width).zip(sin.par_chunks_mut(ROWS * width)).enumerate();
        rows.for_each(|(part, (cos, sin))| {
            numeric::vectorised(
                #[inline(always)]
                || numeric::angles(cos, sin, frequencies, positions.start + part * ROWS),
            );
        });
        let table = |values| Tensor::from_vec(values, (positions.len(), width), &self.device);
        Ok(Angles { cos: table(cos)?, sin: table(sin)? })
    }

    fn rope(&self, x: &Tensor, angles: &Angles) -> Result<Tensor, Error> {
        if self.portable {
            return portable::rope(x, &angles.cos, &angles.sin);
        }
        Ok(x.apply_op3_no_bwd(&angles.cos, &angles.sin, &Rope(None))?)
    }

    fn weighted_rope(&self, x: &Tensor, weight: &Tensor, angles: &Angles) -> Result<Tensor, Error> {
        if self.portable {
            return portable::rope(&x.broadcast_mul(weight)?, &angles.cos, &angles.sin);
        }
        Ok(x.apply_op3_no_bwd(&angles.cos, &angles.sin, &Rope(Some(weight.to_vec1()?)))?)
    }

    fn head_major(&self, x: &Tensor) -> Result<Tensor, Error> {
        let x = x.transpose(0, 1)?;
        // Rotation and attention on the CPU take rows wherever they lie.
        Ok(if self.portable { x.contiguous()? } else { x })
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
        let (queries, width) = (q.dim(1)?, q.dim(0)? * q.dim(2)?);
        let first = queried(keys, queries)?;
        let (q, q_layout) = q.storage_and_layout();
        let held: Vec<_> =
            keys.iter().map(|keys| (keys.k.storage_and_layout(), keys.v.storage_and_layout())).collect();
        let mut lying = Vec::new();
        for (keys, ((k, k_layout), (v, v_layout))) in keys.iter().zip(&held) {
            let (k, v) = (rows(in_memory(k)?, k_layout)?, rows(in_memory(v)?, v_layout)?);
            lying.push(Keys { positions: keys.positions.clone(), k, v });
        }
        let attention = Attention { keys: &lying, scale, mask, first };
        let out = attention.of(rows(in_memory(&q)?, q_layout)?);
        Ok(Tensor::from_vec(out, (queries, width), &self.device)?)
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
        let position = queried(keys, queries)? + queries - 1;
        let seen = seen(keys, mask, position..position + 1)?;
        let (columns, groups) = (Columns::of_segments(&seen), keys[0].k.dim(0)?);
        let last = q.narrow(1, queries - 1, 1)?.contiguous()?.reshape((groups, heads / groups, dim))?;
        let mut scores = self.to_f32(&scores(&last, &seen)?)?;
        let (early, near) = mask.visible(position, position + 1);
        let (early, near, range) = (columns.of(early), columns.of(near), columns.of(range));
        let mass = |row: &mut [f32]| {
            let inverse = numeric::softmax(row, scale, [early.clone(), near.clone()], &[0..0, 0..row.len()]);
            row[range.clone()].iter().copied().map(f64::from).sum::<f64>() * f64::from(inverse)
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

    fn argmax_last(&self, x: &Tensor) -> Result<Vec<u32>, Error> {
        if self.portable {
            return Ok(vec![portable::argmax_last(x)?]);
        }
        Ok(vec![x.get(x.dim(0)? - 1)?.argmax(0)?.to_scalar()?])
    }

    fn id(&self, id: &Vec<u32>) -> Result<u32, Error> {
        id.first().copied().ok_or_else(|| Error::Tensor("no id where one is meant".into()))
    }

    fn awake(&self) -> Option<Awake> {
        (!self.portable).then(Awake::new)
    }

    fn reset_device_peak(&self) -> Result<(), Error> {
        self.gpu.as_ref().map_or(Ok(()), Gpu::reset_peak)
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        self.gpu.as_ref()?.memory()
    }
}

impl Candle {
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
                Ok(gguf::blocks(&shape, format, &bytes, &self.device)?.dequantize(&self.device)?)
            }
        }
    }

    /// `x` [T, in] times the transpose of `weight` [out, in].
    fn product(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor, Error> {
        if self.portable {
            return product(x, weight);
        }
        let ((storage, layout), shape) = (weight.storage_and_layout(), weight.dims2()?);
        match (in_memory(&storage)?, layout.stride()) {
            (CpuStorage::F32(values), [stride, 1]) => {
                let values = &values[layout.start_offset()..];
                self.product_with(x, Matrix::Plain { values, stride: *stride }, shape)
            }
            _ => product(x, weight),
        }
    }

    /// [`Candle::product`] on the processor for a weight in GGML's blocks.
    fn product_with_blocks(&self, x: &Tensor, weight: &QTensor) -> Result<Tensor, Error> {
        let bytes = weight.data()?;
        match Matrix::of(weight.dtype(), &bytes) {
            Some(matrix) => self.product_with(x, matrix, weight.shape().dims2()?),
            None => product(x, &weight.dequantize(&self.device)?),
        }
    }

    /// `x` [T, in] times the transpose of `matrix` [out, in].
    fn product_with(
        &self,
        x: &Tensor,
        matrix: Matrix,
        (out, width): (usize, usize),
    ) -> Result<Tensor, Error> {
        let x = x.contiguous()?;
        if x.dim(1)? != width {
            return Err(Error::Tensor(format!("rows of {} and a matrix of rows of {width}", x.dim(1)?)));
        }
        let (storage, layout) = x.storage_and_layout();
        let product = matrix.product(f32_ref(in_memory(&storage)?, layout)?, width, out);
        Ok(Tensor::from_vec(product, (x.dim(0)?, out), &self.device)?)
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
        let (gate, up) = (self.product(x, &experts.gate)?, self.product(x, &experts.up)?);
        let inner = self.weighted_gelu(&gate, &up, &weights)?;
        self.product(&inner, &experts.down)
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
                (self.product(&chosen, &part(&experts.gate)?)?, self.product(&chosen, &part(&experts.up)?)?);
            let act = self.weighted_gelu(&gate, &up, &factors)?;
            let down = experts.down.narrow(1, expert * inner, inner)?;
            // The CPU multiplies by columns where they lie.
            let down = if self.portable { portable::operand(&down)? } else { down };
            let result = self.product(&act, &down)?;
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

/// [`columns::seen`] as views.
fn seen(keys: &[Segment<Tensor>], mask: Mask, block: Range<usize>) -> Result<Vec<Segment<Tensor>>, Error> {
    columns::seen(keys, mask, block, |x, rows| Ok(x.narrow(1, rows.start, rows.len())?))
}

/// Products of queries [groups, rows, d] with all keys, side by side.
fn scores(q: &Tensor, seen: &[Segment<Tensor>]) -> candle_core::Result<Tensor> {
    let parts = seen.iter().map(|segment| q.matmul(&segment.k.t()?)).collect::<Result<Vec<_>, _>>()?;
    if let [scores] = &parts[..] { Ok(scores.clone()) } else { Tensor::cat(&parts, 2) }
}

/// Pairs of dimensions that turn at all: those before the last frequency that is not 0. At least one, for a table.
fn turning(frequencies: &[f32]) -> usize {
    frequencies.iter().rposition(|frequency| *frequency != 0.0).unwrap_or(0) + 1
}

/// [n, T, d], times the weight \[d\] if there is one, with each position turned by its row of the tables.
struct Rope(Option<Vec<f32>>);

impl Rope {
    #[inline(always)]
    fn row(&self, out: &mut [f32], x: &[f32], cos: &[f32], sin: &[f32]) {
        match &self.0 {
            Some(weight) => {
                out.iter_mut().zip(x).zip(weight).for_each(|((out, x), weight)| *out = x * weight);
            }
            None => out.copy_from_slice(x),
        }
        numeric::rope(out, cos, sin);
    }
}

impl CustomOp3 for Rope {
    fn name(&self) -> &'static str {
        "rope"
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
        let (x, shape, turning) = (rows(x, x_layout)?, x_layout.shape().clone(), cos_layout.dims()[1]);
        let (cos, sin) = (f32_ref(cos, cos_layout)?, f32_ref(sin, sin_layout)?);
        let mut out = vec![0f32; shape.elem_count()];
        let turned = out.par_chunks_mut(x.dim).with_min_len(SHARE.div_ceil(x.dim)).enumerate();
        turned.for_each(|(index, out)| {
            let (head, position) = (index / x.positions, index % x.positions);
            let table = position * turning..(position + 1) * turning;
            let (cos, sin) = (&cos[table.clone()], &sin[table]);
            numeric::vectorised(
                #[inline(always)]
                || self.row(out, x.row(head, position), cos, sin),
            );
        });
        Ok((CpuStorage::F32(out), shape))
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
        let rows = out.par_chunks_mut(width).zip(x.par_chunks(width)).with_min_len(SHARE.div_ceil(width));
        rows.for_each(|(out, x)| {
            numeric::vectorised(
                #[inline(always)]
                || numeric::rms_norm(out, x, weight, self.0),
            );
        });
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

struct Gated(Activation);

/// candle's own sum shares its work with threads beside rayon's, which wait for it in a loop while those compute: on two
/// cores that took a quarter of a prefill.
struct Sum;

impl CustomOp2 for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn cpu_fwd(
        &self,
        a: &CpuStorage,
        a_layout: &Layout,
        b: &CpuStorage,
        b_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (a, b) = (f32_ref(a, a_layout)?, f32_ref(b, b_layout)?);
        let mut out = a.to_vec();
        let parts = out.par_chunks_mut(SHARE).zip(b.par_chunks(SHARE));
        parts.for_each(|(out, b)| out.iter_mut().zip(b).for_each(|(out, b)| *out += b));
        Ok((CpuStorage::F32(out), a_layout.shape().clone()))
    }
}

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
        let parts = out.par_chunks_mut(SHARE).zip(gate.par_chunks(SHARE)).zip(up.par_chunks(SHARE));
        parts.for_each(|((out, gate), up)| {
            numeric::vectorised(
                #[inline(always)]
                || match self.0 {
                    Activation::GeluTanh => numeric::gated(out, gate, up, numeric::gelu_tanh),
                    Activation::Silu => numeric::gated(out, gate, up, numeric::silu),
                },
            );
        });
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
                numeric::vectorised(
                    #[inline(always)]
                    || {
                        numeric::gated(out, gate, up, numeric::gelu_tanh);
                        out.iter_mut().for_each(|value| *value *= weight);
                    },
                );
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

/// An array [heads, positions, dim] whose innermost axis lies together.
fn rows<'a>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<Rows<'a>> {
    let (heads, positions, dim) = layout.shape().dims3()?;
    match (storage, layout.stride()) {
        (CpuStorage::F32(values), [head_stride, position_stride, 1]) => Ok(Rows {
            values: &values[layout.start_offset()..],
            heads,
            positions,
            dim,
            head_stride: *head_stride,
            position_stride: *position_stride,
        }),
        _ => candle_core::bail!("needs an f32 array whose rows lie together"),
    }
}

fn in_memory(storage: &Storage) -> candle_core::Result<&CpuStorage> {
    match storage {
        Storage::Cpu(storage) => Ok(storage),
        _ => candle_core::bail!("needs an array in main memory"),
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
            let bytes: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
            Stored::Dense {
                shape: shape.to_vec(),
                values: Numbers { dtype: Dtype::F32, bytes: bytes.into() },
            }
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
