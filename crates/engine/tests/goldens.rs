//! The engine against outputs of the reference implementations (`KAKEYA_GATE_REFERENCE`/golden, MODELS.md §5).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod support;

use engine::decode::Models;
use engine::drafter::Drafter;
use engine::f_theta::FTheta;
use engine::gemma::{Gemma, RawKv, Rows};
use engine::restoration::Projection;
use engine::tokenizer::Tokenizer;
use protocol::{Arm, Decode, DrafterEmbeddingScale, ErrorCode, Restore, ValueRule};
use std::path::Path;
use support::{Golden, Library, NEVER, captured, close, difference, logits, projected, reference, settings};

fn moe<B: Library>(root: &Path, precision: &str, scale: DrafterEmbeddingScale, rule: ValueRule) -> Models<B> {
    let checkpoints = root.join("golden/checkpoints");
    let verifier = Gemma::load(B::open(), &checkpoints.join(format!("gemma4-moe-tiny-{precision}"))).unwrap();
    let drafter =
        Drafter::load(verifier.backend(), &checkpoints.join(format!("dflash-tiny-{precision}"))).unwrap();
    let f_theta = FTheta::load(verifier.backend(), &checkpoints.join("f_theta-moe-tiny")).unwrap();
    f_theta.check(&drafter, &verifier).unwrap();
    let projection = Some(Projection { drafter, f_theta, embedding_scale: scale, value_rule: rule });
    Models { verifier, projection }
}

fn cases(root: &Path, tag: &str) -> Vec<(String, usize, usize, serde_json::Value)> {
    let path = root.join(format!("golden/goldens/{tag}_manifest.json"));
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let number = |case: &serde_json::Value, key: &str| case[key].as_u64().unwrap() as usize;
    let all = manifest["cases"].as_object().unwrap();
    all.iter().map(|(n, c)| (n.clone(), number(c, "sink"), number(c, "window"), c["arms"].clone())).collect()
}

/// Every stored row of every arm; gives how many (case, arm) pairs were compared.
fn compare<B: Library>(root: &Path, models: &Models<B>, tag: &str, arms: &[(&str, Arm)]) -> usize {
    let mut compared = 0;
    for (name, sink, window, _) in cases(root, tag) {
        let path = root.join(format!("golden/goldens/{tag}_{name}.safetensors"));
        let Some(golden) = Golden::open(&path) else { continue };
        let (ids, rows) = (golden.integers("input_ids"), golden.integers("rows"));
        for (key, arm) in arms {
            let ours = logits(models, &ids, *arm, sink, window, Rows::All);
            let width = ours.len() / ids.len();
            let chosen: Vec<f32> =
                rows.iter().flat_map(|row| ours[*row as usize * width..][..width].to_vec()).collect();
            close(
                &format!("{tag} {name} {key}"),
                &chosen,
                &golden.floats(&format!("logits.{key}")),
                1e-3,
                1e-3,
            );
            compared += 1;
        }
    }
    println!("{tag}: {compared} pairs of case and arm");
    compared
}

fn arm(word: &str) -> Arm {
    word.parse().unwrap()
}

const TORCH_ARMS: [(&str, Arm); 5] = [
    ("oracle", Arm::Oracle),
    ("sink_window", Arm::SinkWindow),
    ("restored_f_theta", Arm::Restored(Restore::FTheta)),
    ("restored_s5", Arm::Restored(Restore::S5)),
    ("identity", Arm::Restored(Restore::Identity)),
];

fn every_arm_equals_torch<B: Library>() {
    let Some(root) = reference() else { return };
    let models = moe::<B>(&root, "f32", DrafterEmbeddingScale::Hidden, ValueRule::Projected);
    assert!(compare(&root, &models, "torch_moe_f32", &TORCH_ARMS) >= 25);
    assert!(compare(&root, &models, "torch_moe_f32", &[("alpha_0.5", arm("restored:mix:0.5"))]) >= 5);
}

fn the_ends_of_the_mixture_are_f_theta_and_identity<B: Library>() {
    let Some(root) = reference() else { return };
    let models = moe::<B>(&root, "f32", DrafterEmbeddingScale::Hidden, ValueRule::Projected);
    let ends = [("restored_f_theta", arm("restored:mix:0")), ("identity", arm("restored:mix:1"))];
    assert!(compare(&root, &models, "torch_moe_f32", &ends) >= 10);
}

