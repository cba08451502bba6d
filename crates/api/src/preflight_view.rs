//! The checklist of a pack.

use crate::{EngineProgram, ErrorReport, VERSION, error};
use preflight::{Check, EngineProbe, Status};
use report::escape;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use ts_rs::TS;

/// Every check of one pack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct PreflightReport {
    /// The checks, in the order of the checklist.
    pub checks: Vec<Check>,
    /// Whether nothing fails: a run may start.
    pub may_run: bool,
    /// Seconds all checks took, the engine's start included.
    pub seconds: f64,
}

/// Runs every check.
pub fn preflight(pack: &Path, program: &EngineProgram) -> Result<PreflightReport, ErrorReport> {
    let began = std::time::Instant::now();
    let checks = preflight::checks(pack, &probe(program)).map_err(not_checked)?;
    let may_run = checks.iter().all(|check| check.status != Status::Fail);
    Ok(PreflightReport { checks, may_run, seconds: began.elapsed().as_secs_f64() })
}

/// Runs one check again.
pub fn preflight_check(pack: &Path, program: &EngineProgram, id: &str) -> Result<Check, ErrorReport> {
    let checks = preflight::checks(pack, &probe(program)).map_err(not_checked)?;
    let found = checks.into_iter().find(|check| check.id == id);
    found.ok_or_else(|| error::report("no-such-check", format!("there is no check {id:?}"), "run all checks"))
}

fn probe(program: &EngineProgram) -> EngineProbe {
    EngineProbe { host_version: VERSION.to_owned(), answer: program.probe() }
}

fn not_checked(problem: preflight::PreflightError) -> ErrorReport {
    error::report("preflight", problem, "give the folder that holds pack.json")
}

/// The checklist as a table for a pull request.
pub fn preflight_markdown(report: &PreflightReport) -> String {
    let mut out = String::from("| status | check | measured | what to do |\n|---|---|---|---|\n");
    for check in &report.checks {
        let status = match check.status {
            Status::Pass => "pass",
            Status::Warn => "**warn**",
            Status::Fail => "**fail**",
            Status::Skipped => "skipped",
        };
        let (title, measured, hint) = (escape(&check.title), escape(&check.measured), escape(&check.hint));
        let _ = writeln!(out, "| {status} | {title} | {measured} | {hint} |");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflight::Group;

    /// Names come from a stranger's pack.json.
    #[test]
    fn hostile_names_stay_text_in_a_pull_request() {
        let check = Check {
            id: "pack-manifest".into(),
            group: Group::Pack,
            title: "Manifest".into(),
            status: Status::Pass,
            measured: "`x` | <img src=y> @everyone".into(),
            why: String::new(),
            hint: String::new(),
            fixable: false,
            seconds: 0.0,
        };
        let row = preflight_markdown(&PreflightReport { checks: vec![check], may_run: true, seconds: 0.0 });
        let row = row.lines().last().unwrap();
        assert_eq!(row, "| pass | Manifest | \\`x\\` \\| &lt;img src=y&gt; @&#8203;everyone |  |");
    }
}
