//! How fast it is: figures of one run, side by side.

use crate::error::Error;
use crate::mlx;
use crate::place;
use crate::process::{command, installed, run, run_and_read};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Synthetic files of the second half.
const SYNTHETIC: &str = "10000";
const ALL_CORES: &str = "0";

/// What the PyTorch program is run with.
const PYTORCH: [&str; 3] = ["torch==2.15.0", "transformers==5.24.0", "safetensors==0.8.0"];
/// What the mlx-lm program is run with.
const MLX_LM: [&str; 3] = [
    "mlx-lm==0.31.3",
    "mlx==0.32.2",
    if cfg!(target_os = "macos") { "mlx-metal==0.32.2" } else { "mlx-cpu==0.32.2" },
];
/// What programs that answer from a GGUF file are run with.
const LLAMA_CPP: [&str; 1] = ["llama-cpp-python==0.3.36"];
const PYTORCH_GGUF: [&str; 5] =
    ["torch==2.15.0", "transformers==5.24.0", "safetensors==0.8.0", "gguf==0.19.0", "accelerate==1.15.0"];
/// Threads of each program that answers prompts.
const THREADS: &str = "2";

/// What a trial costs beyond its engine.
pub(crate) fn runs() -> Result<(), Error> {
    run(&mut command(
        "cargo",
        &["build", "--workspace", "--example", "overhead", "--example", "idle_engine"],
    ))?;
    let mut overhead = command(place::built("examples/overhead")?, &[]);
    overhead.arg(place::built("examples/idle_engine")?);
    match installed("nats-server") {
        true => drop(overhead.arg("nats-server")),
        false => println!("the queue is not measured, since nats-server is not installed"),
    }
    run(&mut overhead)
}

/// The window: how soon it is there, what it costs. Opens the reference's corpus, if there, else the tests' own evidence.
pub(crate) fn app() -> Result<(), Error> {
    run(&mut command("npm", &["--prefix", "ui", "run", "build"]))?;
    let programs = ["--package", "cli", "--package", "kakeya-gate-app", "--package", "desktop-tests"];
    let release =
        ["build", "--release", "--bin", "kakeya-gate", "--bin", "kakeya-gate-app", "--example", "app_speed"];
    run(command("cargo", &release).args(programs))?;
    let corpus =
        std::env::var_os("KAKEYA_GATE_REFERENCE").map(|reference| PathBuf::from(reference).join("evidence"));
    let own = place::root().join("tests/fixtures");
    let folder = corpus.filter(|corpus| corpus.is_dir()).unwrap_or(own);
    run(command(place::released("examples/app_speed")?, &[]).arg(&folder))?;
    let packed = run_and_read(&mut command("sh", &["-c", "cat ui/dist/assets/* | gzip -9 | wc -c"]))?;
    println!(
        "pages, gzip: {} kB (wanted: under 200)",
        packed.trim().parse::<f64>().unwrap_or(f64::NAN) / 1e3
    );
    Ok(())
}

/// Seconds a sample on the demo pack, beside PyTorch in the same run.
pub(crate) fn engine(samples: usize) -> Result<(), Error> {
    let pack = place::root().join("assets/demo-pack");
    let mut speed = example("speed")?;
    speed.arg(place::built("kakeya-gate")?).arg(&pack).arg(samples.to_string()).arg(THREADS);
    match python("pytorch", &PYTORCH) {
        Ok(python) => {
            speed.arg(python).arg(place::root().join("benches/pytorch_niah.py")).arg(pack).arg(THREADS);
        }
        Err(error) => println!("PyTorch not measured, since it cannot be installed: {error}"),
    }
    run(&mut speed)
}

/// Tokens a second of Gemma 3 270M (GGUF, 4 bits), beside llama.cpp and PyTorch in the same run.
pub(crate) fn gguf(samples: usize) -> Result<(), Error> {
    let folder = place::cache().join("models/gemma-3-270m-q4-k-m");
    if !folder.join("gemma-3-270m-q4_k_m.gguf").is_file() {
        println!("the model is fetched by the test that needs it");
        let test = ["test", "--workspace", "--test", "real_model", "--", "its_tokenizer"];
        run(command("cargo", &test).env("KAKEYA_GATE_REAL_MODEL", "1"))?;
    }
    let mut speed = example("gguf_speed")?;
    speed.arg(place::built("kakeya-gate")?).arg(folder).arg(samples.to_string()).arg(THREADS);
    let rivals: [(&str, &[&str], &str); 2] = [
        ("llama", &LLAMA_CPP, "benches/llama_cpp_rates.py"),
        ("pytorch", &PYTORCH_GGUF, "benches/pytorch_rates.py"),
    ];
    for (name, packages, script) in rivals {
        match python(name, packages) {
            Ok(python) => {
                speed.arg(python).arg(place::root().join(script));
            }
            Err(error) => println!("{script} not measured, since its packages cannot be installed: {error}"),
        }
    }
    run(&mut speed)
}

