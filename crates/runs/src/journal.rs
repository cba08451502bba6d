//! The journal: every finished trial of every run, in one SQLite file that several processes may use at once.
//!
//! A trial is committed before anybody is told of it. Write-ahead logging makes a commit survive the death of the process;
//! once a second it is also forced to the disk, so that a power cut costs the trials of a second at most.

use crate::plan::Planned;
use crate::{Shard, Target};
use evidence::OverriddenCheck;
use jiff::Timestamp;
use protocol::{ErrorReport, Hello, LoadedPack, Order, Record, RunSpec, TrialResult};
use rusqlite::{Connection, Row, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use ts_rs::TS;

const FILE: &str = "journal.sqlite";
/// Layout of the tables.
const LAYOUT: i64 = 2;
/// How long another process may hold the journal.
const PATIENCE: Duration = Duration::from_secs(20);
/// Commits are forced to the disk this often: forcing each would cost more than a short trial.
const FORCE: Duration = Duration::from_secs(1);

/// A lock that is held this often, this far apart, is held by an owner.
const GLIMPSES: usize = 5;
const GLIMPSE: Duration = Duration::from_millis(20);

const TABLES: &str = "
create table run (
  id text primary key,
  created text not null,
  target text not null,
  spec text not null,
  out text not null,
  overridden text not null,
  shard text,
  state text not null,
  error text,
  followed integer not null default 0,
  stop integer not null default 0,
  ordered text,
  reuse integer not null default 0,
  queued text
) strict;
create table worker (
  run text not null references run(id) on delete cascade,
  number integer not null,
  hello text not null,
  pack text not null,
  primary key (run, number)
) strict, without rowid;
create table trial (
  run text not null references run(id) on delete cascade,
  id text not null,
  worker integer not null,
  origin text not null,
  result text not null,
  primary key (run, id)
) strict, without rowid;
create index trial_id on trial (id);
create table rung (
  run text not null references run(id) on delete cascade,
  rung integer not null,
  started text not null,
  ended text,
  paths text,
  primary key (run, rung)
) strict, without rowid;
create table record (
  run text not null references run(id) on delete cascade,
  number integer not null,
  transient integer not null,
  text text not null,
  primary key (run, number)
) strict, without rowid;
create table machine (
  name text primary key,
  settings text not null
) strict, without rowid;
";

/// From layout 1 to layout 2.
const FROM_1: &str = "
alter table run add column reuse integer not null default 0;
alter table run add column queued text;
";

/// The journal could not be used. What was committed before is safe.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// SQLite refused.
    #[error("the journal {path} cannot be used: {source}", path = path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// SQLite's own words.
        source: rusqlite::Error,
    },
    /// The folder could not be made or a lock not be taken.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Another version of the program laid it out.
    #[error("the journal {path} has layout {found}; this program knows {LAYOUT}", path = path.display())]
    Layout {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: i64,
    },
    /// An entry is not what this program writes.
    #[error("the journal {path} holds an entry that cannot be read: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No run has that id.
    #[error("the journal has no run {0}")]
    NoRun(String),
    /// A process works on the run.
    #[error("a process works on the run {0}")]
    Busy(String),
}

impl JournalError {
    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Sqlite { source, .. } if source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull))
    }
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// Waiting until its target is free.
    Queued,
    /// Going on, or its process died.
    Open,
    /// Cancelled by the user.
    Stopped,
    /// Ended by an error.
    Failed,
    /// Every trial is done and the evidence written.
    Done,
}

/// A run as the journal knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct JournalledRun {
    /// Its id.
    pub id: String,
    /// When it was first started.
    #[ts(type = "string")]
    pub created: Timestamp,
    /// Where it happens.
    pub target: Target,
    /// What is run; its pack is absolute.
    pub spec: RunSpec,
    /// Folder for the evidence, absolute.
    pub out: PathBuf,
    /// Failing checks in spite of which it was started.
    pub overridden: Vec<OverriddenCheck>,
    /// The part of it that is run here; null for all.
    pub shard: Option<Shard>,
    /// Whether trials that other runs have finished are taken over.
    pub reuse: bool,
    /// How it stands.
    pub state: RunState,
    /// Since when it waits for its target, where it does.
    #[ts(type = "string | null")]
    pub queued: Option<Timestamp>,
    /// Why it ended early.
    pub error: Option<ErrorReport>,
    /// Trials in the journal.
    pub done: usize,
    /// Trials in all.
    pub trials: usize,
    /// Whether a process works on it now.
    pub alive: bool,
}

