//! Is a machine elsewhere fit for runs? Its engine has told all of this over ssh.

use crate::check::{Check, Finding, Group};
use evidence::{Text, text};
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

const ROWS: &[(&str, Text, Text, Look)] = &[
    (
        "worker-reached",
        Text::fixed("Reached", "已连接"),
        Text::fixed(
            "A run over there needs the way there only to be read.",
            "在那边运行时，连接只用于读取。",
        ),
        reached,
    ),
    (
        "worker-key",
        Text::fixed("Host key", "主机密钥"),
        Text::fixed("Whoever shows another key is another machine.", "出示其他密钥的就是另一台机器。"),
        key,
    ),
    (
        "worker-program",
        Text::fixed("Program", "程序"),
        Text::fixed(
            "Trials of two versions are two kinds of trials; evidence never mixes them.",
            "两个版本的试验是两种试验；证据绝不混用。",
        ),
        program,
    ),
    (
        "worker-devices",
        Text::fixed("Devices", "设备"),
        Text::fixed(
            "A run on the CPU of a GPU box is slow for nothing.",
            "在 GPU 机器的 CPU 上运行，只是白白变慢。",
        ),
        devices,
    ),
    (
        "worker-memory",
        Text::fixed("Memory free", "可用内存"),
        Text::fixed(
            "A machine that swaps measures its disk, not the model.",
            "发生换页的机器测到的是硬盘，不是模型。",
        ),
        memory,
    ),
    (
        "worker-disk",
        Text::fixed("Disk free", "可用磁盘"),
        Text::fixed(
            "The worker's journal is what survives a lost connection.",
            "断线之后，留下来的是那台机器的日志库。",
        ),
        disk,
    ),
    (
        "worker-packs",
        Text::fixed("Model packs", "模型包"),
        Text::fixed(
            "Packs do not travel; a run names one by its digest.",
            "模型包不会传送；运行以摘要指明所用的模型包。",
        ),
        packs,
    ),
    (
        "worker-clock",
        Text::fixed("Clock", "时钟"),
        Text::fixed(
            "Nothing is computed from it; logs of two machines are easier to read together.",
            "不用它计算任何东西；只是两台机器的日志更便于对照阅读。",
        ),
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
        _ => row(
            id,
            title,
            why,
            Finding::skipped(text!("the machine was not reached", "没有连上那台机器")),
            0.0,
        ),
    });
    rows.collect()
}

fn row(id: &str, title: &Text, why: &Text, found: Finding, seconds: f64) -> Check {
    Check {
        id: id.to_owned(),
        group: Group::Worker,
        title: title.clone(),
        status: found.status,
        measured: found.measured,
        why: why.clone(),
        hint: *found.hint,
        command: found.command,
        fixable: false,
        undoable: false,
        seconds: found.seconds.unwrap_or(seconds),
    }
}

fn reached(facts: &WorkerFacts<'_>) -> Finding {
    let host = &facts.hello.host;
    let measured = text!(
        "{} · {} · {} cores, answered after {:.1} s",
        "{} · {} · {} 核，{:.1} 秒后应答",
        host.os,
        host.cpu,
        host.cores,
        facts.reached_s
    );
    Finding::pass(measured).took(facts.reached_s)
}

fn key(facts: &WorkerFacts<'_>) -> Finding {
    Finding::pass(text!("{}, pinned", "{}，已固定", facts.fingerprint))
}

fn program(facts: &WorkerFacts<'_>) -> Finding {
    let Hello { version, protocol, commit, dirty, .. } = facts.hello;
    let commit =
        commit.as_deref().map_or_else(Text::default, |commit| text!(", commit {commit}", "，提交 {commit}"));
    let measured = text!(
        language => "kakeya-gate {version}{}, protocol {protocol}",
        "kakeya-gate {version}{}，协议 {protocol}",
        commit.said(language)
    );
    match (version == facts.host_version, dirty) {
        (false, _) => Finding::warn(
            text!(
                language => "{}; this program is {}",
                "{}；本程序为 {}",
                measured.said(language),
                facts.host_version
            ),
            text!(
                "copy this program there, so that both write evidence of one version",
                "把本程序复制过去，使两边写出同一版本的证据"
            ),
        ),
        (true, true) => Finding::warn(
            text!(
                language => "{}, built from a checkout with uncommitted changes",
                "{}，由有未提交更改的检出构建",
                measured.said(language)
            ),
            text!(
                "build it from a commit, so that others can build the same",
                "从某个提交构建，使他人能构建出相同的程序"
            ),
        ),
        (true, false) => Finding::pass(measured),
    }
}

