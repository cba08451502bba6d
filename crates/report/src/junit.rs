//! The gates as JUnit XML, for continuous integration.

use crate::text::tame;
use crate::{ReportError, SignOff};
use evidence::{GateCell, GateReport, GateVerdict};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::collections::BTreeMap;

/// Renders the gates as JUnit XML: a suite for each platform, a case for each gate and rung. Whatever is no pass is a failure
/// whose type is the verdict, as the exit code of `kakeya-gate gate` has it.
///
/// # Errors
/// [`ReportError::Junit`] when the document cannot be written.
pub fn junit(gate: &GateReport, sign_off: &SignOff) -> Result<String, ReportError> {
    let mut suites: BTreeMap<&str, TestSuite> = BTreeMap::new();
    for cell in &gate.cells {
        let name = cell.platform.label();
        suites.entry(name).or_insert_with(|| TestSuite::new(name)).add_test_case(case(cell));
    }
    for suite in suites.values_mut() {
        suite.add_property(("policy", tame(&gate.policy.source).as_str()));
        suite.add_property(("policy-sha256", gate.policy.sha256.as_str()));
        suite.add_property(("reviewer", tame(&sign_off.reviewer).as_str()));
        suite.add_property(("program-version", sign_off.program_version.as_str()));
    }
    let mut report = Report::new("Kakeya Gate");
    report.add_test_suites(suites.into_values());
    report.to_string().map_err(|e| ReportError::Junit(e.to_string()))
}

fn case(cell: &GateCell) -> TestCase {
    let why = tame(&format!("{} ({})", cell.why.en(), cell.figures.en()));
    let status = match cell.verdict {
        GateVerdict::Pass => TestCaseStatus::success(),
        verdict => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_type(verdict.label().en()).set_message(why.clone());
            status
        }
    };
    let mut case = TestCase::new(format!("{}, rung {}", tame(cell.title.en()), tame(&cell.rung)), status);
    case.set_classname(format!("gate.{}", cell.platform.label()));
    case.set_system_out(why);
    case
}