impl JournalledRun {
    /// Whether it is this machine's to continue: it has not ended, nobody works on it, and it was not ordered from elsewhere
    /// (such a run has no folder for evidence, and is continued from there).
    pub fn is_unfinished(&self) -> bool {
        self.state != RunState::Done && !self.alive && !self.out.as_os_str().is_empty()
    }
}

/// A run of which nothing is done yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub id: &'a str,
    pub target: &'a Target,
    pub spec: &'a RunSpec,
    /// Folder for the evidence; empty where trials are answered for a run elsewhere.
    pub out: &'a Path,
    pub overridden: &'a [OverriddenCheck],
    pub shard: Option<Shard>,
    /// Whether trials that other runs have finished are taken over.
    pub reuse: bool,
    /// Whether it waits for its target.
    pub queued: bool,
}

impl<'a> Entry<'a> {
    /// A run elsewhere, of which trials are answered here.
    pub(crate) fn for_another(id: &'a str, spec: &'a RunSpec) -> Self {
        let (target, out) = (&Target::Local, Path::new(""));
        Self { id, target, spec, out, overridden: &[], shard: None, reuse: false, queued: false }
    }
}

/// One engine that answered trials of a run, with the pack as it saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answerer {
    pub hello: Hello,
    pub pack: LoadedPack,
}

impl Answerer {
    /// The same machine with the same program and pack: what was timed on the way is not compared.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        fn timeless(of: &Answerer) -> Answerer {
            let mut of = of.clone();
            of.pack.seconds = 0.0;
            of.hello.backends.iter_mut().for_each(|info| info.probe_seconds = 0.0);
            of
        }
        timeless(self) == timeless(other)
    }
}

/// A finished trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finished {
    /// Number of the worker.
    pub worker: usize,
    /// The run that measured it.
    pub origin: String,
    pub result: TrialResult,
}

/// When a rung was begun and ended, and what was written of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RungTimes {
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
    pub paths: Option<Vec<PathBuf>>,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    connection: Connection,
    forced: Cell<Instant>,
}

type Answer<T> = Result<T, JournalError>;

impl Journal {
    /// Opens the journal in the data folder; makes it if there is none.
    pub fn open(data: &Path) -> Answer<Self> {
        let runs = data.join("runs");
        std::fs::create_dir_all(&runs).map_err(|source| JournalError::Io { path: runs, source })?;
        let path = data.join(FILE);
        let opened =
            Connection::open(&path).map_err(|source| JournalError::Sqlite { path: path.clone(), source })?;
        let journal = Self { path, connection: opened, forced: Cell::new(Instant::now()) };
        journal.prepare()?;
        Ok(journal)
    }

    fn prepare(&self) -> Answer<()> {
        let db = &self.connection;
        let layout = self.sqlite((|| {
            db.busy_timeout(PATIENCE)?;
            db.pragma_update(None, "journal_mode", "wal")?;
            db.pragma_update(None, "synchronous", "normal")?;
            db.pragma_update(None, "foreign_keys", true)?;
            // Two processes may open the first journal at once.
            db.execute_batch("begin immediate")?;
            let layout: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
            match layout {
                0 => db.execute_batch(TABLES)?,
                1 => db.execute_batch(FROM_1)?,
                _ => {}
            }
            if layout < LAYOUT {
                db.pragma_update(None, "user_version", LAYOUT)?;
            }
            db.execute_batch("commit")?;
            Ok(layout)
        })())?;
        if layout > LAYOUT {
            return Err(JournalError::Layout { path: self.path.clone(), found: layout });
        }
        Ok(())
    }

