//! Looking at a pack by its headers says what loading it says, and forecasts what a run then holds.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use engine::candle::Candle;
use engine::pack::Engine;
use niah::{PromptVariant, Rung};
use protocol::{Arm, Backend, Decode, Device, Restore, RunSpec, Trial};
use std::path::{Path, PathBuf};
use support::{NEVER, reference};

fn demo_pack() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/demo-pack")
}

fn spec(pack: &Path) -> RunSpec {
    RunSpec {
        pack: pack.to_owned(),
        backend: Backend::Candle,
        device: Device::Cpu,
        arms: vec![Arm::Oracle, Arm::Restored(Restore::S5)],
        decode: Decode::Incremental,
        ladder: vec![Rung(20)],
        n_samples: 1,
        seed: 42,
        sink: 4,
        window: 64,
        max_new_tokens: 24,
        prefill_chunk: 512,
        prompt: PromptVariant::Legacy,
    }
}

#[test]
fn headers_say_what_loading_says() {
    let spec = spec(&demo_pack());
    let seen = engine::inspect(&spec).unwrap();
    let loaded = Engine::load(Candle::cpu(), &demo_pack(), &spec.arms).unwrap().loaded;
    let tensors = seen.tensors.found.unwrap();
    assert_eq!((tensors.layers, tensors.types), (loaded.layers, loaded.weights_dtype));
    assert_eq!(seen.tokenizer.found.unwrap().stop_tokens, loaded.stop_tokens);
    assert!(seen.dimensions.unwrap().found.is_ok());
    let test = seen.self_test.unwrap().found.unwrap();
    assert!(test.holds && test.arms == 4, "{test:?}");
}

/// The forecast counts weights as they are held and K/V by the plan of the cache.
#[test]
fn a_run_holds_what_was_forecast() {
    let spec = spec(&demo_pack());
    let forecast = engine::inspect(&spec).unwrap().forecast.unwrap();
    let headers = |part: &str| files::safetensors_header(&demo_pack().join(part)).unwrap().tensors;
    let parts =
        ["verifier/model.safetensors", "drafter/model.safetensors", "f_theta/f_theta_weights.safetensors"];
    let stored: usize = parts.iter().map(|part| headers(part).data_len()).sum();
    // Verifier and drafter are stored as bf16, f_θ as f32; of the drafter not every tensor is needed.
    let (least, most) = (stored as u64, 2 * stored as u64);
    assert!((least..most).contains(&forecast.weights), "{forecast:?}, stored {stored}");

    let mut engine = Engine::load(Candle::cpu(), &demo_pack(), &spec.arms).unwrap();
    let sample = Rung(20).dataset(42, 1).samples().unwrap().next().unwrap();
    let trial = Trial {
        id: "a".into(),
        arm: Arm::Oracle,
        prompt: spec.prompt.text(&sample),
        variant: spec.prompt,
        decode: spec.decode,
        sink: spec.sink,
        window: spec.window,
        max_new_tokens: spec.max_new_tokens,
        prefill_chunk: spec.prefill_chunk,
        seed: spec.seed,
        sample: 0,
        fidelity: true,
        answer: None,
    };
    let result = engine.answer(&trial, &NEVER, &mut |_, _| ()).unwrap();
    assert_eq!(forecast.positions, result.prompt_tokens + spec.max_new_tokens);
    let counted = result.memory.kv_counted.unwrap().total();
    assert!(counted <= forecast.kv && forecast.kv < 3 * counted, "{counted}, {forecast:?}");
}

/// An archive's tensors are listed, not read.
#[test]
fn an_archive_is_looked_at_like_any_other_file() {
    let Some(root) = reference() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (name, part) in [("verifier", demo_pack().join("verifier")), ("drafter", demo_pack().join("drafter"))]
    {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        for entry in std::fs::read_dir(part).unwrap().map(Result::unwrap) {
            std::fs::copy(entry.path(), folder.path().join(name).join(entry.file_name())).unwrap();
        }
    }
    let f_theta = folder.path().join("f_theta");
    std::fs::create_dir(&f_theta).unwrap();
    let from = root.join("demo-pack-checks/warm/f_theta");
    for file in ["f_theta_config.json", "f_theta_weights.pt"] {
        std::fs::copy(from.join(file), f_theta.join(file)).unwrap();
    }
    std::fs::copy(demo_pack().join("pack.json"), folder.path().join("pack.json")).unwrap();
    let seen = engine::inspect(&spec(folder.path())).unwrap();
    assert_eq!(seen.f_theta.unwrap().found.unwrap().rank, 128);
    assert!(seen.dimensions.unwrap().found.is_ok());
}