fn bf16_weights_with_f32_arithmetic_equal_the_f32_goldens<B: Library>() {
    let Some(root) = reference() else { return };
    let models = moe::<B>(&root, "bf16", DrafterEmbeddingScale::Hidden, ValueRule::Projected);
    assert!(compare(&root, &models, "torch_moe_f32", &TORCH_ARMS) >= 25);
}

fn mlx_conventions_equal_mlx<B: Library>() {
    let Some(root) = reference() else { return };
    let models = moe::<B>(&root, "f32", DrafterEmbeddingScale::One, ValueRule::InjectedKey);
    let arms = [TORCH_ARMS[0], TORCH_ARMS[2], TORCH_ARMS[3], ("alpha_0.5", arm("restored:mix:0.5"))];
    assert!(compare(&root, &models, "mlx_moe_f32", &arms) >= 15);
}

fn shared_kv_and_per_layer_embeddings_equal_torch<B: Library>() {
    let Some(root) = reference() else { return };
    let folder = root.join("golden/checkpoints/gemma4-dense-kvshared-tiny");
    let models = Models { verifier: Gemma::load(B::open(), &folder).unwrap(), projection: None };
    assert!(compare(&root, &models, "torch_kvshared_f32", &TORCH_ARMS[..2]) >= 4);
}

fn restoration_reaches_layers_that_share_kv_as_in_mlx<B: Library>() {
    let Some(root) = reference() else { return };
    let (verifier, f_theta) = ("gemma4-dense-kvshared-tiny", "f_theta-kvshared-tiny");
    let checkpoints = root.join("golden/checkpoints");
    let verifier = Gemma::load(B::open(), &checkpoints.join(verifier)).unwrap();
    let drafter = Drafter::load(verifier.backend(), &checkpoints.join("dflash-tiny-f32")).unwrap();
    let f_theta = FTheta::load(verifier.backend(), &checkpoints.join(f_theta)).unwrap();
    let (embedding_scale, value_rule) = (DrafterEmbeddingScale::One, ValueRule::InjectedKey);
    let projection = Some(Projection { drafter, f_theta, embedding_scale, value_rule });
    let models = Models { verifier, projection };
    let arms = [TORCH_ARMS[2], TORCH_ARMS[3], TORCH_ARMS[4], ("alpha_0.5", arm("restored:mix:0.5"))];
    assert!(compare(&root, &models, "mlx_kvshared_f32", &arms) >= 12);
}

fn the_verifier_as_its_own_drafter_equals_torch_on_gemma_3<B: Library>() {
    let Some(root) = reference() else { return };
    let folder = root.join("golden/checkpoints/gemma3-tiny");
    let models = Models { verifier: Gemma::load(B::open(), &folder).unwrap(), projection: None };
    let same = ("dlm_restored_same_checkpoint", Arm::Restored(Restore::SameCheckpoint));
    assert!(compare(&root, &models, "torch_gemma3_f32", &[TORCH_ARMS[0], TORCH_ARMS[1], same]) >= 12);
}

fn greedy_ids_equal_torch_and_the_last_row_alone_is_the_same<B: Library>() {
    let Some(root) = reference() else { return };
    let models = moe::<B>(&root, "f32", DrafterEmbeddingScale::Hidden, ValueRule::Projected);
    for (name, sink, window, arms) in cases(&root, "torch_moe_f32") {
        let path = root.join(format!("golden/goldens/torch_moe_f32_{name}.safetensors"));
        let Some(golden) = Golden::open(&path) else { continue };
        let ids = golden.integers("input_ids");
        for (key, arm) in TORCH_ARMS {
            let expected: Vec<u32> = serde_json::from_value(arms[key]["greedy16"].clone()).unwrap();
            let sure = arms[key]["greedy_min_top2_margin"].as_f64().unwrap() >= 5e-3;
            let mut settings = settings(arm, sink, window);
            let ours = models.generate(&ids, &settings, &NEVER, &mut |_, _| ()).unwrap().tokens;
            settings.decode = Decode::Incremental;
            let cached = models.generate(&ids, &settings, &NEVER, &mut |_, _| ()).unwrap().tokens;
            if sure {
                assert_eq!(ours, expected, "{name} {key}");
                assert_eq!(cached[0], expected[0], "{name} {key} with a cache");
            }
            if sure && !arm.is_restored() {
                assert_eq!(cached, expected, "{name} {key} with a cache");
            }
            let all = logits(&models, &ids, arm, sink, window, Rows::All);
            let last = logits(&models, &ids, arm, sink, window, Rows::Last);
            close(&format!("{name} {key} last row"), &last, &all[all.len() - last.len()..], 1e-4, 1e-4);
        }
    }
}

