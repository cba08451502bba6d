//! The whole surface once: every call that a window or a browser can make, as data, and what answers it.
//!
//! A front end sends a [`Call`] and gets JSON back, news on the way. How the two travel (a window's bridge, HTTP) is all that
//! front ends have to know.

use crate::evidence_view::{baseline_first, comparison, detail, grid_view, judge, looked_row, whole};
use crate::export::render_audits;
use crate::going::{Going, Runs};
use crate::prompts_view::prompt;
use crate::{
    Begin, Cancel, EngineProgram, ErrorCode, ErrorReport, EvidenceList, Export, HostKey, JournalledRun,
    Machine, PreflightReport, PreflightRequest, ReportFormat, Run, RunError, Target, data_folder,
    in_language,
};
use evidence::{Audit, Beside, Kept, Language, OverriddenCheck, spoken};
use preflight::Check;
use protocol::RunSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use ts_rs::TS;

/// Everything that a front end can ask for. The answer's type stands behind each; refusals are [`ErrorReport`]s.
#[derive(Clone, Debug, Deserialize, TS)]
#[serde(tag = "call", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Call {
    /// What the program was started with: [`Start`].
    Start,
    /// Looks through a folder: [`Workspace`](crate::Workspace).
    OpenWorkspace {
        /// The folder.
        folder: PathBuf,
    },
    /// Lays out the demo workspace where it is missing: its folder.
    DemoWorkspace,
    /// Watches a folder for as long as somebody listens and the same page watches no other; [`Watched`](crate::Watched) is
    /// news.
    Watch {
        /// The page, by a name of its own making.
        page: String,
        /// The folder.
        folder: PathBuf,
    },
    /// Folders and files whose path begins so, for a field in which a path is typed: [`Entry`](crate::Entry)s.
    Complete {
        /// What is typed.
        text: String,
    },
    /// Every check of a pack: [`PreflightReport`].
    Preflight {
        /// What is asked about.
        request: PreflightRequest,
    },
    /// One check again: [`preflight::Check`].
    PreflightCheck {
        /// What is asked about.
        request: PreflightRequest,
        /// The check.
        id: String,
    },
    /// What a fix would change: [`preflight::Change`], or null.
    PreflightFixPreview {
        /// What is asked about.
        request: PreflightRequest,
        /// The check.
        id: String,
    },
    /// Makes a fix; lines of a command that takes long are news: [`preflight::Fixed`].
    PreflightFix {
        /// What is asked about.
        request: PreflightRequest,
        /// The check.
        id: String,
    },
    /// Takes a fix back: the file.
    PreflightUndo {
        /// What is asked about.
        request: PreflightRequest,
        /// The check.
        id: String,
    },
    /// Hashes what a pack's manifest states digests of, until done or until asked again; [`preflight::DigestProgress`] is news.
    PreflightDigests {
        /// Folder of the pack.
        pack: PathBuf,
    },
    /// The checklist as Markdown.
    PreflightMarkdown {
        /// The checklist.
        report: PreflightReport,
    },
    /// Settings that a run form starts from: [`RunSpec`].
    DefaultSpec {
        /// Folder of the pack.
        pack: PathBuf,
    },
    /// Null, or what is wrong with the settings.
    CheckSpec {
        /// The settings.
        spec: RunSpec,
    },
    /// Runs to the end, one run at a time on each target; [`RunEvent`](crate::RunEvent)s are news: the evidence files. Null when
    /// another run goes on there: it begins once that one has finished, after those that wait already.
    Run {
        /// The settings.
        spec: RunSpec,
        /// Where.
        target: Target,
        /// Folder for the evidence.
        out: PathBuf,
        /// Failing checks that the user decided to run in spite of.
        overridden: Vec<OverriddenCheck>,
        /// Whether trials that earlier runs have finished are taken over.
        reuse: bool,
    },
    /// Goes on with a run that has not ended, as `Run` does.
    ContinueRun {
        /// The run.
        id: String,
    },
    /// Stops the run that is going on there; another one that has begun meanwhile goes on.
    CancelRun {
        /// Where.
        target: Target,
        /// The run that is meant; null for whichever it is.
        run: Option<String>,
    },
    /// Stops the run that is going on there once the sample in hand is done; another one goes on.
    PauseRun {
        /// Where.
        target: Target,
        /// The run that is meant; null for whichever it is.
        run: Option<String>,
    },
    /// Where runs are going on that this program has started: [`Target`]s.
    GoingRuns,
    /// Everything that the run going on there has told, then what comes, as `Run` does; null when none is.
    FollowRun {
        /// Where.
        target: Target,
    },
    /// What a run would take: [`ForecastView`](crate::ForecastView).
    Forecast {
        /// The settings.
        spec: RunSpec,
        /// Where.
        targets: Vec<Target>,
    },
    /// Runs that have not ended and that nobody works on: [`JournalledRun`]s.
    UnfinishedRuns,
    /// Forgets a run that shall not be continued.
    DiscardRun {
        /// The run.
        id: String,
    },
    /// Machines for runs that are known: [`Machine`]s.
    Targets,
    /// The key that a host shows: [`HostKey`].
    TargetKey {
        /// The host.
        host: String,
    },
    /// Keeps a machine and pins its key.
    AddTarget {
        /// The machine.
        machine: Machine,
        /// Its key, of which the user has approved.
        key: HostKey,
    },
    /// What a run would find there: [`TargetReport`](crate::TargetReport).
    TestTarget {
        /// The host.
        host: String,
    },
    /// Copies a program there and uses it from now on: [`Machine`].
    CopyToTarget {
        /// The host.
        host: String,
        /// The program; null for this one.
        binary: Option<PathBuf>,
    },
    /// Forgets a machine and its key: whether it was known.
    RemoveTarget {
        /// The host.
        host: String,
    },
    /// One row a file; folders are searched: [`EvidenceList`].
    ListEvidence {
        /// Files and folders.
        paths: Vec<PathBuf>,
    },
    /// One file of the list in full: [`EvidenceDetail`](crate::EvidenceDetail).
    EvidenceDetail {
        /// The file.
        path: PathBuf,
    },
    /// The prompt of a sample, with its needle and what of it is evicted: [`PromptView`](crate::PromptView).
    Prompt {
        /// The file.
        path: PathBuf,
        /// Sample, from 0.
        sample: usize,
    },
    /// Recall by depth and length over files: [`GridView`](crate::GridView).
    Grid {
        /// The files.
        paths: Vec<PathBuf>,
        /// One arm only.
        arm: Option<String>,
    },
    /// Files side by side: [`ComparisonView`](crate::ComparisonView).
    Compare {
        /// The files.
        paths: Vec<PathBuf>,
        /// The one that the others are compared with.
        baseline: PathBuf,
    },
    /// Files of two platforms that belong side by side, the most comparable first: [`PairView`](crate::PairView)s.
    Pairs {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// How a text became another one, word by word: [`DiffPart`](crate::DiffPart)s.
    Diff {
        /// The text.
        old: String,
        /// The other one.
        new: String,
    },
    /// The verdicts: [`evidence::GateReport`].
    Gate {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// The settings, changed so that the run decides what the gates of its platform leave open: [`RunSpec`], or null.
    Wanted {
        /// The files.
        paths: Vec<PathBuf>,
        /// The settings.
        spec: RunSpec,
    },
    /// A report, ready to be shown or saved: [`Rendered`](crate::Rendered).
    Report {
        /// What it is made from.
        request: Export,
        /// As what.
        format: ReportFormat,
    },
}

/// What the program was started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct Start {
    /// The workspace named on the command line, or since then by another start.
    pub workspace: Option<PathBuf>,
    /// Version of the program.
    pub version: &'static str,
}

