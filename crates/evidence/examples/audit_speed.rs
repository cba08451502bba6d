//! One measurement in a process of its own, for `cargo xtask bench audit`:
//!
//! - `audit_speed write FOLDER COUNT` fills a folder with synthetic files,
//! - `audit_speed read|audit|compare FOLDER THREADS` does that several times (0 threads: one a core) and prints the median
//!   seconds, the files, their bytes and the largest resident set in bytes.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement that fails is none")]

use evidence::{Audit, Place};
use niah::{Dataset, Sample};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Repetitions; the median of an odd number is one of them.
const RUNS: usize = 7;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", folder, count] => write(Path::new(folder), count.parse().unwrap()),
        [work, folder, threads] => measure(work, folder.into(), threads.parse().unwrap()),
        _ => panic!("write FOLDER COUNT, or read|audit|compare FOLDER THREADS"),
    }
}

fn measure(work: &str, folder: PathBuf, threads: usize) {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().unwrap();
    let folders = [folder];
    let mut seconds = [0.0; RUNS].map(|_: f64| {
        let start = Instant::now();
        let places = evidence::find(&folders);
        match work {
            "read" => read(&places),
            "audit" => drop(black_box(audit(&places))),
            "compare" => compare(&audit(&places)),
            _ => panic!("{work} is neither read, audit nor compare"),
        }
        start.elapsed().as_secs_f64()
    });
    seconds.sort_by(f64::total_cmp);
    let places = evidence::find(&folders);
    let bytes: u64 = places.iter().map(|place| place.path.metadata().unwrap().len()).sum();
    println!("{} {} {bytes} {}", seconds[RUNS / 2], places.len(), largest_resident_set());
}

fn read(places: &[Place]) {
    places.par_iter().for_each(|place| drop(black_box(evidence::read(place).unwrap())));
}

fn audit(places: &[Place]) -> Vec<Audit> {
    let scan = evidence::scan(places, || {});
    assert!(scan.unreadable.is_empty(), "{:?}", scan.unreadable);
    scan.audits
}

/// Every pair of needle files of one rung, and the gate over all.
fn compare(audits: &[Audit]) {
    black_box(evidence::gate(audits, &evidence::Policy::built_in()));
    audits.par_iter().enumerate().for_each(|(i, a)| {
        let same_rung = |b: &&Audit| a.niah.is_some() && b.niah.is_some() && a.rung_label() == b.rung_label();
        audits[i + 1..].iter().filter(same_rung).for_each(|b| drop(black_box(evidence::compare(a, b))));
    });
}

/// Samples of a synthetic needle file, as many as most real ones hold.
const SAMPLES: usize = 20;

/// Synthetic files are the fixtures with other seeds and other texts. Statistics are not brought in line: an audit with
/// something to say takes longer than one without.
fn write(folder: &Path, count: usize) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let places = evidence::find(&[fixtures.join("evidence"), fixtures.join("kinds")]);
    let bases: Vec<Value> = places.iter().map(|place| evidence::read(place).unwrap().value).collect();
    for seed in 0..count {
        let mut value = bases[seed % bases.len()].clone();
        if value["kind"].as_str().is_some_and(|kind| kind.contains("niah")) {
            reseed(&mut value, seed as i64);
        }
        let below = folder.join(format!("{:03}", seed / 100));
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(below.join(format!("{seed:06}.json")), serde_json::to_vec_pretty(&value).unwrap())
            .unwrap();
    }
}

fn reseed(value: &mut Value, seed: i64) {
    let lines = |key: &str| value["config"][key].as_u64().unwrap() as u32;
    let (min_lines, max_lines) = (lines("haystack_min_lines"), lines("haystack_max_lines"));
    let dataset = Dataset { seed, n_samples: SAMPLES, min_lines, max_lines };
    let samples: Vec<Sample> = dataset.samples().unwrap().collect();
    value["config"]["seed"] = json!(seed);
    value["config"]["n_samples"] = json!(SAMPLES);
    value["config"]["prompt_token_lens"] =
        samples.iter().map(|sample| json!(20 * sample.padding_lines + 34)).collect();
    for (at, arm) in value["results"].as_object_mut().unwrap().values_mut().enumerate() {
        for (_, list) in
            arm.as_object_mut().unwrap().iter_mut().filter(|(key, _)| key.starts_with("per_sample"))
        {
            let items = list.as_array().unwrap();
            *list = items.iter().cycle().take(SAMPLES).cloned().collect();
        }
        arm["per_sample_decoded"] = samples.iter().map(|sample| text(sample, seed as usize + at)).collect();
    }
}

/// Mostly the code, at times a wrong one, with a tail that is never the same.
fn text(sample: &Sample, salt: usize) -> Value {
    let said = if (sample.index + salt).is_multiple_of(7) { "no code" } else { &sample.answer };
    json!(format!("The secret code is {said}. It stands in line {} of note {salt}.", sample.needle_line))
}

/// Not the kernel's `ru_maxrss`, which still counts the program that started this one.
#[cfg(target_os = "linux")]
fn largest_resident_set() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// macOS counts in bytes.
#[cfg(not(target_os = "linux"))]
fn largest_resident_set() -> u64 {
    use nix::sys::resource::{UsageWho, getrusage};
    u64::try_from(getrusage(UsageWho::RUSAGE_SELF).unwrap().max_rss()).unwrap()
}
