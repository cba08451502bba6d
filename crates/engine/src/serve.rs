//! The engine's side of the protocol.

use crate::Error;
use crate::library::{self, Loaded};
use crate::threads;
use protocol::{ErrorCode, ErrorReport, Event, Hello, Host, Order, Request, Trial};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const HEARTBEAT: Duration = Duration::from_secs(1);

/// Which program serves: the command line passes in what it was built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Version of the program.
    pub version: String,
    /// Git commit; none outside a checkout.
    pub commit: Option<String>,
    /// Whether the checkout had uncommitted changes.
    pub dirty: bool,
}

/// What outlives a connection, and where this machine keeps things. The engine itself holds nothing but a pack.
pub trait Durable: Send {
    /// Folders that are packs, or hold some.
    fn packs(&self) -> Vec<PathBuf>;
    /// Folder of the journal.
    fn data(&self) -> &Path;
    /// Starts a run, or makes sure that it goes on.
    fn start(&self, order: &Order) -> Result<(), ErrorReport>;
    /// Ends a run.
    fn stop(&self, run: &str) -> Result<(), ErrorReport>;
    /// Hands number and text of each record after `after` to `tell` until that says no or the run has ended; whether
    /// somebody still works on it. While nothing happens, `tell` is asked with none.
    fn follow(
        &self,
        run: &str,
        after: u64,
        tell: &mut dyn FnMut(Option<(u64, String)>) -> bool,
    ) -> Result<bool, ErrorReport>;
}

/// Why serving ended early. Errors of a request are answered with an event and do not end it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The host's pipe could not be read.
    #[error("cannot read requests: {0}; start the engine again")]
    Input(#[from] std::io::Error),
}

/// A line of the host, and for a trial the flag that gives it up.
type Line = Result<(Request, Arc<AtomicBool>), ErrorReport>;

/// Serves requests, one JSON object a line, until the input closes; a dead output ends it quietly.
pub fn serve(
    input: impl BufRead + Send + 'static,
    output: impl Write + Send + 'static,
    identity: Identity,
    durable: impl Durable,
) -> Result<(), ServeError> {
    threads::join();
    let output = Output { writer: Arc::new(Mutex::new(output)), dead: Arc::new(AtomicBool::new(false)) };
    let (lines, requests) = channel();
    let reader = thread::spawn(move || read(input, &lines));
    let (stop, stopped) = channel();
    let heart = output.clone();
    let heartbeat = thread::spawn(move || beat(&heart, &stopped));
    let mut session = Session { output, identity, durable, greeted: false, engine: None };
    for line in requests {
        session.handle(line);
        if session.output.dead.load(Ordering::Relaxed) {
            // The reader may wait for a host that is gone; it ends with the process.
            return Ok(());
        }
    }
    drop(stop);
    let _ = heartbeat.join();
    match reader.join() {
        Ok(result) => Ok(result?),
        Err(_) => Ok(()),
    }
}

/// Reads requests ahead, so that a cancel is seen while a trial runs. The end of the input gives the trial up too.
fn read(input: impl BufRead, lines: &Sender<Line>) -> std::io::Result<()> {
    let mut current = Arc::new(AtomicBool::new(false));
    let result = input.lines().try_for_each(|line| {
        let line = line?;
        let message = match serde_json::from_str(&line) {
            Ok(Request::Cancel | Request::Leave) => {
                current.store(true, Ordering::Relaxed);
                return Ok(());
            }
            Ok(request) => {
                if matches!(request, Request::Trial(_) | Request::Follow { .. }) {
                    current = Arc::new(AtomicBool::new(false));
                }
                Ok((request, current.clone()))
            }
            Err(e) => Err(ErrorReport::new(
                ErrorCode::RequestMalformed,
                format!("no request: {e}"),
                "host and engine may differ in version",
            )),
        };
        // A session that has ended reads no more.
        let _ = lines.send(message);
        Ok(())
    });
    current.store(true, Ordering::Relaxed);
    result
}

fn beat<W: Write>(output: &Output<W>, stopped: &Receiver<()>) {
    let (Ok(pid), Ok(mut system)) = (sysinfo::get_current_pid(), sysinfo::System::new()) else { return };
    while stopped.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout)
        && !output.dead.load(Ordering::Relaxed)
    {
        system.refresh_processes(sysinfo::ProcessesToUpdate::Some(&[pid]), true);
        if let Some(process) = system.process(pid) {
            output.send(&Event::Heartbeat { resident_bytes: process.memory() });
        }
    }
}

struct Output<W> {
    writer: Arc<Mutex<W>>,
    dead: Arc<AtomicBool>,
}

impl<W> Clone for Output<W> {
    fn clone(&self) -> Self {
        Self { writer: self.writer.clone(), dead: self.dead.clone() }
    }
}