/// Told while a call is answered, each as JSON; says whether anybody still listens.
pub type News<'a> = &'a (dyn Fn(String) -> bool + Sync);

/// Answers calls, and keeps what lies between them.
#[derive(Default)]
pub struct Desk {
    workspace: Mutex<Option<PathBuf>>,
    runs: Arc<Runs>,
    /// Counts requests to watch a folder, and the newest of each page: the one that goes on.
    watches: AtomicU64,
    watched: Mutex<BTreeMap<String, u64>>,
    /// Counts requests to hash a pack: the newest is the one that goes on.
    hashing: AtomicU64,
    /// The checklist as it was shown last.
    checked: Mutex<Vec<Check>>,
    /// Files as they were read last.
    kept: Mutex<Kept>,
    /// The evidence list as it was shown last.
    listed: Mutex<Option<Beside>>,
}

impl Desk {
    /// A desk with the workspace that was named on the command line.
    pub fn new(workspace: Option<PathBuf>) -> Self {
        Self { workspace: Mutex::new(workspace), ..Self::default() }
    }

    /// A page that begins from now on opens this workspace.
    pub fn open_next(&self, workspace: PathBuf) {
        *locked(&self.workspace) = Some(workspace);
    }

    /// Answers a call with JSON, in the reader's language. Blocks until it is answered; calls may come from several threads.
    pub fn answer(&self, call: Call, language: Language, news: News) -> Result<String, ErrorReport> {
        spoken(language, || self.said(call, language, news)).map_err(|error| in_language(error, language))
    }