/// Drafter, f_θ and own raw K/V of every stored case, with `scale` on the drafter's embeddings.
fn compare_kv<B: Library>(root: &Path, tag: &str, suffix: &str, scale: DrafterEmbeddingScale) -> usize {
    let models = moe::<B>(root, "f32", scale, ValueRule::Projected);
    let (projection, b) = (models.projection.as_ref().unwrap(), models.verifier.backend());
    let mut compared = 0;
    for (case, ..) in cases(root, tag) {
        let stem = root.join(format!("golden/goldens/{tag}_{case}"));
        let Some(golden) = Golden::open(Path::new(&format!("{}{suffix}.safetensors", stem.display()))) else {
            continue;
        };
        if !golden.has("drafter.k.0") {
            continue;
        }
        let ids = Golden::open(&stem.with_extension("safetensors")).unwrap().integers("input_ids");
        let positions = if golden.has("positions") {
            golden.integers("positions")
        } else {
            (0..ids.len() as u32).collect()
        };
        let same = |name: &str, ours: &_| {
            let values = b.to_f32(ours).unwrap();
            let width = values.len() / ids.len();
            let rows: Vec<f32> =
                positions.iter().flat_map(|p| values[*p as usize * width..][..width].to_vec()).collect();
            close(&format!("{tag} {case} {name}"), &rows, &golden.floats(name), 2e-4, 1e-4);
        };
        let drafted = projection.draft(&models.verifier, &ids, &NEVER).unwrap();
        for (side, x) in [("k", &drafted.k), ("v", &drafted.v)] {
            let width = b.shape(x)[1] / projection.drafter.layers();
            for layer in 0..projection.drafter.layers() {
                let part = b.slice(x, 1, layer * width..(layer + 1) * width).unwrap();
                same(&format!("drafter.{side}.{layer}"), &part);
            }
        }
        for (name, layers) in [("f_theta", projected(&models, &drafted)), ("own", captured(&models, &ids))] {
            for (layer, RawKv { k, v }) in layers.into_iter().enumerate() {
                same(&format!("{name}.k.{layer}"), &k);
                same(&format!("{name}.v.{layer}"), &v);
            }
        }
        compared += 1;
    }
    compared
}

fn drafter_projection_and_own_kv_equal_torch<B: Library>() {
    let Some(root) = reference() else { return };
    assert!(compare_kv::<B>(&root, "torch_moe_f32", "_kv", DrafterEmbeddingScale::Hidden) >= 4);
}

fn drafter_projection_and_own_kv_equal_mlx<B: Library>() {
    let Some(root) = reference() else { return };
    assert!(compare_kv::<B>(&root, "mlx_moe_f32", "", DrafterEmbeddingScale::One) >= 4);
}

fn identity_equals_the_oracle_on_every_case_and_a_lossy_projection_does_not<B: Library>() {
    let Some(root) = reference() else { return };
    let models = moe::<B>(&root, "f32", DrafterEmbeddingScale::Hidden, ValueRule::Projected);
    for (name, sink, window, _) in cases(&root, "torch_moe_f32") {
        let path = root.join(format!("golden/goldens/torch_moe_f32_{name}.safetensors"));
        let Some(golden) = Golden::open(&path) else { continue };
        let ids = golden.integers("input_ids");
        let arm = |arm| logits(&models, &ids, arm, sink, window, Rows::Last);
        let apart = |restore| difference(&arm(Arm::Restored(restore)), &arm(Arm::Oracle));
        assert!(apart(Restore::Identity) <= 1e-5, "{name}");
        let evicted = niah::evicted(ids.len(), sink, window).len();
        assert_eq!(apart(Restore::FTheta) > 0.05, evicted > 0, "{name}");
    }
}

