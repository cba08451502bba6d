//! Runs that go on, one at a time on each target, and what waits there after them.
//!
//! A run does not depend on who listens. What it has told so far is kept, so that whoever comes later (a page that was loaded
//! again, a second one) sees all of it.

use crate::desk::{json, locked};
use crate::{Begin, Cancel, ErrorCode, ErrorReport, News, Run, RunError, RunEvent, Target};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// The run that is going on on each target.
#[derive(Default)]
pub(crate) struct Runs(Mutex<BTreeMap<Target, Arc<Going>>>);

impl Runs {
    /// Where runs are going on.
    pub(crate) fn targets(&self) -> Vec<Target> {
        locked(&self.0).keys().cloned().collect()
    }

    /// The run that is going on there.
    pub(crate) fn going(&self, target: &Target) -> Option<Arc<Going>> {
        locked(&self.0).get(target).cloned()
    }

    /// Begins a run on a thread of its own. None when another one goes on on its target: it waits in the journal then, and
    /// begins once that one has finished.
    pub(crate) fn begin(self: &Arc<Self>, run: Run) -> Result<Option<Arc<Going>>, RunError> {
        let mut taken = locked(&self.0);
        if let Some(going) = taken.get(&run.target) {
            let same = matches!(&run.begin, Begin::Continue { run } if going.is(run));
            return if same { Ok(Some(Arc::clone(going))) } else { run.queue().map(|_| None) };
        }
        let claim = self.claim(&mut taken, run);
        drop(taken);
        let going = Arc::clone(&claim.going);
        // A thread that cannot be had drops the claim, and that tells whoever follows.
        drop(thread::Builder::new().name("run".into()).spawn(move || claim.carry_through()));
        Ok(Some(going))
    }

    fn claim(self: &Arc<Self>, taken: &mut BTreeMap<Target, Arc<Going>>, run: Run) -> Claim {
        let going = Arc::new(Going { cancel: run.cancel.clone(), ..Going::default() });
        taken.insert(run.target.clone(), Arc::clone(&going));
        Claim { runs: Arc::clone(self), run, going }
    }
}

/// A run that has its target to itself, until it ends, however it ends.
struct Claim {
    runs: Arc<Runs>,
    run: Run,
    going: Arc<Going>,
}

impl Claim {
    /// Carries the run through, then what waits for its target.
    fn carry_through(self) {
        let mut claim = Some(self);
        while let Some(current) = claim {
            claim = current.end(current.execute());
        }
    }

    fn execute(&self) -> Result<String, ErrorReport> {
        json(&self.run.execute(|event| self.going.tell(event))?)
    }

    /// The target is free, or has its next run, before anybody hears of the end: who hears may look for it.
    fn end(&self, outcome: Result<String, ErrorReport>) -> Option<Self> {
        let mut taken = locked(&self.runs.0);
        // After anything else than success somebody should look first. What the journal does not give waits on.
        let next = outcome.is_ok().then(|| self.run.next_in_queue().ok().flatten()).flatten();
        taken.remove(&self.run.target);
        let claim = next.map(|run| self.runs.claim(&mut taken, run));
        drop(taken);
        self.going.end(outcome);
        claim
    }
}

impl Drop for Claim {
    /// Whoever follows a run whose thread has panicked must not wait for ever.
    fn drop(&mut self) {
        if !self.going.has_ended() {
            let hint = "this is a fault of the program: report it with what you did last";
            // Of a failure comes no next run.
            let report = ErrorReport::new(ErrorCode::Panicked, "the run ended unexpectedly", hint);
            drop(self.end(Err(report)));
        }
    }
}

/// A run that goes on.
#[derive(Default)]
pub(crate) struct Going {
    pub(crate) cancel: Cancel,
    told: Mutex<Told>,
    more: Condvar,
}

#[derive(Default)]
struct Told {
    /// The run's id, once it is known.
    run: Option<String>,
    events: Vec<RunEvent>,
    /// How it ended.
    outcome: Option<Result<String, ErrorReport>>,
}

