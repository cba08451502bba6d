//! The other end of the queue: takes trials that this machine can answer, one pack in memory at a time.

use super::link::{ACK_WAIT, Answer, DELIVERIES, Dead, Link, Ticket, dead, kind, live, results};
use crate::engine::{Engine, EngineProgram};
use crate::journal::{Answerer, Entry, Journal};
use crate::local::Local;
use crate::plan::{Build, Planned};
use crate::target::Answers;
use crate::{Cancel, RunError};
use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::{AckKind, Message};
use niah::Rung;
use protocol::{Backend, Device, Hello, Record, RunSpec, TrialResult};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The server is asked this often for each kind of trial when there is nothing to do.
const IDLE: Duration = Duration::from_secs(1);
/// A worker takes trials for about this long at a time, so that short ones do not each pay a way to the server.
const HELPING: Duration = Duration::from_millis(250);
const MOST: usize = 64;
/// A server that is away is looked for this often.
const AWAY: Duration = Duration::from_secs(1);
/// A failed trial is handed out again after this time.
const AGAIN: Duration = Duration::from_secs(1);

/// What a worker does, for its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// Takes trials of these packs: name, digest, library, device.
    Waiting(Vec<(String, String, Backend, Device)>),
    /// Has answered a trial.
    Answered {
        /// The trial.
        id: String,
        /// Run that it belongs to.
        run: String,
    },
    /// Something that a person should read.
    Notice(String),
}

/// A worker of a queue.
#[derive(Debug)]
pub struct QueueWorker {
    /// Address of the server, or the name of a context of the `nats` tool.
    pub url: String,
    /// The program that runs the engine.
    pub program: EngineProgram,
    /// Folder of the journal.
    pub data: PathBuf,
    /// Folders that are packs, or hold some, beside the machine's own.
    pub packs: Vec<PathBuf>,
    /// Ends after this long without a trial; none to wait for ever.
    pub idle: Option<Duration>,
    /// Stops it: the trial at hand goes back to the queue.
    pub cancel: Cancel,
}

/// One kind of trial that this machine can answer.
struct Desk {
    folder: PathBuf,
    build: Build,
    consumer: Consumer<pull::Config>,
}