#[expect(clippy::disallowed_methods, reason = "fixtures of a test need not survive a power cut")]
fn an_archive_of_pytorch_holds_the_same_as_its_safetensors<B: Library>() {
    let Some(root) = reference() else { return };
    let models = moe::<B>(&root, "f32", DrafterEmbeddingScale::Hidden, ValueRule::Projected);
    let (projection, b) = (models.projection.as_ref().unwrap(), models.verifier.backend());
    let drafted = projection.draft(&models.verifier, &[2, 10, 20, 30, 40], &NEVER).unwrap();
    let (archive, source) = (tempfile::tempdir().unwrap(), root.join("golden/checkpoints/f_theta-moe-tiny"));
    for name in ["f_theta_config.json", "f_theta_weights.pt"] {
        std::fs::copy(source.join(name), archive.path().join(name)).unwrap();
    }
    let loaded = FTheta::load(b, archive.path()).unwrap();
    assert_eq!(loaded.files(), [archive.path().join("f_theta_weights.pt")]);
    for layer in 0..models.verifier.geometry().len() {
        let decoded =
            |f_theta: &FTheta<B>| f_theta.decode(b, layer, &f_theta.encode(b, &drafted).unwrap()).unwrap();
        let (ours, theirs) = (decoded(&loaded), decoded(&projection.f_theta));
        assert_eq!(b.to_f32(&ours.k).unwrap(), b.to_f32(&theirs.k).unwrap());
        assert_eq!(b.to_f32(&ours.v).unwrap(), b.to_f32(&theirs.v).unwrap());
    }
    std::fs::write(archive.path().join("f_theta_weights.pt"), b"PK no archive").unwrap();
    let error = FTheta::load(b, archive.path()).err().unwrap().report();
    assert_eq!(error.code, ErrorCode::WeightsDamaged, "{error:?}");
}

fn a_projection_for_another_model_is_refused_with_both_sides<B: Library>() {
    let Some(root) = reference() else { return };
    let checkpoints = root.join("golden/checkpoints");
    let b = B::open();
    let verifier = |name: &str| Gemma::load(B::open(), &checkpoints.join(name)).unwrap();
    let (moe, dense) = (verifier("gemma4-moe-tiny-f32"), verifier("gemma4-dense-kvshared-tiny"));
    let demo = Gemma::load(B::open(), &root.join("demo-pack/verifier")).unwrap();
    let drafter = Drafter::load(&b, &checkpoints.join("dflash-tiny-f32")).unwrap();
    let f_theta = FTheta::load(&b, &checkpoints.join("f_theta-moe-tiny")).unwrap();
    f_theta.check(&drafter, &moe).unwrap();
    for (verifier, left, right) in [
        (&dense, "a verifier of 6 layers", "the verifier has 8"),
        (&demo, "the drafter's hidden_size is 64", "the verifier's is 128"),
    ] {
        let report = f_theta.check(&drafter, verifier).unwrap_err().report();
        assert_eq!(report.code, ErrorCode::DimensionMismatch);
        assert!(report.message.contains(left) && report.message.contains(right), "{report:?}");
    }
    let other = Drafter::load(&b, &root.join("demo-pack/drafter")).unwrap();
    let report = f_theta.check(&other, &demo).unwrap_err().report();
    assert!(report.message.contains("3 layers") && report.message.contains("2 layers"), "{report:?}");
}

#[test]
fn tokenisation_equals_the_reference() {
    let Some(root) = reference() else { return };
    let path = root.join("golden/dataset/tiny_tokenizer.json");
    let golden: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let tokenizer = Tokenizer::load(&root.join("golden/checkpoints/gemma4-moe-tiny-f32")).unwrap();
    for sample in golden["samples"].as_array().unwrap() {
        let text = sample["prompt_text"].as_str().unwrap();
        assert_eq!(serde_json::json!(tokenizer.encode_chat(text).unwrap()), sample["chat_ids"]);
        assert_eq!(serde_json::json!(tokenizer.encode_raw(text).unwrap()), sample["raw_ids"]);
    }
    for pair in golden["extra"].as_array().unwrap() {
        let ids: Vec<u32> = serde_json::from_value(pair[1].clone()).unwrap();
        let ours = tokenizer.encode_raw(pair[0].as_str().unwrap()).unwrap();
        assert!(ours.ends_with(&ids), "{pair}: {ours:?}");
    }
}

on_every_library!(
    every_arm_equals_torch,
    the_ends_of_the_mixture_are_f_theta_and_identity,
    bf16_weights_with_f32_arithmetic_equal_the_f32_goldens,
    mlx_conventions_equal_mlx,
    shared_kv_and_per_layer_embeddings_equal_torch,
    restoration_reaches_layers_that_share_kv_as_in_mlx,
    the_verifier_as_its_own_drafter_equals_torch_on_gemma_3,
    greedy_ids_equal_torch_and_the_last_row_alone_is_the_same,
    drafter_projection_and_own_kv_equal_torch,
    drafter_projection_and_own_kv_equal_mlx,
    identity_equals_the_oracle_on_every_case_and_a_lossy_projection_does_not,
    an_archive_of_pytorch_holds_the_same_as_its_safetensors,
    a_projection_for_another_model_is_refused_with_both_sides,
);
