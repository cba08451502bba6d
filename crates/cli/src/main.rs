//! `kakeya-gate`: preflight, run, audit, prompts, compare, gate and report from the command line; and the engine and the
//! worker themselves.
//!
//! Exit codes: 0 good, 1 the thing checked does not hold, 2 could not do it. Results go to standard output, everything
//! meant for a person's eyes on the way goes to standard error.

mod arguments;
mod commands;
mod progress;
mod target;
mod text;
mod worker;

use arguments::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

/// Answering a prompt makes and drops arrays of megabytes by the hundred. The system's allocator gives their pages back
/// each time, and touching fresh ones costs more than some of the products.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Preflight(args) => commands::preflight(&args),
        Command::Run(args) => commands::run(&args),
        Command::Audit(args) => commands::audit(&args),
        Command::Prompts(args) => commands::prompts(&args),
        Command::Compare(args) => commands::compare(&args),
        Command::Gate(args) => commands::gate(&args),
        Command::Report(args) => commands::report(&args),
        Command::Selftest(args) => commands::selftest(&args),
        Command::Merge(args) => commands::merge(&args),
        Command::Runs(args) => commands::runs(&args),
        Command::Target(command) => target::target(&command),
        Command::Worker(args) => worker::worker(&args),
        Command::Serve(args) => commands::serve(&args),
        Command::Engine(args) => worker::engine(args.run.as_deref()),
    };
    outcome.unwrap_or_else(|error| commands::complain(&error))
}
