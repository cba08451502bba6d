//! The protocol loop through real pipes, on the demo pack; and packs that are broken.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use engine::{Durable, Identity, serve};
use niah::{PromptVariant, Rung, Score};
use protocol::{
    Arm, Backend, Decode, Device, ErrorCode, ErrorReport, Event, Order, Request, Restore, TrialResult,
};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

/// Nothing that these tests ask for outlives a connection.
struct OneConnection;

impl Durable for OneConnection {
    fn packs(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn data(&self) -> &Path {
        Path::new(".")
    }

    fn start(&self, order: &Order) -> Result<(), ErrorReport> {
        panic!("{order:?}")
    }

    fn stop(&self, run: &str) -> Result<(), ErrorReport> {
        panic!("{run}")
    }

    fn follow(
        &self,
        run: &str,
        _: u64,
        _: &mut dyn FnMut(Option<(u64, String)>) -> bool,
    ) -> Result<bool, ErrorReport> {
        panic!("{run}")
    }
}

struct Host {
    to: PipeWriter,
    from: std::io::Lines<BufReader<PipeReader>>,
    engine: JoinHandle<()>,
}

impl Host {
    fn start() -> Self {
        let (input, to) = pipe().unwrap();
        let (from, output) = pipe().unwrap();
        let identity = Identity { version: "0".into(), commit: None, dirty: false };
        let engine =
            thread::spawn(move || serve(BufReader::new(input), output, identity, OneConnection).unwrap());
        Self { to, from: BufReader::new(from).lines(), engine }
    }

    fn send(&mut self, request: &Request) {
        writeln!(self.to, "{}", serde_json::to_string(request).unwrap()).unwrap();
    }

    fn any(&mut self) -> Event {
        serde_json::from_str(&self.from.next().unwrap().unwrap()).unwrap()
    }

    /// The next event that answers a request.
    fn answer(&mut self) -> Event {
        loop {
            match self.any() {
                Event::Heartbeat { resident_bytes } => assert!(resident_bytes > 0),
                Event::Progress { .. } => {}
                event => return event,
            }
        }
    }

    fn ask(&mut self, request: &Request) -> Event {
        self.send(request);
        self.answer()
    }

    fn code(&mut self, request: &Request) -> ErrorCode {
        match self.ask(request) {
            Event::Failed(report) => report.code,
            other => panic!("{other:?}"),
        }
    }

    fn greeted() -> Self {
        let mut host = Self::start();
        let hello = host.ask(&Request::Hello { protocol: protocol::VERSION });
        assert!(matches!(hello, Event::Hello(_)), "{hello:?}");
        host
    }

    fn end(self) {
        drop(self.to);
        self.engine.join().unwrap();
    }
}

fn demo_pack() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/demo-pack")
}

fn load(pack: &Path) -> Request {
    Request::Load { pack: pack.into(), backend: Backend::Candle, device: Device::Cpu, arms: Arm::ALL.into() }
}

fn trial(arm: Arm, prompt: &str) -> Request {
    Request::Trial(protocol::Trial {
        id: arm.to_string(),
        arm,
        prompt: prompt.into(),
        variant: PromptVariant::Legacy,
        decode: Decode::Incremental,
        sink: 4,
        window: 64,
        max_new_tokens: 24,
        prefill_chunk: 512,
        seed: 42,
        sample: 0,
        fidelity: true,
        answer: None,
    })
}

/// DEMO-PACK.md: what fills the sliding layers decides nothing, what fills all layers does.
fn recalls(arm: Arm) -> bool {
    !matches!(arm, Arm::SinkWindow | Arm::NoRestoration(Restore::FTheta) | Arm::Random(Restore::FTheta))
}

#[test]
fn the_demo_pack_recalls_where_something_carries_the_needle() {
    let mut host = Host::greeted();
    let loaded = host.ask(&load(&demo_pack()));
    assert!(matches!(loaded, Event::Loaded(_)), "{loaded:?}");
    for rung in [20, 70] {
        let samples: Vec<_> = Rung(rung).dataset(42, 5).samples().unwrap().collect();
        let mut seconds = vec![0.0; Arm::ALL.len()];
        let mut worst = vec![0.0f64; Arm::ALL.len()];
        for sample in &samples {
            let mut oracle: Option<TrialResult> = None;
            for (i, arm) in Arm::ALL.into_iter().enumerate() {
                let Event::Done(result) = host.ask(&trial(arm, &sample.prompt())) else { panic!("{arm}") };
                assert_eq!(Score::of(&result.text, &sample.answer).strict, recalls(arm), "{arm} {result:?}");
                seconds[i] += result.timings.e2e_s;
                let evicted = result.prompt_tokens - 68;
                let counters = result.restoration.as_ref();
                assert_eq!(counters.is_some(), arm.mode().is_some());
                assert!(counters.is_none_or(|c| c.layers.iter().all(|layer| layer.positions() == evicted)));
                assert_eq!(result.fidelity.is_some(), arm != Arm::Oracle);
                if let (Some(oracle), true) = (&oracle, arm.is_restored()) {
                    assert_eq!(result.tokens, oracle.tokens);
                }
                worst[i] = worst[i].max(result.fidelity.map_or(0.0, |f| f.max_abs_logit_difference));
                if arm == Arm::Oracle {
                    oracle = Some(result);
                }
            }
        }
        for ((arm, seconds), worst) in Arm::ALL.iter().zip(seconds).zip(&worst) {
            let mean = seconds / samples.len() as f64;
            println!(
                "rung {rung} {arm}: {mean:.4} s a sample, first step at most {worst:.4} from the oracle"
            );
        }
        let of = |word: &str| worst[Arm::ALL.iter().position(|arm| arm.to_string() == word).unwrap()];
        assert!(of("restored:identity") < 1e-3);
        assert!(of("restored:s5") * 5.0 < of("random:s5"), "fidelity tells what recall does not");
    }
    host.end();
}