    fn said(&self, call: Call, language: Language, news: News) -> Result<String, ErrorReport> {
        match call {
            Call::Start => {
                json(&Start { workspace: locked(&self.workspace).clone(), version: crate::VERSION })
            }
            Call::OpenWorkspace { folder } => json(&crate::open_workspace(&folder)?),
            Call::DemoWorkspace => json(&crate::demo_workspace(&data_folder()?)?),
            Call::Watch { page, folder } => json(&self.watch(&page, &folder, news)?),
            Call::Complete { text } => json(&crate::complete(&text)),
            Call::Preflight { request } => {
                let report = crate::preflight(&request, &program()?)?;
                locked(&self.checked).clone_from(&report.checks);
                json(&report)
            }
            Call::PreflightCheck { request, id } => {
                let check = crate::preflight_check(&request, &program()?, &id)?;
                let mut checked = locked(&self.checked);
                checked.retain(|older| older.id != id);
                checked.push(check.clone());
                json(&check)
            }
            Call::PreflightFixPreview { request, id } => json(&crate::preflight_fix_preview(&request, &id)?),
            Call::PreflightFix { request, id } => {
                json(&crate::preflight_fix(&request, &id, &mut |line| _ = told(news, &line))?)
            }
            Call::PreflightUndo { request, id } => json(&crate::preflight_undo(&request, &id)?),
            Call::PreflightDigests { pack } => json(&self.hash(&pack, news)?),
            Call::PreflightMarkdown { report } => json(&crate::preflight_markdown(&report, language)),
            Call::DefaultSpec { pack } => json(&crate::default_spec(&pack)),
            Call::CheckSpec { spec } => json(&spec.check().map_err(RunError::from)?),
            Call::Run { spec, target, out, overridden, reuse } => {
                let begin = if reuse { Begin::Reuse } else { Begin::Anew };
                let (program, data, cancel) = (program()?, data_folder()?, Cancel::default());
                let overridden = self.in_english(overridden);
                let run = Run { spec, target, out, program, data, begin, shard: None, cancel, overridden };
                follow(self.runs.begin(run)?, news)
            }
            Call::ContinueRun { id } => {
                let run = Run::resume(&data_folder()?, &id, program()?)?;
                follow(self.runs.begin(run)?, news)
            }
            Call::CancelRun { target, run } => {
                json(&self.meant(&target, run).map(|going| going.cancel.cancel()))
            }
            Call::PauseRun { target, run } => {
                json(&self.meant(&target, run).map(|going| going.cancel.pause()))
            }
            Call::GoingRuns => json(&self.runs.targets()),
            Call::FollowRun { target } => follow(self.runs.going(&target), news),
            Call::Forecast { spec, targets } => {
                json(&crate::forecast(&data_folder()?, &program()?, &spec, &targets)?)
            }
            Call::UnfinishedRuns => {
                let told = |run: JournalledRun| JournalledRun {
                    error: run.error.map(|error| in_language(error, language)),
                    ..run
                };
                let runs = crate::unfinished_runs(&data_folder()?)?;
                json(&runs.into_iter().map(told).collect::<Vec<_>>())
            }
            Call::DiscardRun { id } => json(&crate::discard_run(&data_folder()?, &id)?),
            Call::Targets => json(&crate::targets(&data_folder()?)?),
            Call::TargetKey { host } => json(&crate::target_key(&data_folder()?, &host)?),
            Call::AddTarget { machine, key } => json(&crate::add_target(&data_folder()?, &machine, &key)?),
            Call::TestTarget { host } => json(&crate::test_target(&data_folder()?, &host)?),
            Call::CopyToTarget { host, binary } => {
                json(&crate::copy_to_target(&data_folder()?, &host, binary.as_deref())?)
            }
            Call::RemoveTarget { host } => json(&crate::remove_target(&data_folder()?, &host)?),
            Call::ListEvidence { paths } => json(&self.list(&paths, language)),
            Call::EvidenceDetail { path } => json(&detail(self.audit(&path)?)?),
            Call::Prompt { path, sample } => json(&prompt(&self.audit(&path)?, sample)?),
            Call::Grid { paths, arm } => json(&grid_view(&self.audits(&paths)?, arm.as_deref(), language)?),
            Call::Compare { paths, baseline } => {
                json(&comparison(self.in_order(&baseline_first(&paths, &baseline))?, language)?)
            }
            Call::Pairs { paths } => json(&crate::pairs(&self.audits(&paths)?)),
            Call::Diff { old, new } => json(&crate::diff(&old, &new)),
            Call::Gate { paths } => json(&judge(&self.audits(&paths)?, None)?),
            Call::Wanted { paths, spec } => json(&crate::wanted(&self.audits(&paths)?, &spec)?),
            Call::Report { request, format } => {
                json(&render_audits(&self.audits(&request.paths)?, &request, format, language)?)
            }
        }
    }