    fn sqlite<T>(&self, outcome: rusqlite::Result<T>) -> Answer<T> {
        outcome.map_err(|source| JournalError::Sqlite { path: self.path.clone(), source })
    }

    fn read<T: DeserializeOwned>(&self, text: &str) -> Answer<T> {
        serde_json::from_str(text)
            .map_err(|e| JournalError::Malformed { path: self.path.clone(), reason: e.to_string() })
    }

    fn rows<T>(
        &self,
        query: &str,
        parameters: impl rusqlite::Params,
        row: impl FnMut(&Row) -> rusqlite::Result<T>,
    ) -> Answer<Vec<T>> {
        self.sqlite((|| self.connection.prepare_cached(query)?.query_map(parameters, row)?.collect())())
    }

    fn change(&self, query: &str, parameters: impl rusqlite::Params) -> Answer<usize> {
        self.sqlite((|| self.connection.prepare_cached(query)?.execute(parameters))())
    }

    /// Does several changes as one.
    fn together<T>(&self, changes: impl FnOnce() -> Answer<T>) -> Answer<T> {
        self.sqlite(self.connection.execute_batch("begin immediate"))?;
        match changes() {
            Ok(value) => {
                self.sqlite(self.connection.execute_batch("commit"))?;
                self.force()?;
                Ok(value)
            }
            Err(error) => {
                // What failed first is what matters; SQLite may have rolled back by itself.
                let _ = self.connection.execute_batch("rollback");
                Err(error)
            }
        }
    }

    fn force(&self) -> Answer<()> {
        // Within several changes that are one there is nothing to force yet.
        if !self.connection.is_autocommit() || self.forced.get().elapsed() < FORCE {
            return Ok(());
        }
        self.forced.set(Instant::now());
        self.sqlite(self.connection.query_row("pragma wal_checkpoint(passive)", [], |_| Ok(())))
    }

    /// Enters a run; one that is ordered from elsewhere again keeps what is done, and the new order counts.
    pub(crate) fn begin(&self, run: &Entry, order: Option<&Order>) -> Answer<()> {
        let text = |value: serde_json::Value| value.to_string();
        let now = Timestamp::now().to_string();
        self.change(
            "insert into run (id, created, target, spec, out, overridden, shard, state, ordered, reuse, queued)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             on conflict (id) do update set spec = excluded.spec, ordered = excluded.ordered",
            params![
                run.id,
                now,
                text(serde_json::json!(run.target)),
                text(serde_json::json!(run.spec)),
                run.out.to_string_lossy(),
                text(serde_json::json!(run.overridden)),
                run.shard.map(|shard| shard.to_string()),
                word(if run.queued { RunState::Queued } else { RunState::Open }),
                order.map(|order| text(serde_json::json!(order))),
                run.reuse,
                run.queued.then_some(&now),
            ],
        )?;
        Ok(())
    }

    /// A run by its id.
    pub fn run(&self, id: &str) -> Answer<JournalledRun> {
        let found = self.runs_where("where id = ?1", params![id])?;
        found.into_iter().next().ok_or_else(|| JournalError::NoRun(id.to_owned()))
    }

    /// Every run, the latest first.
    pub fn runs(&self) -> Answer<Vec<JournalledRun>> {
        self.runs_where("order by created desc, id desc", [])
    }

    fn runs_where(&self, clause: &str, parameters: impl rusqlite::Params) -> Answer<Vec<JournalledRun>> {
        let query = format!(
            "select id, created, target, spec, out, overridden, shard, state, error,
                    (select count(*) from trial where trial.run = run.id), reuse, queued from run {clause}"
        );
        let columns = |row: &Row| {
            let texts =
                (0..8).map(|i| row.get::<_, Option<String>>(i)).collect::<rusqlite::Result<Vec<_>>>()?;
            Ok((texts, row.get::<_, Option<String>>(8)?, row.get::<_, i64>(9)?, row.get(10)?, row.get(11)?))
        };
        let rows = self.rows(&query, parameters, columns)?;
        let run = |(texts, error, done, reuse, queued)| self.journalled(texts, error, done, reuse, queued);
        rows.into_iter().map(run).collect()
    }

