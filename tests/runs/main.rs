//! Runs that survive: real processes, a real sshd and a real nats-server on loopback, killed at random.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chaos;
mod evidence;
mod journal;
mod place;
mod processes;
mod queue;
mod shards;
mod ssh;
