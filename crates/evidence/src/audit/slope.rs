//! DECODE_SLOPE: decoding that slows down with context more than the K/V it attends to can explain.
//!
//! A decode step reads the weights and the K/V that the layers keep. Between two contexts it can therefore not slow down
//! by more than the ratio of the K/V bytes, and by less the more the weights weigh. Files that record no K/V bytes allow
//! the ratio of the contexts, as if every layer kept everything.

use super::Audit;
use super::neighbours::system;
use crate::Finding;
use crate::json::{At, round};
use crate::model::{MemoryKind, Niah};
use crate::text;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Slower than this is worth a finding.
const FALL: f64 = 3.0;

/// One measured decode rate.
#[derive(Clone, Copy)]
struct Point {
    /// Positions before the first new token.
    context: f64,
    /// Tokens a second, prefill left out.
    tok_s: f64,
    /// Bytes of K/V that a step attends to.
    kv_bytes: Option<f64>,
}

/// From the shortest to the longest context: how far the rate falls, and how far K/V explain it.
fn unexplained(points: &[Point]) -> Option<(Point, Point, f64, f64)> {
    let usable = || points.iter().filter(|point| point.context > 0.0 && point.tok_s > 0.0);
    let short = *usable().min_by(|a, b| a.context.total_cmp(&b.context))?;
    let long = *usable().max_by(|a, b| a.context.total_cmp(&b.context))?;
    let kv = long.kv_bytes.zip(short.kv_bytes).filter(|(_, short)| *short > 0.0);
    let explained = kv.map_or(long.context / short.context, |(long, short)| long / short).max(1.0);
    let fall = short.tok_s / long.tok_s;
    (fall > FALL && fall > explained).then_some((short, long, fall, explained))
}

fn finding(arm: &str, pointer: String, points: &[Point]) -> Option<Finding> {
    let (short, long, fall, explained) = unexplained(points)?;
    let message = text!(
        "{arm}: {} tokens a second at {} positions, {} at {}: {:.1} times slower, K/V explain at most {:.1}",
        "{arm}：{1} 个位置时每秒 {0} 个词元，{3} 个位置时 {2}：慢了 {4:.1} 倍，K/V 至多能解释 {5:.1} 倍",
        round(short.tok_s, 3),
        short.context,
        round(long.tok_s, 3),
        long.context,
        fall,
        explained
    );
    let data = json!({ "arm": arm, "fall": round(fall, 2), "explained": round(explained, 2) });
    Some(Finding::new("DECODE_SLOPE", pointer, message, data))
}

/// A benchmark that holds several contexts in one file, and where its rows keep what the rule asks.
struct Bench {
    kind: &'static str,
    context: &'static str,
    /// Arm, pointer to its rate, pointer to its K/V bytes.
    arms: [[&'static str; 3]; 2],
}

const BENCHES: [Bench; 2] = [
    Bench {
        kind: "mlx_kakeya_deployment_benchmark",
        context: "/context_length",
        arms: [
            ["kakeya", "/kakeya/decode_tokens_per_s", "/kakeya/kv_bytes"],
            ["vanilla", "/vanilla/decode_tokens_per_s", "/vanilla/kv_bytes"],
        ],
    },
    Bench {
        kind: "k3_e2e_gpu_bench",
        context: "/prompt_tokens/max",
        arms: [
            ["restored", "/restored/decode_tokens_per_s", "/restored/resident_kv_bytes"],
            ["ar", "/ar/decode_tokens_per_s", "/ar/kv_bytes_final"],
        ],
    },
];

/// The rule on one benchmark file.
pub(super) fn bench(value: &Value, shape: &str, out: &mut Vec<Finding>) {
    let Some(bench) = BENCHES.iter().find(|bench| bench.kind == shape) else { return };
    let rows = value.list("/results").unwrap_or_default();
    for [arm, rate, bytes] in bench.arms {
        let point = |row: &Value| {
            Some(Point {
                context: row.number(bench.context)?,
                tok_s: row.number(rate)?,
                kv_bytes: row.number(bytes),
            })
        };
        let points: Vec<Point> = rows.iter().filter_map(point).collect();
        out.extend(finding(arm, "/results".to_owned(), &points));
    }
}

/// The rule on the rungs of one system, each in its own file; told in the file with the longest prompts.
pub(super) fn ladder(audits: &[&Audit]) -> BTreeMap<usize, Vec<Finding>> {
    let mut systems: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, audit) in audits.iter().enumerate() {
        if let Some(niah) = audit.niah.as_ref().filter(|niah| niah.decode != "reforward") {
            systems.entry(system(audit, niah)).or_default().push(at);
        }
    }
    let mut told: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
    for files in systems.into_values().filter(|files| files.len() > 1) {
        let needle = |at: &usize| audits[*at].niah.as_ref();
        let Some(longest) =
            files.iter().copied().max_by_key(|at| needle(at).and_then(|n| n.prompt_tokens_max))
        else {
            continue;
        };
        for arm in needle(&longest).map(|niah| &niah.arms).into_iter().flatten() {
            let points: Vec<Point> =
                files.iter().filter_map(needle).filter_map(|niah| point(niah, &arm.key)).collect();
            let pointer = format!("/results/{}/per_sample_decode_tokens", arm.key);
            told.entry(longest).or_default().extend(finding(&arm.key, pointer, &points));
        }
    }
    told
}

fn point(niah: &Niah, arm: &str) -> Option<Point> {
    let counted = niah.memory.iter().find(|figure| figure.arm == arm && figure.kind == MemoryKind::KvCounted);
    Some(Point {
        context: niah.prompt_tokens_max? as f64,
        tok_s: niah.arm(arm)?.decode_tok_s?,
        kv_bytes: counted.map(|figure| figure.bytes as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(rows: &[(f64, f64, Option<f64>)]) -> Vec<Point> {
        rows.iter()
            .map(|(context, tok_s, kv_bytes)| Point { context: *context, tok_s: *tok_s, kv_bytes: *kv_bytes })
            .collect()
    }

    #[test]
    fn a_fall_beyond_what_k_v_explain_is_found() {
        // A constant cache, six times slower: the deployment benchmark of the reference.
        let constant = points(&[(512.0, 17.98, Some(15e6)), (8192.0, 2.84, Some(15e6))]);
        assert!(unexplained(&constant).is_some());
        // Four times slower over four times the K/V: explained.
        let grown = points(&[(512.0, 20.0, Some(1e6)), (2048.0, 5.1, Some(4e6))]);
        assert!(unexplained(&grown).is_none());
        // Twice slower is no finding, however it came about.
        let slight = points(&[(512.0, 20.0, Some(1e6)), (8192.0, 10.0, Some(1e6))]);
        assert!(unexplained(&slight).is_none());
        // Without K/V bytes the context itself is the most that can be explained.
        assert!(unexplained(&points(&[(500.0, 40.0, None), (1000.0, 10.0, None)])).is_some());
        assert!(unexplained(&points(&[(500.0, 40.0, None), (2500.0, 10.0, None)])).is_none());
    }

    #[test]
    fn one_context_and_zero_rates_say_nothing() {
        assert!(unexplained(&points(&[(512.0, 20.0, None)])).is_none());
        assert!(unexplained(&points(&[(512.0, 20.0, None), (8192.0, 0.0, None)])).is_none());
        assert!(unexplained(&[]).is_none());
    }
}
