//! Is a machine elsewhere fit for runs? Its engine has told all of this over ssh.

use crate::check::{Check, Finding, Group};
use protocol::{ErrorReport, FoundPack, Hello, Worker};

const MEMORY_AT_LEAST: u64 = 2 << 30;
const DISK_AT_LEAST: u64 = 1 << 30;
/// Clocks further apart make the order of evidence files surprising.
const CLOCKS_APART_S: f64 = 60.0;

/// What a machine elsewhere told of itself.
#[derive(Clone, Copy, Debug)]
pub struct WorkerFacts<'a> {
    /// Version of the program that asks.
    pub host_version: &'a str,
    /// Pinned key of the machine, as OpenSSH shows it.
    pub fingerprint: &'a str,
    /// Its program.
    pub hello: &'a Hello,
    /// What it has.
    pub worker: &'a Worker,
    /// Seconds until it first answered.
    pub reached_s: f64,
    /// How far its clock is ahead, seconds.
    pub clock_ahead_s: f64,
}

type Look = fn(&WorkerFacts<'_>) -> Finding;

const ROWS: &[(&str, &str, &str, Look)] = &[
    ("worker-reached", "Reached", "A run over there needs the way there only to be read.", reached),
    ("worker-key", "Host key", "Whoever shows another key is another machine.", key),
    (
        "worker-program",
        "Program",
        "Trials of two versions are two kinds of trials; evidence never mixes them.",
        program,
    ),
    ("worker-devices", "Devices", "A run on the CPU of a GPU box is slow for nothing.", devices),
    ("worker-memory", "Memory free", "A machine that swaps measures its disk, not the model.", memory),
    ("worker-disk", "Disk free", "The worker's journal is what survives a lost connection.", disk),
    ("worker-packs", "Model packs", "Packs do not travel; a run names one by its digest.", packs),
    (
        "worker-clock",
        "Clock",
        "Nothing is computed from it; logs of two machines are easier to read together.",
        clock,
    ),
];

/// The rows of the checklist about a worker that was reached.
pub fn checks(facts: &WorkerFacts<'_>) -> Vec<Check> {
    ROWS.iter().map(|(id, title, why, look)| row(id, title, why, look(facts), 0.0)).collect()
}

/// The same rows about one that was not, and why.
pub fn unreachable(error: &ErrorReport, seconds: f64) -> Vec<Check> {
    let rows = ROWS.iter().enumerate().map(|(at, (id, title, why, _))| match at {
        0 => row(id, title, why, Finding::from(error), seconds),
        _ => row(id, title, why, Finding::skipped("the machine was not reached"), 0.0),
    });
    rows.collect()
}

fn row(id: &str, title: &str, why: &str, found: Finding, seconds: f64) -> Check {
    Check {
        id: id.to_owned(),
        group: Group::Worker,
        title: title.to_owned(),
        status: found.status,
        measured: found.measured,
        why: why.to_owned(),
        hint: found.hint,
        command: found.command,
        fixable: false,
        undoable: false,
        seconds: found.seconds.unwrap_or(seconds),
    }
}

fn reached(facts: &WorkerFacts<'_>) -> Finding {
    let host = &facts.hello.host;
    let measured =
        format!("{} · {} · {} cores, answered after {:.1} s", host.os, host.cpu, host.cores, facts.reached_s);
    Finding::pass(measured).took(facts.reached_s)
}

fn key(facts: &WorkerFacts<'_>) -> Finding {
    Finding::pass(format!("{}, pinned", facts.fingerprint))
}

fn program(facts: &WorkerFacts<'_>) -> Finding {
    let Hello { version, protocol, commit, dirty, .. } = facts.hello;
    let commit = commit.as_deref().map_or(String::new(), |commit| format!(", commit {commit}"));
    let measured = format!("kakeya-gate {version}{commit}, protocol {protocol}");
    match (version == facts.host_version, dirty) {
        (false, _) => Finding::warn(
            format!("{measured}; this program is {}", facts.host_version),
            "copy this program there, so that both write evidence of one version",
        ),
        (true, true) => Finding::warn(
            format!("{measured}, built from a checkout with uncommitted changes"),
            "build it from a commit, so that others can build the same",
        ),
        (true, false) => Finding::pass(measured),
    }
}

fn devices(facts: &WorkerFacts<'_>) -> Finding {
    let name = |info: &protocol::BackendInfo| {
        let driver = info.driver.as_deref().map_or(String::new(), |driver| format!(", driver {driver}"));
        format!(
            "{} on {} ({}{driver})",
            crate::word(&info.backend),
            crate::word(&info.device),
            info.device_name
        )
    };
    let devices: Vec<String> = facts.hello.backends.iter().map(name).collect();
    match devices.is_empty() {
        true => {
            Finding::fail("none", "the program over there computes nothing right; build it for that machine")
        }
        false => Finding::pass(devices.join(" · ")),
    }
}

fn memory(facts: &WorkerFacts<'_>) -> Finding {
    let (free, total) = (facts.worker.free_memory_bytes, facts.hello.host.memory_bytes);
    let mut measured = format!("{} of {} main memory", crate::size(free), crate::size(total));
    if let Some(free) = facts.worker.free_device_bytes {
        measured += &format!(", {} of the GPU's", crate::size(free));
    }
    match free < MEMORY_AT_LEAST {
        true => Finding::warn(measured, "end what else runs there"),
        false => Finding::pass(measured),
    }
}

fn disk(facts: &WorkerFacts<'_>) -> Finding {
    match facts.worker.free_disk_bytes {
        Some(free) if free < DISK_AT_LEAST => Finding::fail(
            crate::size(free),
            "free some space there, or name another data folder in KAKEYA_GATE_DATA",
        ),
        Some(free) => Finding::pass(crate::size(free)),
        None => Finding::skipped("the system does not tell"),
    }
}

fn packs(facts: &WorkerFacts<'_>) -> Finding {
    let name = |pack: &FoundPack| match (&pack.digest, &pack.problem) {
        (Some(digest), _) => {
            format!(
                "{} (sha256:{}, {})",
                pack.name,
                digest.get(..12).unwrap_or(digest),
                crate::size(pack.bytes)
            )
        }
        (None, problem) => format!("{}: {}", pack.folder.display(), problem.as_deref().unwrap_or("unusable")),
    };
    let packs = &facts.worker.packs;
    let all: Vec<String> = packs.iter().map(name).collect();
    match packs.iter().filter(|pack| pack.digest.is_some()).count() {
        0 if packs.is_empty() => Finding::fail(
            "none",
            "copy a pack there and name its folder with --packs, or put it into the packs folder of its data folder",
        ),
        0 => Finding::fail(all.join(" · "), "repair or replace the packs over there"),
        usable if usable < packs.len() => {
            Finding::warn(all.join(" · "), "repair or replace those that are unusable")
        }
        _ => Finding::pass(all.join(" · ")),
    }
}

fn clock(facts: &WorkerFacts<'_>) -> Finding {
    let apart = facts.clock_ahead_s;
    let way = if apart < 0.0 { "behind" } else { "ahead of" };
    let measured = format!("{:.1} s {way} this machine's", apart.abs());
    match apart.abs() > CLOCKS_APART_S {
        true => Finding::warn(measured, "set the clock over there; evidence keeps the times of this machine"),
        false => Finding::pass(measured),
    }
}
