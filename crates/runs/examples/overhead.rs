//! What a trial costs beyond its engine: `overhead IDLE_ENGINE [NATS_SERVER]`. The program behind `cargo xtask bench runs`.
//!
//! First one engine here, then, where a server is named, four workers of a queue. The engines answer after one millisecond
//! each (they sleep, and a sleep is a little longer than it was meant to be; how much is measured first).

#![expect(clippy::disallowed_methods, reason = "it measures what a sleep takes")]

use niah::{PromptVariant, Rung};
use protocol::{Arm, Backend, Decode, Device, RunSpec};
use runs::queue::QueueWorker;
use runs::{Begin, Cancel, EngineProgram, Run, RunEvent, Target};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const HERE: usize = 1_000;
const QUEUED: usize = 10_000;
const WORKERS: usize = 4;
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let engine = arguments.next().ok_or("usage: overhead IDLE_ENGINE [NATS_SERVER]")?;
    let program = EngineProgram(engine);
    let slept = median((0..200).map(|_| timed(|| std::thread::sleep(MS))).collect());
    println!("a sleep of 1 ms takes {:.3} ms (median of 200)", 1e3 * slept.as_secs_f64());
    let mut spent = Vec::new();
    for _ in 0..RUNS {
        let each = run(&program, Target::Local, HERE)?.div_f64(HERE as f64);
        println!("here: {:.3} ms a trial beyond its sleep", 1e3 * each.saturating_sub(slept).as_secs_f64());
        spent.push(each.saturating_sub(slept));
    }
    println!(
        "journal and protocol, one engine here, {HERE} trials: {:.3} ms a trial (median of {RUNS} runs; wanted: under 2)",
        1e3 * median(spent).as_secs_f64()
    );
    if let Some(server) = arguments.next() {
        queue(&program, &server)?;
    }
    Ok(())
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort();
    values[values.len() / 2]
}

/// Time from the first trial that was started to the last one that was told of.
fn run(program: &EngineProgram, target: Target, trials: usize) -> Result<Duration, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let run = Run {
        spec: spec(folder.path(), trials),
        target,
        out: folder.path().join("out"),
        program: program.clone(),
        data: folder.path().join("data"),
        begin: Begin::Anew,
        shard: None,
        cancel: Cancel::default(),
        overridden: Vec::new(),
    };
    let (mut first, mut last) = (None, None);
    run.execute(|event| match event {
        RunEvent::Planned { .. } => first = Some(Instant::now()),
        RunEvent::TrialDone { .. } => last = Some(Instant::now()),
        _ => {}
    })?;
    Ok(first.zip(last).map(|(first, last)| last - first).ok_or("no trial was done")?)
}

fn spec(pack: &Path, trials: usize) -> RunSpec {
    RunSpec {
        pack: pack.to_owned(),
        backend: Backend::Candle,
        device: Device::Cpu,
        arms: vec![Arm::Oracle, Arm::SinkWindow],
        decode: Decode::Incremental,
        ladder: vec![Rung(20)],
        n_samples: trials / 2,
        seed: 42,
        sink: 4,
        window: 64,
        max_new_tokens: 24,
        prefill_chunk: RunSpec::PREFILL_CHUNK,
        prompt: PromptVariant::Legacy,
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn queue(program: &EngineProgram, server: &Path) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let config = folder.path().join("nats.conf");
    let store = folder.path().join("store");
    let text = format!("listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\" }}\n", store.display());
    std::fs::write(&config, text)?;
    let mut command = Command::new(server);
    command.arg("-c").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Server(command.spawn()?);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(10 * MS);
    }
    let url = format!("nats://127.0.0.1:{port}");
    let cancel = Cancel::default();
    std::thread::scope(|scope| {
        for name in 0..WORKERS {
            let worker = QueueWorker {
                url: url.clone(),
                program: program.clone(),
                data: folder.path().join(format!("worker-{name}")),
                packs: vec![folder.path().to_owned()],
                idle: None,
                cancel: cancel.clone(),
            };
            scope.spawn(move || worker.work(|_| {}).map_err(|error| eprintln!("worker {name}: {error}")));
        }
        let took = run(program, Target::Queue(url.clone()), QUEUED);
        cancel.cancel();
        let took = took?.as_secs_f64();
        println!(
            "queue, {WORKERS} workers, {QUEUED} trials of 1 ms: {took:.1} s, {:.0} trials/s",
            QUEUED as f64 / took
        );
        Ok(())
    })
}
