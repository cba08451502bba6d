//! The checklist of a pack and of the run that is meant, its fixes and its digests.

use crate::{EngineProgram, ErrorCode, ErrorReport, VERSION, default_spec};
use evidence::{Language, said};
use files::FileError;
use preflight::{
    Change, Check, DigestProgress, EngineAnswer, FixError, Fixed, PlannedRun, PreflightError, Status, Subject,
};
use protocol::{Pack, PackError, RunSpec};
use report::escape;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use ts_rs::TS;

const SPEC_CAP: u64 = 1 << 20;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, TS)]
pub struct PreflightRequest {
    /// Folder of the pack.
    pub pack: PathBuf,
    /// The run that is meant; null where the pack alone is asked about. Its pack is the one above.
    pub spec: Option<RunSpec>,
    /// A file that holds the run in place of `spec`.
    pub spec_file: Option<PathBuf>,
    /// Folder for the evidence.
    pub out: Option<PathBuf>,
    /// Evidence of another machine that the run is to be compared with.
    pub counterpart: Option<PathBuf>,
}

impl PreflightRequest {
    fn subject(&self) -> Result<Subject, ErrorReport> {
        let spec = match &self.spec_file {
            Some(file) => Some(read_spec(file, &self.pack)?),
            None => self.spec.clone(),
        };
        let planned = |spec| PlannedRun {
            spec: RunSpec { pack: self.pack.clone(), ..spec },
            spec_file: self.spec_file.clone(),
            out: self.out.clone().unwrap_or_else(|| PathBuf::from("evidence")),
            counterpart: self.counterpart.clone(),
        };
        Ok(Subject { pack: self.pack.clone(), run: spec.map(planned), digest_cache: files::digest_cache() })
    }
}

/// A run specification as JSON; what it leaves out is as a run form starts.
fn read_spec(path: &Path, pack: &Path) -> Result<RunSpec, ErrorReport> {
    let wrong = |reason: String| {
        let message = format!("{} is no run specification: {reason}", path.display());
        ErrorReport::new(
            ErrorCode::BadSpecFile,
            message,
            "correct the file: an object with settings such as arms, ladder, n_samples",
        )
    };
    let bytes = files::read_capped(path, SPEC_CAP).map_err(|e| {
        ErrorReport::new(ErrorCode::BadSpecFile, e, "name a file that holds a run specification")
    })?;
    let stated: Map<String, Value> = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
    let mut spec = serde_json::to_value(default_spec(pack)).map_err(|e| wrong(e.to_string()))?;
    for (key, value) in stated {
        let place = spec.get_mut(&key).ok_or_else(|| wrong(format!("there is no setting {key:?}")))?;
        *place = value;
    }
    serde_json::from_value(spec).map_err(|e| wrong(e.to_string()))
}

/// Every check of one pack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
pub struct PreflightReport {
    /// The checks, in the order of the checklist.
    pub checks: Vec<Check>,
    /// Whether nothing fails: a run may start.
    pub may_run: bool,
    /// Seconds all checks took, the engine's start included.
    pub seconds: f64,
}

/// Runs every check.
pub fn preflight(
    request: &PreflightRequest,
    program: &EngineProgram,
) -> Result<PreflightReport, ErrorReport> {
    let began = std::time::Instant::now();
    let subject = request.subject()?;
    let checks = preflight::checks(&subject, &|| ask(&subject, program)).map_err(not_checked)?;
    let may_run = checks.iter().all(|check| check.status != Status::Fail);
    Ok(PreflightReport { checks, may_run, seconds: began.elapsed().as_secs_f64() })
}

/// Runs one check again, alone.
pub fn preflight_check(
    request: &PreflightRequest,
    program: &EngineProgram,
    id: &str,
) -> Result<Check, ErrorReport> {
    let subject = request.subject()?;
    preflight::check(&subject, id, &|| ask(&subject, program)).map_err(not_checked)
}

/// What the engine sees. A pack alone is looked at with the settings that a run form starts from.
fn ask(subject: &Subject, program: &EngineProgram) -> EngineAnswer {
    let spec = subject.run.as_ref().map_or_else(|| default_spec(&subject.pack), |run| run.spec.clone());
    let host_version = VERSION.to_owned();
    match program.inspect(&spec) {
        Ok((hello, inspection)) => EngineAnswer { host_version, hello: Ok(hello), inspection },
        Err(report) => EngineAnswer { host_version, hello: Err(report.clone()), inspection: Err(report) },
    }
}

fn not_checked(problem: PreflightError) -> ErrorReport {
    match problem {
        PreflightError::NoFolder(_) => {
            ErrorReport::new(ErrorCode::PackNotFound, problem, "give the folder that holds pack.json")
        }
        PreflightError::NoCheck(_) => {
            ErrorReport::new(ErrorCode::NoSuchCheck, problem, "run all checks; each says its id")
        }
    }
}

