//! A queue of trials on NATS JetStream: the run's side. Whoever has the pack and the program takes trials; the journal here
//! stays the truth, so an answer that comes twice counts once.
//!
//! Subjects: `kakeya.trials.KIND.RUN` (a work queue, a kind being program, library, device and pack), `kakeya.results.RUN`,
//! `kakeya.dead.RUN`, and without a stream `kakeya.live.RUN` for progress.

mod link;
mod worker;

pub use worker::{QueueWorker, WorkerEvent};

use crate::engine::{Engine, EngineProgram};
use crate::local::GLANCE;
use crate::plan::{Build, Planned};
use crate::target::{Answers, Opened, Take, Told};
use crate::{Cancel, RunError, digest_of};
use evidence::{Text, text};
use futures_util::StreamExt;
use link::{ALL, Advisory, Answer, DELIVERIES, Dead, Link, Ticket, kind, live, results, trials};
use protocol::{Arm, Record, RunSpec};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Trials that are on their way to the server at a time.
const AT_ONCE: usize = 64;
/// Nobody has taken a trial for this long: say so.
const NOBODY: Duration = Duration::from_secs(5);

/// A run whose trials go through a queue.
pub(crate) struct Queue<'a> {
    url: &'a str,
    program: &'a EngineProgram,
    run: &'a str,
    open: Option<Open>,
}

struct Open {
    link: Link,
    build: Build,
    pack: String,
    arms: Vec<Arm>,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(url: &'a str, program: &'a EngineProgram, run: &'a str) -> Self {
        Self { url, program, run, open: None }
    }
}

impl Answers for Queue<'_> {
    /// The workers must run this very program: its build is part of what a trial is.
    fn open(&mut self, spec: &RunSpec, _: &Cancel) -> Result<Opened, RunError> {
        let (_, hello) = Engine::start(self.program)?;
        let (build, pack) = (Build::of(&hello, spec), digest_of(self.program, &spec.pack)?);
        let link = Link::open(self.url)?;
        self.open = Some(Open { link, build: build.clone(), pack: pack.clone(), arms: spec.arms.clone() });
        Ok(Opened { build, pack })
    }

    fn answer(
        &mut self,
        planned: &[&Planned],
        after: u64,
        cancel: &Cancel,
        take: Take,
    ) -> Result<(), RunError> {
        let Some(open) = &self.open else { return Ok(()) };
        let kind = kind(&open.build, &open.pack);
        open.enqueue(self.run, &kind, planned)?;
        let outcome = open.collect(self.run, &kind, planned, after, cancel, take);
        if outcome.is_err() {
            // Nobody shall work for a run that waits for nothing. What is lost by failing is a worker's time.
            let _ = open.link.withdraw(&kind, self.run);
        }
        outcome
    }
}

impl Open {
    /// Puts the trials on the queue. Those that are on it, or were within the server's memory of ids, are not put twice; one
    /// that was given up or withdrawn is a new try.
    fn enqueue(&self, run: &str, kind: &str, planned: &[&Planned]) -> Result<(), RunError> {
        let tries = self.link.dead_letters(run)?;
        for some in planned.chunks(AT_ONCE) {
            let messages = some.iter().map(|planned| {
                let ticket = Ticket {
                    run: run.to_owned(),
                    trial: planned.trial.clone(),
                    build: self.build.clone(),
                    pack: self.pack.clone(),
                    arms: self.arms.clone(),
                };
                let tried =
                    tries.iter().filter(|dead| [planned.id(), ALL].contains(&dead.id.as_str())).count();
                (format!("{run}.{}.{tried}", planned.id()), ticket)
            });
            self.link.publish_all(&trials(kind, run), messages.collect())?;
        }
        Ok(())
    }

