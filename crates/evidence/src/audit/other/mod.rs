//! Kinds without a needle gate: what each states, the rules on it, its verdict (RULES §2, §4, §6.2).

use super::Verdict;
use crate::Finding;
use crate::json::At;
use serde_json::{Value, json};

/// One file of another kind.
pub(super) struct Case<'a> {
    pub value: &'a Value,
    /// Kind, or `nokind:NAME`.
    pub shape: &'a str,
    /// The file's own name; only FILE_RENAMED looks at it.
    pub name: &'a str,
}

/// What a file of another kind states.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Summary {
    /// Samples, sessions, agents or prompts, whichever the kind counts.
    pub n: Option<u64>,
    /// Recall by label; null where the file has none for that row.
    pub recall: Option<Vec<(String, Option<f64>)>>,
    /// What the file claims of itself.
    pub claimed: Option<Value>,
}

/// What the audit knows of one family of kinds.
struct Family {
    /// Whether the family holds a kind or shape.
    holds: fn(&str) -> bool,
    summary: fn(&Case) -> Summary,
    rules: fn(&Case, &mut Vec<Finding>),
    verdict: fn(&Case, &[Finding]) -> Verdict,
}

const FAMILIES: &[Family] = &[];

fn family(shape: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| (family.holds)(shape))
}

/// What the file states of itself.
pub(super) fn summary(case: &Case) -> Summary {
    family(case.shape).map_or_else(Summary::default, |family| (family.summary)(case))
}

/// Every rule on the file itself.
pub(super) fn rules(case: &Case, out: &mut Vec<Finding>) {
    if case.value.at("/kind").is_none() {
        let message = "the file names no kind";
        out.push(Finding::new("NO_KIND", "/kind", message, json!({ "shape": case.shape })));
    } else if case.value.get("schema_version").is_none() {
        let message = "the file names no schema version";
        out.push(Finding::new("NO_SCHEMA_VERSION", "/schema_version", message, json!({})));
    }
    if let Some(family) = family(case.shape) {
        (family.rules)(case, out);
    }
}

/// The verdict by the family's own rule; integrity is judged before.
pub(super) fn verdict(case: &Case, findings: &[Finding]) -> Verdict {
    family(case.shape).map_or(Verdict::NotAGateReport, |family| (family.verdict)(case, findings))
}