/// What the fix of a check would do; none if there is nothing to do.
pub fn preflight_fix_preview(request: &PreflightRequest, id: &str) -> Result<Option<Change>, ErrorReport> {
    preflight::preview(&request.subject()?, id).map_err(not_fixed)
}

/// Makes the fix of a check. `watch` is told lines of a command that takes long.
pub fn preflight_fix(
    request: &PreflightRequest,
    id: &str,
    watch: &mut dyn FnMut(&str),
) -> Result<Fixed, ErrorReport> {
    preflight::apply(&request.subject()?, id, watch).map_err(not_fixed)
}

/// Takes a fix back. Gives the file that is what it was.
pub fn preflight_undo(request: &PreflightRequest, id: &str) -> Result<PathBuf, ErrorReport> {
    preflight::undo(&request.subject()?, id).map_err(not_fixed)
}

fn not_fixed(problem: FixError) -> ErrorReport {
    let (code, hint) = match &problem {
        FixError::Pack(_) => (ErrorCode::PackMalformed, "correct pack.json first"),
        FixError::NoFix(_) => (ErrorCode::NoSuchFix, "see the check's hint for what to do by hand"),
        FixError::Unrecognised { .. } => (ErrorCode::FixUnrecognised, "correct the file by hand"),
        FixError::Outside { .. } => {
            (ErrorCode::FixOutside, "fix the file where it lies, or copy it into the pack")
        }
        FixError::ReadOnly(_) => (ErrorCode::FixReadOnly, "make the folder writable, or copy the pack"),
        FixError::BackupInTheWay(_) => (ErrorCode::FixBackup, "move the backup away, then fix again"),
        FixError::NoBackup(_) => {
            (ErrorCode::UndoNoBackup, "nothing was fixed here, or it was taken back already")
        }
        FixError::ChangedSince { .. } => {
            (ErrorCode::UndoChanged, "compare the two and put back by hand what you want")
        }
        FixError::File(_) => (ErrorCode::File, "check the file's permissions"),
        FixError::Command { .. } => {
            (ErrorCode::FixCommand, "run the command in a terminal and see what it says")
        }
    };
    ErrorReport::new(code, problem, hint)
}

/// Hashes the files of which the manifest states digests; the check finds the digests from then on. `go_on` is told the
/// progress; when it says no, hashing stops.
pub fn preflight_digests(
    pack: &Path,
    go_on: &mut dyn FnMut(DigestProgress) -> bool,
) -> Result<(), ErrorReport> {
    let unusable = |e: PackError| ErrorReport::new(ErrorCode::PackMalformed, e, "correct pack.json");
    let pack = Pack::open(pack).map_err(unusable)?;
    let unreadable = |e: FileError| ErrorReport::new(ErrorCode::FileUnreadable, e, "copy the pack again");
    preflight::hash(&pack, &files::digest_cache(), go_on).map_err(unreadable)
}

/// The checklist as a table for a pull request.
pub fn preflight_markdown(report: &PreflightReport, language: Language) -> String {
    let heads =
        said!(language, "| status | check | measured | what to do |", "| 状态 | 检查 | 实测 | 如何处理 |");
    let mut out = heads + "\n|---|---|---|---|\n";
    for check in &report.checks {
        let status = match check.status {
            Status::Pass => said!(language, "pass", "通过"),
            Status::Warn => said!(language, "**warn**", "**警告**"),
            Status::Fail => said!(language, "**fail**", "**失败**"),
            Status::Skipped => said!(language, "skipped", "跳过"),
        };
        let [title, measured, hint] =
            [&check.title, &check.measured, &check.hint].map(|text| escape(text.said(language)));
        let _ = writeln!(out, "| {status} | {title} | {measured} | {hint} |");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use evidence::Text;
    use preflight::Group;

    /// Names come from a stranger's pack.json.
    #[test]
    fn hostile_names_stay_text_in_a_pull_request() {
        let check = Check {
            id: "pack-manifest".into(),
            group: Group::Pack,
            title: Text::same("Manifest"),
            status: Status::Pass,
            measured: Text::same("`x` | <img src=y> @everyone"),
            why: Text::default(),
            hint: Text::default(),
            command: String::new(),
            fixable: false,
            undoable: false,
            seconds: 0.0,
        };
        let report = PreflightReport { checks: vec![check], may_run: true, seconds: 0.0 };
        let row = preflight_markdown(&report, Language::En);
        let row = row.lines().last().unwrap();
        assert_eq!(row, "| pass | Manifest | \\`x\\` \\| &lt;img src=y&gt; @&#8203;everyone |  |");
    }
}
