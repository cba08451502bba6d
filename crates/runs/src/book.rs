//! What has been answered of a run: committed first, told then, and made into evidence rung by rung.

use crate::assemble::{self, Order, RunFacts, RungResults};
use crate::event::{ArmRecall, RestoredBrief, RunEvent, TrialOutcome};
use crate::journal::{Answerer, Finished, Journal};
use crate::plan::{Planned, RungPlan};
use crate::target::{Opened, Told};
use crate::{Cancel, RunError, Shard, shards, sweep};
use evidence::{Text, stats};
use jiff::Timestamp;
use niah::Score;
use protocol::{Record, TrialResult};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(crate) struct Book<'a> {
    journal: &'a Journal,
    order: Order<'a>,
    out: &'a Path,
    rungs: &'a [RungPlan],
    shard: Option<(Shard, &'a Opened)>,
    cancel: &'a Cancel,
    watch: &'a mut dyn FnMut(RunEvent),
    planned: BTreeMap<&'a str, (usize, &'a Planned)>,
    finished: BTreeMap<String, Finished>,
    /// Number of the one who answers now.
    worker: usize,
    answerers: Vec<Answerer>,
    began: Instant,
    /// Trials answered since then.
    answered: usize,
    /// Trials of each rung that are not finished.
    missing: Vec<usize>,
    /// Hits and samples that were told, by rung and arm.
    recalls: BTreeMap<(usize, String), (usize, usize)>,
    written: Vec<Option<Vec<PathBuf>>>,
}