    fn journalled(
        &self,
        texts: Vec<Option<String>>,
        error: Option<String>,
        done: i64,
        reuse: bool,
        queued: Option<String>,
    ) -> Answer<JournalledRun> {
        let text = |i: usize| texts[i].as_deref().unwrap_or_default();
        let quoted = |text: &str| serde_json::json!(text).to_string();
        let spec: RunSpec = self.read(text(3))?;
        let shard = match texts[6].as_deref() {
            Some(shard) => Some(self.read::<Shard>(&quoted(shard))?),
            None => None,
        };
        let samples = shard.map_or(spec.n_samples, |shard| shard.share(spec.n_samples));
        Ok(JournalledRun {
            created: self.read(&quoted(text(1)))?,
            target: self.read(text(2))?,
            out: PathBuf::from(text(4)),
            overridden: self.read(text(5))?,
            state: self.read(&quoted(text(7)))?,
            error: error.map(|error| self.read(&error)).transpose()?,
            done: usize::try_from(done).unwrap_or(0),
            trials: spec.arms.len() * spec.ladder.len() * samples,
            reuse,
            queued: queued.map(|queued| self.read(&quoted(&queued))).transpose()?,
            alive: self.is_alive(text(0)),
            id: text(0).to_owned(),
            spec,
            shard,
        })
    }

    /// What was ordered from elsewhere; none of a run of this machine's own.
    pub(crate) fn order(&self, id: &str) -> Answer<Option<Order>> {
        let query = "select ordered from run where id = ?1";
        let texts = self.rows(query, [id], |row| row.get::<_, Option<String>>(0))?;
        let text = texts.into_iter().next().ok_or_else(|| JournalError::NoRun(id.to_owned()))?;
        text.map(|text| self.read(&text)).transpose()
    }

    /// The runs that wait for a target, the one that has waited longest first.
    pub(crate) fn waiting(&self, target: &Target) -> Answer<Vec<JournalledRun>> {
        let target = serde_json::json!(target).to_string();
        self.runs_where("where state = 'queued' and target = ?1 order by queued, id", [target])
    }

    /// Whether a process works on a run that happens there.
    pub(crate) fn is_busy(&self, target: &Target) -> Answer<bool> {
        let target = serde_json::json!(target).to_string();
        let query = "select id from run where state = 'open' and target = ?1";
        let open = self.rows(query, [target], |row| row.get::<_, String>(0))?;
        Ok(open.iter().any(|id| self.is_alive(id)))
    }

    /// Notes that a run that has not ended, and that nobody works on, waits for its target.
    pub(crate) fn queue(&self, id: &str) -> Answer<()> {
        let _owned = self.own(id)?.ok_or_else(|| JournalError::Busy(id.to_owned()))?;
        let query =
            "update run set state = 'queued', error = null, queued = ?2 where id = ?1 and state <> 'done'";
        match self.change(query, params![id, Timestamp::now().to_string()])? {
            0 => Err(JournalError::NoRun(id.to_owned())),
            _ => Ok(()),
        }
    }

    /// Forgets a run that nobody works on; trials that other runs took over from it stay with those.
    pub fn discard(&self, id: &str) -> Answer<()> {
        let _owned = self.own(id)?.ok_or_else(|| JournalError::Busy(id.to_owned()))?;
        self.change("delete from run where id = ?1", [id])?;
        Ok(())
    }

    pub(crate) fn set_state(&self, id: &str, state: RunState, error: Option<&ErrorReport>) -> Answer<()> {
        let error = error.map(|error| serde_json::json!(error).to_string());
        self.change(
            "update run set state = ?2, error = ?3, queued = null where id = ?1",
            params![id, word(state), error],
        )?;
        Ok(())
    }

    /// Asks whoever works on a run to stop; taken back with `false`.
    pub(crate) fn ask_to_stop(&self, id: &str, stop: bool) -> Answer<()> {
        match self.change("update run set stop = ?2 where id = ?1", params![id, stop])? {
            0 => Err(JournalError::NoRun(id.to_owned())),
            _ => Ok(()),
        }
    }

