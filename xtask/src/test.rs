//! Everything that must hold before a change is merged.

use crate::cuda;
use crate::error::Error;
use crate::mac;
use crate::mlx;
use crate::place;
use crate::process::{ask, command, installed, run, run_tests};
use crate::setup;
use crate::tally::Tally;
use crate::tool::Tool;
use std::time::Instant;

const CARGO_DENY: Tool =
    Tool { program: "cargo-deny", package: "cargo-deny", version: "0.20.2", settings: &[] };

type Work = fn(&mut Tally) -> Result<(), Error>;

/// The steps, in order: what later ones need comes first, what fails soonest comes early.
const STEPS: [(&str, Work); 17] = [
    ("format", |_| cargo(&["fmt", "--all", "--check"])),
    ("window: lint", |_| npm("lint")),
    ("window: types", |_| npm("check")),
    ("window: tests", |tally| run_tests(&mut command("npm", &["--prefix", "ui", "run", "test"]), tally)),
    ("window: build", |_| npm("build")),
    ("lint", |_| cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])),
    ("lint with CUDA", |_| cuda::check()),
    ("lint for macOS, with MLX", |_| mac::check()),
    ("lint with MLX", |_| mlx::lint()),
    ("documentation", |_| documentation()),
    ("dependencies", |_| dependencies()),
    ("known vulnerabilities", |_| advisories()),
    // Programs and tests in one go: built apart, they would differ in features and compile the numeric crates twice.
    ("programs and tests", |_| cargo(&["build", "--workspace", "--all-targets"])),
    ("documentation's examples", |tally| {
        run_tests(&mut command("cargo", &["test", "--workspace", "--doc", "--no-fail-fast"]), tally)
    }),
    ("tests", tests),
    ("tests in a browser", browser),
    ("tests on MLX", mlx::tests),
];

/// Sets the machine up, then takes every step, also after one has failed, and says what came of each.
pub(crate) fn everything() -> Result<(), Error> {
    setup::everything(true)?;
    let mut tally = Tally::default();
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    for (name, work) in STEPS {
        eprintln!("\n== {name}");
        let began = Instant::now();
        let outcome = work(&mut tally);
        let seconds = began.elapsed().as_secs_f64();
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        lines.push(format!("  {word:<6} {seconds:>7.1} s  {name}"));
        if let Err(error) = outcome {
            eprintln!("error: {error}");
            failed.push(name);
        }
    }
    println!("\nsteps:\n{}", lines.join("\n"));
    println!("{} steps passed, {} failed", STEPS.len() - failed.len(), failed.len());
    println!("tests: {} passed, {} failed", tally.passed, tally.failed);
    if failed.is_empty() { Ok(()) } else { Err(Error::Steps(failed.join(", "))) }
}

fn cargo(arguments: &[&str]) -> Result<(), Error> {
    run(&mut command("cargo", arguments))
}

fn npm(script: &str) -> Result<(), Error> {
    run(&mut command("npm", &["--prefix", "ui", "run", script]))
}

fn documentation() -> Result<(), Error> {
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    run(command("cargo", &arguments).env("RUSTDOCFLAGS", "--deny warnings"))
}

/// Everything under `tests` and in the crates; among them that the window's TypeScript types are fresh.
fn tests(tally: &mut Tally) -> Result<(), Error> {
    let nextest = ["nextest", "run", "--workspace", "--no-fail-fast"];
    let plain = ["test", "--workspace", "--all-targets", "--no-fail-fast"];
    run_tests(&mut command("cargo", if installed("cargo-nextest") { &nextest } else { &plain }), tally)
}

/// The pages in Chromium, served by the program that was built. Only Linux installs the browser by itself; elsewhere the
/// window's own tests do not run either.
fn browser(tally: &mut Tally) -> Result<(), Error> {
    if !cfg!(target_os = "linux") {
        println!("not run: the browser is set up on Linux only");
        return Ok(());
    }
    let mut npm = command("npm", &["--prefix", "ui", "run", "browser"]);
    run_tests(npm.env("KAKEYA_GATE_PROGRAM", place::built("kakeya-gate")?), tally)
}

/// Licences, bans and sources of everything that comes in from outside.
fn dependencies() -> Result<(), Error> {
    run(&mut command(
        CARGO_DENY.path()?,
        &["--all-features", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"],
    ))
}

/// The advisory database comes from the network. Where that cannot be reached the step passes and says so.
fn advisories() -> Result<(), Error> {
    let deny = CARGO_DENY.path()?;
    if let Err(said) = ask(&mut command(&deny, &["fetch", "db"]))? {
        println!(
            "advisories not checked: {}",
            said.lines().last().unwrap_or("the database cannot be fetched")
        );
        return Ok(());
    }
    run(&mut command(&deny, &["check", "--disable-fetch", "advisories"]))
}