fn devices(facts: &WorkerFacts<'_>) -> Finding {
    let name = |info: &protocol::BackendInfo| {
        let driver = info
            .driver
            .as_deref()
            .map_or_else(Text::default, |driver| text!(", driver {driver}", "，驱动 {driver}"));
        text!(
            language => "{} on {} ({}{})",
            "{}，{}（{}{}）",
            crate::word(&info.backend),
            crate::word(&info.device),
            info.device_name,
            driver.said(language)
        )
    };
    let devices: Vec<Text> = facts.hello.backends.iter().map(name).collect();
    match devices.is_empty() {
        true => Finding::fail(
            text!("none", "无"),
            text!(
                "the program over there computes nothing right; build it for that machine",
                "那边的程序算不出正确结果；请为那台机器构建"
            ),
        ),
        false => Finding::pass(Text::join(&devices, &Text::same(" · "))),
    }
}

fn memory(facts: &WorkerFacts<'_>) -> Finding {
    let (free, total) = (facts.worker.free_memory_bytes, facts.hello.host.memory_bytes);
    let mut measured = text!("{} of {} main memory", "主内存 {} / {}", crate::size(free), crate::size(total));
    if let Some(free) = facts.worker.free_device_bytes {
        measured.push(&text!(", {} of the GPU's", "，GPU {}", crate::size(free)));
    }
    match free < MEMORY_AT_LEAST {
        true => Finding::warn(measured, text!("end what else runs there", "结束那边的其他程序")),
        false => Finding::pass(measured),
    }
}

fn disk(facts: &WorkerFacts<'_>) -> Finding {
    match facts.worker.free_disk_bytes {
        Some(free) if free < DISK_AT_LEAST => Finding::fail(
            Text::same(crate::size(free)),
            text!(
                "free some space there, or name another data folder in KAKEYA_GATE_DATA",
                "在那边腾出一些空间，或用 KAKEYA_GATE_DATA 指定另一个数据文件夹"
            ),
        ),
        Some(free) => Finding::pass(Text::same(crate::size(free))),
        None => Finding::skipped(text!("the system does not tell", "系统没有说明")),
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
            text!("none", "无"),
            text!(
                "copy a pack there and name its folder with --packs, or put it into the packs folder of its data folder",
                "把模型包复制过去并用 --packs 指明其文件夹，或放进其数据文件夹的 packs 文件夹"
            ),
        ),
        0 => Finding::fail(
            Text::same(all.join(" · ")),
            text!("repair or replace the packs over there", "修复或更换那边的模型包"),
        ),
        usable if usable < packs.len() => Finding::warn(
            Text::same(all.join(" · ")),
            text!("repair or replace those that are unusable", "修复或更换无法使用的那些"),
        ),
        _ => Finding::pass(Text::same(all.join(" · "))),
    }
}

fn clock(facts: &WorkerFacts<'_>) -> Finding {
    let apart = facts.clock_ahead_s;
    let measured = if apart < 0.0 {
        text!("{:.1} s behind this machine's", "比本机慢 {:.1} 秒", apart.abs())
    } else {
        text!("{:.1} s ahead of this machine's", "比本机快 {:.1} 秒", apart.abs())
    };
    match apart.abs() > CLOCKS_APART_S {
        true => Finding::warn(
            measured,
            text!(
                "set the clock over there; evidence keeps the times of this machine",
                "校准那边的时钟；证据记录的是本机的时间"
            ),
        ),
        false => Finding::pass(measured),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evidence::Language;

    #[test]
    fn every_row_has_its_title_and_reason_in_chinese() {
        let error = ErrorReport::new(protocol::ErrorCode::SshUnreachable, "gone", "");
        for row in unreachable(&error, 0.0) {
            for text in [row.title, row.why] {
                assert_ne!(text.en(), text.said(Language::Zh));
            }
        }
    }
}
