//! MLX beside candle: set up, built, tested.

use crate::error::Error;
use crate::place;
use crate::process::{command, installed, run, run_tests};
use crate::tally::Tally;
use crate::tool::Tool;
use std::path::PathBuf;
use std::process::Command;

/// What translates the headers of mlx-c; the release that mlx-sys builds with.
const BINDGEN: Tool = Tool {
    program: "bindgen",
    package: "bindgen-cli",
    version: "0.72.1",
    settings: &["--no-default-features", "--features", "runtime"],
};

/// What is built with MLX where it is not built anyhow.
const PACKAGES: [&str; 6] = ["--package", "engine", "--package", "cli", "--features", "engine/mlx,cli/mlx"];

/// Whether MLX's wheel fits this machine.
const HAS_WHEEL: bool = cfg!(any(
    all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"),
    all(target_os = "macos", target_arch = "aarch64")
));

/// Tells cargo to take MLX from its wheel. On a Mac whose wheel cannot be had, mlx-sys builds MLX from source.
pub(crate) fn set_up() -> Result<(), Error> {
    let outcome = prebuilt();
    match outcome {
        Err(error) if cfg!(target_os = "macos") => {
            println!("MLX's wheel is not used: {error}");
            println!(
                "MLX is built from source instead; that needs Xcode with its Metal toolchain, and cmake"
            );
            Ok(())
        }
        outcome => outcome,
    }
}

fn prebuilt() -> Result<(), Error> {
    if !HAS_WHEEL {
        return Err(Error::Machine {
            missing: "MLX is prepared for Macs with Apple silicon and for Linux on x86-64".into(),
            hint: "use candle, which is in every program".into(),
        });
    }
    let root = place::root();
    let mut script = command("python3", &["-B"]);
    script.arg(root.join("scripts/mlx/prebuilt.py")).arg(place::cache().join("mlx"));
    run(script.arg(BINDGEN.path()?).arg(root.join(".cargo/mlx.toml")))
}

/// Builds `kakeya-gate` with MLX.
pub(crate) fn build() -> Result<(), Error> {
    set_up()?;
    // With the examples, so that cargo chooses the features that the tests are built with, and nothing is built twice.
    run(&mut with_mlx("build", &["--bins", "--examples"]))?;
    println!("{}", program().display());
    Ok(())
}

/// The program that [`build`] makes.
pub(crate) fn program() -> PathBuf {
    place::cache().join("mlx-build/debug/kakeya-gate")
}

/// An example of the engine that runs on MLX.
pub(crate) fn example(name: &str) -> Command {
    command(place::cache().join("mlx-build/debug/examples").join(name), &[])
}

/// Lints what only a build with MLX compiles, its tests included.
pub(crate) fn lint() -> Result<(), Error> {
    if !HAS_WHEEL || cfg!(target_os = "macos") {
        println!("not linted with MLX: on a Mac every lint is, and elsewhere MLX is for x86-64");
        return Ok(());
    }
    set_up()?;
    run(&mut with_mlx("clippy", &["--all-targets", "--", "--deny", "warnings"]))
}

/// The tests on MLX. Its arrays belong to one thread, but nextest gives every test a process of its own. What candle does
/// without MLX the other tests have shown.
pub(crate) fn tests(tally: &mut Tally) -> Result<(), Error> {
    if !HAS_WHEEL || cfg!(target_os = "macos") {
        println!("MLX not tested here: on a Mac the other tests do, elsewhere it is for x86-64");
        return Ok(());
    }
    set_up()?;
    let mut cargo = if installed("cargo-nextest") {
        with_mlx(
            "nextest",
            &["--no-fail-fast", "--filterset", "binary(parity) + test(/mlx/) - test(/on_candle/)"],
        )
    } else {
        with_mlx("test", &["--all-targets", "--no-fail-fast", "--", "--test-threads", "1"])
    };
    run_tests(&mut cargo, tally)
}

/// A command of cargo on what is built with MLX. Its output has a folder of its own: with other features the numeric
/// crates of the main one would be built anew, back and forth.
fn with_mlx(subcommand: &str, arguments: &[&str]) -> Command {
    let subcommand: &[&str] = if subcommand == "nextest" { &["nextest", "run"] } else { &[subcommand] };
    let mut cargo = command("cargo", subcommand);
    cargo.args(PACKAGES).args(arguments).env("CARGO_TARGET_DIR", place::cache().join("mlx-build"));
    cargo
}
