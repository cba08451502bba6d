//! The models on the demo pack: against the reference's outputs, and against what this engine gave once it equalled them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use engine::backend::Backend;
use engine::candle::Candle;
use engine::decode::Models;
use engine::drafter::{Drafter, DrafterKv};
use engine::f_theta::FTheta;
use engine::gemma::{Cache, Gemma, Rows};
use engine::restoration::Projection;
use engine::tokenizer::Tokenizer;
use niah::Rung;
use protocol::{Arm, Decode, DrafterEmbeddingScale, Restore, ValueRule};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use support::{Golden, NEVER, close, difference, logits, reference, settings};

const SINK: usize = 4;
const WINDOW: usize = 64;

fn folder(part: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../assets/demo-pack").join(part)
}

fn models() -> Models<Candle> {
    let verifier = Gemma::load(Candle::cpu(), &folder("verifier")).unwrap();
    let drafter = Drafter::load(verifier.backend(), &folder("drafter")).unwrap();
    let f_theta = FTheta::load(verifier.backend(), &folder("f_theta")).unwrap();
    let (embedding_scale, value_rule) = (DrafterEmbeddingScale::Hidden, ValueRule::Projected);
    Models { verifier, projection: Some(Projection { drafter, f_theta, embedding_scale, value_rule }) }
}

/// Ids of the first prompt of a rung.
fn prompt(rung: u32) -> Vec<u32> {
    let sample = Rung(rung).dataset(42, 1).samples().unwrap().next().unwrap();
    Tokenizer::load(&folder("verifier")).unwrap().encode_chat(&sample.prompt()).unwrap()
}

fn last(models: &Models<Candle>, ids: &[u32], arm: Arm) -> Vec<f32> {
    logits(models, ids, arm, SINK, WINDOW, Rows::Last)
}

#[test]
fn ids_and_logits_equal_the_reference() {
    let Some(root) = reference() else { return };
    let checks = root.join("demo-pack-checks/golden");
    let golden = Golden::open(&checks.join("golden_ctx20_sample0.safetensors")).unwrap();
    let text = std::fs::read(checks.join("golden_ctx20_sample0.json")).unwrap();
    let facts: Value = serde_json::from_slice(&text).unwrap();
    let ids = prompt(20);
    assert_eq!(ids, golden.integers("input_ids"));
    let tokenizer = Tokenizer::load(&folder("verifier")).unwrap();
    assert_eq!(ids, tokenizer.encode_chat(facts["prompt_text"].as_str().unwrap()).unwrap());
    let models = models();
    for (name, arm) in [
        ("logits_oracle", Arm::Oracle),
        ("logits_sink_window", Arm::SinkWindow),
        ("logits_identity", Arm::Restored(Restore::Identity)),
        ("logits_ftheta_only", Arm::Restored(Restore::FTheta)),
        ("logits_s5_ftheta", Arm::Restored(Restore::S5)),
    ] {
        close(name, &last(&models, &ids, arm), &golden.floats(name), 1e-3, 1e-3);
    }
}

#[test]
fn drafter_projection_and_own_kv_equal_the_reference() {
    let Some(root) = reference() else { return };
    let golden =
        Golden::open(&root.join("demo-pack-checks/golden/golden_ctx20_sample0.safetensors")).unwrap();
    let (models, ids, positions) = (models(), prompt(20), golden.integers("positions"));
    let (projection, b) = (models.projection.as_ref().unwrap(), models.verifier.backend());
    let rows = |x: &_| {
        let values = b.to_f32(x).unwrap();
        let width = values.len() / ids.len();
        positions.iter().flat_map(|p| values[*p as usize * width..][..width].to_vec()).collect::<Vec<f32>>()
    };
    let same = |name: &str, ours: &[f32]| close(name, ours, &golden.floats(name), 2e-4, 1e-4);
    let drafted = projection.draft(&models.verifier, &ids, &NEVER).unwrap();
    let DrafterKv { k, v } = &drafted;
    for (side, x) in [("k", k), ("v", v)] {
        let width = b.shape(x)[1] / projection.drafter.layers();
        for layer in 0..projection.drafter.layers() {
            let part = b.slice(x, 1, layer * width..(layer + 1) * width).unwrap();
            same(&format!("drafter_{side}.{layer}"), &rows(&part));
        }
    }
    let wanted = vec![true; models.verifier.geometry().len()];
    let projected = projection.project(&models.verifier, &drafted, &wanted).unwrap();
    let own = models.verifier.capture(&ids, wanted, 0..ids.len(), &NEVER).unwrap();
    for (name, layers) in [("ftheta", projected), ("true", own)] {
        for (layer, kv) in layers.into_iter().enumerate() {
            let kv = kv.unwrap();
            same(&format!("{name}_k.{layer}"), &rows(&kv.k));
            same(&format!("{name}_v.{layer}"), &rows(&kv.v));
        }
    }
}

fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/engine/demo_first_logits.json")
}

#[derive(serde::Serialize, serde::Deserialize)]
struct FirstLogits {
    provenance: String,
    prompt_tokens: usize,
    logits: BTreeMap<String, Vec<f32>>,
}

#[test]
fn first_logits_are_the_stored_ones() {
    let stored: FirstLogits = serde_json::from_slice(&std::fs::read(fixture()).unwrap()).unwrap();
    let (models, ids) = (models(), prompt(20));
    assert_eq!(stored.prompt_tokens, ids.len());
    assert_eq!(stored.logits.len(), Arm::ALL.len());
    for arm in Arm::ALL {
        close(&arm.to_string(), &last(&models, &ids, arm), &stored.logits[&arm.to_string()], 1e-3, 1e-3);
    }
}

#[test]
#[ignore = "renews the fixture; run it only after the tests against the reference have passed"]
fn renew_first_logits() {
    let (models, ids) = (models(), prompt(20));
    let logits = Arm::ALL.map(|arm| (arm.to_string(), last(&models, &ids, arm)));
    let provenance = "Logits of the first token of the demo pack: rung 20, seed 42, sample 0, legacy prompt, sink 4, \
                      window 64, f32 on the CPU. Made by this engine (`cargo test -p engine --test demo_pack -- \
                      --ignored renew`) after it equalled the PyTorch reference within 1e-3 absolute + 1e-3 relative.";
    let stored =
        FirstLogits { provenance: provenance.into(), prompt_tokens: ids.len(), logits: logits.into() };
    files::write_atomic(&fixture(), &serde_json::to_vec(&stored).unwrap()).unwrap();
}

#[test]
fn identity_equals_the_oracle_and_a_lossy_projection_does_not() {
    let (models, ids) = (models(), prompt(20));
    let oracle = last(&models, &ids, Arm::Oracle);
    let apart = |restore| difference(&last(&models, &ids, Arm::Restored(restore)), &oracle);
    assert!(apart(Restore::Identity) <= 1e-5);
    assert!(apart(Restore::S5) > 1e-3);
    assert!(apart(Restore::FTheta) > 0.1);
}

#[test]
fn the_first_token_is_the_same_with_and_without_a_cache_and_so_are_the_oracles_next_ones() {
    let (models, ids) = (models(), prompt(20));
    let b = models.verifier.backend();
    for arm in Arm::ALL {
        let settings = settings(arm, SINK, WINDOW);
        let mut cache = Cache::default();
        let mut counters = models.counters();
        let cached =
            models.forward(&ids, &settings, Rows::Last, &mut counters, Some(&mut cache), &NEVER).unwrap();
        assert_eq!(b.to_f32(&cached).unwrap(), last(&models, &ids, arm), "{arm}");
        assert_eq!(cache.positions(), ids.len());
    }
    let mut settings = settings(Arm::Oracle, SINK, WINDOW);
    let again = models.generate(&ids, &settings, &NEVER, &mut |_, _| ()).unwrap();
    settings.decode = Decode::Incremental;
    let cached = models.generate(&ids, &settings, &NEVER, &mut |_, _| ()).unwrap();
    assert_eq!(cached.tokens, again.tokens);
    assert!(cached.kv_bytes.unwrap() < cached.kv_full_bytes);
}

/// Prints seconds; run it alone. `cargo test -p engine --test demo_pack -- --ignored --nocapture seconds`
#[test]
#[ignore = "measures"]
fn seconds_a_sample() {
    let (models, ids) = (models(), prompt(70));
    for arm in Arm::ALL {
        let mut settings = settings(arm, SINK, WINDOW);
        (settings.decode, settings.max_new_tokens) = (Decode::Incremental, 8);
        let mut runs: Vec<(f64, f64)> = (0..7)
            .map(|_| {
                let (start, cpu) = (std::time::Instant::now(), cpu_seconds());
                models.generate(&ids, &settings, &NEVER, &mut |_, _| ()).unwrap();
                (start.elapsed().as_secs_f64(), cpu_seconds() - cpu)
            })
            .collect();
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let cpu = runs.iter().map(|run| run.1).sum::<f64>() / runs.len() as f64;
        let (wall, best) = (runs[runs.len() / 2].0, runs[0].0);
        println!("{arm}, {} tokens: {wall:.3} s median, {best:.3} s best, {cpu:.3} CPU s mean", ids.len());
    }
}

/// Processor seconds of this process in user mode, in steps of 10 ms; 0 where there is no procfs.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    stat.split(' ').nth(13).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / 100.0
}
