//! The run itself: what is planned, what the journal has, what is still to be answered, and the evidence at the end.

use crate::assemble;
use crate::book::Book;
use crate::journal::{Entry, Journal, JournalledRun, Owned, RunState};
use crate::local::Local;
use crate::plan::{self, Planned};
use crate::queue::Queue;
use crate::ssh::Ssh;
use crate::target::{Answers, Target};
use crate::{EngineProgram, RunError, RunEvent, Shard};
use evidence::OverriddenCheck;
use jiff::Timestamp;
use protocol::{ErrorReport, RunSpec};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops a run from another thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    now: AtomicBool,
    after_sample: AtomicBool,
    rested: AtomicBool,
}

impl Cancel {
    /// Asks the run to stop; it ends with [`RunError::Cancelled`].
    pub fn cancel(&self) {
        self.0.now.store(true, Ordering::Relaxed);
    }

    /// Asks the run to stop once the sample that is going on has been answered by every arm: nothing that was begun is lost.
    /// It ends with [`RunError::Paused`].
    pub fn pause(&self) {
        self.0.after_sample.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.now.load(Ordering::Relaxed)
    }

    pub(crate) fn is_pausing(&self) -> bool {
        self.0.after_sample.load(Ordering::Relaxed)
    }

    /// Stops the run that was to pause: the sample in hand is done.
    pub(crate) fn rest(&self) {
        self.0.rested.store(true, Ordering::Relaxed);
        self.cancel();
    }

    fn has_rested(&self) -> bool {
        self.0.rested.load(Ordering::Relaxed)
    }
}

/// How a run begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Every trial is measured now.
    Anew,
    /// Trials that earlier runs have finished are taken over; the evidence names those runs.
    Reuse,
    /// A run that is in the journal goes on where it stopped, or begins if it was only entered; what other runs have finished
    /// is taken over if that was asked for when it was entered.
    Continue {
        /// Its id.
        run: String,
    },
}

/// A run ready to go.
#[derive(Debug)]
pub struct Run {
    /// What to run.
    pub spec: RunSpec,
    /// Where.
    pub target: Target,
    /// Folder for the evidence files; created when the first is written.
    pub out: PathBuf,
    /// The program that runs the engine on this machine.
    pub program: EngineProgram,
    /// Folder of the journal.
    pub data: PathBuf,
    /// Anew, with what is known, or going on.
    pub begin: Begin,
    /// The part that is run; none for all of it. A part is written as a shard, which [`crate::merge`] takes.
    pub shard: Option<Shard>,
    /// Stops it.
    pub cancel: Cancel,
    /// Failing checks in spite of which it is started; the evidence names them.
    pub overridden: Vec<OverriddenCheck>,
}

impl Run {
    /// The run of that id, to be continued as it was started.
    pub fn resume(data: &Path, id: &str, program: EngineProgram) -> Result<Self, RunError> {
        Ok(Self::journalled(data, Journal::open(data)?.run(id)?, program))
    }

    fn journalled(data: &Path, run: JournalledRun, program: EngineProgram) -> Self {
        let JournalledRun { id, target, spec, out, overridden, shard, .. } = run;
        let (begin, cancel) = (Begin::Continue { run: id }, Cancel::default());
        Self { spec, target, out, program, data: data.to_owned(), begin, shard, cancel, overridden }
    }

    /// The run that has waited longest for the same target; none if nothing waits there.
    pub fn next_in_queue(&self) -> Result<Option<Self>, RunError> {
        let journal = Journal::open(&self.data)?;
        // Where another process is at work, what waits is its to begin.
        if journal.is_busy(&self.target)? {
            return Ok(None);
        }
        let next = journal.waiting(&self.target)?.into_iter().find(|run| !run.alive);
        Ok(next.map(|run| Self::journalled(&self.data, run, self.program.clone())))
    }

    /// Runs to the end and returns the evidence files: one a rung, and with mixtures its sweep. Reports to `watch` on the
    /// way. However it ends, what was finished is in the journal.
    pub fn execute(&self, mut watch: impl FnMut(RunEvent)) -> Result<Vec<PathBuf>, RunError> {
        let spec = self.checked_spec()?;
        let journal = Journal::open(&self.data)?;
        let (id, _owned) = self.enter(&journal, &spec)?;
        let outcome = match self.carry_through(&journal, &id, &spec, &mut watch) {
            Err(RunError::Cancelled) if self.cancel.has_rested() => Err(RunError::Paused),
            outcome => outcome,
        };
        let (state, error) = match &outcome {
            Ok(_) => (RunState::Done, None),
            Err(RunError::Cancelled | RunError::Paused) => (RunState::Stopped, None),
            Err(error) => (RunState::Failed, Some(ErrorReport::from(error))),
        };
        // The error of the run matters more than that it cannot be noted.
        let noted = journal.set_state(&id, state, error.as_ref());
        let paths = outcome?;
        noted?;
        watch(RunEvent::Finished { paths: paths.clone() });
        Ok(paths)
    }