impl<W: Write> Output<W> {
    fn send(&self, event: &Event) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_string(event)
            .map_err(std::io::Error::from)
            .and_then(|line| writeln!(writer, "{line}"))
            .and_then(|()| writer.flush());
        if written.is_err() {
            self.dead.store(true, Ordering::Relaxed);
        }
    }
}

struct Session<W, D> {
    output: Output<W>,
    identity: Identity,
    durable: D,
    greeted: bool,
    engine: Option<Box<dyn Loaded>>,
}

impl<W: Write, D: Durable> Session<W, D> {
    fn handle(&mut self, line: Line) {
        let event = match line {
            Err(report) => Event::Failed(report),
            Ok((Request::Hello { protocol }, _)) => self.hello(protocol),
            Ok(_) if !self.greeted => Event::Failed(ErrorReport::new(
                ErrorCode::HelloMissing,
                "the first request must be hello",
                "send hello first",
            )),
            Ok((Request::Load { pack, backend, device, arms }, _)) => {
                self.engine = None;
                match library::load(backend, device, &pack, &arms) {
                    Ok(engine) => Event::Loaded(self.engine.insert(engine).loaded().clone()),
                    Err(error) => Event::Failed(error.report()),
                }
            }
            Ok((Request::Inspect { spec }, _)) => match crate::inspect(&spec) {
                Ok(inspection) => Event::Inspected(Box::new(inspection)),
                Err(error) => Event::Failed(error.report()),
            },
            Ok((Request::Trial(trial), cancel)) => self.trial(trial, &cancel),
            Ok((Request::Worker { mut packs }, _)) => {
                packs.extend(self.durable.packs());
                Event::Worker(Box::new(crate::worker::worker(&packs, self.durable.data())))
            }
            Ok((Request::Start(order), _)) => accepted(&order.run, self.durable.start(&order)),
            Ok((Request::Stop { run }, _)) => accepted(&run, self.durable.stop(&run)),
            Ok((Request::Follow { run, after }, left)) => self.follow(run, after, &left),
            Ok((Request::Cancel | Request::Leave, _)) => return,
        };
        self.output.send(&event);
    }

    fn hello(&mut self, protocol: u32) -> Event {
        if protocol != protocol::VERSION {
            let message = format!("the host speaks protocol {protocol}, this engine {}", protocol::VERSION);
            return Event::Failed(ErrorReport::new(
                ErrorCode::ProtocolVersion,
                message,
                "use host and engine of the same version",
            ));
        }
        match hello(&self.identity) {
            Ok(hello) => {
                self.greeted = true;
                Event::Hello(hello)
            }
            Err(error) => Event::Failed(error.report()),
        }
    }

    fn follow(&mut self, run: String, after: u64, left: &AtomicBool) -> Event {
        let followed = self.durable.follow(&run, after, &mut |record| {
            if let Some((number, text)) = record {
                let sha256 = files::sha256(text.as_bytes());
                self.output.send(&Event::Record { number, text, sha256 });
            }
            !left.load(Ordering::Relaxed) && !self.output.dead.load(Ordering::Relaxed)
        });
        match followed {
            Ok(alive) => Event::Left { run, alive },
            Err(error) => Event::Failed(error),
        }
    }

    fn trial(&mut self, trial: Trial, cancel: &AtomicBool) -> Event {
        let Some(engine) = &mut self.engine else {
            return Event::Failed(ErrorReport::new(
                ErrorCode::PackNotLoaded,
                "no pack is loaded",
                "send load first",
            ));
        };
        let mut progress = |stage, tokens| {
            self.output.send(&Event::Progress { id: trial.id.clone(), stage, tokens });
            if self.output.dead.load(Ordering::Relaxed) {
                cancel.store(true, Ordering::Relaxed);
            }
        };
        match engine.answer(&trial, cancel, &mut progress) {
            Ok(result) => Event::Done(result),
            Err(Error::Cancelled) => Event::Cancelled { id: trial.id },
            Err(error) => Event::Failed(error.report()),
        }
    }
}

fn accepted(run: &str, outcome: Result<(), ErrorReport>) -> Event {
    match outcome {
        Ok(()) => Event::Accepted { run: run.to_owned() },
        Err(error) => Event::Failed(error),
    }
}

fn hello(identity: &Identity) -> Result<Hello, Error> {
    let (mut cpu, mut memory_bytes) = (String::new(), 0);
    if let Ok(mut system) = sysinfo::System::new() {
        system.refresh_memory();
        system.refresh_cpu_all();
        cpu = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned()).unwrap_or_default();
        memory_bytes = system.total_memory();
    }
    Ok(Hello {
        protocol: protocol::VERSION,
        version: identity.version.clone(),
        commit: identity.commit.clone(),
        dirty: identity.dirty,
        backends: library::devices(&cpu)?,
        host: Host {
            os: sysinfo::System::long_os_version().unwrap_or_else(|_| std::env::consts::OS.into()),
            arch: std::env::consts::ARCH.into(),
            cpu,
            cores: thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_bytes,
        },
    })
}
