//! `cargo xtask …`: sets the machine up, shows the program, tests everything, measures.

mod bench;
mod cuda;
mod demo;
mod error;
mod mac;
mod mlx;
mod place;
mod process;
mod setup;
mod tally;
mod test;
mod tool;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Set up, show, test and measure Kakeya Gate."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what is missing on this machine, or say exactly what it is.
    Setup {
        /// Also what the tests need: a virtual display, a WebDriver, fonts.
        #[arg(long)]
        tests: bool,
    },
    /// Build everything and open the app on the demo workspace.
    Demo {
        /// Do the same main job without a window and say where the report is. The default where there is no display.
        #[arg(long)]
        headless: bool,
    },
    /// Check everything that continuous integration checks.
    Test,
    /// Build the program for NVIDIA GPUs on a machine without one.
    Cuda {
        /// Only lint what is built with CUDA; needs no CUDA compiler.
        #[arg(long)]
        check: bool,
    },
    /// Build the program with MLX where that is not built anyhow.
    Mlx {
        /// Only lint everything for macOS, where MLX is part of every build.
        #[arg(long)]
        check: bool,
    },
    /// Measure how fast it is on this machine.
    Bench {
        /// What to measure.
        subject: Subject,
        /// Samples that the engine answers.
        #[arg(short = 'n', default_value_t = 20)]
        samples: usize,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Subject {
    /// Reading, auditing and comparing evidence.
    Audit,
    /// Answering prompts on the demo pack, beside PyTorch.
    Engine,
    /// A real model of 4 bits, beside llama.cpp (whose package takes minutes to build) and PyTorch.
    Gguf,
    /// The same on MLX, beside Python's mlx-lm: the verifier in f32, and in 4 bits where the reference's is at hand.
    Mlx,
    /// The window of the release build: start, evidence list, changing places, memory, size of the pages.
    App,
    /// What journal and protocol cost a trial, here and on a queue (which needs nats-server).
    Runs,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Setup { tests } => setup::everything(tests),
        Command::Demo { headless } => demo::main_job(headless),
        Command::Test => test::everything(),
        Command::Cuda { check: true } => cuda::check(),
        Command::Cuda { check: false } => cuda::build(),
        Command::Mlx { check: true } => mac::check(),
        Command::Mlx { check: false } => mlx::build(),
        Command::Bench { subject: Subject::Audit, .. } => bench::audit(),
        Command::Bench { subject: Subject::Engine, samples } => bench::engine(samples),
        Command::Bench { subject: Subject::Gguf, samples } => bench::gguf(samples),
        Command::Bench { subject: Subject::Mlx, samples } => bench::mlx(samples),
        Command::Bench { subject: Subject::App, .. } => bench::app(),
        Command::Bench { subject: Subject::Runs, .. } => bench::runs(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.exit_code()
        }
    }
}