impl<'a> Book<'a> {
    pub(crate) fn open(
        journal: &'a Journal,
        order: Order<'a>,
        out: &'a Path,
        rungs: &'a [RungPlan],
        shard: Option<(Shard, &'a Opened)>,
        cancel: &'a Cancel,
        watch: &'a mut dyn FnMut(RunEvent),
    ) -> Result<Self, RunError> {
        let place = |(at, rung): (usize, &'a RungPlan)| {
            rung.trials.iter().map(move |planned| (planned.id(), (at, planned)))
        };
        let planned: BTreeMap<_, _> = rungs.iter().enumerate().flat_map(place).collect();
        let mut finished = journal.finished(order.run)?;
        // Of a run that went on with another program, what the earlier one answered is another trial.
        finished.retain(|id, _| planned.contains_key(id.as_str()));
        let answerers = journal.answerers(order.run)?;
        let (began, written) = (Instant::now(), vec![None; rungs.len()]);
        let open = |rung: &RungPlan| {
            rung.trials.iter().filter(|planned| !finished.contains_key(planned.id())).count()
        };
        let missing: Vec<usize> = rungs.iter().map(open).collect();
        for (rung, _) in rungs.iter().zip(&missing).filter(|(_, missing)| **missing > 0) {
            journal.rung_reopened(order.run, rung.rung.0)?;
        }
        let worker = answerers.len().saturating_sub(1);
        Ok(Self {
            journal,
            order,
            out,
            rungs,
            shard,
            cancel,
            watch,
            planned,
            finished,
            worker,
            answerers,
            began,
            answered: 0,
            missing,
            recalls: BTreeMap::new(),
            written,
        })
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.finished.contains_key(id)
    }

    /// Tells what the journal had already, and writes the rungs that are complete with it.
    pub(crate) fn replay(&mut self) -> Result<(), RunError> {
        (self.watch)(RunEvent::Planned { trials: self.planned.len(), reused: self.finished.len() });
        if let Some(answerer) = self.answerers.last() {
            (self.watch)(RunEvent::Loaded { pack: answerer.pack.clone() });
        }
        let rungs = self.rungs;
        for (at, rung) in rungs.iter().enumerate() {
            for planned in &rung.trials {
                if self.has(planned.id()) {
                    self.tell(at, planned, true);
                }
            }
            self.write_if_complete(at)?;
        }
        Ok(())
    }

    /// Takes what whoever answers tells.
    pub(crate) fn take(&mut self, number: u64, told: Told) -> Result<(), RunError> {
        match told {
            Told::Record(record) => self.record(number, record)?,
            Told::Notice(line) => (self.watch)(RunEvent::Notice { line }),
        }
        Ok(())
    }

    fn record(&mut self, number: u64, record: Record) -> Result<(), RunError> {
        match record {
            Record::Loaded { hello, pack } => {
                let answerer = Answerer { hello: *hello, pack: *pack };
                if let Some(known) = self.answerers.iter().position(|known| known.is_same_as(&answerer)) {
                    self.worker = known;
                    return Ok(());
                }
                self.worker = self.journal.answerer(self.order.run, &answerer)?;
                (self.watch)(RunEvent::Loaded { pack: answerer.pack.clone() });
                self.answerers.push(answerer);
            }
            Record::Started { id } => {
                if let Some((_, planned)) = self.planned.get(id.as_str()) {
                    let Planned { rung, sample, arm, .. } = planned;
                    self.journal.rung_started(self.order.run, rung.0, Timestamp::now())?;
                    (self.watch)(RunEvent::TrialStarted { rung: rung.0, sample: *sample, arm: *arm });
                }
            }
            Record::Progress { stage, tokens } => (self.watch)(RunEvent::TrialProgress { stage, tokens }),
            Record::Memory { resident_bytes } => {
                let at_s = self.began.elapsed().as_secs_f64();
                (self.watch)(RunEvent::Memory { at_s, resident_bytes });
            }
            Record::Done { id, result } => self.done(number, &id, *result)?,
            Record::Notice { line } => (self.watch)(RunEvent::Notice { line: Text::same(line) }),
            Record::Ended { .. } => {}
        }
        Ok(())
    }

    fn done(&mut self, number: u64, id: &str, result: TrialResult) -> Result<(), RunError> {
        // Something else than was asked for, or the second copy of an answer: neither counts.
        let Some((at, planned)) = self.planned.get(id).copied() else { return Ok(()) };
        if self.has(id) {
            return Ok(());
        }
        self.journal.commit(self.order.run, id, self.worker, &result, number)?;
        let (worker, origin) = (self.worker, self.order.run.to_owned());
        self.finished.insert(id.to_owned(), Finished { worker, origin, result });
        self.answered += 1;
        self.missing[at] -= 1;
        self.tell(at, planned, false);
        self.write_if_complete(at)?;
        self.rest_after(at, planned.sample);
        Ok(())
    }

    /// Stops a run that is to pause, once every arm has answered the sample; wherever it happens, what was begun is kept.
    fn rest_after(&self, at: usize, sample: usize) {
        let goes_on = self.missing.iter().any(|missing| *missing > 0);
        if !self.cancel.is_pausing() || !goes_on {
            return;
        }
        let mut of_sample = self.rungs[at].trials.iter().filter(|planned| planned.sample == sample);
        if of_sample.all(|planned| self.has(planned.id())) {
            self.cancel.rest();
        }
    }

    /// Tells of a finished trial.
    fn tell(&mut self, at: usize, planned: &Planned, reused: bool) {
        let rung = &self.rungs[at];
        let (Some(finished), Some(sample)) =
            (self.finished.get(planned.id()), rung.samples.get(planned.sample))
        else {
            return;
        };
        let result = &finished.result;
        let score = Score::of(&result.text, &sample.answer);
        let told = self.recalls.entry((at, planned.arm.to_string())).or_default();
        *told = (told.0 + usize::from(score.strict), told.1 + 1);
        let recall = recall(*told);
        let left = self.planned.len() - self.finished.len();
        let pace = self.began.elapsed().as_secs_f64() / self.answered as f64;
        let event = RunEvent::TrialDone {
            rung: rung.rung.0,
            sample: planned.sample,
            arm: planned.arm,
            outcome: TrialOutcome {
                answer: sample.answer.clone(),
                text: result.text.clone(),
                hit: score.strict,
                hit_ignoring_case: score.ignoring_case,
                prompt_tokens: result.prompt_tokens,
                generated_tokens: result.tokens.len(),
                seconds: result.timings.e2e_s,
                restored: self.brief(result),
                fidelity: result.fidelity,
            },
            recall,
            done: self.finished.len(),
            remaining_s: (left > 0 && self.answered > 0).then_some(pace * left as f64),
            reused,
        };
        (self.watch)(event);
    }

    fn brief(&self, result: &TrialResult) -> Option<RestoredBrief> {
        let counters = result.restoration.as_ref()?;
        Some(RestoredBrief {
            f_theta_layers: counters.layers.iter().filter(|layer| layer.from_f_theta > 0).count(),
            capture_layers: counters.layers.iter().filter(|layer| layer.from_capture > 0).count(),
            positions: counters.evicted_positions,
            seconds: counters.drafter_s + counters.projection_s + counters.capture_s,
            complete: assemble::is_complete(self.order.spec, result),
        })
    }

    /// Writes a rung's evidence once every trial of it is finished.
    fn write_if_complete(&mut self, at: usize) -> Result<(), RunError> {
        let rung = &self.rungs[at];
        if self.written[at].is_some() || self.missing[at] > 0 {
            return Ok(());
        }
        let now = Timestamp::now();
        // A rung of which everything was taken over was never begun here.
        self.journal.rung_started(self.order.run, rung.rung.0, now)?;
        let times = self.journal.rung_ended(self.order.run, rung.rung.0, now)?;
        let (started, ended) = (times.started, times.ended.unwrap_or(now));
        let documents = self.documents(rung, started, ended)?;
        let names = documents.iter().map(|(name, _)| name.as_str());
        let paths = match times.paths.filter(|paths| paths.len() == documents.len()) {
            Some(paths) => paths,
            None => free_paths(self.out, names)?,
        };
        self.journal.rung_paths(self.order.run, rung.rung.0, &paths)?;
        for (path, (_, document)) in paths.iter().zip(&documents) {
            write(path, document)?;
        }
        (self.watch)(RunEvent::RungDone { rung: rung.rung.0, paths: paths.clone() });
        self.written[at] = Some(paths);
        Ok(())
    }

    /// The files of a rung: the needle file, with mixtures the sweep; of a part, its shard.
    fn documents(
        &self,
        rung: &RungPlan,
        started: Timestamp,
        ended: Timestamp,
    ) -> Result<Vec<(String, Value)>, RunError> {
        let of_rung: Vec<(&Planned, &Finished)> = rung
            .trials
            .iter()
            .filter_map(|planned| Some((planned, self.finished.get(planned.id())?)))
            .collect();
        let facts = RunFacts { order: self.order, answerers: &self.answerers, started, ended };
        if let Some((shard, opened)) = self.shard {
            return Ok(vec![shards::document(&facts, shard, opened, rung.rung, &of_rung)]);
        }
        let results = RungResults::of(rung, self.order.spec, &of_rung);
        documents(&facts, &results)
    }

    /// Every evidence file, in the order of the ladder.
    pub(crate) fn finish(self) -> Result<Vec<PathBuf>, RunError> {
        let missing = self.planned.len() - self.finished.len();
        if missing > 0 {
            return Err(RunError::Incomplete { missing });
        }
        Ok(self.written.into_iter().flatten().flatten().collect())
    }
}

/// Recall of one arm on one rung, as far as it was told.
fn recall((hits, n): (usize, usize)) -> ArmRecall {
    let interval = stats::clopper_pearson(hits as u64, n as u64, 0.05);
    ArmRecall { hits, n, low: interval.low, high: interval.high }
}

/// Names and contents of the evidence of one whole rung.
pub(crate) fn documents(facts: &RunFacts, results: &RungResults) -> Result<Vec<(String, Value)>, RunError> {
    if facts.answerers.is_empty() {
        return Err(RunError::Garbled("results came without the engine that measured them".into()));
    }
    let (rung, target) = (results.rung, facts.order.target);
    let needle = (assemble::file_name(rung, facts.ended, target), assemble::document(facts, results));
    let sweep =
        sweep::document(facts, results).map(|sweep| (sweep::file_name(rung, facts.ended, target), sweep));
    Ok(std::iter::once(needle).chain(sweep).collect())
}

/// Writes a document so that it is there whole or not at all.
pub(crate) fn write(path: &Path, document: &Value) -> Result<(), RunError> {
    let mut text = serde_json::to_string_pretty(document).map_err(|e| RunError::Garbled(e.to_string()))?;
    text.push('\n');
    Ok(files::write_atomic(path, text.as_bytes())?)
}

/// Paths in `out` that no file has: two runs that end in one second must not write over each other.
pub(crate) fn free_paths<'n>(
    out: &Path,
    names: impl Iterator<Item = &'n str>,
) -> Result<Vec<PathBuf>, RunError> {
    let out = std::path::absolute(out).unwrap_or_else(|_| out.to_owned());
    let free = |name: &str| {
        let stem = name.strip_suffix(".json").unwrap_or(name);
        let others = (2..).map(|number| format!("{stem}_{number}.json"));
        let mut paths = std::iter::once(name.to_owned()).chain(others).map(|name| out.join(name));
        paths.find(|path| !path.exists()).unwrap_or_else(|| out.join(name))
    };
    Ok(names.map(free).collect())
}
