//! The program with CUDA, checked and built on a machine that has none of it.

use crate::error::Error;
use crate::place;
use crate::process::{ask, command, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// CUDA 13.0, as cudarc's build script takes it.
const VERSION: &str = "13000";
/// Kernels for H100 and H200, unless CUDA_COMPUTE_CAP says otherwise.
const COMPUTE_CAPABILITY: &str = "90";

/// Lints what only a build with CUDA compiles. The compiler of its kernels is a stand-in, and the output has a folder of
/// its own, since other features would build the numeric crates of the main one anew.
pub(crate) fn check() -> Result<(), Error> {
    if !cfg!(target_os = "linux") {
        println!("CUDA not checked: this is no Linux");
        return Ok(());
    }
    let lint = ["clippy", "--package", "engine", "--features", "cuda", "--", "--deny", "warnings"];
    let mut cargo = command("cargo", &lint);
    run(for_cuda(&mut cargo, &scripts().join("stand-in/nvcc"), "cuda-check").env_remove("CUDA_HOME"))
}

/// Builds `kakeya-gate` with CUDA and starts it here.
pub(crate) fn build() -> Result<(), Error> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(Error::Machine {
            missing: "the program with CUDA is built on x86-64 Linux".into(),
            hint: "run this there; it needs no GPU".into(),
        });
    }
    let toolkit = place::cache().join("cuda-13.0");
    run(command("python3", &["-B"]).arg(scripts().join("toolkit.py")).arg(&toolkit))?;
    let mut cargo = command("cargo", &["build", "--release", "--package", "cli", "--features", "cuda"]);
    run(for_cuda(&mut cargo, &toolkit.join("bin/nvcc"), "cuda-build").env("CUDA_HOME", &toolkit))?;
    let program = place::cache().join("cuda-build/release/kakeya-gate");
    try_out(&program)?;
    println!("{}", program.display());
    Ok(())
}

fn scripts() -> PathBuf {
    place::root().join("scripts/cuda")
}

/// Settings that the build scripts of cudarc and candle's kernels read, so that they look for nothing on this machine.
fn for_cuda<'a>(cargo: &'a mut Command, nvcc: &Path, output: &str) -> &'a mut Command {
    let capability = std::env::var("CUDA_COMPUTE_CAP").unwrap_or_else(|_| COMPUTE_CAPABILITY.into());
    for other in ["CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"] {
        cargo.env_remove(other);
    }
    cargo
        .env("CARGO_TARGET_DIR", place::cache().join(output))
        .env("CUDA_COMPUTE_CAP", capability)
        .env("CUDARC_CUDA_VERSION", VERSION)
        .env("NVCC", nvcc)
}

/// One sample of the demo pack on the GPU. Without one the program must start all the same, and say what it lacks.
fn try_out(program: &Path) -> Result<(), Error> {
    let out =
        tempfile::tempdir().map_err(|source| Error::File { path: "the temporary folder".into(), source })?;
    let settings = ["run", "--device", "cuda", "--ladder", "20", "--samples", "1", "--quiet"];
    let mut run = command(program, &settings);
    run.arg("--pack").arg(place::root().join("assets/demo-pack")).arg("--out").arg(out.path());
    match ask(&mut run)? {
        Ok(_) => println!("it ran the demo pack on this machine's GPU"),
        Err(said) if said.contains("CUDA cannot be used") => {
            println!("it starts here, without a GPU:\n{said}")
        }
        Err(said) => return Err(Error::TryOut { program: program.display().to_string(), said }),
    }
    Ok(())
}
