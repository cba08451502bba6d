//! An engine process: started, spoken to, watched.

use crate::RunError;
use protocol::{ErrorReport, Event, Hello, Inspection, Request, RunSpec, Worker};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Engines beat once a second; one that is silent this long has hung.
const SILENCE: Duration = Duration::from_secs(60);
/// How many threads the engine's numeric library uses.
const THREADS: &str = "RAYON_NUM_THREADS";
/// Lines of standard error kept for the message when it dies.
const LAST_WORDS: usize = 8;
/// How long its last words may take to arrive once it is gone.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);
/// Messages that may wait: a host that is slow makes the engine wait, instead of filling its own memory.
const WAITING: usize = 256;
/// Longest line of a message; longer ones are no messages of ours.
const LINE_CAP: u64 = 64 << 20;

/// The program that runs the engine, as `PROGRAM engine`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineProgram(
    /// Path of `kakeya-gate`.
    pub PathBuf,
);

/// A running engine process. Dropping it ends the process.
#[derive(Debug)]
pub struct Engine {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Result<Event, String>>,
    last_words: Arc<Mutex<VecDeque<String>>>,
    /// Closed when its standard error is.
    said: Receiver<()>,
    last_heard: Instant,
}

impl Engine {
    /// Starts the program and shakes hands: the engine, and what it says of itself.
    pub fn start(program: &EngineProgram) -> Result<(Self, Hello), RunError> {
        let mut command = Command::new(&program.0);
        command.arg("engine");
        // Unset, candle asks the system for the number of cores at every matrix product: a fifth of a run on the demo pack.
        if std::env::var_os(THREADS).is_none()
            && let Ok(cores) = std::thread::available_parallelism()
        {
            command.env(THREADS, cores.to_string());
        }
        Self::start_command(command)
    }

    /// The same with any command that ends in an engine, ssh among them.
    pub(crate) fn start_command(mut command: Command) -> Result<(Self, Hello), RunError> {
        let program = PathBuf::from(command.get_program());
        let not_started = |source| RunError::NotStarted { program: program.clone(), source };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        out_of_reach_of_ctrl_c(&mut command);
        let mut child = command.spawn().map_err(not_started)?;
        let missing = || not_started(std::io::Error::other("a pipe is missing"));
        let output = child.stdout.take().ok_or_else(missing)?;
        let errors = child.stderr.take().ok_or_else(missing)?;
        let input = child.stdin.take();
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        let mut engine = Self {
            child,
            input,
            lines: read_events(output),
            said: keep_last_words(errors, Arc::clone(&last_words)),
            last_words,
            last_heard: Instant::now(),
        };
        engine.send(&Request::Hello { protocol: protocol::VERSION })?;
        let hello = engine.wait("shaking hands", |event| match event {
            Event::Hello(hello) => Some(hello),
            _ => None,
        })?;
        Ok((engine, hello))
    }

    /// Sends one request.
    pub fn send(&mut self, request: &Request) -> Result<(), RunError> {
        let garbled = |e: serde_json::Error| RunError::Garbled(e.to_string());
        let mut line = serde_json::to_vec(request).map_err(garbled)?;
        line.push(b'\n');
        let written = self.input.as_mut().map(|input| input.write_all(&line).and_then(|()| input.flush()));
        match written {
            Some(Ok(())) => Ok(()),
            _ => Err(self.lost("being sent a request")),
        }
    }

    /// The next event, or None after `patience` without one. `doing` names the work, for the error when it dies.
    pub fn next(&mut self, patience: Duration, doing: &str) -> Result<Option<Event>, RunError> {
        match self.lines.recv_timeout(patience) {
            Ok(Ok(event)) => {
                self.last_heard = Instant::now();
                Ok(Some(event))
            }
            Ok(Err(line)) => Err(RunError::Garbled(line)),
            Err(RecvTimeoutError::Timeout) if self.last_heard.elapsed() < SILENCE => Ok(None),
            Err(_) => Err(self.lost(doing)),
        }
    }

