//! The program from outside: real processes, the real demo pack, exit codes and whole outputs.

mod bad_input;
mod main_job;
mod program;
