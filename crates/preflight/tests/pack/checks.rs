//! The demo pack passes; a copy with one fault fails in just the checks that look for it. The engine that looks is the
//! real one.

use crate::support::{POINTER, Sandbox, ask, demo_pack, edit, hello, line, row, rows, shard, told};
use preflight::{EngineAnswer, Status, Subject, checks};
use proptest::prelude::*;
use protocol::{Arm, ErrorCode, ErrorReport, Restore};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Instant;

#[test]
fn the_demo_pack_passes_every_check() {
    let sandbox = Sandbox::new();
    let subject = Subject { pack: demo_pack(), ..sandbox.planned(|_| ()) };
    let rows = rows(&subject);
    assert_eq!(rows.len(), 35);
    insta::with_settings!({ filters => [
        (r"[\d.]+ GiB free", "N GiB free"),
        (r"at most [\d.]+e-\d", "at most N"),
        (r"(pass|skipped|warn) host-(power|thermal): .*", "host-$2"),
        (r"spec-output: .*", "spec-output: OUT"),
    ] }, {
        insta::assert_snapshot!(rows.iter().map(line).collect::<Vec<_>>().join("\n"));
    });
}

/// One fault each: what it is, and how it is made.
type Fault = (&'static str, fn(&Path));

const FAULTS: &[Fault] = &[
    ("verifier is a pointer", |pack| write(pack, "verifier/model.safetensors", POINTER)),
    ("drafter is a pointer", |pack| write(pack, "drafter/model.safetensors", POINTER)),
    ("f_θ is a pointer", |pack| write(pack, "f_theta/f_theta_weights.safetensors", POINTER)),
    ("f_θ is a pointer in the place of an archive", |pack| {
        remove(pack, "f_theta/f_theta_weights.safetensors");
        write(pack, "f_theta/f_theta_weights.pt", POINTER);
    }),
    ("a pointer in a checkout", |pack| {
        fs::create_dir(pack.join(".git")).unwrap();
        write(pack, "drafter/model.safetensors", POINTER);
    }),
    ("no fault, in two shards", shard),
    ("a missing shard", |pack| {
        shard(pack);
        remove(pack, "verifier/model-00002-of-00002.safetensors");
    }),
    ("an index that lists another tensor", |pack| {
        shard(pack);
        edit(&pack.join("verifier/model.safetensors.index.json"), |index| {
            index["weight_map"]["model.extra"] = json!("model-00001-of-00002.safetensors");
        });
    }),
    ("an index that leads out of the folder", |pack| {
        shard(pack);
        edit(&pack.join("verifier/model.safetensors.index.json"), |index| {
            index["weight_map"]["model.norm.weight"] = json!("../../neighbour");
        });
    }),
    ("empty weights", |pack| write(pack, "verifier/model.safetensors", "")),
    ("truncated header", |pack| cut(pack, "verifier/model.safetensors", 100)),
    ("truncated data", |pack| cut(pack, "drafter/model.safetensors", 659_000)),
    ("huge header length", |pack| {
        let mut bytes = fs::read(pack.join("verifier/model.safetensors")).unwrap();
        bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        fs::write(pack.join("verifier/model.safetensors"), bytes).unwrap();
    }),
    ("another model", |pack| config(pack, "model_type", json!("llama"))),
    ("a key that is missing", |pack| config(pack, "sliding_window", Value::Null)),
    ("tensors of another width", |pack| config(pack, "intermediate_size", json!(64))),
    ("wrong dimensions in one layer", |pack| {
        edit(&pack.join("f_theta/f_theta_config.json"), |c| c["verifier_layer_head_dims"][2] = json!(48));
    }),
    ("another head dimension in one layer, tensors to match", |pack| {
        edit(&pack.join("f_theta/f_theta_config.json"), |c| {
            // 2 × 32 = 1 × 64: f_θ's own tensors still fit.
            c["verifier_layer_head_dims"][2] = json!(32);
            c["verifier_layer_kv_heads"][2] = json!(2);
        });
    }),
    ("a list of special tokens", |pack| tokens(pack, json!(["<a>", "<b>"]))),
    ("a list of objects", |pack| tokens(pack, json!([{ "content": "<a>", "lstrip": false }]))),
    ("a list of something else", |pack| tokens(pack, json!(["<a>", 7]))),
    ("a string of special tokens", |pack| tokens(pack, json!("<a>"))),
    ("no fault, an object of special tokens", |pack| tokens(pack, json!({ "a": "<a>" }))),
    ("no tokenizer configuration", |pack| remove(pack, "verifier/tokenizer_config.json")),
    ("an invalid tokenizer configuration", |pack| write(pack, "verifier/tokenizer_config.json", "{\"a\": ")),
    ("an invalid tokenizer", |pack| write(pack, "verifier/tokenizer.json", "{}")),
    ("another begin of text", |pack| config(pack, "bos_token_id", json!(5))),
    ("an id beyond the vocabulary", |pack| config(pack, "eos_token_id", json!([1, 404]))),
    ("a template that loses the prompt", |pack| {
        edit(&pack.join("verifier/tokenizer_config.json"), |c| c["chat_template"] = json!("{{ bos_token }}"));
    }),
    ("missing f_θ weights", |pack| remove(pack, "f_theta/f_theta_weights.safetensors")),
    ("missing f_θ folder", |pack| fs::remove_dir_all(pack.join("f_theta")).unwrap()),
    ("a foreign drafter", |pack| {
        edit(&pack.join("drafter/config.json"), |c| {
            c["num_key_value_heads"] = json!(1);
            c["head_dim"] = json!(64);
            c["num_attention_heads"] = json!(2);
        });
    }),
    ("a drafter that f_θ was not trained on", |pack| {
        let report = json!({ "kind": "k3_f_theta_train", "config": { "drafter_id": "models/dflash-kakeya-baseline" } });
        write(pack, "f_theta.json", &report.to_string());
    }),
    ("no fault, the drafter that f_θ was trained on", |pack| {
        let report = json!({ "kind": "k3_f_theta_train", "config": { "drafter_id": "models/drafter" } });
        write(pack, "f_theta/training.json", &report.to_string());
    }),
    ("another embedding scale than the drafter's configuration records", |pack| {
        edit(&pack.join("pack.json"), |manifest| manifest["drafter_embedding_scale"] = json!("one"));
    }),
    ("another embedding scale than the reference trains with", |pack| {
        edit(&pack.join("pack.json"), |manifest| manifest["drafter_embedding_scale"] = json!("one"));
        let report = json!({ "kind": "k3_f_theta_train", "config": { "drafter_id": "models/drafter" } });
        write(pack, "f_theta/training.json", &report.to_string());
    }),
    ("a manifest of the future", |pack| edit(&pack.join("pack.json"), |m| m["format"] = json!(9))),
    ("a manifest without conventions", |pack| {
        edit(&pack.join("pack.json"), |m| drop(m.as_object_mut().unwrap().remove("value_rule")));
    }),
    ("no manifest", |pack| remove(pack, "pack.json")),
];

fn write(pack: &Path, file: &str, text: &str) {
    fs::write(pack.join(file), text).unwrap();
}

fn remove(pack: &Path, file: &str) {
    fs::remove_file(pack.join(file)).unwrap();
}

fn cut(pack: &Path, file: &str, len: usize) {
    let bytes = fs::read(pack.join(file)).unwrap();
    fs::write(pack.join(file), &bytes[..len]).unwrap();
}

fn config(pack: &Path, key: &str, value: Value) {
    edit(&pack.join("verifier/config.json"), |config| config[key] = value);
}

fn tokens(pack: &Path, value: Value) {
    edit(&pack.join("verifier/tokenizer_config.json"), |config| config["extra_special_tokens"] = value);
}

#[test]
fn each_fault_has_its_rows() {
    let mut all = String::new();
    for (name, fault) in FAULTS {
        let sandbox = Sandbox::new();
        fault(&sandbox.pack());
        let before = sandbox.content();
        all += &format!("# {name}\n{}\n\n", told(&sandbox.subject()));
        assert!(sandbox.content() == before, "{name}: checking writes nothing");
    }
    // Whether `git lfs` is installed decides only whether the program offers to run it.
    insta::assert_snapshot!(all.replace("/**' [fix]", "/**'").replace("/*' [fix]", "/*'"));
}

#[cfg(unix)]
const UNIX_FAULTS: &[Fault] = &[
    ("a link to itself in the place of weights", |pack| {
        remove(pack, "verifier/model.safetensors");
        link("model.safetensors", &pack.join("verifier/model.safetensors"));
    }),
    ("a link to itself in the place of the verifier", |pack| {
        fs::remove_dir_all(pack.join("verifier")).unwrap();
        link("verifier", &pack.join("verifier"));
    }),
    ("pipes in the place of files", |pack| {
        for file in ["verifier/model.safetensors", "verifier/tokenizer_config.json", "drafter/config.json"] {
            pipe(&pack.join(file));
        }
    }),
    ("a pipe in the place of the manifest", |pack| pipe(&pack.join("pack.json"))),
    ("no fault, a link back to the pack inside it", |pack| link("..", &pack.join("verifier/pack"))),
    ("no fault, a file whose name is no UTF-8 beside the weights", |pack| {
        fs::write(pack.join("verifier").join(no_utf8("model-", ".safetensors")), "").unwrap();
    }),
    ("no fault, a read-only pack", |pack| {
        for folder in ["verifier", "drafter", "f_theta", "."] {
            let folder = pack.join(folder);
            let mut mode = folder.metadata().unwrap().permissions();
            std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o555);
            fs::set_permissions(folder, mode).unwrap();
        }
    }),
];

