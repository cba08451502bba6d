//! The engine against outputs of the reference implementations (`KAKEYA_GATE_REFERENCE`/golden, MODELS.md §5).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use engine::backend::Backend;
use engine::candle::Candle;
use engine::decode::{Models, Settings};
use engine::drafter::Drafter;
use engine::f_theta::FTheta;
use engine::gemma4::{Gemma4, Rows};
use engine::restoration::Projection;
use protocol::{Arm, Decode, DrafterEmbeddingScale, Restore, ValueRule};
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

fn reference() -> Option<PathBuf> {
    let path = std::env::var_os("KAKEYA_GATE_REFERENCE").map(PathBuf::from);
    if path.is_none() {
        eprintln!("skipped: KAKEYA_GATE_REFERENCE is unset");
    }
    path
}

fn moe(root: &Path, precision: &str, scale: DrafterEmbeddingScale, rule: ValueRule) -> Models<Candle> {
    let checkpoints = root.join("golden/checkpoints");
    let verifier =
        Gemma4::load(Candle::cpu(), &checkpoints.join(format!("gemma4-moe-tiny-{precision}"))).unwrap();
    let drafter =
        Drafter::load(verifier.backend(), &checkpoints.join(format!("dflash-tiny-{precision}"))).unwrap();
    let f_theta = FTheta::load(verifier.backend(), &checkpoints.join("f_theta-moe-tiny")).unwrap();
    f_theta.check(&drafter, &verifier).unwrap();
    let projection = Some(Projection { drafter, f_theta, embedding_scale: scale, value_rule: rule });
    Models { verifier, projection }
}

struct Golden(Vec<u8>);

impl Golden {
    fn open(path: &Path) -> Option<Self> {
        path.exists().then(|| Self(std::fs::read(path).unwrap()))
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let data = file.tensor(name).unwrap().data().to_vec();
        data.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    fn integers(&self, name: &str) -> Vec<u32> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let view = file.tensor(name).unwrap();
        let width = view.data().len() / view.shape().iter().product::<usize>();
        view.data().chunks(width).map(|b| u32::from_le_bytes(b[..4].try_into().unwrap())).collect()
    }
}

fn settings(arm: Arm, sink: usize, window: usize) -> Settings<'static> {
    Settings { arm, decode: Decode::Reforward, sink, window, max_new_tokens: 16, stop_tokens: &[] }
}

fn logits(
    models: &Models<Candle>,
    ids: &[u32],
    arm: Arm,
    sink: usize,
    window: usize,
    rows: Rows,
) -> Vec<f32> {
    let mut counters = models.counters();
    let out = models.forward(ids, &settings(arm, sink, window), rows, &mut counters, None, &NEVER).unwrap();
    models.verifier.backend().to_f32(&out).unwrap()
}

fn close(what: &str, ours: &[f32], theirs: &[f32], atol: f32, rtol: f32) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!((a - b).abs() <= atol + rtol * b.abs(), "{what} at {i}: {a} where the reference has {b}");
    }
}

fn cases(root: &Path, tag: &str) -> Vec<(String, usize, usize, serde_json::Value)> {
    let path = root.join(format!("golden/goldens/{tag}_manifest.json"));
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let number = |case: &serde_json::Value, key: &str| case[key].as_u64().unwrap() as usize;
    let all = manifest["cases"].as_object().unwrap();
    all.iter().map(|(n, c)| (n.clone(), number(c, "sink"), number(c, "window"), c["arms"].clone())).collect()
}

/// Every stored row of every arm; gives how many (case, arm) pairs were compared.
fn compare(root: &Path, models: &Models<Candle>, tag: &str, arms: &[(&str, Arm)]) -> usize {
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

const TORCH_ARMS: [(&str, Arm); 5] = [
    ("oracle", Arm::Oracle),
    ("sink_window", Arm::SinkWindow),
    ("restored_f_theta", Arm::Restored(Restore::FTheta)),
    ("restored_s5", Arm::Restored(Restore::S5)),
    ("identity", Arm::Restored(Restore::Identity)),
];

#[test]
fn every_arm_equals_torch() {
    let Some(root) = reference() else { return };
    let models = moe(&root, "f32", DrafterEmbeddingScale::Hidden, ValueRule::Projected);
    assert!(compare(&root, &models, "torch_moe_f32", &TORCH_ARMS) >= 25);
}

#[test]
fn bf16_weights_with_f32_arithmetic_equal_the_f32_goldens() {
    let Some(root) = reference() else { return };
    let models = moe(&root, "bf16", DrafterEmbeddingScale::Hidden, ValueRule::Projected);
    assert!(compare(&root, &models, "torch_moe_f32", &TORCH_ARMS) >= 25);
}

#[test]
fn mlx_conventions_equal_mlx() {
    let Some(root) = reference() else { return };
    let models = moe(&root, "f32", DrafterEmbeddingScale::One, ValueRule::InjectedKey);
    let arms = [TORCH_ARMS[0], TORCH_ARMS[2], TORCH_ARMS[3]];
    assert!(compare(&root, &models, "mlx_moe_f32", &arms) >= 15);
}

#[test]
fn shared_kv_and_per_layer_embeddings_equal_torch() {
    let Some(root) = reference() else { return };
    let folder = root.join("golden/checkpoints/gemma4-dense-kvshared-tiny");
    let models = Models { verifier: Gemma4::load(Candle::cpu(), &folder).unwrap(), projection: None };
    assert!(compare(&root, &models, "torch_kvshared_f32", &TORCH_ARMS[..2]) >= 4);
}

#[test]
fn greedy_ids_equal_torch_and_the_last_row_alone_is_the_same() {
    let Some(root) = reference() else { return };
    let models = moe(&root, "f32", DrafterEmbeddingScale::Hidden, ValueRule::Projected);
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