/// The engine on MLX and mlx-lm in turn: tokens a second, and seconds a sample against the reference's loop.
pub(crate) fn mlx(samples: usize) -> Result<(), Error> {
    mlx::build()?;
    let python = python("mlx-lm", &MLX_LM)?;
    let pack = place::root().join("assets/demo-pack");
    let mut verifiers = vec![("float32", pack.join("verifier"))];
    match std::env::var_os("KAKEYA_GATE_REFERENCE") {
        Some(root) => {
            verifiers.push(("stored", PathBuf::from(root).join("demo-pack-checks/verifier-mlx-4bit")))
        }
        None => println!("4 bits not measured: KAKEYA_GATE_REFERENCE is unset"),
    }
    for (precision, verifier) in verifiers {
        println!("\n{}, numbers {precision}:", verifier.display());
        let mut speed = mlx::example("mlx_speed");
        speed.arg(mlx::program()).arg(&pack).arg(&verifier).args([precision, &samples.to_string()]);
        run(speed.arg(&python).arg(place::root().join("benches/mlx_niah.py")))?;
    }
    Ok(())
}

/// An example of the engine, built with the program that it measures: in one go with the whole workspace's features, as the
/// tests are, so that the numeric crates are not compiled once more.
fn example(name: &str) -> Result<Command, Error> {
    run(&mut command("cargo", &["build", "--workspace", "--bin", "kakeya-gate", "--example", name]))?;
    Ok(command(place::built("examples")?.join(name), &[]))
}

/// A Python with `packages`, installed into the cache folder the first time.
fn python(name: &str, packages: &[&str]) -> Result<PathBuf, Error> {
    let folder = place::cache().join(name);
    let python = folder.join("bin/python");
    if !python.is_file() {
        run(command("python3", &["-m", "venv"]).arg(&folder))?;
    }
    run(command(&python, &["-m", "pip", "install", "--quiet"]).args(packages))?;
    Ok(python)
}

/// One measurement, as `audit_speed` prints it.
struct Measured {
    seconds: f64,
    files: f64,
    bytes: f64,
    peak_bytes: f64,
}

/// The reference's corpus, if there, and synthetic files: read alone, audited, compared; on one thread and on all cores.
pub(crate) fn audit() -> Result<(), Error> {
    let failed = |source| Error::File { path: "the temporary folder".to_owned(), source };
    let synthetic = tempfile::tempdir().map_err(failed)?;
    audit_speed(&["write".as_ref(), synthetic.path(), SYNTHETIC.as_ref()])?;
    let mut report =
        String::from("evidence    work     threads  files       MB         s   files/s    MB/s  peak MB\n");
    match std::env::var_os("KAKEYA_GATE_REFERENCE") {
        Some(root) => {
            let corpus = PathBuf::from(root).join("evidence/corpus");
            report += &side_by_side("corpus", &corpus, &["read", "audit", "compare"])?;
        }
        None => report += "corpus      not measured: KAKEYA_GATE_REFERENCE is unset\n",
    }
    report += &side_by_side("synthetic", synthetic.path(), &["read", "audit"])?;
    print!("\n{report}");
    Ok(())
}

/// A line for each kind of work and number of threads, then the ratios of their times.
fn side_by_side(name: &str, folder: &Path, works: &[&str]) -> Result<String, Error> {
    let (mut lines, mut ratios) = (String::new(), String::new());
    let mut reading = None;
    for work in works {
        let one = measured(work, folder, "1")?;
        let all = measured(work, folder, ALL_CORES)?;
        lines += &format!("{}{}", one.line(name, work, "1"), all.line(name, work, "all"));
        ratios +=
            &format!("  {work}: one thread takes {:.2}× the time of all cores", one.seconds / all.seconds);
        match reading {
            None => reading = Some(one.seconds),
            Some(reading) => ratios += &format!(", {:.2}× that of reading alone", one.seconds / reading),
        }
        ratios += "\n";
    }
    Ok(lines + &ratios)
}

impl Measured {
    fn line(&self, name: &str, work: &str, threads: &str) -> String {
        let Self { seconds, files, bytes, peak_bytes } = self;
        format!(
            "{name:<11} {work:<8} {threads:>7} {files:>6} {:>8.1} {seconds:>9.4} {:>9.0} {:>7.1} {:>8.1}\n",
            bytes / 1e6,
            files / seconds,
            bytes / 1e6 / seconds,
            peak_bytes / 1e6
        )
    }
}

fn measured(work: &str, folder: &Path, threads: &str) -> Result<Measured, Error> {
    let said = audit_speed(&[work.as_ref(), folder, threads.as_ref()])?;
    let numbers: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [seconds, files, bytes, peak_bytes] => Ok(Measured { seconds, files, bytes, peak_bytes }),
        _ => Err(Error::Measurement(said)),
    }
}

/// The measuring program, optimised; each measurement has a process of its own, for its peak memory.
fn audit_speed(arguments: &[&Path]) -> Result<String, Error> {
    let run = ["run", "--quiet", "--release", "--package", "evidence", "--example", "audit_speed", "--"];
    run_and_read(command("cargo", &run).args(arguments))
}