impl QueueWorker {
    /// Takes trials until it is cancelled or has been idle for long enough.
    pub fn work(&self, mut watch: impl FnMut(WorkerEvent)) -> Result<(), RunError> {
        let journal = Journal::open(&self.data)?;
        let mut served = Instant::now();
        while !self.cancel.is_cancelled() {
            match self.session(&journal, &mut served, &mut watch) {
                Err(RunError::Queue { url, reason }) => {
                    watch(WorkerEvent::Notice(format!("the queue {url}: {reason}; trying again")));
                    crate::look_again_after(AWAY);
                }
                Err(RunError::Cancelled) => return Ok(()),
                ended => return ended,
            }
            if self.is_idle(served) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn is_idle(&self, served: Instant) -> bool {
        self.idle.is_some_and(|idle| served.elapsed() >= idle)
    }

    /// Works on one connection.
    fn session(
        &self,
        journal: &Journal,
        served: &mut Instant,
        watch: &mut dyn FnMut(WorkerEvent),
    ) -> Result<(), RunError> {
        let link = Link::open(&self.url)?;
        let desks = self.desks(&link, watch)?;
        let mut seat = Seat { worker: self, link: &link, journal, local: None };
        let (mut batch, mut kind) = (1, 0);
        while !self.cancel.is_cancelled() && !self.is_idle(*served) {
            let Some(desk) = desks.get(kind) else { return Err(self.nothing_to_offer()) };
            let patience = IDLE / u32::try_from(desks.len()).unwrap_or(1);
            let messages = link.fetch(&desk.consumer, batch, patience)?;
            if messages.is_empty() {
                kind = (kind + 1) % desks.len();
                continue;
            }
            let (began, count) = (Instant::now(), messages.len());
            seat.answer_all(desk, messages, watch)?;
            *served = Instant::now();
            let each = began.elapsed() / u32::try_from(count).unwrap_or(1);
            let fitting = HELPING.as_nanos() / each.as_nanos().max(1);
            batch = usize::try_from(fitting).unwrap_or(MOST).clamp(1, MOST);
        }
        Ok(())
    }

    fn nothing_to_offer(&self) -> RunError {
        RunError::NoPack {
            place: "this worker".into(),
            pack: "that can be used".into(),
            found: "none; name folders with --packs".into(),
        }
    }

    /// A consumer for every pack on every library and device of this machine.
    fn desks(&self, link: &Link, watch: &mut dyn FnMut(WorkerEvent)) -> Result<Vec<Desk>, RunError> {
        let (_, hello) = Engine::start(&self.program)?;
        let found = self.program.packs(&self.packs)?.packs;
        let mut desks = Vec::new();
        let mut offered = Vec::new();
        for pack in found {
            let Some(digest) = pack.digest else {
                let problem = pack.problem.unwrap_or_default();
                watch(WorkerEvent::Notice(format!("{}: {problem}", pack.folder.display())));
                continue;
            };
            for info in &hello.backends {
                let build = build(&hello, info.backend, info.device);
                let consumer = link.consumer(&kind(&build, &digest))?;
                offered.push((pack.name.clone(), digest.clone(), info.backend, info.device));
                desks.push(Desk { folder: pack.folder.clone(), build, consumer });
            }
        }
        watch(WorkerEvent::Waiting(offered));
        Ok(desks)
    }
}

fn build(hello: &Hello, backend: Backend, device: Device) -> Build {
    Build {
        version: hello.version.clone(),
        commit: hello.commit.clone(),
        dirty: hello.dirty,
        backend,
        device,
    }
}

/// A worker at work: a connection, a journal, an engine with a pack.
struct Seat<'a> {
    worker: &'a QueueWorker,
    link: &'a Link,
    journal: &'a Journal,
    local: Option<(Build, PathBuf, Local<'a>)>,
}

impl<'a> Seat<'a> {
    /// Answers the trials of a batch; meanwhile the server is told that all of them are being worked on.
    fn answer_all(
        &mut self,
        desk: &Desk,
        messages: Vec<Message>,
        watch: &mut dyn FnMut(WorkerEvent),
    ) -> Result<(), RunError> {
        let mut beaten = Instant::now();
        for (at, message) in messages.iter().enumerate() {
            let mut beat = |link: &Link| {
                if beaten.elapsed() > ACK_WAIT / 3 {
                    beaten = Instant::now();
                    messages[at..]
                        .iter()
                        .for_each(|waiting| drop(link.run(waiting.ack_with(AckKind::Progress))));
                }
            };
            match self.answer(desk, message, &mut beat) {
                Ok(Some((id, run))) => watch(WorkerEvent::Answered { id, run }),
                Ok(None) => {}
                Err(error) => {
                    // What was not answered goes back at once.
                    let back = |waiting: &Message| drop(self.link.run(waiting.ack_with(AckKind::Nak(None))));
                    messages[at..].iter().for_each(back);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Answers one trial, or gives it back. An error is one of the worker, not of the trial.
    fn answer(
        &mut self,
        desk: &Desk,
        message: &Message,
        beat: &mut dyn FnMut(&Link),
    ) -> Result<Option<(String, String)>, RunError> {
        let link = self.link;
        let Ok(ticket) = serde_json::from_slice::<Ticket>(&message.payload) else {
            link.run(message.ack_with(AckKind::Term))?;
            return Ok(None);
        };
        let (id, run) = (ticket.trial.id.clone(), ticket.run.clone());
        match self.result(desk, &ticket, beat) {
            Ok((answerer, result)) => {
                let sha256 = Answer::digest(&result);
                let (hello, loaded) = (Box::new(answerer.hello), Box::new(answerer.pack));
                let build = desk.build.clone();
                let answer =
                    Answer { id: id.clone(), build, result: Box::new(result), sha256, hello, loaded };
                link.publish(&results(&run), format!("{run}.{id}"), &answer)?;
                link.run(message.double_ack())?;
                Ok(Some((id, run)))
            }
            Err(error @ (RunError::Cancelled | RunError::Journal(_) | RunError::Queue { .. })) => Err(error),
            Err(error) => {
                self.local = None;
                self.give_back(message, &id, &run, &error)?;
                Ok(None)
            }
        }
    }

    /// A trial that failed here may succeed elsewhere; the last worker that tries says why it is given up.
    fn give_back(&self, message: &Message, id: &str, run: &str, error: &RunError) -> Result<(), RunError> {
        let info = message.info().map(|info| (info.delivered, info.stream_sequence));
        let (delivered, number) = info.unwrap_or((1, 0));
        if delivered < i64::try_from(DELIVERIES).unwrap_or(i64::MAX) {
            return self.link.run(message.ack_with(AckKind::Nak(Some(AGAIN))));
        }
        let letter = Dead { id: id.to_owned(), reason: error.to_string() };
        self.link.publish(&dead(run), format!("{run}.{id}.dead.{number}"), &letter)?;
        self.link.run(message.ack_with(AckKind::Term))
    }

    /// The result: from this worker's journal where it died before it could tell, else measured now.
    fn result(
        &mut self,
        desk: &Desk,
        ticket: &Ticket,
        beat: &mut dyn FnMut(&Link),
    ) -> Result<(Answerer, TrialResult), RunError> {
        let run = ticket.run.as_str();
        if let Some(known) = self.journal.answered(run, &ticket.trial.id)? {
            return Ok(known);
        }
        let spec = specification(ticket, &desk.build, &desk.folder);
        self.journal.begin(&Entry::for_another(run, &spec), None)?;
        let (link, cancel) = (self.link, &self.worker.cancel);
        let mut found: (Option<Answerer>, Option<TrialResult>) = (None, None);
        let planned = Planned {
            rung: Rung(0),
            sample: ticket.trial.sample,
            arm: ticket.trial.arm,
            trial: ticket.trial.clone(),
        };
        let local = self.seated(desk, &spec)?;
        local.answer(&[&planned], 0, cancel, &mut |_, said| {
            beat(link);
            match Record::from(said) {
                Record::Loaded { hello, pack } => found.0 = Some(Answerer { hello: *hello, pack: *pack }),
                Record::Done { result, .. } => found.1 = Some(*result),
                Record::Memory { .. } => {}
                record => link.tell(&live(run), &record),
            }
            Ok(())
        })?;
        let (Some(answerer), Some(result)) = found else {
            return Err(RunError::Garbled("the engine answered nothing".into()));
        };
        let number = self.journal.answerer(run, &answerer)?;
        self.journal.commit(run, &ticket.trial.id, number, &result, 0)?;
        Ok((answerer, result))
    }

    /// The engine with the pack of this desk in memory.
    fn seated(&mut self, desk: &Desk, spec: &RunSpec) -> Result<&mut Local<'a>, RunError> {
        let same =
            |(build, folder, _): &(Build, PathBuf, Local)| *build == desk.build && *folder == desk.folder;
        let seated = match self.local.take().filter(same) {
            Some(seated) => seated,
            None => {
                let mut local = Local::new(&self.worker.program);
                local.open(spec, &self.worker.cancel)?;
                (desk.build.clone(), desk.folder.clone(), local)
            }
        };
        Ok(&mut self.local.insert(seated).2)
    }
}

/// As much of a specification as loading the pack needs.
fn specification(ticket: &Ticket, build: &Build, folder: &Path) -> RunSpec {
    let trial = &ticket.trial;
    RunSpec {
        pack: folder.to_owned(),
        backend: build.backend,
        device: build.device,
        arms: ticket.arms.clone(),
        decode: trial.decode,
        ladder: Vec::new(),
        n_samples: 0,
        seed: trial.seed,
        sink: trial.sink,
        window: trial.window,
        max_new_tokens: trial.max_new_tokens,
        prefill_chunk: trial.prefill_chunk,
        prompt: trial.variant,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_kind_is_one_program_on_one_device_with_one_pack() {
        let with = |device| Build {
            version: "1".into(),
            commit: None,
            dirty: false,
            backend: Backend::Candle,
            device,
        };
        let mut seen = BTreeSet::new();
        for device in [Device::Cpu, Device::Cuda] {
            for pack in ["a", "b"] {
                seen.insert(kind(&with(device), pack));
            }
        }
        assert_eq!(seen.len(), 4);
    }
}
