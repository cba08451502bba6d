//! Smoke steps, test suites and flags that a platform's own tests report.

use super::{Case, Family, Summary, picked};
use crate::Finding;
use crate::audit::Verdict;
use crate::json::At;
use crate::text;
use serde_json::{Value, json};

pub(super) const PLATFORM_TESTS: Family = Family {
    holds: |shape| {
        (shape.starts_with("grpc_") || shape.starts_with("pr_")) && shape != "grpc_agent_capacity_loadtest"
    },
    summary: |case| Summary { claimed: claims(case), ..Summary::default() },
    rules: junit_count,
    verdict: |case, _| pass_if(passes(case)),
};

pub(super) const PLATFORM_JUNIT: Family = Family {
    holds: |shape| shape == "nokind:platform_junit",
    summary: |case| Summary { claimed: suite_claims(case), ..Summary::default() },
    rules: junit_exit,
    verdict: |case, _| pass_if(case.value.number("/exit_code") == Some(0.0) && none_failed(case)),
};

/// Counts of a test suite.
const COUNTS: [&str; 4] = ["tests", "failures", "errors", "skipped"];

fn pass_if(passes: bool) -> Verdict {
    if passes { Verdict::Pass } else { Verdict::Fail }
}

fn none_failed(case: &Case) -> bool {
    ["/junit/failures", "/junit/errors"].iter().all(|field| case.value.number(field) == Some(0.0))
}

/// A report states steps, or a suite, or flags.
fn claims(case: &Case) -> Option<Value> {
    let value = case.value;
    if value.list("/steps").is_some() {
        return picked(value, "", &["all_passed"]);
    }
    if value.at("/junit").is_some() {
        return picked(value, "/junit", &COUNTS);
    }
    let flag = |key: &str| key.starts_with("passed") || key.starts_with("server");
    let fields = value.as_object()?.iter().filter(|(key, _)| flag(key));
    Some(fields.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// How the suite ended, then its counts.
fn suite_claims(case: &Case) -> Option<Value> {
    let mut claimed = picked(case.value, "", &["exit_code"])?;
    if let Some((Value::Object(counts), all)) =
        picked(case.value, "/junit", &COUNTS).zip(claimed.as_object_mut())
    {
        all.extend(counts);
    }
    Some(claimed)
}

/// Recounted from steps or suite; nothing counted is no pass.
fn passes(case: &Case) -> bool {
    let value = case.value;
    if let Some(steps) = value.list("/steps") {
        let complete = value.whole("/steps_total") == Some(steps.len() as u64);
        complete && !steps.is_empty() && steps.iter().all(|step| step.is_on("/passed"))
    } else if value.at("/junit").is_some() {
        none_failed(case) && value.number("/junit/tests").is_some_and(|tests| tests > 0.0)
    } else {
        value.is_on("/passed") || value.is_on("/server_preflight_passed")
    }
}

fn junit_count(case: &Case, out: &mut Vec<Finding>) {
    let cases = case.value.list("/junit/cases").map(<[Value]>::len);
    let Some((cases, tests)) = cases.zip(case.value.number("/junit/tests")) else { return };
    if cases as f64 != tests {
        let message = text!(
            "{tests} tests are counted, {cases} cases are listed",
            "计数为 {tests} 个测试，列出了 {cases} 个用例"
        );
        let data = json!({ "cases": cases, "tests": tests });
        out.push(Finding::new("JUNIT_COUNT_MISMATCH", "/junit/tests", message, data));
    }
}

fn junit_exit(case: &Case, out: &mut Vec<Finding>) {
    if let Some(skipped) = case.value.number("/junit/skipped").filter(|skipped| *skipped > 0.0) {
        let message = text!("{skipped} tests were skipped", "跳过了 {skipped} 个测试");
        out.push(Finding::new("TESTS_SKIPPED", "/junit/skipped", message, json!({ "n": skipped })));
    }
    let Some(exit_code) = case.value.number("/exit_code").filter(|code| *code != 0.0) else { return };
    if none_failed(case) {
        let message = text!(
            "the suite ended with exit code {exit_code}, though no test failed",
            "没有测试失败，套件却以退出码 {exit_code} 结束"
        );
        let data = json!({ "exit_code": exit_code, "tests": case.value.at("/junit/tests") });
        out.push(Finding::new("EXIT_NONZERO_NO_FAILURES", "/exit_code", message, data));
    }
}
