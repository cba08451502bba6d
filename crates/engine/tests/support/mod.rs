//! What the tests against stored outputs share.

#![allow(dead_code, unused_macros, reason = "each test program uses its part")]
#![allow(missing_docs, reason = "names say it")]

use engine::backend::Backend;
use engine::candle::Candle;
use engine::decode::{Models, Settings};
use engine::drafter::DrafterKv;
use engine::gemma::{RawKv, Rows};
#[cfg(any(feature = "mlx", target_os = "macos"))]
use engine::mlx::Mlx;
use engine::noise::Noise;
use protocol::{Arm, Decode};
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// A tensor library under test.
pub trait Library: Backend + Clone {
    fn open() -> Self;
}

impl Library for Candle {
    fn open() -> Self {
        Self::cpu()
    }
}

#[cfg(any(feature = "mlx", target_os = "macos"))]
impl Library for Mlx {
    fn open() -> Self {
        Self::open(protocol::Backend::Mlx.device()).unwrap()
    }
}

/// MLX is not safe to share between threads: tests that use it take turns.
pub static TURN: Mutex<()> = Mutex::new(());

/// Makes a test of each function on candle, and on MLX where this build has it.
macro_rules! on_every_library {
    ($($test:ident),* $(,)?) => {
        mod on_candle {
            $(#[test]
            fn $test() {
                super::$test::<engine::candle::Candle>();
            })*
        }

        #[cfg(any(feature = "mlx", target_os = "macos"))]
        mod on_mlx {
            $(#[test]
            fn $test() {
                let _turn = super::support::TURN.lock();
                super::$test::<engine::mlx::Mlx>();
            })*
        }
    };
}

/// Nobody cancels.
pub static NEVER: AtomicBool = AtomicBool::new(false);

/// The folder of reference outputs; none where the machine has none.
pub fn reference() -> Option<PathBuf> {
    let path = std::env::var_os("KAKEYA_GATE_REFERENCE").map(PathBuf::from);
    if path.is_none() {
        eprintln!("skipped: KAKEYA_GATE_REFERENCE is unset");
    }
    path
}

/// A file of reference outputs.
pub struct Golden(Vec<u8>);

impl Golden {
    pub fn open(path: &Path) -> Option<Self> {
        path.exists().then(|| Self(std::fs::read(path).unwrap()))
    }

    pub fn has(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.0).unwrap().tensor(name).is_ok()
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let data = file.tensor(name).unwrap().data().to_vec();
        data.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    pub fn integers(&self, name: &str) -> Vec<u32> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let view = file.tensor(name).unwrap();
        let width = view.data().len() / view.shape().iter().product::<usize>();
        view.data().chunks(width).map(|b| u32::from_le_bytes(b[..4].try_into().unwrap())).collect()
    }
}

pub fn settings(arm: Arm, sink: usize, window: usize) -> Settings<'static> {
    Settings {
        arm,
        decode: Decode::Reforward,
        sink,
        window,
        max_new_tokens: 16,
        prefill_chunk: usize::MAX,
        stop_tokens: &[],
        forced: &[],
        noise: Noise { seed: 42, sample: 0 },
    }
}

pub fn logits<B: Backend>(
    models: &Models<B>,
    ids: &[u32],
    arm: Arm,
    sink: usize,
    window: usize,
    rows: Rows,
) -> Vec<f32> {
    let mut counters = models.counters();
    let out = models.forward(ids, &settings(arm, sink, window), rows, &mut counters, &NEVER).unwrap().0;
    models.verifier.backend().to_f32(&out).unwrap()
}

pub fn close(what: &str, ours: &[f32], theirs: &[f32], atol: f32, rtol: f32) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!((a - b).abs() <= atol + rtol * b.abs(), "{what} at {i}: {a} where the reference has {b}");
    }
}

/// The largest difference of two arrays.
pub fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// f_θ's K/V of every layer.
pub fn projected<B: Backend>(models: &Models<B>, drafted: &DrafterKv<B::Tensor>) -> Vec<RawKv<B::Tensor>> {
    let projection = models.projection.as_ref().unwrap();
    let latents = projection.encode(&models.verifier, drafted).unwrap();
    let layers = 0..models.verifier.geometry().len();
    layers.map(|layer| projection.decode(&models.verifier, layer, &latents).unwrap()).collect()
}

/// Raw K/V of every layer of a clean forward.
pub fn captured<B: Backend>(models: &Models<B>, ids: &[u32]) -> Vec<RawKv<B::Tensor>> {
    let wanted = vec![true; models.verifier.geometry().len()];
    let layers = models.verifier.capture(ids, wanted, 0..ids.len(), usize::MAX, &NEVER).unwrap();
    layers.into_iter().map(Option::unwrap).collect()
}
