//! The program from outside: real processes, the real demo pack, exit codes and whole outputs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod audit;
mod bad_input;
mod gate;
mod main_job;
mod preflight;
mod program;
mod prompts;
mod selftest;