    fn watch(&self, page: &str, folder: &Path, news: News) -> Result<(), ErrorReport> {
        let turn = self.watches.fetch_add(1, Ordering::Relaxed) + 1;
        locked(&self.watched).insert(page.to_owned(), turn);
        let wanted = || locked(&self.watched).get(page) == Some(&turn);
        let outcome = crate::watch::watch(folder, &|what| wanted() && told(news, &what));
        if wanted() {
            locked(&self.watched).remove(page);
        }
        outcome
    }

    /// What the checks measured as evidence tells it, whatever language the reader saw it in.
    fn in_english(&self, mut overridden: Vec<OverriddenCheck>) -> Vec<OverriddenCheck> {
        let checked = locked(&self.checked);
        for one in &mut overridden {
            let shown = |check: &&Check| {
                let said = Language::ALL.map(|language| check.measured.said(language));
                check.id == one.id && said.contains(&one.measured.as_str())
            };
            if let Some(check) = checked.iter().find(shown) {
                one.measured = check.measured.en().to_owned();
            }
        }
        overridden
    }

    fn hash(&self, pack: &Path, news: News) -> Result<(), ErrorReport> {
        let turn = self.hashing.fetch_add(1, Ordering::Relaxed) + 1;
        let mut go_on = |progress| told(news, &progress) && self.hashing.load(Ordering::Relaxed) == turn;
        crate::preflight_digests(pack, &mut go_on)
    }

    /// The run that goes on there, if it is the one that is meant.
    fn meant(&self, target: &Target, run: Option<String>) -> Option<Arc<Going>> {
        self.runs.going(target).filter(|going| run.is_none_or(|run| going.is(&run)))
    }

    /// The list, reading only what has changed since the last one.
    fn list(&self, paths: &[PathBuf], language: Language) -> EvidenceList {
        let places = evidence::find(paths);
        let mut kept = locked(&self.kept);
        kept.retain(&places);
        let beside = kept.look(&places);
        let problem = |unread| in_language(crate::unreadable(unread), language);
        let list = EvidenceList {
            rows: beside.audits().map(|audit| looked_row(&audit)).collect(),
            problems: beside.unreadable.iter().map(problem).collect(),
        };
        *locked(&self.listed) = Some(beside);
        list
    }

    /// A file as the list shows it, audited beside the others.
    fn audit(&self, path: &Path) -> Result<Audit, ErrorReport> {
        let listed = locked(&self.listed).as_ref().and_then(|beside| beside.audit(path));
        listed.map_or_else(|| crate::load(&[path.to_owned()]).and_then(|audits| only(audits, path)), Ok)
    }

    /// Audits of all files below the paths; one that cannot be read is the error.
    fn audits(&self, paths: &[PathBuf]) -> Result<Vec<Audit>, ErrorReport> {
        whole(locked(&self.kept).look(&crate::find_evidence(paths)?).scan())
    }

    /// Audits of these files, in this order.
    fn in_order(&self, paths: &[PathBuf]) -> Result<Vec<Audit>, ErrorReport> {
        let mut audits = self.audits(paths)?;
        audits.sort_by_key(|audit| paths.iter().position(|path| *path == audit.path));
        Ok(audits)
    }
}

fn only(audits: Vec<Audit>, path: &Path) -> Result<Audit, ErrorReport> {
    let found = audits.into_iter().find(|audit| audit.path == path);
    found.ok_or_else(|| {
        ErrorReport::new(ErrorCode::NoSuchEvidence, format!("{} is no file", path.display()), "open it again")
    })
}

fn program() -> Result<EngineProgram, ErrorReport> {
    crate::program_beside()
}

/// Tells what a run tells, to its end; null when none is going on, or nobody listens any more.
fn follow(going: Option<Arc<Going>>, news: News) -> Result<String, ErrorReport> {
    going.and_then(|going| going.follow(news)).unwrap_or_else(|| json(&()))
}

fn told(news: News, what: &impl Serialize) -> bool {
    json(what).is_ok_and(news)
}

pub(crate) fn json(answer: &impl Serialize) -> Result<String, ErrorReport> {
    let fault = "this is a fault of the program: report it with what you did last";
    serde_json::to_string(answer).map_err(|e| ErrorReport::new(ErrorCode::Answer, e, fault))
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