    /// Notes that the run waits until its target is free, in whatever process; its id. It begins as one that is continued.
    pub fn queue(&self) -> Result<String, RunError> {
        let journal = Journal::open(&self.data)?;
        if let Begin::Continue { run } = &self.begin {
            journal.queue(run)?;
            return Ok(run.clone());
        }
        let id = new_id();
        self.note(&journal, &id, &self.checked_spec()?, true)?;
        Ok(id)
    }

    fn checked_spec(&self) -> Result<RunSpec, RunError> {
        let spec = RunSpec { pack: absolute(&self.spec.pack), ..self.spec.clone() };
        spec.check()?;
        Ok(spec)
    }

    /// Enters the run into the journal, or finds it there; takes it for this process.
    fn enter(&self, journal: &Journal, spec: &RunSpec) -> Result<(String, Owned), RunError> {
        let known = match &self.begin {
            Begin::Continue { run } => Some(run.clone()),
            Begin::Anew | Begin::Reuse => None,
        };
        let id = known.clone().unwrap_or_else(new_id);
        let owned = journal.own(&id)?.ok_or_else(|| RunError::Busy(id.clone()))?;
        if known.is_some() {
            journal.run(&id)?;
            journal.set_state(&id, RunState::Open, None)?;
        } else {
            self.note(journal, &id, spec, false)?;
        }
        Ok((id, owned))
    }

    fn note(&self, journal: &Journal, id: &str, spec: &RunSpec, queued: bool) -> Result<(), RunError> {
        let run = Entry {
            id,
            target: &self.target,
            spec,
            out: &absolute(&self.out),
            overridden: &self.overridden,
            shard: self.shard,
            reuse: self.begin == Begin::Reuse,
            queued,
        };
        Ok(journal.begin(&run, None)?)
    }

    fn carry_through(
        &self,
        journal: &Journal,
        id: &str,
        spec: &RunSpec,
        watch: &mut dyn FnMut(RunEvent),
    ) -> Result<Vec<PathBuf>, RunError> {
        let mut target = self.open_target(journal, id)?;
        watch(RunEvent::Started {
            run: id.to_owned(),
            target: self.target.clone(),
            rungs: spec.ladder.iter().map(|rung| rung.0).collect(),
            arms: spec.arms.clone(),
            n_samples: spec.n_samples,
        });
        let opened = target.open(spec, &self.cancel)?;
        let rungs = plan::plan(spec, &opened.build, &opened.pack, self.shard)?;
        let trials: Vec<&Planned> = rungs.iter().flat_map(|rung| &rung.trials).collect();
        if journal.run(id)?.reuse {
            journal.take_over(id, &trials)?;
        }
        let facts = assemble::Order { run: id, spec, target: &self.target, overridden: &self.overridden };
        let shard = self.shard.map(|shard| (shard, &opened));
        let mut book = Book::open(journal, facts, &self.out, &rungs, shard, &self.cancel, watch)?;
        book.replay()?;
        let open: Vec<&Planned> = trials.into_iter().filter(|planned| !book.has(planned.id())).collect();
        if !open.is_empty() {
            let after = journal.followed(id)?;
            target.answer(&open, after, &self.cancel, &mut |number, record| book.take(number, record))?;
        }
        book.finish()
    }

    fn open_target<'a>(&'a self, journal: &Journal, id: &'a str) -> Result<Box<dyn Answers + 'a>, RunError> {
        Ok(match &self.target {
            Target::Local => Box::new(Local::new(&self.program)),
            Target::Ssh(host) => Box::new(Ssh::new(journal, &self.data, host, &self.program, id)?),
            Target::Queue(url) => Box::new(Queue::new(url, &self.program, id)),
        })
    }
}

/// The latest run of this specification, or of this part of it, on this target that has not ended and that nobody works on.
pub fn unfinished(
    data: &Path,
    spec: &RunSpec,
    target: &Target,
    shard: Option<Shard>,
) -> Result<Option<String>, RunError> {
    let spec = RunSpec { pack: absolute(&spec.pack), ..spec.clone() };
    let same = |run: &JournalledRun| {
        run.is_unfinished() && run.spec == spec && run.target == *target && run.shard == shard
    };
    Ok(Journal::open(data)?.runs()?.into_iter().find(same).map(|run| run.id))
}

/// The path from the root, so that it means the same wherever the run is continued. One that names a pack by its digest
/// stays as it is.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    if crate::named_digest(path).is_some() {
        return path.to_owned();
    }
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// Readable, in order of time, and unlike any other.
fn new_id() -> String {
    let random = RandomState::new().hash_one(std::process::id());
    format!("{}-{random:016x}", Timestamp::now().strftime("%Y%m%dT%H%M%S"))
}
