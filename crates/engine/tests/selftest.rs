//! The self-test on the reference outputs, and that it does find a fault.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod support;

use engine::candle::Candle;
use engine::selftest::{Check, Tally, run};
use std::path::Path;
use support::{Library, reference};

fn told<B: Library>(library: &B, folder: &Path, only: &[&str]) -> (Result<Tally, engine::Error>, Vec<Check>) {
    let only: Vec<String> = only.iter().map(|part| (*part).to_owned()).collect();
    let mut checks = Vec::new();
    let tally = run(library, folder, &only, &mut |check| {
        println!("{check}");
        checks.push(check.clone());
    });
    (tally, checks)
}

fn every_reference_output_is_reproduced<B: Library>() {
    let Some(root) = reference() else { return };
    let (tally, checks) = told(&B::open(), &root.join("golden"), &[]);
    let tally = tally.unwrap();
    let failed: Vec<String> =
        checks.iter().filter(|c| c.outcome.holds() == Some(false)).map(ToString::to_string).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    println!("{tally:?}");
    for run in ["torch_moe_f32", "mlx_moe_f32", "mlx_moe_q4_f32", "torch_gemma3_f32", "torch_kvshared_f32"] {
        let held = checks.iter().filter(|c| c.case.starts_with(run) && c.outcome.holds() == Some(true));
        assert!(held.count() >= 8, "{run}");
    }
}

/// The whole models by the operations that CUDA computes with: on the CPU, and on a GPU where this build and machine have one.
#[test]
fn the_operations_of_cuda_reproduce_them_too() {
    let Some(root) = reference() else { return };
    for candle in std::iter::once(Candle::portable()).chain(Candle::open(protocol::Device::Cuda)) {
        let only = ["torch_moe_f32", "mlx_moe_q4_f32", "torch_gemma3_f32", "torch_kvshared_f32"];
        let (tally, checks) = told(&candle, &root.join("golden"), &only);
        let failed: Vec<String> =
            checks.iter().filter(|c| c.outcome.holds() == Some(false)).map(ToString::to_string).collect();
        assert!(failed.is_empty(), "{failed:#?}");
        assert!(tally.unwrap().good >= 32, "{checks:#?}");
    }
}

on_every_library!(every_reference_output_is_reproduced);