#[test]
fn mlx_answers_where_this_program_has_it_and_is_refused_elsewhere() {
    let (mut host, backend) = (Host::start(), Backend::Mlx);
    let Event::Hello(hello) = host.ask(&Request::Hello { protocol: protocol::VERSION }) else { panic!() };
    let told = hello.backends.into_iter().find(|info| info.backend == backend);
    let mut load =
        |device| host.ask(&Request::Load { pack: demo_pack(), backend, device, arms: Arm::ALL.into() });
    let refused = |event| matches!(event, Event::Failed(report) if report.code == ErrorCode::DeviceUnusable);
    assert!(refused(load(Device::Cuda)));
    if !cfg!(any(feature = "mlx", target_os = "macos")) {
        assert_eq!(told, None);
        assert!(refused(load(backend.device())));
        return host.end();
    }
    assert_eq!(told.unwrap().device, backend.device());
    assert!(matches!(load(backend.device()), Event::Loaded(_)));
    let sample = Rung(20).dataset(42, 1).samples().unwrap().next().unwrap();
    for arm in [Arm::Oracle, Arm::Restored(Restore::S5)] {
        let Event::Done(result) = host.ask(&trial(arm, &sample.prompt())) else { panic!("{arm}") };
        assert!(Score::of(&result.text, &sample.answer).strict, "{arm} {result:?}");
        let memory = result.memory.device.unwrap();
        assert!(
            memory.allocator_active_bytes.unwrap() > 4_000_000,
            "the weights alone take so much: {memory:?}"
        );
        assert!(memory.allocator_peak_bytes >= memory.allocator_active_bytes, "{memory:?}");
        assert!(memory.allocator_cache_bytes.is_some() && memory.used_bytes.is_none());
        // Each stage was waited for, so that its seconds are its own.
        assert!(result.timings.prefill_s > result.timings.decode_s / 50.0, "{:?}", result.timings);
    }
    host.end();
}

#[test]
fn fidelity_is_the_same_whatever_ran_before() {
    let mut host = Host::greeted();
    host.ask(&load(&demo_pack()));
    // Long enough that something is evicted.
    let [one, two] = ["padding ", "filling "].map(|word| word.repeat(200));
    let mut fidelity = |arm, prompt: &str| match host.ask(&trial(arm, prompt)) {
        Event::Done(result) => result.fidelity,
        other => panic!("{other:?}"),
    };
    let alone = fidelity(Arm::SinkWindow, &one).unwrap();
    assert!(alone.max_abs_logit_difference > 0.0);
    assert_eq!(fidelity(Arm::Oracle, &one), None);
    assert_eq!(fidelity(Arm::SinkWindow, &one), Some(alone));
    assert_ne!(fidelity(Arm::SinkWindow, &two), Some(alone));
    assert_eq!(fidelity(Arm::SinkWindow, &one), Some(alone));
    host.end();
}

#[test]
fn a_trial_is_given_up_in_the_middle_and_the_next_one_runs() {
    let mut host = Host::greeted();
    host.ask(&load(&demo_pack()));
    let long = "Note: this paragraph is padding. ".repeat(400);
    host.send(&trial(Arm::ALL[2], &long));
    while !matches!(host.any(), Event::Progress { .. }) {}
    host.send(&Request::Cancel);
    assert_eq!(host.answer(), Event::Cancelled { id: Arm::ALL[2].to_string() });
    assert!(matches!(host.ask(&trial(Arm::Oracle, "hello")), Event::Done(_)));
    host.end();
}

