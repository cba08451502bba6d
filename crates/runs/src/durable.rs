//! Runs that outlive the connection that ordered them: the worker's side of ssh.
//!
//! A run that is ordered gets a process of its own, which owns it, answers its trials through an engine on this machine and
//! writes its account into the journal. Whoever ordered it reads the account, from wherever they stopped reading.

use crate::engine::EngineProgram;
use crate::journal::{Answerer, Entry, Journal, RunState};
use crate::local::Local;
use crate::plan::{self, Planned};
use crate::target::Answers;
use crate::{Cancel, RunError, find_pack};
use protocol::{ErrorReport, Order, Record, RunSpec};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often the account is looked at for news.
const GLANCE: Duration = Duration::from_millis(50);
/// How long the process of a run may take to come up.
const COMING_UP: Duration = Duration::from_secs(30);
/// Progress of one trial is told this often.
const PROGRESS: Duration = Duration::from_millis(250);
/// Records that are read at a time.
const PAGE: usize = 64;

/// Starts the run, or makes sure that somebody works on it; returns once that is so.
pub fn start(data: &Path, program: &EngineProgram, order: &Order) -> Result<(), RunError> {
    if !order.run.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(RunError::Garbled(format!("{} is no name of a run", order.run)));
    }
    let journal = Journal::open(data)?;
    if journal.is_alive(&order.run) {
        return Ok(());
    }
    journal.begin(&Entry::for_another(&order.run, &order.spec), Some(order))?;
    journal.reopen(&order.run)?;
    let log = journal.log_file(&order.run);
    let not_started = |source| RunError::NotStarted { program: program.0.clone(), source };
    let log = File::options().create(true).append(true).open(log).map_err(not_started)?;
    let mut command = Command::new(&program.0);
    command.args(["engine", "--run", &order.run]).env("KAKEYA_GATE_DATA", data).stdin(Stdio::null());
    command.stdout(log.try_clone().map_err(not_started)?).stderr(log);
    in_a_group_of_its_own(&mut command);
    let mut child = command.spawn().map_err(not_started)?;
    let asked = Instant::now();
    while asked.elapsed() < COMING_UP {
        if journal.is_alive(&order.run) || matches!(child.try_wait(), Ok(Some(_))) {
            return Ok(());
        }
        crate::look_again_after(GLANCE);
    }
    Err(RunError::Lost {
        how: format!("did not come up within {} s", COMING_UP.as_secs()),
        code: None,
        doing: "starting the run".into(),
        last_words: String::new(),
    })
}

/// A hang-up of the connection must not reach it.
#[cfg(unix)]
fn in_a_group_of_its_own(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

#[cfg(not(unix))]
fn in_a_group_of_its_own(_command: &mut Command) {}

/// Asks whoever works on the run to stop.
pub fn stop(data: &Path, run: &str) -> Result<(), RunError> {
    Ok(Journal::open(data)?.ask_to_stop(run, true)?)
}

/// Hands every record after `after` to `tell` until that says no or nothing more comes; whether somebody still works on the
/// run. While there is no news, `tell` is asked with none.
pub fn follow(
    data: &Path,
    run: &str,
    mut after: u64,
    tell: &mut dyn FnMut(Option<(u64, String)>) -> bool,
) -> Result<bool, RunError> {
    let journal = Journal::open(data)?;
    journal.run(run)?;
    loop {
        // Looked at first: what is written before a process ends is there afterwards.
        let alive = journal.is_alive(run);
        let records = journal.records(run, after, PAGE)?;
        let news = !records.is_empty();
        for (number, text) in records {
            after = number;
            let ended = matches!(serde_json::from_str(&text), Ok(Record::Ended { .. }));
            if !tell(Some((number, text))) {
                return Ok(alive);
            }
            if ended {
                return Ok(false);
            }
        }
        if !news {
            if !alive || !tell(None) {
                return Ok(alive);
            }
            crate::look_again_after(GLANCE);
        }
    }
}

/// Carries an ordered run through; what `kakeya-gate engine --run ID` does. Whatever happens is in the account.
pub fn carry_through(data: &Path, program: &EngineProgram, run: &str) -> Result<(), RunError> {
    let journal = Journal::open(data)?;
    let Some(_owned) = journal.own(run)? else { return Ok(()) };
    let order = journal.order(run)?.ok_or_else(|| RunError::Garbled(format!("{run} was not ordered")))?;
    let (cancel, ended) = (Cancel::default(), Cancel::default());
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| watch_for_stop(data, run, &cancel, &ended));
        let outcome = answer(&journal, program, &order, &cancel);
        ended.cancel();
        outcome
    });
    let state = match &outcome {
        Ok(()) => RunState::Done,
        Err(RunError::Cancelled) => RunState::Stopped,
        Err(_) => RunState::Failed,
    };
    let error = outcome.err().map(ErrorReport::from);
    journal.set_state(run, state, error.as_ref())?;
    journal.append(run, &Record::Ended { error })?;
    journal.forget_transient(run)?;
    Ok(())
}

fn watch_for_stop(data: &Path, run: &str, cancel: &Cancel, ended: &Cancel) {
    let Ok(journal) = Journal::open(data) else { return };
    while !ended.is_cancelled() {
        if journal.is_asked_to_stop(run).unwrap_or(false) {
            return cancel.cancel();
        }
        crate::look_again_after(GLANCE);
    }
}

fn answer(
    journal: &Journal,
    program: &EngineProgram,
    order: &Order,
    cancel: &Cancel,
) -> Result<(), RunError> {
    let found = find_pack("this worker", &program.packs(&order.packs)?, &order.pack)?;
    let spec = RunSpec { pack: found.folder, ..order.spec.clone() };
    let mut local = Local::new(program);
    let opened = local.open(&spec, cancel)?;
    let rungs = plan::plan(&spec, &opened.build, &opened.pack, None)?;
    let wanted: BTreeSet<&str> = order.trials.iter().map(String::as_str).collect();
    let planned = rungs.iter().flat_map(|rung| &rung.trials).filter(|planned| wanted.contains(planned.id()));
    let planned: Vec<&Planned> = planned.collect();
    if planned.len() != wanted.len() {
        return Err(RunError::Garbled(format!(
            "{} of {} trials that were ordered are none of this specification on this program and pack",
            wanted.len() - planned.len(),
            wanted.len()
        )));
    }
    let finished = journal.finished(&order.run)?;
    let open: Vec<&Planned> =
        planned.into_iter().filter(|planned| !finished.contains_key(planned.id())).collect();
    let mut worker = 0;
    let mut told: Option<Instant> = None;
    local.answer(&open, 0, cancel, &mut |_, said| {
        let record = Record::from(said);
        match &record {
            Record::Done { id, result } => {
                return Ok(journal.commit_and_append(&order.run, id, worker, result)?);
            }
            Record::Progress { .. } if told.is_some_and(|told| told.elapsed() < PROGRESS) => return Ok(()),
            Record::Progress { .. } => told = Some(Instant::now()),
            Record::Loaded { hello, pack } => {
                let answerer = Answerer { hello: (**hello).clone(), pack: (**pack).clone() };
                worker = journal.answerer(&order.run, &answerer)?;
            }
            _ => {}
        }
        Ok(journal.append(&order.run, &record)?)
    })
}
