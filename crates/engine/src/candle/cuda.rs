//! The first NVIDIA GPU, and what its driver tells of it.

use crate::Error;
use candle_core::cuda_backend::cudarc::driver::{DriverError, result, sys};
use candle_core::{CudaDevice, Device};
use protocol::DeviceMemory;
use std::ffi::c_void;

/// What a machine needs for [`Gpu::open`].
const NEEDS: &str =
    "install NVIDIA's driver 580 or newer and CUDA 13's cuBLAS and cuRAND, or use --device cpu";

/// An open GPU.
#[derive(Clone, Debug)]
pub(super) struct Gpu(CudaDevice);

impl Gpu {
    /// Opens the first GPU. Fails without a driver, a GPU, or NVIDIA's libraries, and says which.
    pub(super) fn open() -> Result<Self, Error> {
        let unusable = |reason: String| Error::Device { device: "CUDA", reason, hint: NEEDS };
        // candle opens more than a driver; asked first, the driver's own answer is not mistaken for theirs.
        result::init().map_err(|e| unusable(format!("the driver does not start: {e}")))?;
        let device = Device::new_cuda(0).map_err(|e| unusable(e.to_string()))?;
        Ok(Self(device.as_cuda_device()?.clone()))
    }

    /// The device as candle takes it.
    pub(super) fn device(&self) -> Device {
        Device::Cuda(self.0.clone())
    }

    /// Name of the GPU as its driver gives it.
    pub(super) fn name(&self) -> String {
        self.0.cuda_stream().context().name().unwrap_or_else(|_| "an NVIDIA GPU without a name".into())
    }

    /// Version of the driver, where the kernel tells it.
    pub(super) fn driver(&self) -> Option<String> {
        let version = std::fs::read_to_string("/sys/module/nvidia/version").ok()?;
        Some(version.trim().to_owned())
    }

    /// Starts a new high-water mark, once everything that was asked of the GPU is done.
    pub(super) fn reset_peak(&self) -> Result<(), Error> {
        let stream = self.0.cuda_stream();
        stream.synchronize().map_err(|e| Error::Tensor(format!("the CUDA driver says: {e}")))?;
        // A driver without pools has no mark to reset; `memory` gives none then.
        let _ = self.pool().and_then(reset_high_water_mark);
        Ok(())
    }

    /// The high-water mark of the pool that candle allocates from, and the memory of the whole device now.
    pub(super) fn memory(&self) -> Option<DeviceMemory> {
        let (free, total) = self.0.cuda_stream().context().mem_get_info().ok()?;
        Some(DeviceMemory {
            allocator_peak_bytes: self.pool().and_then(high_water_mark).ok(),
            allocator_active_bytes: None,
            allocator_cache_bytes: None,
            used_bytes: Some(total.saturating_sub(free) as u64),
            total_bytes: total as u64,
        })
    }

    /// The pool of this process on this device, from which cudarc allocates.
    fn pool(&self) -> Result<sys::CUmemoryPool, DriverError> {
        let stream = self.0.cuda_stream();
        let context = stream.context();
        if !context.has_async_alloc() {
            return Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_SUPPORTED));
        }
        // SAFETY: the device is that of a context which is alive.
        #[allow(unsafe_code)]
        unsafe {
            result::device::get_mem_pool(context.cu_device())
        }
    }
}

fn high_water_mark(pool: sys::CUmemoryPool) -> Result<u64, DriverError> {
    let mut bytes = 0u64;
    // SAFETY: the driver gave the pool, and this attribute is an unsigned number of 64 bits.
    #[allow(unsafe_code)]
    unsafe {
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        result::mem_pool::get_attribute(pool, attribute, (&raw mut bytes).cast::<c_void>())?;
    }
    Ok(bytes)
}

fn reset_high_water_mark(pool: sys::CUmemoryPool) -> Result<(), DriverError> {
    // The driver takes 0 alone: it sets the mark to what is in use.
    let mut bytes = 0u64;
    // SAFETY: as above.
    #[allow(unsafe_code)]
    unsafe {
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        result::mem_pool::set_attribute(pool, attribute, (&raw mut bytes).cast::<c_void>())
    }
}