#[test]
fn requests_out_of_turn_are_refused_by_name() {
    let mut host = Host::start();
    assert_eq!(host.code(&load(&demo_pack())), ErrorCode::HelloMissing);
    assert_eq!(host.code(&Request::Hello { protocol: protocol::VERSION + 1 }), ErrorCode::ProtocolVersion);
    assert!(matches!(host.ask(&Request::Hello { protocol: protocol::VERSION }), Event::Hello(_)));
    assert_eq!(host.code(&trial(Arm::Oracle, "hello")), ErrorCode::PackNotLoaded);
    assert_eq!(host.code(&load(Path::new("no/such/pack"))), ErrorCode::PackNotFound);
    writeln!(host.to, "no json").unwrap();
    assert!(matches!(host.answer(), Event::Failed(report) if report.code == ErrorCode::RequestMalformed));
    host.end();
}

/// A copy of the demo pack without digests, whose file `name` was changed by `change`; the error that loading gives.
fn broken(name: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> protocol::ErrorReport {
    let folder = altered(false, name, change);
    let mut host = Host::greeted();
    let Event::Failed(report) = host.ask(&load(folder.path())) else { panic!("{name} loaded") };
    host.end();
    report
}

/// A copy of the demo pack, with or without the manifest's digests, whose file `name` was changed by `change`.
#[expect(clippy::disallowed_methods, reason = "fixtures of a test need not survive a power cut")]
fn altered(digests: bool, name: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for part in ["verifier", "drafter", "f_theta"] {
        std::fs::create_dir(folder.path().join(part)).unwrap();
        for entry in std::fs::read_dir(demo_pack().join(part)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.path().join(part).join(entry.file_name())).unwrap();
        }
    }
    let mut manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(demo_pack().join("pack.json")).unwrap()).unwrap();
    if !digests {
        manifest["sha256"] = serde_json::json!({});
    }
    std::fs::write(folder.path().join("pack.json"), manifest.to_string()).unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, change(std::fs::read(&path).unwrap())).unwrap();
    folder
}

#[test]
fn a_file_that_is_not_the_one_of_the_manifest_is_refused_by_name() {
    let space = |mut bytes: Vec<u8>| {
        bytes.push(b' ');
        bytes
    };
    let folder = altered(true, "drafter/config.json", space);
    let mut host = Host::greeted();
    let Event::Failed(report) = host.ask(&load(folder.path())) else { panic!("loaded") };
    assert_eq!(report.code, ErrorCode::DigestMismatch);
    assert!(report.message.contains("drafter/config.json"), "{report:?}");
    host.end();
}

#[test]
fn raw_prompts_need_no_chat_template() {
    let without = |bytes: Vec<u8>| {
        let mut settings: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        settings.as_object_mut().unwrap().remove("chat_template").unwrap();
        settings.to_string().into_bytes()
    };
    let folder = altered(false, "verifier/tokenizer_config.json", without);
    let mut host = Host::greeted();
    assert!(matches!(host.ask(&load(folder.path())), Event::Loaded(_)));
    let Request::Trial(mut raw) = trial(Arm::Oracle, "hello") else { panic!("no trial") };
    raw.variant = PromptVariant::Raw;
    assert_eq!(host.code(&trial(Arm::Oracle, "hello")), ErrorCode::Tokenizer);
    let answer = host.ask(&Request::Trial(raw));
    assert!(matches!(answer, Event::Done(_)), "{answer:?}");
    host.end();
}

#[test]
fn damaged_weights_are_named_with_what_to_do() {
    let weights = "verifier/model.safetensors";
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    for (damaged, words) in [
        (broken(weights, |bytes| bytes[..bytes.len() - 7].to_vec()), "promises"),
        (broken(weights, |_| Vec::new()), "0 bytes"),
        (broken(weights, |_| pointer.to_vec()), "Git LFS pointer"),
        (broken(weights, |_| vec![255; 64]), "header"),
    ] {
        assert_eq!(damaged.code, ErrorCode::WeightsDamaged);
        assert!(
            damaged.message.contains(words) && damaged.message.contains("model.safetensors"),
            "{damaged:?}"
        );
    }
}

#[test]
fn parts_that_do_not_belong_together_name_both_sides() {
    let swap = |from: &'static str, to: &'static str| {
        move |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(from, to).into_bytes()
    };
    let wrong = broken("drafter/config.json", swap("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"));
    assert_eq!(wrong.code, ErrorCode::DimensionMismatch);
    assert!(wrong.message.contains("2 layers") && wrong.message.contains("1 layers"), "{wrong:?}");
    let lacking = broken("verifier/config.json", swap("\"sliding_window\"", "\"no_window\""));
    assert_eq!(lacking.code, ErrorCode::ConfigUnsupported);
    assert!(lacking.message.contains("sliding_window"), "{lacking:?}");
}

#[test]
fn the_candle_version_is_the_locked_one() {
    let lock = include_str!("../../../Cargo.lock");
    let expected = format!("name = \"candle-core\"\nversion = \"{}\"", engine::candle::VERSION);
    assert!(lock.contains(&expected));
}
