//! The demo pack passes; a copy with one fault fails in just the check that looks for it.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test panics, and sets up fixtures")]

use preflight::{Check, EngineProbe, Status, checks};
use proptest::prelude::*;
use protocol::{Backend, BackendInfo, Device, ErrorReport, Hello, Host};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

fn demo_pack() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/demo-pack")
}

fn engine(version: &str) -> EngineProbe {
    let device = BackendInfo {
        backend: Backend::Candle,
        device: Device::Cpu,
        version: "0.11".into(),
        device_name: "a processor".into(),
        driver: None,
        probe_seconds: 0.001,
    };
    let host = Host {
        os: "an os".into(),
        arch: "an arch".into(),
        cpu: "a processor".into(),
        cores: 2,
        memory_bytes: 1,
    };
    let hello = Hello {
        protocol: protocol::VERSION,
        version: version.into(),
        commit: None,
        dirty: false,
        backends: vec![device],
        host,
    };
    EngineProbe { host_version: "1.0.0".into(), answer: Ok(hello) }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The rows that do not pass on a copy of the demo pack with one fault, as text. Digests are left out: any fault changes
/// one.
fn with_fault(fault: impl Fn(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("pack");
    copy(&demo_pack(), &pack);
    edit(&pack.join("pack.json"), |manifest| manifest["sha256"] = json!({}));
    fault(&pack);
    let rows = checks(&pack, &engine("1.0.0")).unwrap();
    let shown = rows.iter().filter(|row| row.status != Status::Pass && row.id != "pack-digests").map(line);
    shown.collect::<Vec<_>>().join("\n").replace(pack.to_str().unwrap(), "PACK")
}

fn line(row: &Check) -> String {
    format!("{:?} {}: {} → {}", row.status, row.id, row.measured, row.hint)
}

fn edit(path: &Path, change: impl Fn(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

#[test]
fn the_demo_pack_passes_every_check() {
    let rows = checks(&demo_pack(), &engine("1.0.0")).unwrap();
    assert_eq!(rows.len(), 14);
    let other: Vec<String> = rows.iter().filter(|row| row.status != Status::Pass).map(line).collect();
    assert!(other.is_empty(), "{other:#?}");
    let measured = |id: &str| rows.iter().find(|row| row.id == id).unwrap().measured.clone();
    insta::assert_snapshot!(
        [
            "verifier-config",
            "tokenizer-files",
            "drafter-weights",
            "f-theta-weights",
            "f-theta-dimensions",
            "pack-conventions"
        ]
        .map(measured)
        .join("\n")
    );
}

#[test]
fn each_fault_fails_its_check() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 859384296\n";
    let faults = [
        with_fault(|pack| fs::write(pack.join("verifier/model.safetensors"), pointer).unwrap()),
        with_fault(|pack| fs::write(pack.join("verifier/model.safetensors"), "").unwrap()),
        with_fault(|pack| {
            let file = pack.join("drafter/model.safetensors");
            let bytes = fs::read(&file).unwrap();
            fs::write(&file, &bytes[..bytes.len() - 100]).unwrap();
        }),
        with_fault(|pack| fs::remove_file(pack.join("f_theta/f_theta_weights.safetensors")).unwrap()),
        with_fault(|pack| {
            edit(&pack.join("verifier/tokenizer_config.json"), |c| c["extra_special_tokens"] = json!(["<a>"]))
        }),
        with_fault(|pack| fs::remove_file(pack.join("verifier/tokenizer_config.json")).unwrap()),
        with_fault(|pack| edit(&pack.join("verifier/config.json"), |c| c["model_type"] = json!("llama"))),
        with_fault(|pack| {
            edit(&pack.join("f_theta/f_theta_config.json"), |c| c["verifier_layer_head_dims"][2] = json!(48))
        }),
        with_fault(|pack| edit(&pack.join("drafter/config.json"), |c| c["head_dim"] = json!(-1))),
        with_fault(|pack| edit(&pack.join("pack.json"), |m| m["format"] = json!(9))),
    ];
    insta::assert_snapshot!(faults.join("\n\n"));
}

#[test]
fn a_changed_byte_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("pack");
    copy(&demo_pack(), &pack);
    edit(&pack.join("verifier/generation_config.json"), |config| config["do_sample"] = json!(true));
    let rows = checks(&pack, &engine("1.0.0")).unwrap();
    let row = rows.iter().find(|row| row.id == "pack-digests").unwrap();
    assert_eq!(row.status, Status::Fail, "{row:?}");
    assert!(row.measured.contains("generation_config.json"), "{row:?}");
}

#[test]
fn an_engine_that_does_not_answer_or_is_another_release() {
    let silent =
        ErrorReport { code: "engine-lost".into(), message: "it died".into(), hint: "start it".into() };
    let dead = EngineProbe { host_version: "1.0.0".into(), answer: Err(silent) };
    let of = |probe: &EngineProbe, id: &str| {
        checks(&demo_pack(), probe).unwrap().into_iter().find(|row| row.id == id).unwrap()
    };
    assert_eq!(line(&of(&dead, "engine-answers")), "Fail engine-answers: it died → start it");
    assert_eq!(of(&dead, "engine-device").status, Status::Skipped);
    assert_eq!(of(&engine("0.9.0"), "engine-answers").status, Status::Warn);
}

#[test]
fn a_missing_folder_is_an_error() {
    let error = checks(Path::new("no/such/pack"), &engine("1.0.0")).unwrap_err();
    assert_eq!(error.to_string(), "no/such/pack is no folder");
}

/// A converter really wrote `extra_special_tokens` as a list here.
#[test]
fn the_converted_verifier_of_the_reference_is_caught() {
    let Some(root) = std::env::var_os("KAKEYA_GATE_REFERENCE") else {
        eprintln!("skipped: KAKEYA_GATE_REFERENCE is unset");
        return;
    };
    let verifier = Path::new(&root).join("demo-pack-checks/verifier-mlx-4bit").canonicalize().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let manifest = json!({ "format": 1, "name": "mlx", "verifier": verifier });
    fs::write(folder.path().join("pack.json"), manifest.to_string()).unwrap();
    let rows = checks(folder.path(), &engine("1.0.0")).unwrap();
    let row = rows.iter().find(|row| row.id == "tokenizer-special-tokens").unwrap();
    assert_eq!(row.status, Status::Fail, "{row:?}");
    assert!(row.measured.contains("is a list"), "{row:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn hostile_files_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), at in 0_usize..6) {
        let folder = tempfile::tempdir().unwrap();
        let pack = folder.path().join("pack");
        copy(&demo_pack(), &pack);
        let file = ["verifier/config.json", "verifier/model.safetensors", "verifier/tokenizer.json", "drafter/config.json",
            "f_theta/f_theta_config.json", "f_theta/f_theta_weights.safetensors"][at];
        fs::write(pack.join(file), &bytes).unwrap();
        let rows = checks(&pack, &engine("1.0.0")).unwrap();
        prop_assert!(rows.iter().any(|row| row.status == Status::Fail));
    }
}
