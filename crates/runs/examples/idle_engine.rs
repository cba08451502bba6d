//! An engine that computes nothing: it answers each trial after as many milliseconds as `IDLE_ENGINE_MS` says. What a run takes
//! beyond that is the journal and the protocol.

#![expect(clippy::disallowed_methods, reason = "an engine that takes a time and does nothing")]

use protocol::{
    Backend, BackendInfo, Device, Event, FoundPack, Hello, Host, KvBytes, LoadedPack, Request, StageTimings,
    Stop, Trial, TrialMemory, TrialResult, Worker,
};
use std::io::{BufRead, Write};
use std::time::Duration;

fn main() {
    let wait: u64 = std::env::var("IDLE_ENGINE_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or(1);
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let event = match serde_json::from_str(&line) {
            Ok(Request::Hello { protocol }) => Event::Hello(hello(protocol)),
            Ok(Request::Load { .. }) => Event::Loaded(pack()),
            Ok(Request::Worker { packs }) => Event::Worker(Box::new(worker(packs))),
            Ok(Request::Trial(trial)) => {
                std::thread::sleep(Duration::from_millis(wait));
                Event::Done(result(trial))
            }
            _ => continue,
        };
        let written = serde_json::to_writer(&mut output, &event).map_err(std::io::Error::from);
        if written.and_then(|()| output.write_all(b"\n")).and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

fn hello(protocol: u32) -> Hello {
    let info = BackendInfo {
        backend: Backend::Candle,
        device: Device::Cpu,
        version: "none".into(),
        device_name: "none".into(),
        driver: None,
        probe_seconds: 0.0,
    };
    let host = Host { os: "none".into(), arch: "none".into(), cpu: "none".into(), cores: 1, memory_bytes: 1 };
    Hello { protocol, version: "idle".into(), commit: None, dirty: false, backends: vec![info], host }
}

fn pack() -> LoadedPack {
    LoadedPack {
        name: "idle".into(),
        demo: false,
        verifier: "verifier".into(),
        drafter: None,
        f_theta: None,
        f_theta_config: None,
        weights: Vec::new(),
        digest: digest(),
        layers: Vec::new(),
        compute_dtype: "f32".into(),
        weights_dtype: "f32".into(),
        stop_tokens: vec![1],
        seconds: 0.0,
    }
}

fn digest() -> String {
    files::sha256(b"idle")
}

fn worker(packs: Vec<std::path::PathBuf>) -> Worker {
    let pack = |folder: std::path::PathBuf| FoundPack {
        folder: folder.canonicalize().unwrap_or(folder),
        name: "idle".into(),
        digest: Some(digest()),
        bytes: 0,
        problem: None,
    };
    Worker {
        packs: packs.into_iter().map(pack).collect(),
        free_memory_bytes: 1,
        free_device_bytes: None,
        free_disk_bytes: None,
        clock_s: 0.0,
    }
}

fn result(trial: Trial) -> TrialResult {
    let nothing = KvBytes::default();
    TrialResult {
        id: trial.id,
        arm: trial.arm,
        text: String::new(),
        tokens: vec![1],
        prompt_tokens: 1,
        stop: Stop::StopToken,
        timings: StageTimings { e2e_s: 0.001, ..StageTimings::default() },
        restoration: None,
        fidelity: None,
        attention_mass: None,
        projection_error: None,
        memory: TrialMemory {
            kv_counted: Some(nothing),
            kv_forecast: Some(nothing),
            kv_full_formula: nothing,
            kv_native_formula: nothing,
            process_peak_bytes: None,
            device: None,
        },
    }
}
