//! Everything that stands between a model pack and a valid run: checks that read headers and configurations alone, fixes
//! that can be taken back, and digests that are computed once.
//!
//! Follows the reference scripts' checks, closed where those have holes: a pointer file passes no size test here, an
//! unreadable tokenizer configuration is a failure, dimensions are compared layer by layer. What only the engine
//! understands (configurations, tensors, tokenizers) the engine itself looks at, with its own loaders.

mod check;
mod digests;
mod engine;
mod fix;
mod host;
mod json;
mod pack;
mod parts;
mod specification;
mod tokenizer;
mod verifier;
pub mod worker;

pub use check::{Check, Group, Status};
pub use digests::{DigestProgress, hash};
pub use fix::{Change, FixError, Fixed, apply, fixes, preview, undo};
pub use specification::DECIDING_SAMPLES;

use check::{Finding, Found};
use evidence::{Text, text};
use protocol::{ErrorReport, Hello, Inspection, Pack, PackError, RunSpec};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What is checked.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Folder of the pack.
    pub pack: PathBuf,
    /// The run that is meant; none where the pack alone is asked about.
    pub run: Option<PlannedRun>,
    /// File that keeps digests from one time to the next.
    pub digest_cache: PathBuf,
}

/// A run that is meant.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// What to run.
    pub spec: RunSpec,
    /// File that holds the specification, where it came from one.
    pub spec_file: Option<PathBuf>,
    /// Folder for the evidence.
    pub out: PathBuf,
    /// Evidence of another machine that this run is to be compared with.
    pub counterpart: Option<PathBuf>,
}

/// What the engine program answered when it was asked who it is and what it sees in the pack.
#[derive(Clone, Debug)]
pub struct EngineAnswer {
    /// Version of the program that asks.
    pub host_version: String,
    /// Who it is.
    pub hello: Result<Hello, ErrorReport>,
    /// What it sees.
    pub inspection: Result<Inspection, ErrorReport>,
}

/// Checks that cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// There is no such folder.
    #[error("{path} is no folder", path = .0.display())]
    NoFolder(PathBuf),
    /// There is no check of this name.
    #[error("there is no check {0:?}")]
    NoCheck(String),
}

/// A line of the checklist and how it is looked at.
struct Row {
    id: &'static str,
    group: Group,
    title: Text,
    why: Text,
    look: fn(&Place<'_>) -> Found,
}

/// The checklist, in its order.
fn checklist(subject: &Subject) -> Vec<&'static Row> {
    let pack = [
        host::ROWS,
        engine::ROWS,
        pack::ROWS,
        verifier::ROWS,
        tokenizer::ROWS,
        parts::DRAFTER_ROWS,
        parts::F_THETA_ROWS,
    ];
    let run = subject.run.as_ref().map(|_| specification::ROWS);
    pack.into_iter().chain(run).flatten().collect()
}

/// Where a check looks: the subject, its manifest, and the engine, which is asked at most once and only if needed.
struct Place<'a> {
    subject: &'a Subject,
    pack: Result<Pack, PackError>,
    ask: &'a dyn Fn() -> EngineAnswer,
    engine: OnceCell<(EngineAnswer, f64)>,
}

impl Place<'_> {
    fn pack(&self) -> Result<&Pack, Finding> {
        self.pack.as_ref().map_err(|_| Finding::skipped(text!("the manifest cannot be used", "清单无法使用")))
    }

    fn engine(&self) -> &EngineAnswer {
        let timed = || {
            let began = Instant::now();
            ((self.ask)(), began.elapsed().as_secs_f64())
        };
        &self.engine.get_or_init(timed).0
    }

    /// Seconds that the engine took to start and to look; 0 until it is asked.
    fn asking(&self) -> f64 {
        self.engine.get().map_or(0.0, |(_, seconds)| *seconds)
    }

    fn hello(&self) -> Result<&Hello, Finding> {
        self.engine()
            .hello
            .as_ref()
            .map_err(|_| Finding::skipped(text!("the engine did not answer", "引擎没有应答")))
    }

    fn inspection(&self) -> Result<&Inspection, Finding> {
        self.pack()?;
        self.hello()?;
        self.engine().inspection.as_ref().map_err(Finding::from)
    }

    fn run(&self) -> Result<&PlannedRun, Finding> {
        self.subject.run.as_ref().ok_or_else(|| Finding::skipped(text!("no run is meant", "没有计划的运行")))
    }

    fn check(&self, row: &Row) -> Check {
        // The engine's time is told once, in its own row.
        let (asked, began) = (self.asking(), Instant::now());
        let found = (row.look)(self).unwrap_or_else(|found| found);
        let own = began.elapsed().as_secs_f64() - (self.asking() - asked);
        Check {
            id: row.id.to_owned(),
            group: row.group,
            title: row.title.clone(),
            status: found.status,
            measured: found.measured,
            why: row.why.clone(),
            hint: *found.hint,
            command: found.command,
            fixable: found.fixable,
            undoable: fix::is_undoable(self.subject, row.id),
            seconds: found.seconds.unwrap_or(own.max(0.0)),
        }
    }
}

/// Every check, in the order of the checklist. Reads headers and configurations; whole files only for the digests of small
/// packs. `ask` starts an engine and lets it look at the pack.
pub fn checks(subject: &Subject, ask: &dyn Fn() -> EngineAnswer) -> Result<Vec<Check>, PreflightError> {
    let place = open(subject, ask)?;
    Ok(checklist(subject).into_iter().map(|row| place.check(row)).collect())
}

/// One check alone. The engine is asked only if it needs it.
pub fn check(subject: &Subject, id: &str, ask: &dyn Fn() -> EngineAnswer) -> Result<Check, PreflightError> {
    let place = open(subject, ask)?;
    let row = checklist(subject).into_iter().find(|row| row.id == id);
    row.map(|row| place.check(row)).ok_or_else(|| PreflightError::NoCheck(id.to_owned()))
}

fn open<'a>(subject: &'a Subject, ask: &'a dyn Fn() -> EngineAnswer) -> Result<Place<'a>, PreflightError> {
    if !subject.pack.is_dir() {
        return Err(PreflightError::NoFolder(subject.pack.clone()));
    }
    let pack = Pack::open(&subject.pack).and_then(|pack| pack.require_parts().map(|()| pack));
    Ok(Place { subject, pack, ask, engine: OnceCell::new() })
}

/// Bytes as people read them.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_000_000 => format!("{:.2} MB", bytes as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// The last part of a path as text.
fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The word that a unit variant has in JSON.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
