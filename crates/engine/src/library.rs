//! The tensor libraries of this program, by name.

use crate::Error;
use crate::backend::Backend;
use crate::candle::{self, Candle};
#[cfg(any(feature = "mlx", target_os = "macos"))]
use crate::mlx::{self, Mlx};
use crate::pack::Engine;
use crate::selftest::{self, Check, Tally};
use protocol::{Arm, BackendInfo, Device, Inspection, LoadedPack, RunSpec, Stage, Trial, TrialResult};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// A pack in memory, whichever library runs it.
pub(crate) trait Loaded {
    /// What the host is told of it.
    fn loaded(&self) -> &LoadedPack;
    /// See [`Engine::answer`].
    fn answer(
        &mut self,
        trial: &Trial,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Stage, usize),
    ) -> Result<TrialResult, Error>;
}

impl<B: Backend> Loaded for Engine<B> {
    fn loaded(&self) -> &LoadedPack {
        &self.loaded
    }

    fn answer(
        &mut self,
        trial: &Trial,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Stage, usize),
    ) -> Result<TrialResult, Error> {
        Self::answer(self, trial, cancel, progress)
    }
}

/// Loads the pack in `folder` for `arms`. Fails where this program lacks the library, or the machine the device.
pub(crate) fn load(
    backend: protocol::Backend,
    device: Device,
    folder: &Path,
    arms: &[Arm],
) -> Result<Box<dyn Loaded>, Error> {
    match backend {
        protocol::Backend::Candle => Ok(Box::new(Engine::load(Candle::open(device)?, folder, arms)?)),
        #[cfg(any(feature = "mlx", target_os = "macos"))]
        protocol::Backend::Mlx => Ok(Box::new(Engine::load(Mlx::open(device)?, folder, arms)?)),
        #[cfg(not(any(feature = "mlx", target_os = "macos")))]
        protocol::Backend::Mlx => Err(without_mlx()),
    }
}

/// Looks at the pack of `spec` and at the library and device that it asks for. Fails where the pack's manifest cannot be used.
pub fn inspect(spec: &RunSpec) -> Result<Inspection, Error> {
    match spec.backend {
        protocol::Backend::Candle => crate::inspect::inspect(spec, || Candle::open(spec.device)),
        #[cfg(any(feature = "mlx", target_os = "macos"))]
        protocol::Backend::Mlx => crate::inspect::inspect(spec, || Mlx::open(spec.device)),
        #[cfg(not(any(feature = "mlx", target_os = "macos")))]
        protocol::Backend::Mlx => crate::inspect::inspect(spec, || Err::<Candle, _>(without_mlx())),
    }
}

/// [`selftest::run`] on a library of this program. Fails as that does, and as opening the device does.
pub fn self_test(
    backend: protocol::Backend,
    device: Device,
    folder: &Path,
    only: &[String],
    report: &mut dyn FnMut(&Check),
) -> Result<Tally, Error> {
    match backend {
        protocol::Backend::Candle => selftest::run(&Candle::open(device)?, folder, only, report),
        #[cfg(any(feature = "mlx", target_os = "macos"))]
        protocol::Backend::Mlx => selftest::run(&Mlx::open(device)?, folder, only, report),
        #[cfg(not(any(feature = "mlx", target_os = "macos")))]
        protocol::Backend::Mlx => Err(without_mlx()),
    }
}

#[cfg(not(any(feature = "mlx", target_os = "macos")))]
fn without_mlx() -> Error {
    Error::Device {
        device: "MLX",
        reason: "this program was built without it".into(),
        hint: "build the program with `cargo xtask mlx`, or use --backend candle",
    }
}

/// Libraries and devices on which a small product has come out right; `cpu` is the name of the processor. Fails where it
/// does not even on the CPU with candle. A request to load onto another device says why there is none.
pub(crate) fn devices(cpu: &str) -> Result<Vec<BackendInfo>, Error> {
    let on_cpu = BackendInfo {
        backend: protocol::Backend::Candle,
        device: Device::Cpu,
        version: candle::VERSION.into(),
        device_name: cpu.to_owned(),
        driver: None,
        probe_seconds: Candle::cpu().probe()?,
    };
    Ok([Some(on_cpu), cuda(), mlx(cpu)].into_iter().flatten().collect())
}

fn cuda() -> Option<BackendInfo> {
    let candle = Candle::open(Device::Cuda).ok()?;
    Some(BackendInfo {
        backend: protocol::Backend::Candle,
        device: Device::Cuda,
        version: candle::VERSION.into(),
        device_name: candle.gpu_name()?,
        driver: candle.gpu_driver(),
        probe_seconds: candle.probe().ok()?,
    })
}

/// Memory of the first NVIDIA GPU that is free now, bytes; none without one.
pub(crate) fn free_gpu_bytes() -> Option<u64> {
    let memory = Candle::open(Device::Cuda).ok()?.device_memory()?;
    Some(memory.total_bytes.saturating_sub(memory.used_bytes?))
}

/// MLX; the GPU of a Mac is part of its processor and has no name of its own.
#[cfg(any(feature = "mlx", target_os = "macos"))]
fn mlx(cpu: &str) -> Option<BackendInfo> {
    let device = protocol::Backend::Mlx.device();
    Some(BackendInfo {
        backend: protocol::Backend::Mlx,
        device,
        version: mlx::VERSION.into(),
        device_name: cpu.to_owned(),
        driver: None,
        probe_seconds: Mlx::open(device).ok()?.probe().ok()?,
    })
}

#[cfg(not(any(feature = "mlx", target_os = "macos")))]
fn mlx(_cpu: &str) -> Option<BackendInfo> {
    None
}
