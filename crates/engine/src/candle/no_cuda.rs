//! In place of the GPU in a program that was built without CUDA.

use crate::Error;
use candle_core::Device;
use protocol::DeviceMemory;

/// A GPU that no program of this build has.
#[derive(Clone, Debug)]
pub(super) enum Gpu {}

impl Gpu {
    pub(super) fn open() -> Result<Self, Error> {
        Err(Error::Device {
            device: "CUDA",
            reason: "this program was built without it".into(),
            hint: "build the program with `cargo xtask cuda`, or use --device cpu",
        })
    }

    pub(super) fn device(&self) -> Device {
        match *self {}
    }

    pub(super) fn name(&self) -> String {
        match *self {}
    }

    pub(super) fn driver(&self) -> Option<String> {
        match *self {}
    }

    pub(super) fn reset_peak(&self) -> Result<(), Error> {
        match *self {}
    }

    pub(super) fn memory(&self) -> Option<DeviceMemory> {
        match *self {}
    }
}
