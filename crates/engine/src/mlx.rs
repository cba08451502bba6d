//! The [`Backend`] on MLX: Metal on macOS, the CPU on Linux. Arithmetic is in f32; quantised weights stay quantised.
//!
//! MLX computes when a result is asked for. It is not safe to share between threads: one thread makes, uses and drops the
//! arrays of a model.

mod attention;
mod experts;
mod weights;

use crate::Error;
use crate::backend::{Activation, Backend, Mask, Segment, Stored};
use experts::Experts;
use mlx_rs::ops::indexing::{ArrayIndex, ArrayIndexOp, TryIndexMutOp, TryIndexOp, argmax_axis};
use mlx_rs::{Array, fast, memory, ops, transforms};
use protocol::DeviceMemory;
use safetensors::Dtype;
use std::ops::Range;
use weights::Weight;

/// Versions that this program is built with; a test holds them against what is linked.
pub const VERSION: &str = "0.32.2, mlx-rs 0.33.0";

/// Bytes of freed arrays that MLX keeps for the next ones. Without a limit it keeps all that a long prefill ever needed.
const CACHE_LIMIT: usize = 1 << 30;

/// MLX on one device, the same for the whole process.
#[derive(Clone, Debug)]
pub struct Mlx {
    device: protocol::Device,
}

impl Mlx {
    /// The device. Fails where MLX or this machine has none that computes.
    pub fn open(device: protocol::Device) -> Result<Self, Error> {
        let unusable = |name, reason: String| Error::Device {
            device: name,
            reason,
            hint: "use --backend candle, or --device metal on a Mac and --device cpu elsewhere",
        };
        match device {
            protocol::Device::Cuda => return Err(unusable("CUDA", "MLX does not compute on it here".into())),
            protocol::Device::Metal if !cfg!(target_os = "macos") => {
                return Err(unusable("Metal", "only macOS has it".into()));
            }
            protocol::Device::Metal => {
                use_bundled_kernels()?;
                mlx_rs::Device::set_default(&mlx_rs::Device::gpu());
            }
            protocol::Device::Cpu => mlx_rs::Device::set_default(&mlx_rs::Device::cpu()),
        }
        let mlx = Self { device };
        mlx.probe().map_err(|error| unusable("MLX", format!("a small product fails on it: {error}")))?;
        mlx.limit_memory()?;
        Ok(mlx)
    }

    /// Multiplies two small matrices whose product is known and gives the seconds it took.
    pub fn probe(&self) -> Result<f64, Error> {
        const SIZE: usize = 128;
        let start = std::time::Instant::now();
        let ramp: Vec<f32> = (0..SIZE * SIZE).map(|i| (i % SIZE) as f32).collect();
        let ones = Array::from_slice(&[1f32; SIZE * SIZE], &[SIZE as i32; 2]);
        let product = Array::from_slice(&ramp, &[SIZE as i32; 2]).matmul(&ones)?;
        let expected = (SIZE * (SIZE - 1) / 2) as f32;
        match self.to_f32(&product)?.into_iter().find(|value| *value != expected) {
            Some(value) => {
                Err(Error::Tensor(format!("a matrix product gave {value} where {expected} is right")))
            }
            None => Ok(start.elapsed().as_secs_f64()),
        }
    }

    /// Queries that are scored at once. Fewer leave out more of the keys that none of them sees; the GPU has kernels that
    /// leave them out, and waits for each launch.
    fn block(&self) -> usize {
        if self.device == protocol::Device::Metal { 512 } else { 128 }
    }

    /// Bounds what MLX keeps of freed memory, and on a Mac keeps two thirds of the memory, where the weights lie, from
    /// being paged out; a system that cannot wire memory computes all the same.
    fn limit_memory(&self) -> Result<(), Error> {
        memory::set_cache_limit(CACHE_LIMIT)?;
        if self.device == protocol::Device::Metal {
            let _ = memory::set_wired_limit((total_memory() / 3 * 2) as usize);
        }
        Ok(())
    }
}

/// Takes Metal's kernels from the program's own folder or bundle, where they lie there: MLX itself looks only where it was
/// built or installed.
#[cfg(target_os = "macos")]
fn use_bundled_kernels() -> Result<(), Error> {
    let program = std::env::current_exe().unwrap_or_default();
    let places = ["mlx.metallib", "../Resources/mlx.metallib"].map(|place| program.with_file_name(place));
    match places.iter().find(|place| place.is_file()) {
        Some(place) => Ok(mlx_rs::metal::set_metallib_path(place.to_string_lossy())?),
        None => Ok(()),
    }
}

#[cfg(not(target_os = "macos"))]
fn use_bundled_kernels() -> Result<(), Error> {
    Ok(())
}