/// A pipe that nobody writes to: whoever opens it waits forever.
#[cfg(unix)]
fn pipe(at: &Path) {
    let _ = fs::remove_file(at);
    assert!(std::process::Command::new("mkfifo").arg(at).status().unwrap().success());
}

#[cfg(unix)]
fn link(target: &str, at: &Path) {
    std::os::unix::fs::symlink(target, at).unwrap();
}

#[cfg(unix)]
fn no_utf8(before: &str, after: &str) -> std::ffi::OsString {
    std::os::unix::ffi::OsStringExt::from_vec([before.as_bytes(), b"\xff", after.as_bytes()].concat())
}

#[cfg(unix)]
#[test]
fn each_fault_of_a_file_system_has_its_rows() {
    let mut all = String::new();
    for (name, fault) in UNIX_FAULTS {
        let sandbox = Sandbox::new();
        fault(&sandbox.pack());
        all += &format!("# {name}\n{}\n\n", told(&sandbox.subject()));
    }
    insta::assert_snapshot!(all);
}

#[cfg(unix)]
#[test]
fn a_pack_whose_name_is_no_utf8_is_told_so() {
    let sandbox = Sandbox::new();
    let pack = sandbox.root().join(no_utf8("pack-", ""));
    fs::rename(sandbox.pack(), &pack).unwrap();
    let subject = Subject { pack, ..sandbox.subject() };
    let rows = rows(&subject);
    let manifest = rows.iter().find(|row| row.id == "pack-manifest").unwrap();
    assert_eq!(manifest.status, Status::Fail);
    assert!(manifest.measured.en().ends_with("is no UTF-8"), "{manifest:?}");
}