impl Going {
    /// Whether it is the run of that id.
    pub(crate) fn is(&self, run: &str) -> bool {
        locked(&self.told).run.as_deref() == Some(run)
    }

    fn tell(&self, event: RunEvent) {
        let mut told = locked(&self.told);
        if let RunEvent::Started { run, .. } = &event {
            told.run = Some(run.clone());
        }
        told.events.push(event);
        drop(told);
        self.more.notify_all();
    }

    fn has_ended(&self) -> bool {
        locked(&self.told).outcome.is_some()
    }

    fn end(&self, outcome: Result<String, ErrorReport>) {
        locked(&self.told).outcome = Some(outcome);
        self.more.notify_all();
    }

    /// Tells everything from the beginning, then what comes, until the end, in the language of whoever asks; the run's outcome. None when nobody listens any
    /// more: that ends the telling, not the run.
    pub(crate) fn follow(&self, news: News) -> Option<Result<String, ErrorReport>> {
        let mut next = 0;
        let mut told = locked(&self.told);
        loop {
            if let Some(event) = told.events.get(next).cloned() {
                next += 1;
                drop(told);
                if !json(&event).is_ok_and(news) {
                    return None;
                }
                told = locked(&self.told);
            } else if let Some(outcome) = &told.outcome {
                return Some(outcome.clone());
            } else {
                told = self.more.wait(told).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EngineProgram, RunState};
    use runs::Journal;
    use std::path::Path;

    /// A run that cannot start.
    fn run(data: &Path) -> Run {
        Run {
            spec: crate::default_spec(Path::new("nowhere")),
            target: Target::Local,
            out: data.join("out"),
            program: EngineProgram(data.join("no-such-program")),
            data: data.to_owned(),
            begin: Begin::Anew,
            shard: None,
            cancel: Cancel::default(),
            overridden: Vec::new(),
        }
    }

    #[test]
    fn a_run_waits_for_its_target_and_after_a_failure_for_somebody_to_look() {
        let (data, runs) = (tempfile::tempdir().unwrap(), Arc::new(Runs::default()));
        let states = || {
            let journal = Journal::open(data.path()).unwrap();
            journal.runs().unwrap().into_iter().map(|run| run.state).collect::<Vec<_>>()
        };
        locked(&runs.0).insert(Target::Local, Arc::default());
        assert!(runs.begin(run(data.path())).unwrap().is_none());
        assert_eq!(states(), [RunState::Queued]);
        locked(&runs.0).clear();

        let going = runs.begin(run(data.path())).unwrap().unwrap();
        let outcome = going.follow(&|_| true).unwrap();
        assert_eq!(outcome.unwrap_err().code, ErrorCode::EngineNotStarted);
        assert_eq!(runs.targets(), []);
        let mut states = states();
        states.sort_by_key(|state| *state != RunState::Queued);
        assert_eq!(states, [RunState::Queued, RunState::Failed]);
    }

    #[test]
    fn whoever_comes_late_hears_everything_in_order() {
        let going = Going::default();
        let event = |line: &str| RunEvent::Notice { line: evidence::Text::same(line) };
        let told = |line: &str| json(&event(line)).unwrap();
        going.tell(event("1"));
        let heard = |going: &Going| {
            let heard = Mutex::new(Vec::new());
            let outcome = going.follow(&|line| {
                heard.lock().unwrap().push(line);
                true
            });
            (heard.into_inner().unwrap(), outcome)
        };
        std::thread::scope(|scope| {
            let early = scope.spawn(|| heard(&going));
            going.tell(event("2"));
            going.end(Ok("done".into()));
            let all = (vec![told("1"), told("2")], Some(Ok("done".to_owned())));
            assert_eq!(early.join().unwrap(), all);
            assert_eq!(heard(&going), all);
        });
        assert_eq!(going.follow(&|_| false), None);
    }
}
