//! Places for runs: added once, tested whenever asked.

use crate::{ErrorCode, ErrorReport};
use preflight::Check;
use preflight::worker::WorkerFacts;
use runs::ssh::{self, HostKey, Machine, Probe, SshError};
use runs::{RunError, Target};
use serde::{Deserialize, Serialize};
use std::path::Path;
use ts_rs::TS;

/// What a test of a target found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct TargetReport {
    /// Its name, `ssh:HOST`.
    pub target: Target,
    /// The rows of the checklist, in order.
    pub checks: Vec<Check>,
    /// What was found, if it was reached.
    pub probe: Option<Probe>,
    /// Whether copying this program there would mend something.
    pub copy_helps: bool,
}

/// The machines that are known.
pub fn targets(data: &Path) -> Result<Vec<Machine>, ErrorReport> {
    Ok(ssh::machines(data)?)
}

/// The key that a host shows now, to be compared with what its owner says.
pub fn target_key(data: &Path, host: &str) -> Result<HostKey, ErrorReport> {
    named(host)?;
    Ok(ssh::host_key(data, host)?)
}

/// Keeps a machine and pins its key, which the user has approved of.
pub fn add_target(data: &Path, machine: &Machine, key: &HostKey) -> Result<(), ErrorReport> {
    named(&machine.host)?;
    Ok(ssh::add_machine(data, machine, key)?)
}

/// Forgets a machine and its key; whether it was known.
pub fn remove_target(data: &Path, host: &str) -> Result<bool, ErrorReport> {
    Ok(ssh::remove_machine(data, host)?)
}

/// Copies a program there, this one if none is named, and uses it from now on.
pub fn copy_to_target(data: &Path, host: &str, binary: Option<&Path>) -> Result<Machine, ErrorReport> {
    Ok(ssh::copy_program(data, host, binary)?)
}

/// Reaches a machine and says what a run would find there.
pub fn test_target(data: &Path, host: &str) -> Result<TargetReport, ErrorReport> {
    let target = named(host)?;
    let began = std::time::Instant::now();
    match ssh::probe(data, host) {
        Ok(probe) => Ok(TargetReport {
            target,
            checks: preflight::worker::checks(&facts(&probe)),
            copy_helps: probe.hello.version != crate::VERSION,
            probe: Some(probe),
        }),
        Err(error) => Ok(TargetReport {
            target,
            checks: preflight::worker::unreachable(&ErrorReport::from(&error), began.elapsed().as_secs_f64()),
            copy_helps: matches!(error, RunError::Ssh(SshError::NoProgram { .. } | SshError::Version { .. })),
            probe: None,
        }),
    }
}

fn facts(probe: &Probe) -> WorkerFacts<'_> {
    WorkerFacts {
        host_version: crate::VERSION,
        fingerprint: &probe.fingerprint,
        hello: &probe.hello,
        worker: &probe.worker,
        reached_s: probe.reached_s,
        clock_ahead_s: probe.clock_ahead_s,
    }
}

/// A host that can be the name of a target.
fn named(host: &str) -> Result<Target, ErrorReport> {
    let hint = "write HOST, USER@HOST or an alias of your ssh configuration";
    format!("ssh:{host}")
        .parse()
        .map_err(|e: runs::TargetError| ErrorReport::new(ErrorCode::BadTarget, e, hint))
}
