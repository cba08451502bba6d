//! Whatever the audit, the comparison and the gates say is said in Simplified Chinese too, with the same numbers.
//! Looks at the fixtures, and at the whole corpus where `KAKEYA_GATE_REFERENCE` is set.

use evidence::{Audit, Language, Policy, Scope, Text, audit, compare, find, gate, scan, spoken};
use std::path::{Path, PathBuf};

fn audits() -> Vec<Audit> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut places: Vec<PathBuf> = ["evidence", "kinds", "controls"].map(|name| fixtures.join(name)).into();
    if let Some(reference) = std::env::var_os("KAKEYA_GATE_REFERENCE") {
        let evidence = PathBuf::from(reference).join("evidence");
        places.extend([evidence.join("corpus"), evidence.join("branch-only")]);
    }
    let audits = scan(&find(&places), || {}).audits;
    assert!(!audits.is_empty());
    audits
}

/// Numbers as they stand in a sentence, in ascending order: the languages may name them in another one.
fn numbers(words: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let runs = words.split(|c: char| !is_part(c)).map(|run| run.trim_matches('.').to_owned());
    let mut numbers: Vec<String> = runs.filter(|run| !run.is_empty()).collect();
    numbers.sort();
    numbers
}

fn is_chinese(words: &str) -> bool {
    words.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c))
}

fn translated(text: &Text) {
    let (en, zh) = (text.en(), text.said(Language::Zh));
    assert!(!is_chinese(en) && is_chinese(zh), "{en:?} is {zh:?} in Chinese");
    assert_eq!(numbers(en), numbers(zh), "{en:?} and {zh:?} hold other numbers");
}

#[test]
fn every_finding_is_told_in_chinese() {
    for finding in audits().iter().flat_map(|audit| &audit.findings) {
        for text in [&finding.message, &finding.why, &finding.fix] {
            translated(text);
        }
    }
}

#[test]
fn every_gate_is_told_in_chinese() {
    let report = gate(&audits(), &Policy::built_in());
    translated(&report.headline);
    for cell in &report.cells {
        translated(&cell.title);
        translated(&cell.why);
    }
    translated(&gate(&[], &Policy::built_in()).headline);
}

#[test]
fn every_comparison_is_told_in_chinese() {
    let audits = audits();
    let needles: Vec<&Audit> = audits.iter().filter(|audit| audit.niah.is_some()).take(12).collect();
    let acceptance = audits.iter().filter(|audit| audit.acceptance.is_some()).take(4);
    let files: Vec<&Audit> = needles.into_iter().chain(acceptance).chain(audits.first()).collect();
    for (a, b) in files.iter().flat_map(|a| files.iter().map(move |b| (a, b))) {
        for axis in compare(a, b).axes {
            translated(&axis.name.label());
            translated(&axis.reason);
            if let Scope::Part(limit) = axis.scope {
                translated(&limit);
            }
        }
    }
}

/// What programs read is English unless a reader asked.
#[test]
fn json_is_english_outside_of_a_readers_language() {
    let headline = gate(&audit(&[]), &Policy::built_in()).headline;
    let json = || serde_json::to_string(&headline).unwrap_or_default();
    let english = json();
    assert_eq!(english, format!("{:?}", headline.en()));
    assert_eq!(spoken(Language::Zh, json), format!("{:?}", headline.said(Language::Zh)));
    assert_eq!(json(), english);
}

#[test]
fn a_header_names_the_language_that_is_liked_best() {
    for (list, wanted) in [
        ("zh-CN,zh;q=0.9,en;q=0.8", Language::Zh),
        ("en-GB,en;q=0.9,zh;q=0.8", Language::En),
        ("fr, zh;q=0.3, en;q=0.5", Language::En),
        ("de, zh-Hans;q=0.1", Language::Zh),
        ("zh, en", Language::Zh),
        ("de;q=x, *", Language::En),
        ("", Language::En),
    ] {
        assert_eq!(Language::accepted(list), wanted, "{list}");
    }
}
