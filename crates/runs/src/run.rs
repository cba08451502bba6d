//! The run itself: rung by rung, sample by sample, arm by arm.

use crate::assemble::{self, RunFacts, RungResults};
use crate::event::{ArmRecall, RestoredBrief, RunEvent, TrialOutcome};
use crate::{Engine, EngineProgram, RunError, sweep};
use evidence::{OverriddenCheck, stats};
use niah::{Rung, Sample, Score};
use protocol::{Arm, Decode, Event, Hello, LoadedPack, Request, RunSpec, Trial, TrialResult};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a waiting host looks at its cancel flag.
const GLANCE: Duration = Duration::from_millis(100);
/// How long an engine may take to give up a trial before it is ended.
const GIVE_UP: Duration = Duration::from_secs(5);

/// Stops a run from another thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the run to stop; it ends with [`RunError::Cancelled`].
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A run ready to go.
#[derive(Debug)]
pub struct Run {
    /// What to run.
    pub spec: RunSpec,
    /// Folder for the evidence files; created when the first is written.
    pub out: PathBuf,
    /// The program that runs the engine.
    pub program: EngineProgram,
    /// Stops it.
    pub cancel: Cancel,
    /// Failing checks in spite of which it is started; the evidence names them.
    pub overridden: Vec<OverriddenCheck>,
}

impl Run {
    /// Runs to the end and returns the evidence files: one a rung, and with mixtures its sweep. Reports to `watch` on the way.
    pub fn execute(&self, mut watch: impl FnMut(RunEvent)) -> Result<Vec<PathBuf>, RunError> {
        self.spec.check()?;
        let (engine, hello) = Engine::start(&self.program)?;
        watch(RunEvent::Started {
            trials: self.spec.trials(),
            rungs: self.spec.ladder.iter().map(|rung| rung.0).collect(),
            arms: self.spec.arms.clone(),
            n_samples: self.spec.n_samples,
        });
        let mut desk = Desk { run: self, engine, watch: &mut watch, began: Instant::now(), done: 0 };
        let pack = desk.load()?;
        (desk.watch)(RunEvent::Loaded { pack: pack.clone() });
        let mut paths = Vec::new();
        for rung in &self.spec.ladder {
            let written = desk.rung(*rung, &hello, &pack)?;
            (desk.watch)(RunEvent::RungDone { rung: rung.0, paths: written.clone() });
            paths.extend(written);
        }
        watch(RunEvent::Finished { paths: paths.clone() });
        Ok(paths)
    }
}

/// A run in progress.
struct Desk<'a, W: FnMut(RunEvent)> {
    run: &'a Run,
    engine: Engine,
    watch: &'a mut W,
    began: Instant,
    done: usize,
}

