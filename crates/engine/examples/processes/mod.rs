//! Programs that are asked and answer, line by line: the engine's process, and what it is measured against.

use niah::{PromptVariant, Sample};
use protocol::{Arm, Backend, Decode, Event, Request, RunSpec, Trial, TrialResult};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Seed of all samples.
pub const SEED: i64 = 42;
/// Tokens of an answer at most.
pub const TOKENS: usize = 24;

/// The question for a sample's needle, with the settings of the project's runs.
pub fn trial(arm: Arm, decode: Decode, sample: &Sample, variant: PromptVariant) -> Trial {
    Trial {
        id: arm.to_string(),
        arm,
        prompt: variant.text(sample),
        variant,
        decode,
        sink: 4,
        window: 64,
        max_new_tokens: TOKENS,
        prefill_chunk: RunSpec::PREFILL_CHUNK,
        seed: SEED,
        sample: 0,
        fidelity: false,
        answer: None,
    }
}

/// `kakeya-gate engine`.
pub struct Engine(Process);

impl Engine {
    /// Starts `gate`, which is told its number of threads by the environment.
    pub fn start(gate: &mut Command) -> Self {
        let mut engine = Self(Process::start(gate.arg("engine")));
        engine.0.send(&Request::Hello { protocol: protocol::VERSION });
        engine.wait(|event| matches!(event, Event::Hello(_)));
        engine
    }

    /// Loads `pack` for `arms` on the backend's own device.
    pub fn load(&mut self, pack: &Path, backend: Backend, arms: &[Arm]) {
        let (pack, arms) = (pack.to_owned(), arms.to_vec());
        self.0.send(&Request::Load { pack, backend, device: backend.device(), arms });
        self.wait(|event| matches!(event, Event::Loaded(_)));
    }

    /// Asks for `trial` without waiting for its end.
    pub fn begin(&mut self, trial: Trial) {
        self.0.send(&Request::Trial(trial));
    }

    /// The result of `trial`.
    pub fn ask(&mut self, trial: Trial) -> TrialResult {
        self.begin(trial);
        match self.wait(|event| matches!(event, Event::Done(_))) {
            Event::Done(result) => result,
            _ => unreachable!(),
        }
    }

    /// The next event that is `wanted`.
    pub fn wait(&mut self, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            match self.0.receive() {
                event if wanted(&event) => return event,
                Event::Failed(report) => panic!("{report:?}"),
                _ => {}
            }
        }
    }
}

/// A process that is asked and answers line by line.
pub struct Process {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    /// Sends one line.
    pub fn send(&mut self, message: &impl Serialize) {
        writeln!(self.to, "{}", serde_json::to_string(message).unwrap()).unwrap();
        self.to.flush().unwrap();
    }

    /// The next line.
    pub fn receive<T: DeserializeOwned>(&mut self) -> T {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