    /// Reads on until `wanted` takes an event. A [`Event::Failed`] ends the wait.
    pub fn wait<T>(&mut self, doing: &str, wanted: impl Fn(Event) -> Option<T>) -> Result<T, RunError> {
        loop {
            match self.next(SILENCE, doing)? {
                Some(Event::Failed(report)) => return Err(report.into()),
                Some(event) => {
                    if let Some(found) = wanted(event) {
                        return Ok(found);
                    }
                }
                None => {}
            }
        }
    }

    /// What the machine has for a run.
    pub(crate) fn worker(&mut self, packs: &[PathBuf]) -> Result<Worker, RunError> {
        self.send(&Request::Worker { packs: packs.to_vec() })?;
        self.wait("looking for packs", |event| match event {
            Event::Worker(worker) => Some(*worker),
            _ => None,
        })
    }

    fn lost(&mut self, doing: &str) -> RunError {
        let silent = self.last_heard.elapsed() >= SILENCE;
        if silent {
            let _ = self.child.kill();
        }
        let status = self.child.wait();
        let code = status.as_ref().ok().and_then(ExitStatus::code);
        let how = match status {
            _ if silent => format!("was silent for {} s and was ended", SILENCE.as_secs()),
            Ok(status) => format!("ended ({status})"),
            Err(error) => format!("ended ({error})"),
        };
        // What it said last is still on its way. A process that it has left behind may hold the pipe for ever.
        let _ = self.said.recv_timeout(LAST_WORDS_WITHIN);
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let last_words = words.iter().fold(String::new(), |all, line| format!("{all}\n  {line}"));
        RunError::Lost { how, code, doing: doing.to_owned(), last_words }
    }
}

impl Drop for Engine {
    /// Closing its input asks an engine to end; killing makes sure.
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl EngineProgram {
    /// Starts the engine, lets it look at the pack of `spec`, ends it. Gives who it is, and what it saw.
    pub fn inspect(&self, spec: &RunSpec) -> Result<(Hello, Result<Inspection, ErrorReport>), ErrorReport> {
        let (mut engine, hello) = Engine::start(self)?;
        let asked = engine.send(&Request::Inspect { spec: spec.clone() });
        let seen = asked.and_then(|()| {
            engine.wait("looking at the pack", |event| match event {
                Event::Inspected(inspection) => Some(*inspection),
                _ => None,
            })
        });
        Ok((hello, seen.map_err(ErrorReport::from)))
    }
}

impl EngineProgram {
    /// The packs that an engine on this machine finds in these folders, beside the machine's own.
    pub fn packs(&self, folders: &[PathBuf]) -> Result<Worker, RunError> {
        let (mut engine, _) = Engine::start(self)?;
        engine.worker(folders)
    }
}

/// Ctrl-C in a terminal goes to the whole process group; the host decides when its engine ends.
#[cfg(unix)]
fn out_of_reach_of_ctrl_c(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

#[cfg(not(unix))]
fn out_of_reach_of_ctrl_c(_command: &mut Command) {}

fn read_events(output: impl Read + Send + 'static) -> Receiver<Result<Event, String>> {
    let (sender, receiver) = mpsc::sync_channel(WAITING);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(output);
        loop {
            let mut line = Vec::new();
            match reader.by_ref().take(LINE_CAP).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let event = serde_json::from_slice(&line).map_err(|_| beginning(&line));
            let garbled = event.is_err();
            if sender.send(event).is_err() || garbled {
                return;
            }
        }
    });
    receiver
}

fn beginning(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().take(200).collect()
}

fn keep_last_words(errors: impl Read + Send + 'static, words: Arc<Mutex<VecDeque<String>>>) -> Receiver<()> {
    let (open, said) = mpsc::channel();
    std::thread::spawn(move || {
        let _open: mpsc::Sender<()> = open;
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
            if words.len() == LAST_WORDS {
                words.pop_front();
            }
            words.push_back(line.chars().take(300).collect());
        }
    });
    said
}