    /// Takes answers until every trial has one or was given up.
    fn collect(
        &self,
        run: &str,
        kind: &str,
        planned: &[&Planned],
        after: u64,
        cancel: &Cancel,
        take: Take,
    ) -> Result<(), RunError> {
        let link = &self.link;
        let mut open: BTreeSet<&str> = planned.iter().map(|planned| planned.id()).collect();
        let before = link.dead_letters(run)?.len();
        let mut answers = link.read(&results(run), after)?;
        let mut given_up: Vec<Dead> = Vec::new();
        let mut news = link.listen(&live(run))?;
        let mut advisories = link.advisories()?;
        let (mut heard, mut told) = (Instant::now(), false);
        while !open.is_empty() {
            if cancel.is_cancelled() {
                return Err(RunError::Cancelled);
            }
            let next = link.wait(GLANCE, answers.next());
            match next.flatten() {
                Some(Ok(message)) => {
                    heard = Instant::now();
                    let number = message.info().map(|info| info.stream_sequence).unwrap_or(0);
                    if let Some(answer) = self.checked(&message.payload, take)? {
                        open.remove(answer.id.as_str());
                        let loaded = Record::Loaded { hello: answer.hello, pack: answer.loaded };
                        take(0, Told::Record(loaded))?;
                        let done = Record::Done { id: answer.id, result: answer.result };
                        take(number, Told::Record(done))?;
                    }
                    continue;
                }
                Some(Err(e)) => return Err(link.wrong(&e)),
                None => {}
            }
            while let Some(Some(message)) = link.wait(Duration::ZERO, news.next()) {
                heard = Instant::now();
                if let Ok(record) = serde_json::from_slice(&message.payload) {
                    take(0, Told::Record(record))?;
                }
            }
            while let Some(Some(Ok(message))) = link.wait(Duration::ZERO, advisories.next()) {
                if let Ok(advisory) = serde_json::from_slice::<Advisory>(&message.payload) {
                    link.bury(run, kind, &advisory)?;
                }
            }
            let known = given_up.len();
            given_up.extend(self.dead_letters(run, before)?.into_iter().skip(known));
            for dead in &given_up[known..] {
                take(0, Told::Notice(given_up_line(planned, dead)))?;
            }
            open.retain(|id| given_up.iter().all(|dead| dead.id != *id));
            if heard.elapsed() > NOBODY && !told && !link.is_anybody_there(kind)? {
                told = true;
                let Build { version, commit, .. } = &self.build;
                let commit = commit.as_deref().map_or(String::new(), |commit| format!(" ({commit})"));
                let line = text!(
                    "nobody takes trials for program {version}{commit} and pack sha256:{}; start `kakeya-gate worker --nats URL` \
                     where that pack is",
                    "没有人领取程序 {version}{commit}、模型包 sha256:{} 的试验；请在有该模型包的机器上启动 \
                     `kakeya-gate worker --nats URL`",
                    &self.pack[..12.min(self.pack.len())]
                );
                take(0, Told::Notice(line))?;
            }
        }
        match given_up.first() {
            None => Ok(()),
            Some(first) => Err(RunError::DeadLetters {
                trials: given_up.len(),
                deliveries: DELIVERIES,
                first: format!("{}: {}", &first.id[..12.min(first.id.len())], first.reason),
            }),
        }
    }

    /// Trials that were given up, after the first `before` letters.
    fn dead_letters(&self, run: &str, before: usize) -> Result<Vec<Dead>, RunError> {
        let letters = self.link.dead_letters(run)?.into_iter().skip(before);
        Ok(letters.filter(|dead| dead.id != ALL).collect())
    }

    /// An answer that arrived whole and comes from the program and the pack that were asked for.
    fn checked(&self, payload: &[u8], take: Take) -> Result<Option<Answer>, RunError> {
        let refusal = match serde_json::from_slice::<Answer>(payload) {
            Err(e) => {
                text!("an answer that cannot be read was put aside: {e}", "已搁置一个无法读取的应答：{e}")
            }
            Ok(answer) if !answer.is_whole() => text!(
                "a damaged answer to trial {} was put aside",
                "已搁置试验 {} 的一个损坏的应答",
                answer.id
            ),
            Ok(answer) if answer.build != self.build || answer.loaded.digest != self.pack => text!(
                "an answer of another program or pack to trial {} was put aside",
                "已搁置试验 {} 的一个来自其他程序或模型包的应答",
                answer.id
            ),
            Ok(answer) => return Ok(Some(answer)),
        };
        take(0, Told::Notice(refusal))?;
        Ok(None)
    }
}
/// What is said of a dead letter.
fn given_up_line(planned: &[&Planned], dead: &Dead) -> Text {
    let which = match planned.iter().find(|planned| planned.id() == dead.id) {
        Some(Planned { rung, sample, arm, .. }) => {
            text!("rung {}, sample {sample}, {arm}", "梯级 {}，样本 {sample}，{arm}", rung.0)
        }
        None => text!("trial {}", "试验 {}", dead.id),
    };
    text!(
        language => "{}: given up after {DELIVERIES} deliveries: {}",
        "{}：投递 {DELIVERIES} 次后放弃：{}",
        which.said(language),
        dead.reason
    )
}