/// All memory of this machine, bytes; 0 where the system does not tell.
fn total_memory() -> u64 {
    sysinfo::System::new().map_or(0, |mut system| {
        system.refresh_memory();
        system.total_memory()
    })
}

impl From<mlx_rs::error::Exception> for Error {
    fn from(error: mlx_rs::error::Exception) -> Self {
        Self::Tensor(error.what().to_owned())
    }
}

/// Rotary angles of consecutive positions: MLX's kernel makes them where they are used.
pub struct Angles {
    /// Wavelengths, the inverse of the inverse frequencies; infinite for pairs that do not turn.
    wavelengths: Array,
    first: i32,
}

impl Backend for Mlx {
    const LATE: bool = true;
    type Tensor = Array;
    type Ids = Array;
    type Angles = Angles;
    type Weight = Weight;
    type Experts = Experts;

    fn tensor(&self, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Result<Array, Error> {
        weights::floats(dtype, shape, bytes)
    }

    fn weight(&self, stored: Stored) -> Result<Weight, Error> {
        Weight::of(stored)
    }

    fn experts(&self, gate: Stored, up: Stored, down: Stored, factors: Vec<f32>) -> Result<Experts, Error> {
        Experts::of(Weight::of(gate)?, Weight::of(up)?, Weight::of(down)?, &factors)
    }

    fn shape(&self, x: &Array) -> Vec<usize> {
        x.shape().iter().map(|len| *len as usize).collect()
    }

    fn bytes(&self, x: &Array) -> u64 {
        x.nbytes() as u64
    }

    fn to_f32(&self, x: &Array) -> Result<Vec<f32>, Error> {
        if x.size() == 0 {
            return Ok(Vec::new());
        }
        x.contiguous()?.to_vec_exact().map_err(|error| Error::Tensor(error.to_string()))
    }

    fn ids(&self, ids: &[u32]) -> Array {
        Array::from_slice(ids, &[ids.len() as i32])
    }

    fn embed(&self, table: &Weight, ids: &Array, scale: f32) -> Result<Array, Error> {
        self.scale(&table.rows(ids)?, scale)
    }

    fn linear(&self, x: &Array, weight: &Weight) -> Result<Array, Error> {
        weight.product(x)
    }

    fn add(&self, a: &Array, b: &Array) -> Result<Array, Error> {
        Ok(a.add(b)?)
    }

    fn scale(&self, x: &Array, factor: f32) -> Result<Array, Error> {
        Ok(if factor == 1.0 { x.clone() } else { x.multiply(Array::from_f32(factor))? })
    }

    fn rms_norm(&self, x: &Array, weight: Option<&Array>, eps: f32) -> Result<Array, Error> {
        Ok(fast::rms_norm(x, weight, eps)?)
    }

    fn split_heads(&self, x: &Array, heads: usize) -> Result<Array, Error> {
        let [positions, width] = dims(x)?;
        Ok(x.reshape(&[positions, heads as i32, width / heads as i32])?)
    }

    fn squeeze(&self, x: &Array) -> Result<Array, Error> {
        Ok(x.squeeze_axes(&[0])?)
    }

    fn angles(&self, inverse_frequencies: &[f32], positions: Range<usize>) -> Result<Angles, Error> {
        let wavelengths: Vec<f32> = inverse_frequencies.iter().map(|frequency| frequency.recip()).collect();
        let wavelengths = Array::from_slice(&wavelengths, &[wavelengths.len() as i32]);
        Ok(Angles { wavelengths, first: positions.start as i32 })
    }

    fn rope(&self, x: &Array, angles: &Angles) -> Result<Array, Error> {
        let [.., width] = dims::<3>(x)?;
        Ok(fast::rope(x, width, false, None, 1.0, angles.first, &angles.wavelengths)?)
    }

    fn weighted_rope(&self, x: &Array, weight: &Array, angles: &Angles) -> Result<Array, Error> {
        self.rope(&x.multiply(weight)?, angles)
    }

    fn head_major(&self, x: &Array) -> Result<Array, Error> {
        Ok(x.swap_axes(0, 1)?)
    }

    fn attention(&self, q: &Array, keys: &[Segment<Array>], scale: f32, mask: Mask) -> Result<Array, Error> {
        attention::attention(q, keys, scale, mask, self.block())
    }

    fn attention_mass(
        &self,
        q: &Array,
        keys: &[Segment<Array>],
        scale: f32,
        mask: Mask,
        range: Range<usize>,
    ) -> Result<f64, Error> {
        attention::mass(q, keys, scale, mask, range)
    }

    fn gated(&self, activation: Activation, gate: &Array, up: &Array) -> Result<Array, Error> {
        let activated = match activation {
            Activation::GeluTanh => gelu_tanh(gate)?,
            Activation::Silu => gate.multiply(ops::sigmoid(gate)?)?,
        };
        Ok(activated.multiply(up)?)
    }

    fn mixture(&self, x: &Array, scores: &Array, top_k: usize, experts: &Experts) -> Result<Array, Error> {
        experts.mixture(x, scores, top_k as i32)
    }

    fn concat(&self, axis: usize, parts: &[&Array]) -> Result<Array, Error> {
        Ok(ops::concatenate(parts, axis as i32)?)
    }

    fn zeros(&self, shape: &[usize]) -> Result<Array, Error> {
        Ok(Array::zeros::<f32>(&lengths(shape))?)
    }

    fn write(&self, x: &mut Array, axis: usize, start: usize, rows: &Array) -> Result<(), Error> {
        let len = rows.dim(axis as i32) as usize;
        Ok(x.try_index_mut(&along(axis, start..start + len)[..], rows)?)
    }

    fn view(&self, x: &Array, axis: usize, range: Range<usize>) -> Result<Array, Error> {
        part(x, axis, range)
    }

    fn slice(&self, x: &Array, axis: usize, range: Range<usize>) -> Result<Array, Error> {
        Ok(part(x, axis, range)?.contiguous()?)
    }

    fn replace_rows(&self, x: &Array, start: usize, rows: &Array) -> Result<Array, Error> {
        let mut replaced = x.clone();
        self.write(&mut replaced, 0, start, rows)?;
        Ok(replaced)
    }

    fn softcap(&self, x: &Array, cap: f32) -> Result<Array, Error> {
        let cap = Array::from_f32(cap);
        Ok(ops::tanh(x.divide(&cap)?)?.multiply(&cap)?)
    }

    fn argmax_last(&self, x: &Array) -> Result<Array, Error> {
        let [rows, _] = dims(x)?;
        let last = part(x, 0, rows as usize - 1..rows as usize)?;
        let index = argmax_axis(&last, -1, None)?;
        transforms::async_eval([&index])?;
        Ok(index)
    }

    fn id(&self, id: &Array) -> Result<u32, Error> {
        id.try_item_exact().map_err(|error| Error::Tensor(error.to_string()))
    }

    fn start(&self, pending: &Array) -> Result<(), Error> {
        Ok(transforms::async_eval([pending])?)
    }

    fn evaluate(&self, pending: &[&Array]) -> Result<(), Error> {
        Ok(transforms::eval(pending.iter().copied())?)
    }

    fn reset_device_peak(&self) -> Result<(), Error> {
        Ok(memory::reset_peak_memory()?)
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        let bytes = |read: mlx_rs::error::Result<usize>| read.ok().map(|bytes| bytes as u64);
        Some(DeviceMemory {
            allocator_peak_bytes: bytes(memory::peak_memory()),
            allocator_active_bytes: bytes(memory::active_memory()),
            allocator_cache_bytes: bytes(memory::cache_memory()),
            used_bytes: None,
            total_bytes: total_memory(),
        })
    }
}

/// GELU in its tanh approximation: `x · sigmoid(2u)` is `x / 2 · (1 + tanh u)`.
fn gelu_tanh(x: &Array) -> Result<Array, Error> {
    const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
    let cubic = x.multiply(x)?.multiply(Array::from_f32(0.044_715 * TWICE_SQRT_2_OVER_PI))?;
    let twice_u = cubic.add(Array::from_f32(TWICE_SQRT_2_OVER_PI))?.multiply(x)?;
    Ok(x.multiply(ops::sigmoid(twice_u)?)?)
}

/// The lengths of the `N` dimensions that an array must have.
fn dims<const N: usize>(x: &Array) -> Result<[i32; N], Error> {
    let shape = x.shape();
    shape
        .try_into()
        .map_err(|_| Error::Tensor(format!("an array of shape {shape:?} where {N} dimensions are meant")))
}

fn lengths(shape: &[usize]) -> Vec<i32> {
    shape.iter().map(|len| *len as i32).collect()
}

/// Everything along the axes before `axis`, and `range` along that.
fn along(axis: usize, range: Range<usize>) -> Vec<ArrayIndexOp<'static>> {
    let mut index = vec![(..).index_op(); axis];
    index.push((range.start as i32..range.end as i32).index_op());
    index
}

/// `range` along `axis`, without a copy.
fn part(x: &Array, axis: usize, range: Range<usize>) -> Result<Array, Error> {
    if range == (0..x.dim(axis as i32) as usize) {
        return Ok(x.clone());
    }
    Ok(x.try_index(&along(axis, range)[..])?)
}

#[cfg(test)]
mod tests;
