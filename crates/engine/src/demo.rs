//! The demo pack inside the program, so that every installation can hold its device against stored outputs.

use crate::Error;
use crate::backend::Backend;
use crate::decode::{Models, Settings};
use crate::gemma::{Gemma, Rows};
use crate::noise::Noise;
use crate::pack;
use crate::tokenizer::Tokenizer;
use niah::Rung;
use protocol::{Arm, Decode, Pack, Restore, SelfTest};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

macro_rules! demo_files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_bytes!(concat!("../../../assets/demo-pack/", $name)) as &[u8])),*]
    };
}

const FILES: [(&str, &[u8]); 10] = demo_files![
    "pack.json",
    "drafter/config.json",
    "drafter/model.safetensors",
    "f_theta/f_theta_config.json",
    "f_theta/f_theta_weights.safetensors",
    "verifier/config.json",
    "verifier/generation_config.json",
    "verifier/model.safetensors",
    "verifier/tokenizer.json",
    "verifier/tokenizer_config.json",
];

/// Logits of the first token on the CPU, by arm.
const STORED: &[u8] = include_bytes!("../../../tests/fixtures/engine/demo_first_logits.json");

const ARMS: [Arm; 4] = [
    Arm::Oracle,
    Arm::Restored(Restore::Identity),
    Arm::Restored(Restore::S5),
    Arm::Restored(Restore::FTheta),
];

/// Absolute and relative tolerance: what f32 arithmetic in another order comes to.
const TOLERANCE: f64 = 1e-3;

#[derive(Deserialize)]
struct Stored {
    logits: BTreeMap<Arm, Vec<f32>>,
}

/// Answers one prompt of the demo pack with the arms that matter most, and compares the first logits.
pub fn self_test<B: Backend>(backend: B) -> Result<SelfTest, Error> {
    let broken = |reason: String| Error::Trial(format!("the built-in demo pack: {reason}"));
    let folder = tempfile::tempdir().map_err(|e| broken(e.to_string()))?;
    for (name, bytes) in FILES {
        files::write_atomic(&folder.path().join(name), bytes)?;
    }
    let stored: Stored = serde_json::from_slice(STORED).map_err(|e| broken(e.to_string()))?;
    let (models, ids) = (models(backend, folder.path())?, prompt(folder.path())?);
    let mut test = SelfTest { arms: ARMS.len(), difference: 0.0, holds: true, identity: 0.0 };
    let mut oracle = Vec::new();
    for arm in ARMS {
        let logits = first_logits(&models, &ids, arm)?;
        let expected = stored.logits.get(&arm).ok_or_else(|| broken(format!("nothing stored for {arm}")))?;
        test.difference = test.difference.max(difference(&logits, expected));
        test.holds &= logits.len() == expected.len() && logits.iter().zip(expected).all(close);
        match arm {
            Arm::Oracle => oracle = logits,
            Arm::Restored(Restore::Identity) => test.identity = difference(&logits, &oracle),
            _ => {}
        }
    }
    Ok(test)
}

fn models<B: Backend>(backend: B, folder: &Path) -> Result<Models<B>, Error> {
    let pack = Pack::open(folder)?;
    let verifier = Gemma::load(backend, &pack.verifier())?;
    let projection = pack::projection(&pack, &verifier)?;
    Ok(Models { verifier, projection })
}

/// Ids of the prompt that the stored logits belong to.
fn prompt(folder: &Path) -> Result<Vec<u32>, Error> {
    let sample = Rung(20).dataset(42, 1).samples().ok().and_then(|mut samples| samples.next());
    let sample = sample.ok_or_else(|| Error::Trial("rung 20 has no sample".into()))?;
    Tokenizer::load(&folder.join("verifier"))?.encode_chat(&sample.prompt())
}

fn first_logits<B: Backend>(models: &Models<B>, ids: &[u32], arm: Arm) -> Result<Vec<f32>, Error> {
    let settings = Settings {
        arm,
        decode: Decode::Incremental,
        sink: 4,
        window: 64,
        max_new_tokens: 1,
        prefill_chunk: usize::MAX,
        stop_tokens: &[],
        forced: &[],
        noise: Noise { seed: 42, sample: 0 },
    };
    let never = AtomicBool::new(false);
    let (logits, _) = models.forward(ids, &settings, Rows::Last, &mut models.counters(), &never)?;
    models.verifier.backend().to_f32(&logits)
}

/// Largest absolute difference; infinite where a number is none.
fn difference(ours: &[f32], theirs: &[f32]) -> f64 {
    let apart = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs();
    ours.iter().zip(theirs).map(apart).map(|d| if d.is_nan() { f64::INFINITY } else { d }).fold(0.0, f64::max)
}

fn close((ours, theirs): (&f32, &f32)) -> bool {
    (f64::from(*ours) - f64::from(*theirs)).abs() <= TOLERANCE + TOLERANCE * f64::from(theirs.abs())
}
