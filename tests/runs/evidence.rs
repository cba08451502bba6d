//! Evidence without what no two runs share.

use serde_json::Value;
use std::path::{Path, PathBuf};

pub fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The evidence files in a folder, by name.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Times, rates, memory of the process, and the names of run and target: everything else must be the same.
pub fn timeless(path: &Path) -> Value {
    let mut evidence = read(path);
    strip(&mut evidence);
    evidence
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !is_of_the_moment(name));
            fields.values_mut().for_each(strip);
        }
        Value::Array(values) => {
            values.retain(|value| value["kind"] != "process-footprint");
            values.iter_mut().for_each(strip);
        }
        _ => {}
    }
}

fn is_of_the_moment(name: &str) -> bool {
    let parts = ["seconds", "latency", "throughput", "tokens_per_sec"];
    let names =
        ["started", "ended", "run", "target", "reused_trials", "verifier_id", "drafter_id", "f_theta_dir"];
    name.ends_with("_s") || names.contains(&name) || parts.iter().any(|part| name.contains(part))
}

/// Every sample has one text of every arm.
pub fn is_whole(evidence: &Value, arms: usize, samples: usize) {
    let results = evidence["results"].as_object().unwrap();
    assert_eq!(results.len(), arms);
    for (arm, result) in results {
        assert_eq!(result["samples_total"], samples, "{arm}");
        assert_eq!(result["per_sample_decoded"].as_array().unwrap().len(), samples, "{arm}");
    }
}