impl<W: FnMut(RunEvent)> Desk<'_, W> {
    fn load(&mut self) -> Result<LoadedPack, RunError> {
        let spec = &self.run.spec;
        self.engine.send(&Request::Load {
            pack: spec.pack.clone(),
            backend: spec.backend,
            device: spec.device,
            arms: spec.arms.clone(),
        })?;
        self.answer("loading the pack", |event| match event {
            Event::Loaded(pack) => Some(pack),
            _ => None,
        })
    }

    /// Every arm on every sample of one rung, then its evidence files. Arms take turns on a sample, so that a drift of the
    /// machine's speed meets all arms alike.
    fn rung(&mut self, rung: Rung, hello: &Hello, pack: &LoadedPack) -> Result<Vec<PathBuf>, RunError> {
        let spec = &self.run.spec;
        let started = jiff::Timestamp::now();
        let dataset = rung.dataset(spec.seed, spec.n_samples);
        let samples: Vec<Sample> = dataset.samples()?.collect();
        let mut results: Vec<Vec<TrialResult>> = vec![Vec::new(); spec.arms.len()];
        for sample in &samples {
            for (arm, done) in spec.arms.iter().zip(&mut results) {
                let result = self.trial(rung, sample, *arm)?;
                self.done += 1;
                done.push(result);
                self.report(rung, sample, &samples, done);
            }
        }
        let ended = jiff::Timestamp::now();
        let rung_results =
            RungResults { rung, dataset, samples, arms: spec.arms.iter().copied().zip(results).collect() };
        let overridden = &self.run.overridden;
        let facts = RunFacts { spec, hello, pack, overridden, started, ended };
        let needle = (assemble::file_name(rung, ended), assemble::document(&facts, &rung_results));
        let sweep =
            sweep::document(&facts, &rung_results).map(|sweep| (sweep::file_name(rung, ended), sweep));
        std::iter::once(needle).chain(sweep).map(|(name, document)| self.write(&name, &document)).collect()
    }

    fn write(&self, name: &str, document: &Value) -> Result<PathBuf, RunError> {
        let path = self.run.out.join(name);
        let mut text =
            serde_json::to_string_pretty(document).map_err(|e| RunError::Garbled(e.to_string()))?;
        text.push('\n');
        files::write_atomic(&path, text.as_bytes())?;
        Ok(path)
    }

    fn trial(&mut self, rung: Rung, sample: &Sample, arm: Arm) -> Result<TrialResult, RunError> {
        let spec = &self.run.spec;
        let id = format!("{}/{}/{arm}", rung.0, sample.index);
        (self.watch)(RunEvent::TrialStarted { rung: rung.0, sample: sample.index, arm });
        self.engine.send(&Request::Trial(Trial {
            id: id.clone(),
            arm,
            prompt: spec.prompt.text(sample),
            variant: spec.prompt,
            decode: spec.decode,
            sink: spec.sink,
            window: spec.window,
            max_new_tokens: spec.max_new_tokens,
            prefill_chunk: spec.prefill_chunk,
            seed: spec.seed,
            sample: sample.index,
            answer: (spec.decode == Decode::TeacherForced).then(|| spec.prompt.completion(sample)),
        }))?;
        self.answer(&format!("answering trial {id}"), |event| match event {
            Event::Done(result) if result.id == id => Some(result),
            _ => None,
        })
    }

    /// Waits for the event that `wanted` takes; passes progress on; obeys the cancel flag.
    fn answer<T>(&mut self, doing: &str, wanted: impl Fn(Event) -> Option<T>) -> Result<T, RunError> {
        loop {
            if self.run.cancel.is_cancelled() {
                return Err(self.give_up(doing));
            }
            match self.engine.next(GLANCE, doing)? {
                None => {}
                Some(Event::Failed(report)) => return Err(report.into()),
                Some(Event::Progress { stage, tokens, .. }) => {
                    (self.watch)(RunEvent::TrialProgress { stage, tokens })
                }
                Some(Event::Heartbeat { resident_bytes }) => {
                    (self.watch)(RunEvent::Memory {
                        at_s: self.began.elapsed().as_secs_f64(),
                        resident_bytes,
                    });
                }
                Some(event) => {
                    if let Some(found) = wanted(event) {
                        return Ok(found);
                    }
                }
            }
        }
    }

    /// Asks the engine to give up its trial; when it does not, dropping it ends the process.
    fn give_up(&mut self, doing: &str) -> RunError {
        let asked = Instant::now();
        if self.engine.send(&Request::Cancel).is_ok() {
            while asked.elapsed() < GIVE_UP {
                match self.engine.next(GLANCE, doing) {
                    Ok(Some(Event::Cancelled { .. } | Event::Done(_) | Event::Loaded(_))) | Err(_) => break,
                    Ok(_) => {}
                }
            }
        }
        RunError::Cancelled
    }

    fn report(&mut self, rung: Rung, sample: &Sample, samples: &[Sample], arm_results: &[TrialResult]) {
        let Some(result) = arm_results.last() else { return };
        let score = Score::of(&result.text, &sample.answer);
        let left = self.run.spec.trials() - self.done;
        let pace = self.began.elapsed().as_secs_f64() / self.done as f64;
        let restored = self.brief(result);
        (self.watch)(RunEvent::TrialDone {
            rung: rung.0,
            sample: sample.index,
            arm: result.arm,
            outcome: TrialOutcome {
                answer: sample.answer.clone(),
                text: result.text.clone(),
                hit: score.strict,
                hit_ignoring_case: score.ignoring_case,
                prompt_tokens: result.prompt_tokens,
                generated_tokens: result.tokens.len(),
                seconds: result.timings.e2e_s,
                restored,
                fidelity: result.fidelity,
            },
            recall: recall(samples, arm_results),
            done: self.done,
            remaining_s: (left > 0).then_some(pace * left as f64),
        });
    }

    fn brief(&self, result: &TrialResult) -> Option<RestoredBrief> {
        let counters = result.restoration.as_ref()?;
        Some(RestoredBrief {
            f_theta_layers: counters.layers.iter().filter(|layer| layer.from_f_theta > 0).count(),
            capture_layers: counters.layers.iter().filter(|layer| layer.from_capture > 0).count(),
            positions: counters.evicted_positions,
            seconds: counters.drafter_s + counters.projection_s + counters.capture_s,
            complete: assemble::is_complete(&self.run.spec, result),
        })
    }
}

fn recall(samples: &[Sample], results: &[TrialResult]) -> ArmRecall {
    let hits = samples
        .iter()
        .zip(results)
        .filter(|(sample, result)| Score::of(&result.text, &sample.answer).strict)
        .count();
    let interval = stats::clopper_pearson(hits as u64, results.len() as u64, 0.05);
    ArmRecall { hits, n: results.len(), low: interval.low, high: interval.high }
}