/// Arms, settings and folders of a run that decide nothing, or not what they should.
#[test]
fn each_fault_of_a_run_has_its_rows() {
    let sandbox = Sandbox::new();
    let only = |subject: &Subject| {
        let rows = told(subject);
        let of_run =
            rows.lines().filter(|line| line.contains(" spec-") && !line.contains("spec-counterpart"));
        of_run.collect::<Vec<_>>().join("\n").replace(sandbox.root().to_str().unwrap(), "ROOT")
    };
    let mut all = Vec::new();
    let mut add = |name: &str, subject: &Subject| all.push(format!("# {name}\n{}", only(subject)));
    add("no fault", &sandbox.planned(|_| ()));
    add("20 samples", &sandbox.planned(|spec| spec.n_samples = 20));
    add("a budget of 4", &sandbox.planned(|spec| spec.max_new_tokens = 4));
    add("a budget of 10", &sandbox.planned(|spec| spec.max_new_tokens = 10));
    add("no oracle", &sandbox.planned(|spec| spec.arms = vec![Arm::Restored(Restore::S5)]));
    add("nothing restored", &sandbox.planned(|spec| spec.arms = vec![Arm::Oracle]));
    add("nothing evicted", &sandbox.planned(|spec| spec.window = 4096));
    add("no samples", &sandbox.planned(|spec| spec.n_samples = 0));
    let mut run = sandbox.planned(|_| ());
    run.run.as_mut().unwrap().out = sandbox.root().join("neighbour/evidence");
    add("a file in the place of the folder", &run);
    let mut mode = fs::metadata(sandbox.root().join("pack/drafter")).unwrap().permissions();
    mode.set_readonly(true);
    fs::create_dir(sandbox.root().join("locked")).unwrap();
    fs::set_permissions(sandbox.root().join("locked"), mode).unwrap();
    run.run.as_mut().unwrap().out = sandbox.root().join("locked/evidence");
    add("a read-only folder", &run);
    edit(&sandbox.pack().join("pack.json"), |manifest| {
        for key in ["drafter", "f_theta", "drafter_embedding_scale", "value_rule"] {
            manifest.as_object_mut().unwrap().remove(key);
        }
    });
    add("S5 without f_θ", &sandbox.planned(|_| ()));
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn a_run_is_held_against_its_counterpart() {
    let sandbox = Sandbox::new();
    let file = sandbox.root().join("counterpart.json");
    let arm = json!({ "samples_total": 1, "samples_correct": 1, "recall": 1.0, "per_sample_decoded": ["x"],
        "per_sample_correct": [true] });
    let (low, high) = niah::Rung(20).line_bounds();
    let evidence = |seed: i64, variant: &str| {
        json!({ "kind": "k3_integrated_niah_acceptance", "schema_version": 2,
            "config": { "n_samples": 59, "seed": seed, "haystack_min_lines": low, "haystack_max_lines": high,
                "sink_size": 4, "window_size": 64, "max_new_tokens": 24, "prompt_variant": variant },
            "results": { "k3_cross_model": arm, "oracle": arm }, "gate": {} })
    };
    let mut subject = sandbox.planned(|_| ());
    let mut told = |text: String| {
        fs::write(&file, text).unwrap();
        subject.run.as_mut().unwrap().counterpart = Some(file.clone());
        line(&row(&subject, "spec-counterpart"))
    };
    assert_eq!(told(evidence(42, "legacy").to_string()), "pass spec-counterpart: as in counterpart.json");
    let other = told(evidence(7, "direct-answer").to_string());
    assert!(
        other.starts_with("warn spec-counterpart: counterpart.json has seed 7, prompt direct-answer →"),
        "{other}"
    );
    assert!(told("[]".into()).starts_with("fail spec-counterpart: "));
    assert!(told(json!({ "kind": "other" }).to_string()).contains("is no needle evidence"));
}

#[test]
fn a_changed_byte_is_found_once_it_is_hashed_again() {
    let sandbox = Sandbox::new();
    let subject = sandbox.subject();
    let stated = serde_json::from_slice::<Value>(&fs::read(demo_pack().join("pack.json")).unwrap()).unwrap();
    edit(&subject.pack.join("pack.json"), |manifest| manifest["sha256"] = stated["sha256"].clone());
    let status = || line(&row(&subject, "pack-digests"));
    assert_eq!(status(), "pass pack-digests: 9 files, 2.95 MB, all as stated");
    let config = subject.pack.join("verifier/generation_config.json");
    edit(&config, |config| config["do_sample"] = json!(true));
    let changed = status();
    assert!(changed.starts_with("fail pack-digests: verifier/generation_config.json has "), "{changed}");
}

/// A file that was written a moment ago is hashed each time; the demo pack's own was not.
#[test]
fn a_digest_is_computed_once() {
    let sandbox = Sandbox::new();
    let subject = sandbox.subject();
    let (own, name) = (demo_pack(), "verifier/generation_config.json");
    let file = subject.pack.join(name);
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(own.join(name), &file).unwrap();
    let digest = files::sha256_file(&file).unwrap();
    edit(&subject.pack.join("pack.json"), |manifest| manifest["sha256"] = json!({ name: digest }));
    let pack = protocol::Pack::open(&subject.pack).unwrap();
    let mut told = Vec::new();
    preflight::hash(&pack, &subject.digest_cache, &mut |progress| {
        told.push(progress);
        true
    })
    .unwrap();
    assert_eq!(told.last().map(|progress| (progress.done, progress.total)), Some((104, 104)));
    let mut hashed = 0;
    preflight::hash(&pack, &subject.digest_cache, &mut |_| {
        hashed += 1;
        true
    })
    .unwrap();
    assert_eq!(hashed, 0, "nothing is hashed twice");
    fs::remove_file(&file).unwrap();
    fs::write(&file, [b' '; 104]).unwrap();
    assert_eq!(row(&subject, "pack-digests").status, Status::Fail, "another file of the same size");
}

#[test]
fn an_engine_that_does_not_answer_or_is_another_release() {
    let subject = Subject { pack: demo_pack(), ..Sandbox::new().subject() };
    let silent = ErrorReport::new(ErrorCode::EngineLost, "it died", "start it");
    let dead = || EngineAnswer {
        host_version: "1.0.0".into(),
        hello: Err(silent.clone()),
        inspection: Err(silent.clone()),
    };
    let rows = checks(&subject, &dead).unwrap();
    let of = |id: &str| line(rows.iter().find(|row| row.id == id).unwrap());
    assert_eq!(of("engine-answers"), "fail engine-answers: it died → start it");
    assert_eq!(of("engine-device"), "skipped engine-device: the engine did not answer");
    assert_eq!(of("verifier-config"), "skipped verifier-config: the engine did not answer");
    assert!(of("verifier-weights").starts_with("pass "), "files are looked at without an engine");
    let other = || EngineAnswer { host_version: "0.9.0".into(), ..ask(&subject) };
    let answers = preflight::check(&subject, "engine-answers", &other).unwrap();
    assert_eq!(answers.status, Status::Warn);
    let newer = || {
        let hello = protocol::Hello { protocol: protocol::VERSION + 1, ..hello() };
        EngineAnswer { hello: Ok(hello), ..ask(&subject) }
    };
    assert_eq!(preflight::check(&subject, "engine-answers", &newer).unwrap().status, Status::Fail);
}

#[test]
fn one_check_alone_asks_the_engine_only_if_it_needs_it() {
    let subject = Subject { pack: demo_pack(), ..Sandbox::new().subject() };
    let never = || -> EngineAnswer { panic!("not needed") };
    for id in ["host-disk", "pack-manifest", "verifier-weights", "tokenizer-special-tokens", "f-theta-origin"]
    {
        assert_eq!(preflight::check(&subject, id, &never).unwrap().status, Status::Pass, "{id}");
    }
    let error = preflight::check(&subject, "no-such", &never).unwrap_err();
    assert_eq!(error.to_string(), "there is no check \"no-such\"");
}

/// A device that never ends is no file to hash.
#[cfg(unix)]
#[test]
fn devices_are_not_hashed() {
    let sandbox = Sandbox::new();
    edit(&sandbox.pack().join("pack.json"), |manifest| manifest["sha256"] = json!({ "/dev/zero": "0" }));
    let told = line(&row(&sandbox.subject(), "pack-digests"));
    assert_eq!(
        told,
        "fail pack-digests: cannot read /dev/zero: it is no ordinary file → copy the pack again"
    );
}

#[test]
fn a_device_that_is_not_there_is_told() {
    let sandbox = Sandbox::new();
    let subject = sandbox.planned(|spec| spec.device = protocol::Device::Cuda);
    let rows = rows(&subject);
    let of = |id: &str| rows.iter().find(|row| row.id == id).unwrap();
    if of("engine-device").status == Status::Pass {
        eprintln!("skipped: there is a GPU");
        return;
    }
    assert_eq!(of("engine-device").status, Status::Fail, "{:?}", of("engine-device"));
    assert_eq!(line(of("engine-self-test")), "skipped engine-self-test: the device cannot be used");
}

#[test]
fn a_missing_folder_is_an_error() {
    let subject = Subject { pack: "no/such/pack".into(), ..Sandbox::new().subject() };
    assert_eq!(checks(&subject, &|| ask(&subject)).unwrap_err().to_string(), "no/such/pack is no folder");
}

/// A verifier in many shards, 16 GB that are not there: only headers are read.
#[test]
fn sixteen_gigabytes_take_less_than_two_seconds() {
    let sandbox = Sandbox::new();
    let folder = sandbox.pack().join("verifier");
    fs::remove_file(folder.join("model.safetensors")).unwrap();
    let mut map = serde_json::Map::new();
    for shard in 0..8_u64 {
        let name = format!("model-0000{shard}-of-00008.safetensors");
        let tensors: Vec<String> = (0..100).map(|i| format!("model.layers.{shard}.{i}")).collect();
        let each: u64 = 20_000_000;
        let header: serde_json::Map<String, Value> = (0..).zip(&tensors).map(|(i, tensor): (u64, _)| {
            let facts = json!({ "dtype": "BF16", "shape": [each / 2], "data_offsets": [i * each, (i + 1) * each] });
            (tensor.clone(), facts)
        }).collect();
        let header = serde_json::to_vec(&header).unwrap();
        let file = fs::File::create(folder.join(&name)).unwrap();
        std::io::Write::write_all(&mut &file, &[&(header.len() as u64).to_le_bytes()[..], &header].concat())
            .unwrap();
        file.set_len(8 + header.len() as u64 + 100 * each).unwrap();
        map.extend(tensors.into_iter().map(|tensor| (tensor, json!(name))));
    }
    fs::write(folder.join("model.safetensors.index.json"), json!({ "weight_map": map }).to_string()).unwrap();
    let (subject, began) = (sandbox.planned(|_| ()), Instant::now());
    let rows = rows(&subject);
    let seconds = began.elapsed().as_secs_f64();
    let weights = rows.iter().find(|row| row.id == "verifier-weights").unwrap();
    assert_eq!(
        line(weights),
        "pass verifier-weights: 8 files, 16.00 GB, 800 tensors, as the index lists them"
    );
    assert!(seconds < 2.0, "{seconds:.2} s");
}

/// Checkpoints in the other forms that the engine runs: Gemma 3, and quantised by MLX as its converter wrote it, with
/// `extra_special_tokens` as a list.
#[test]
fn every_form_that_the_engine_runs_is_understood() {
    let Some(root) = std::env::var_os("KAKEYA_GATE_REFERENCE") else {
        eprintln!("skipped: KAKEYA_GATE_REFERENCE is unset");
        return;
    };
    let mut told = Vec::new();
    for verifier in [
        "golden/checkpoints/gemma3-tiny",
        "golden/checkpoints/gemma4-dense-kvshared-tiny",
        "demo-pack-checks/verifier-mlx-4bit",
    ] {
        let sandbox = Sandbox::new();
        let folder = Path::new(&root).join(verifier).canonicalize().unwrap();
        fs::remove_dir_all(sandbox.pack()).unwrap();
        fs::create_dir(sandbox.pack()).unwrap();
        let manifest = json!({ "format": 1, "name": "other", "verifier": folder });
        fs::write(sandbox.pack().join("pack.json"), manifest.to_string()).unwrap();
        let rows = rows(&sandbox.subject());
        let of =
            rows.iter().filter(|row| row.id.starts_with("verifier-") || row.id.starts_with("tokenizer-"));
        told.push(of.map(line).collect::<Vec<_>>().join("\n"));
    }
    insta::assert_snapshot!(told.join("\n\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever stands in a file, no check panics, and something fails.
    #[test]
    fn hostile_files_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), at in 0_usize..7) {
        let sandbox = Sandbox::new();
        let file = ["verifier/config.json", "verifier/model.safetensors", "verifier/tokenizer.json", "drafter/config.json",
            "verifier/tokenizer_config.json", "f_theta/f_theta_config.json", "f_theta/f_theta_weights.safetensors"][at];
        fs::write(sandbox.pack().join(file), &bytes).unwrap();
        let rows = rows(&sandbox.subject());
        prop_assert!(rows.iter().any(|row| row.status == Status::Fail), "{file}");
    }

    /// Headers that are JSON and lie: names, types, shapes and places of all kinds.
    #[test]
    fn hostile_headers_never_panic(
        dtype in prop_oneof![Just("F32"), Just("BF16"), Just("U32"), Just("F99"), Just("")],
        shape in proptest::collection::vec(prop_oneof![0_u64..200, Just(u64::MAX), Just(1 << 40)], 0..4),
        from in prop_oneof![0_u64..300, Just(u64::MAX)],
        to in prop_oneof![0_u64..300, Just(u64::MAX)],
        length in prop_oneof![Just(None), any::<u64>().prop_map(Some)],
        data in 0_usize..300,
        part in 0_usize..3,
    ) {
        let sandbox = Sandbox::new();
        let header = json!({ "model.embed_tokens.weight": { "dtype": dtype, "shape": shape, "data_offsets": [from, to] } });
        let header = header.to_string().into_bytes();
        let length = length.unwrap_or(header.len() as u64).to_le_bytes();
        let file = ["verifier/model.safetensors", "drafter/model.safetensors", "f_theta/f_theta_weights.safetensors"][part];
        fs::write(sandbox.pack().join(file), [&length[..], &header, &vec![0; data]].concat()).unwrap();
        let rows = rows(&sandbox.subject());
        prop_assert!(rows.iter().any(|row| row.status == Status::Fail), "{file}");
    }
}
