//! Loading a pack without its numbers: a backend whose arrays are dimensions alone. Whatever the loader refuses, it
//! refuses here too, with the same words, after reading headers only.

use crate::Error;
use crate::backend::{Activation, Backend, Mask, Segment, Stored};
use protocol::DeviceMemory;
use safetensors::Dtype;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one number of the arithmetic (f32).
const COMPUTE_BYTES: usize = 4;

/// Holds no numbers and computes nothing; counts what the weights would take.
#[derive(Debug, Default)]
pub struct Headers {
    held: AtomicU64,
}

impl Headers {
    /// Bytes that the weights loaded so far take where candle holds them: plain ones in f32, blocks of GGUF as stored.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn hold(&self, stored: &Stored) -> Vec<usize> {
        let (shape, bytes) = match stored {
            Stored::Dense { shape, .. } | Stored::Affine { shape, .. } => {
                (shape, product(shape) * COMPUTE_BYTES)
            }
            Stored::Blocks { shape, format, .. } => {
                (shape, product(shape) / format.block_size() * format.type_size())
            }
        };
        self.held.fetch_add(bytes as u64, Ordering::Relaxed);
        shape.clone()
    }
}

fn product(shape: &[usize]) -> usize {
    shape.iter().product()
}

fn nothing<T>() -> Result<T, Error> {
    Err(Error::Tensor("headers hold no numbers to compute with".into()))
}

impl Backend for Headers {
    const NUMBERS: bool = false;
    type Tensor = Vec<usize>;
    type Ids = ();
    type Angles = ();
    type Weight = Vec<usize>;
    type Experts = ();

    fn tensor(&self, dtype: Dtype, shape: &[usize], _: &[u8]) -> Result<Vec<usize>, Error> {
        match dtype {
            Dtype::F32 | Dtype::F16 | Dtype::BF16 => {
                self.held.fetch_add((product(shape) * COMPUTE_BYTES) as u64, Ordering::Relaxed);
                Ok(shape.to_vec())
            }
            other => Err(Error::Tensor(format!("weights of type {other:?} are not supported"))),
        }
    }

    fn weight(&self, stored: Stored) -> Result<Vec<usize>, Error> {
        if let Stored::Dense { values, .. } = &stored {
            // The types that a tensor may have are those that a matrix may have.
            self.tensor(values.dtype, &[], &[])?;
        }
        Ok(self.hold(&stored))
    }

    fn experts(&self, gate: Stored, up: Stored, down: Stored, _: Vec<f32>) -> Result<(), Error> {
        [gate, up, down].into_iter().try_for_each(|stored| self.weight(stored).map(drop))
    }

    fn shape(&self, x: &Vec<usize>) -> Vec<usize> {
        x.clone()
    }

    fn bytes(&self, x: &Vec<usize>) -> u64 {
        (product(x) * COMPUTE_BYTES) as u64
    }

    /// The loader only passes these numbers on.
    fn to_f32(&self, x: &Vec<usize>) -> Result<Vec<f32>, Error> {
        Ok(vec![0.0; product(x)])
    }

    fn scale(&self, x: &Vec<usize>, _: f32) -> Result<Vec<usize>, Error> {
        Ok(x.clone())
    }

    fn ids(&self, _: &[u32]) {}

    fn embed(&self, _: &Vec<usize>, (): &(), _: f32) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn linear(&self, _: &Vec<usize>, _: &Vec<usize>) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn add(&self, _: &Vec<usize>, _: &Vec<usize>) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn rms_norm(&self, _: &Vec<usize>, _: Option<&Vec<usize>>, _: f32) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn split_heads(&self, _: &Vec<usize>, _: usize) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn squeeze(&self, _: &Vec<usize>) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn angles(&self, _: &[f32], _: Range<usize>) -> Result<(), Error> {
        nothing()
    }

    fn rope(&self, _: &Vec<usize>, (): &()) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn weighted_rope(&self, _: &Vec<usize>, _: &Vec<usize>, (): &()) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn head_major(&self, _: &Vec<usize>) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn attention(
        &self,
        _: &Vec<usize>,
        _: &[Segment<Vec<usize>>],
        _: f32,
        _: Mask,
    ) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn attention_mass(
        &self,
        _: &Vec<usize>,
        _: &[Segment<Vec<usize>>],
        _: f32,
        _: Mask,
        _: Range<usize>,
    ) -> Result<f64, Error> {
        nothing()
    }

    fn gated(&self, _: Activation, _: &Vec<usize>, _: &Vec<usize>) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn mixture(&self, _: &Vec<usize>, _: &Vec<usize>, _: usize, (): &()) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn concat(&self, _: usize, _: &[&Vec<usize>]) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn zeros(&self, shape: &[usize]) -> Result<Vec<usize>, Error> {
        Ok(shape.to_vec())
    }

    fn write(&self, _: &mut Vec<usize>, _: usize, _: usize, _: &Vec<usize>) -> Result<(), Error> {
        nothing()
    }

    fn view(&self, _: &Vec<usize>, _: usize, _: Range<usize>) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn slice(&self, _: &Vec<usize>, _: usize, _: Range<usize>) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn replace_rows(&self, _: &Vec<usize>, _: usize, _: &Vec<usize>) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn softcap(&self, _: &Vec<usize>, _: f32) -> Result<Vec<usize>, Error> {
        nothing()
    }

    fn argmax_last(&self, _: &Vec<usize>) -> Result<(), Error> {
        nothing()
    }

    fn id(&self, (): &()) -> Result<u32, Error> {
        nothing()
    }

    fn reset_device_peak(&self) -> Result<(), Error> {
        Ok(())
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        None
    }
}