    pub(crate) fn is_asked_to_stop(&self, id: &str) -> Answer<bool> {
        let asked = self.rows("select stop from run where id = ?1", [id], |row| row.get(0))?;
        // A run that was discarded meanwhile is not wanted any more.
        Ok(asked.into_iter().next().unwrap_or(true))
    }

    /// Notes who answers from now on; the same as before keeps its number.
    pub(crate) fn answerer(&self, id: &str, now: &Answerer) -> Answer<usize> {
        let known = self.answerers(id)?;
        if let Some(number) = known.iter().position(|known| known.is_same_as(now)) {
            return Ok(number);
        }
        let text = |value: serde_json::Value| value.to_string();
        self.change(
            "insert into worker (run, number, hello, pack) values (?1, ?2, ?3, ?4)",
            params![id, known.len(), text(serde_json::json!(now.hello)), text(serde_json::json!(now.pack))],
        )?;
        Ok(known.len())
    }

    /// Everybody who answered, by number.
    pub(crate) fn answerers(&self, id: &str) -> Answer<Vec<Answerer>> {
        let query = "select hello, pack from worker where run = ?1 order by number";
        let rows = self.rows(query, [id], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        let read = |(hello, pack): (String, String)| {
            Ok(Answerer { hello: self.read(&hello)?, pack: self.read(&pack)? })
        };
        rows.into_iter().map(read).collect()
    }

    /// Commits a finished trial, and with it how far the account of a worker elsewhere was read. Whether it was new.
    pub(crate) fn commit(
        &self,
        id: &str,
        trial: &str,
        worker: usize,
        result: &TrialResult,
        followed: u64,
    ) -> Answer<bool> {
        self.together(|| {
            let new = self.insert(id, trial, worker, result)?;
            self.change(
                "update run set followed = ?2 where id = ?1 and followed < ?2",
                params![id, i64::try_from(followed).unwrap_or(i64::MAX)],
            )?;
            Ok(new)
        })
    }

    /// Enters a trial that this run has measured; whether it was new.
    fn insert(&self, id: &str, trial: &str, worker: usize, result: &TrialResult) -> Answer<bool> {
        let query = "insert into trial (run, id, worker, origin, result) values (?1, ?2, ?3, ?1, ?4)
                     on conflict do nothing";
        let new = self.change(query, params![id, trial, worker, serde_json::json!(result).to_string()])?;
        Ok(new == 1)
    }

    /// Number of the last record of a worker elsewhere that was committed.
    pub(crate) fn followed(&self, id: &str) -> Answer<u64> {
        let found = self.rows("select followed from run where id = ?1", [id], |row| row.get::<_, i64>(0))?;
        Ok(found.first().and_then(|number| u64::try_from(*number).ok()).unwrap_or(0))
    }

    /// The finished trials of a run by their ids.
    pub(crate) fn finished(&self, id: &str) -> Answer<BTreeMap<String, Finished>> {
        let query = "select id, worker, origin, result from trial where run = ?1";
        let columns =
            |row: &Row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?, row.get::<_, String>(3)?));
        let rows = self.rows(query, [id], columns)?;
        let read = |(trial, worker, origin, result): (String, usize, String, String)| {
            Ok((trial, Finished { worker, origin, result: self.read(&result)? }))
        };
        rows.into_iter().map(read).collect()
    }

    /// One finished trial of a run, and who answered it.
    pub(crate) fn answered(&self, id: &str, trial: &str) -> Answer<Option<(Answerer, TrialResult)>> {
        let query = "select hello, pack, result from trial
                     join worker on worker.run = trial.run and worker.number = trial.worker
                     where trial.run = ?1 and trial.id = ?2";
        let columns =
            |row: &Row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?));
        let found = self.rows(query, [id, trial], columns)?.into_iter().next();
        let read = |(hello, pack, result): (String, String, String)| {
            Ok((Answerer { hello: self.read(&hello)?, pack: self.read(&pack)? }, self.read(&result)?))
        };
        found.map(read).transpose()
    }

    /// Takes over the trials of the plan that earlier runs have finished; how many those are.
    pub(crate) fn take_over(&self, id: &str, plan: &[&Planned]) -> Answer<usize> {
        self.together(|| {
            let mut taken = 0;
            for planned in plan {
                taken += self.take_over_one(id, planned.id())?;
            }
            Ok(taken)
        })
    }

    fn take_over_one(&self, id: &str, trial: &str) -> Answer<usize> {
        let query = "select run, worker, origin, result from trial where id = ?1 and run <> ?2 limit 1";
        let columns = |row: &Row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, usize>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, String>(3)?,
            ))
        };
        let Some((run, worker, origin, result)) = self.rows(query, [trial, id], columns)?.into_iter().next()
        else {
            return Ok(0);
        };
        let Some(answerer) = self.answerers(&run)?.into_iter().nth(worker) else { return Ok(0) };
        let worker = self.answerer(id, &answerer)?;
        self.change(
            "insert into trial (run, id, worker, origin, result) values (?1, ?2, ?3, ?4, ?5) on conflict do nothing",
            params![id, trial, worker, origin, result],
        )
    }

    /// Notes that a rung was begun; the first note counts.
    pub(crate) fn rung_started(&self, id: &str, rung: u32, now: Timestamp) -> Answer<()> {
        let query = "insert into rung (run, rung, started) values (?1, ?2, ?3) on conflict do nothing";
        self.change(query, params![id, rung, now.to_string()])?;
        Ok(())
    }

    /// Notes that every trial of a rung is done; the first note counts.
    pub(crate) fn rung_ended(&self, id: &str, rung: u32, now: Timestamp) -> Answer<RungTimes> {
        let query = "update rung set ended = ?3 where run = ?1 and rung = ?2 and ended is null";
        self.change(query, params![id, rung, now.to_string()])?;
        let found = self.rung_times(id, rung)?;
        found.ok_or_else(|| JournalError::NoRun(format!("{id}, rung {rung}")))
    }

    /// Forgets what was noted of a rung that had ended and is to be answered anew, by another program: its evidence stays
    /// where it is, and what comes is written beside it.
    pub(crate) fn rung_reopened(&self, id: &str, rung: u32) -> Answer<()> {
        let query = "delete from rung where run = ?1 and rung = ?2 and ended is not null";
        self.change(query, params![id, rung])?;
        Ok(())
    }

    /// Notes which files will hold a rung's evidence, before they are written: written again, they have the same names.
    pub(crate) fn rung_paths(&self, id: &str, rung: u32, paths: &[PathBuf]) -> Answer<()> {
        let paths = serde_json::json!(paths).to_string();
        self.change("update rung set paths = ?3 where run = ?1 and rung = ?2", params![id, rung, paths])?;
        Ok(())
    }

    pub(crate) fn rung_times(&self, id: &str, rung: u32) -> Answer<Option<RungTimes>> {
        let query = "select started, ended, paths from rung where run = ?1 and rung = ?2";
        let columns = |row: &Row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?, row.get::<_, Option<String>>(2)?))
        };
        let quoted = |text: &str| serde_json::json!(text).to_string();
        let read = |(started, ended, paths): (String, Option<String>, Option<String>)| {
            Ok(RungTimes {
                started: self.read(&quoted(&started))?,
                ended: ended.map(|ended| self.read(&quoted(&ended))).transpose()?,
                paths: paths.map(|paths| self.read(&paths)).transpose()?,
            })
        };
        self.rows(query, params![id, rung], columns)?.into_iter().next().map(read).transpose()
    }

    /// Appends to the account of a run.
    pub(crate) fn append(&self, id: &str, record: &Record) -> Answer<()> {
        let transient =
            matches!(record, Record::Progress { .. } | Record::Memory { .. } | Record::Started { .. });
        let query = "insert into record (run, number, transient, text)
                     select ?1, coalesce(max(number), 0) + 1, ?2, ?3 from record where run = ?1";
        self.change(query, params![id, transient, serde_json::json!(record).to_string()])?;
        self.force()
    }

    /// Commits a trial and appends it to the account, as one.
    pub(crate) fn commit_and_append(
        &self,
        id: &str,
        trial: &str,
        worker: usize,
        result: &TrialResult,
    ) -> Answer<()> {
        self.together(|| match self.insert(id, trial, worker, result)? {
            true => {
                let result = Box::new(result.clone());
                self.append(id, &Record::Done { id: trial.to_owned(), result })
            }
            false => Ok(()),
        })
    }

    /// What is worth nothing once it is past: progress and memory, all but the last.
    pub(crate) fn forget_transient(&self, id: &str) -> Answer<()> {
        let query = "delete from record where run = ?1 and transient = 1
                     and number < (select max(number) from record where run = ?1)";
        self.change(query, [id])?;
        Ok(())
    }

    /// Takes back that a run has ended: it goes on.
    pub(crate) fn reopen(&self, id: &str) -> Answer<()> {
        self.change("delete from record where run = ?1 and text like '{\"type\":\"ended\"%'", [id])?;
        self.ask_to_stop(id, false)?;
        self.set_state(id, RunState::Open, None)
    }

    /// Numbers and texts of the records after `after`, at most `most`.
    pub(crate) fn records(&self, id: &str, after: u64, most: usize) -> Answer<Vec<(u64, String)>> {
        let query = "select number, text from record where run = ?1 and number > ?2 order by number limit ?3";
        let columns = |row: &Row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?));
        let rows = self.rows(query, params![id, i64::try_from(after).unwrap_or(i64::MAX), most], columns)?;
        Ok(rows.into_iter().map(|(number, text)| (u64::try_from(number).unwrap_or(0), text)).collect())
    }

    /// Settings of the machines that are known, by name.
    pub(crate) fn machines<T: DeserializeOwned>(&self) -> Answer<Vec<T>> {
        let texts =
            self.rows("select settings from machine order by name", [], |row| row.get::<_, String>(0))?;
        texts.iter().map(|text| self.read(text)).collect()
    }

    pub(crate) fn set_machine(&self, name: &str, settings: &impl Serialize) -> Answer<()> {
        let query = "insert into machine (name, settings) values (?1, ?2)
                     on conflict (name) do update set settings = excluded.settings";
        self.change(query, params![name, serde_json::json!(settings).to_string()])?;
        Ok(())
    }

    pub(crate) fn forget_machine(&self, name: &str) -> Answer<bool> {
        Ok(self.change("delete from machine where name = ?1", [name])? > 0)
    }

    fn runs_folder(&self) -> PathBuf {
        self.path.with_file_name("runs")
    }

    /// Where what a run without a terminal says is kept.
    pub(crate) fn log_file(&self, id: &str) -> PathBuf {
        self.runs_folder().join(format!("{id}.log"))
    }

    /// Takes a run for this process, until the guard is dropped or the process ends; none where another has it.
    pub(crate) fn own(&self, id: &str) -> Answer<Option<Owned>> {
        let path = self.runs_folder().join(format!("{id}.lock"));
        let failed = |source| JournalError::Io { path: path.clone(), source };
        let file = File::options().create(true).append(true).open(&path).map_err(failed)?;
        // Somebody who only looks whether a run is alive holds the lock for an instant.
        for _ in 0..GLIMPSES {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Owned { _file: file })),
                Err(TryLockError::WouldBlock) => crate::look_again_after(GLIMPSE),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        Ok(None)
    }

    /// Whether a process works on it.
    pub(crate) fn is_alive(&self, id: &str) -> bool {
        let path = self.runs_folder().join(format!("{id}.lock"));
        File::open(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }
}

fn word(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "queued",
        RunState::Open => "open",
        RunState::Stopped => "stopped",
        RunState::Failed => "failed",
        RunState::Done => "done",
    }
}

/// A run that belongs to this process.
#[derive(Debug)]
pub(crate) struct Owned {
    _file: File,
}
