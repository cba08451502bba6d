//! `selftest` from outside: its exit codes, and its lines on standard output.

use crate::program::{command, fail, run, text};
use std::path::PathBuf;

#[test]
fn reference_outputs_are_reproduced() {
    let Some(reference) = std::env::var_os("KAKEYA_GATE_REFERENCE") else {
        eprintln!("skipped: KAKEYA_GATE_REFERENCE is unset");
        return;
    };
    let golden = PathBuf::from(reference).join("golden");
    let golden = golden.to_str().unwrap();
    let output = run(&["selftest", "--golden", golden, "--only", "torch_gemma3,q4_f32 t21"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(err.contains(" 0 failed"), "{err}");
    for run in ["torch_gemma3_f32 t40_s4w16", "mlx_moe_q4_f32 t21_s4w16"] {
        assert!(out.lines().any(|line| line.starts_with("ok") && line.contains(run)), "{out}");
    }
    assert!(!out.contains("torch_moe_f32"), "{out}");
}

#[test]
fn without_reference_outputs_it_cannot_be_done() {
    let (code, said) = fail(&["selftest", "--golden", "/nowhere"]);
    assert!(code == 2 && said.contains("/nowhere") && said.contains("hint:"), "{code} {said}");
    let output = command(&["selftest"]).env_remove("KAKEYA_GATE_REFERENCE").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--golden DIR"));
}
