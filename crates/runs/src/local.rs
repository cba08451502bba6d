//! An engine on this machine: a child process, started again when it dies.

use crate::engine::{Engine, EngineProgram};
use crate::plan::{Build, Planned};
use crate::target::{Answers, Opened, Take, Told};
use crate::{Cancel, RunError};
use evidence::text;
use protocol::{Event, Hello, LoadedPack, Record, Request, RunSpec, TrialResult};
use std::time::{Duration, Instant};

/// How often a waiting host looks at its cancel flag.
pub(crate) const GLANCE: Duration = Duration::from_millis(100);
/// How long an engine may take to give up a trial before it is ended.
const GIVE_UP: Duration = Duration::from_secs(5);
/// An engine that dies this often in a row over the same trial ends the run.
const ATTEMPTS: usize = 3;

/// An engine process with a pack in memory.
struct Ready {
    engine: Engine,
    hello: Hello,
    pack: LoadedPack,
}

/// This machine.
pub(crate) struct Local<'a> {
    program: &'a EngineProgram,
    spec: Option<RunSpec>,
    ready: Option<Ready>,
}

impl<'a> Local<'a> {
    pub(crate) fn new(program: &'a EngineProgram) -> Self {
        Self { program, spec: None, ready: None }
    }

    fn start(&mut self, spec: &RunSpec, cancel: &Cancel) -> Result<&mut Ready, RunError> {
        let (mut engine, hello) = Engine::start(self.program)?;
        engine.send(&Request::Load {
            pack: spec.pack.clone(),
            backend: spec.backend,
            device: spec.device,
            arms: spec.arms.clone(),
        })?;
        let loaded = |event| match event {
            Event::Loaded(pack) => Some(pack),
            _ => None,
        };
        let pack = wait(&mut engine, "loading the pack", cancel, &mut |_| Ok(()), loaded)?;
        Ok(self.ready.insert(Ready { engine, hello, pack }))
    }
}

impl Answers for Local<'_> {
    fn open(&mut self, spec: &RunSpec, cancel: &Cancel) -> Result<Opened, RunError> {
        let ready = self.start(spec, cancel)?;
        let opened = Opened { build: Build::of(&ready.hello, spec), pack: ready.pack.digest.clone() };
        self.spec = Some(spec.clone());
        Ok(opened)
    }

    fn answer(&mut self, trials: &[&Planned], _: u64, cancel: &Cancel, take: Take) -> Result<(), RunError> {
        let Some(spec) = self.spec.clone() else { return Ok(()) };
        let mut told = false;
        for planned in trials {
            if cancel.is_cancelled() {
                return Err(RunError::Cancelled);
            }
            let mut lost = 0;
            loop {
                let ready = match self.ready.take() {
                    Some(ready) => self.ready.insert(ready),
                    None => self.start(&spec, cancel)?,
                };
                if !std::mem::replace(&mut told, true) {
                    let (hello, pack) = (Box::new(ready.hello.clone()), Box::new(ready.pack.clone()));
                    take(0, Told::Record(Record::Loaded { hello, pack }))?;
                }
                match answer_one(&mut ready.engine, planned, cancel, take) {
                    Ok(()) => break,
                    Err(error @ RunError::Lost { .. }) if lost + 1 < ATTEMPTS => {
                        lost += 1;
                        (self.ready, told) = (None, false);
                        let line = text!("{error}; started again", "引擎已重新启动：{error}");
                        take(0, Told::Notice(line))?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

fn answer_one(engine: &mut Engine, planned: &Planned, cancel: &Cancel, take: Take) -> Result<(), RunError> {
    let id = planned.id();
    take(0, Told::Record(Record::Started { id: id.to_owned() }))?;
    engine.send(&Request::Trial(planned.trial.clone()))?;
    let doing = format!("answering rung {}, sample {}, {}", planned.rung.0, planned.sample, planned.arm);
    let done = |event| match event {
        Event::Done(result) if result.id == id => Some(result),
        _ => None,
    };
    let result: TrialResult =
        wait(engine, &doing, cancel, &mut |record| take(0, Told::Record(record)), done)?;
    take(0, Told::Record(Record::Done { id: id.to_owned(), result: Box::new(result) }))
}

/// Waits for the event that `wanted` takes; passes progress on; obeys the cancel flag.
pub(crate) fn wait<T>(
    engine: &mut Engine,
    doing: &str,
    cancel: &Cancel,
    take: &mut dyn FnMut(Record) -> Result<(), RunError>,
    wanted: impl Fn(Event) -> Option<T>,
) -> Result<T, RunError> {
    loop {
        if cancel.is_cancelled() {
            return Err(give_up(engine, doing));
        }
        match engine.next(GLANCE, doing)? {
            None => {}
            Some(Event::Failed(report)) => return Err(report.into()),
            Some(Event::Progress { stage, tokens, .. }) => take(Record::Progress { stage, tokens })?,
            Some(Event::Heartbeat { resident_bytes }) => take(Record::Memory { resident_bytes })?,
            Some(event) => {
                if let Some(found) = wanted(event) {
                    return Ok(found);
                }
            }
        }
    }
}

/// Asks the engine to give up its trial; when it does not, dropping it ends the process.
fn give_up(engine: &mut Engine, doing: &str) -> RunError {
    let asked = Instant::now();
    if engine.send(&Request::Cancel).is_ok() {
        while asked.elapsed() < GIVE_UP {
            match engine.next(GLANCE, doing) {
                Ok(Some(Event::Cancelled { .. } | Event::Done(_) | Event::Loaded(_))) | Err(_) => break,
                Ok(_) => {}
            }
        }
    }
    RunError::Cancelled
}
