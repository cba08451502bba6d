//! Bad input: a clear error with the path and what to do, exit code 2, nothing written.

use crate::program::{demo_pack, fail};
use std::fs;
use std::path::{Path, PathBuf};

/// Everything a user can get wrong about a pack: each copy of the demo pack has one fault.
fn broken_pack(folder: &Path, fault: impl Fn(&Path)) -> String {
    let pack = folder.join("pack");
    copy(&demo_pack(), &pack);
    fault(&pack);
    pack.to_str().unwrap().to_owned()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target)
        } else {
            fs::copy(entry.path(), target).map(drop).unwrap()
        }
    }
}

/// Runs one sample on the pack; it must fail with 2 and write nothing. Returns what it said, without machine paths.
fn refused(folder: &Path, pack: &str, more: &[&str]) -> String {
    let out = folder.join("out");
    let mut arguments =
        vec!["run", "--quiet", "--pack", pack, "--ladder", "20", "-n", "1", "--out", out.to_str().unwrap()];
    arguments.extend(more);
    let (code, said) = fail(&arguments);
    assert_eq!(code, 2, "{said}");
    assert!(!out.exists(), "something was written to {}", out.display());
    said.replace(folder.to_str().unwrap(), "FOLDER")
}

fn overwrite(path: PathBuf, bytes: &[u8]) {
    files::write_atomic(&path, bytes).unwrap();
}

#[test]
fn a_missing_pack_folder() {
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("nowhere");
    insta::assert_snapshot!(refused(folder.path(), pack.to_str().unwrap(), &[]));
}

#[test]
fn truncated_weights() {
    let folder = tempfile::tempdir().unwrap();
    let pack = broken_pack(folder.path(), |pack| {
        let file = pack.join("verifier/model.safetensors");
        let bytes = fs::read(&file).unwrap();
        overwrite(file, &bytes[..bytes.len() / 2]);
    });
    insta::assert_snapshot!(refused(folder.path(), &pack, &[]));
}

#[test]
fn weights_of_zero_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let pack = broken_pack(folder.path(), |pack| overwrite(pack.join("drafter/model.safetensors"), b""));
    insta::assert_snapshot!(refused(folder.path(), &pack, &[]));
}

#[test]
fn an_f_theta_for_another_verifier() {
    let folder = tempfile::tempdir().unwrap();
    let pack = broken_pack(folder.path(), |pack| {
        let file = pack.join("f_theta/f_theta_config.json");
        let config = fs::read_to_string(&file).unwrap();
        overwrite(file, config.replacen("64", "48", 1).as_bytes());
    });
    insta::assert_snapshot!(refused(folder.path(), &pack, &[]));
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_gpu_for_a_program_that_was_built_without() {
    let folder = tempfile::tempdir().unwrap();
    insta::assert_snapshot!(refused(folder.path(), demo_pack().to_str().unwrap(), &["--device", "cuda"]));
    let (code, said) = fail(&["selftest", "--golden", "nowhere", "--device", "cuda"]);
    assert!(code == 2 && said.contains("built without it") && said.contains("--device cpu"), "{said}");
}

#[cfg(not(any(feature = "mlx", target_os = "macos")))]
#[test]
fn mlx_for_a_program_that_was_built_without() {
    let folder = tempfile::tempdir().unwrap();
    let said = refused(folder.path(), demo_pack().to_str().unwrap(), &["--backend", "mlx"]);
    assert!(said.contains("MLX cannot be used") && said.contains("cargo xtask mlx"), "{said}");
    let (code, said) = fail(&["selftest", "--golden", "nowhere", "--backend", "mlx"]);
    assert!(code == 2 && said.contains("built without it") && said.contains("--backend candle"), "{said}");
}

#[test]
fn numbers_that_make_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let pack = demo_pack();
    let said = |more: &[&str]| {
        let out = folder.path().join("out");
        let mut arguments =
            vec!["run", "--quiet", "--pack", pack.to_str().unwrap(), "--out", out.to_str().unwrap()];
        arguments.extend(more);
        let (code, said) = fail(&arguments);
        assert_eq!(code, 2, "{said}");
        assert!(!out.exists());
        format!("{more:?}\n{}\n", said.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n"))
    };
    let all = [
        said(&["--sink", "-1"]),
        said(&["--window", "-64"]),
        said(&["-n", "0"]),
        said(&["--max-new-tokens", "0"]),
        said(&["--ladder", "20,20"]),
        said(&["--ladder", "4000000000"]),
        said(&["--arms", "oracle,guess"]),
        said(&["--restore", "mix:2"]),
        said(&["--sweep", "0,1"]),
        said(&["--arms", "random", "--restore", "identity"]),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn files_that_are_no_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        overwrite(path.clone(), bytes);
        path.to_str().unwrap().to_owned()
    };
    let cases = [
        file("empty.json", b""),
        file("text.json", b"not json"),
        file("list.json", b"[1, 2]"),
        file("cut.json", b"{\"kind\": \"k3_integrated_niah_accep"),
        folder.path().join("absent.json").to_str().unwrap().to_owned(),
    ];
    let out = folder.path().join("gate.html");
    let mut said = String::new();
    for case in &cases {
        for arguments in [
            vec!["audit", case],
            vec!["report", case, "-o", out.to_str().unwrap()],
            vec!["compare", case, case],
        ] {
            let (code, text) = fail(&arguments);
            assert_eq!(code, 2, "{arguments:?}: {text}");
            said += &text.replace(folder.path().to_str().unwrap(), "FOLDER");
        }
    }
    assert!(!out.exists());
    insta::assert_snapshot!(said);
}
