//! Audits as text and as Markdown: a summary of all files, then each file's findings.

use super::{indent, markdown_table, table, word};
use evidence::{Audit, Finding, Severity, shown_path};
use report::{escape, tame};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Characters of a path in a table; longer ones lose their middle, because both ends tell files apart.
const PATH_WIDTH: usize = 64;

const SUMMARY: [&str; 8] = ["verdict", "errors", "warnings", "platform", "rung", "tested", "oracle", "file"];

const SEVERITIES: [Severity; 3] = [Severity::Error, Severity::Warn, Severity::Info];

pub(crate) fn audit(audits: &[Audit]) -> String {
    let mut out = String::new();
    if audits.len() > 1 {
        let mut rows = vec![SUMMARY.map(str::to_owned).to_vec()];
        rows.extend(audits.iter().map(summary));
        let _ = writeln!(out, "{}", table(&rows));
    }
    for audit in audits {
        let _ = writeln!(out, "{}", file(audit));
    }
    let _ = writeln!(out, "{}", totals(audits));
    out
}

/// The text, or its beginning and end around an ellipsis.
fn middle_cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let head = (width - 1) / 2;
    let tail = width - 1 - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{start}…{end}")
}

fn count(audit: &Audit, severity: Severity) -> usize {
    audit.findings.iter().filter(|finding| finding.severity == severity).count()
}

fn summary(audit: &Audit) -> Vec<String> {
    let niah = audit.niah.as_ref();
    let hits = |arm: Option<&evidence::Arm>| {
        arm.map_or_else(|| "–".to_owned(), |arm| format!("{}/{}", arm.hits, arm.n))
    };
    vec![
        word(&audit.verdict),
        count(audit, Severity::Error).to_string(),
        count(audit, Severity::Warn).to_string(),
        audit.identity.platform.label().to_owned(),
        audit.rung_label(),
        hits(niah.and_then(|niah| niah.sut())),
        hits(niah.and_then(|niah| niah.oracle())),
        middle_cut(&tame(&shown_path(&audit.path)), PATH_WIDTH),
    ]
}

fn file(audit: &Audit) -> String {
    let mut out = format!("{}\n", tame(&shown_path(&audit.path)));
    let kind = tame(audit.identity.kind.as_deref().unwrap_or(&audit.identity.shape));
    let (platform, verdict) = (audit.identity.platform.label(), word(&audit.verdict));
    let _ = writeln!(out, "  {kind} · {platform} · verdict {verdict}");
    if let Some(niah) = &audit.niah {
        out += &indent(&table(&arm_rows(niah)));
    }
    if let Some(paired) = audit.recomputed.as_ref().and_then(|recomputed| recomputed.paired.as_ref()) {
        let (interval, lost) = (paired.delta_interval_pp, 100.0 * paired.loss_upper95);
        let (low, high) = (interval.low, interval.high);
        let _ = writeln!(
            out,
            "  delta {:+.1} pp [{low:.1}, {high:.1}], lost recall ≤ {lost:.1} pp (one-sided 95 %)",
            paired.delta_pp
        );
    }
    for (severity, code, findings) in grouped(audit) {
        let _ = writeln!(out, "  {:<5} {code}", word(&severity));
        for finding in &findings {
            let _ = writeln!(out, "        {}: {}", pointer(finding), tame(finding.message.en()));
        }
        if let Some(first) = findings.first() {
            let _ = writeln!(out, "        why  {}\n        fix  {}", first.why.en(), first.fix.en());
        }
    }
    out
}

/// The whole document has an empty pointer.
fn pointer(finding: &Finding) -> String {
    if finding.pointer.is_empty() { "whole file".to_owned() } else { tame(&finding.pointer) }
}

/// Findings by severity, then by code: why and remedy are said once.
fn grouped(audit: &Audit) -> Vec<(Severity, &'static str, Vec<&Finding>)> {
    let mut groups: BTreeMap<(Severity, &'static str), Vec<&Finding>> = BTreeMap::new();
    for finding in &audit.findings {
        groups.entry((finding.severity, finding.code)).or_default().push(finding);
    }
    groups.into_iter().map(|((severity, code), findings)| (severity, code, findings)).collect()
}

fn arm_rows(niah: &evidence::Niah) -> Vec<Vec<String>> {
    let mut rows = vec![["arm", "hits", "95 % interval", "ignoring case"].map(str::to_owned).to_vec()];
    rows.extend(niah.arms.iter().map(|arm| {
        vec![
            tame(&arm.key),
            format!("{}/{}", arm.hits, arm.n),
            format!("[{:.1}, {:.1}] %", 100.0 * arm.interval.low, 100.0 * arm.interval.high),
            format!("{}/{}", arm.hits_ignoring_case, arm.n),
        ]
    }));
    rows
}

/// How many files came to which verdict, how many findings weigh how much.
fn totals(audits: &[Audit]) -> String {
    let mut verdicts: BTreeMap<_, (String, usize)> = BTreeMap::new();
    for audit in audits {
        verdicts.entry(audit.verdict).or_insert_with(|| (word(&audit.verdict), 0)).1 += 1;
    }
    let verdicts: Vec<String> =
        verdicts.into_values().map(|(word, count)| format!("{count} {word}")).collect();
    let [errors, warnings, notes] =
        SEVERITIES.map(|severity| audits.iter().map(|audit| count(audit, severity)).sum::<usize>());
    let files = if audits.len() == 1 { "1 file" } else { &format!("{} files", audits.len()) };
    format!("{files}: {}; errors {errors}, warnings {warnings}, notes {notes}", verdicts.join(", "))
}

pub(crate) fn audit_markdown(audits: &[Audit]) -> String {
    let rows: Vec<Vec<String>> = audits.iter().map(summary).collect();
    let mut out = markdown_table(&SUMMARY, &rows);
    for audit in audits.iter().filter(|audit| !audit.findings.is_empty()) {
        let _ = writeln!(out, "\n**{}**\n", escape(&shown_path(&audit.path)));
        for (severity, code, findings) in grouped(audit) {
            for finding in &findings {
                let (place, message) = (escape(&pointer(finding)), escape(finding.message.en()));
                let _ = writeln!(out, "- {} `{code}` at {place}: {message}", word(&severity));
            }
            if let Some(first) = findings.first() {
                let _ = writeln!(out, "  {} {}", escape(first.why.en()), escape(first.fix.en()));
            }
        }
    }
    let _ = writeln!(out, "\n{}", totals(audits));
    out
}

#[cfg(test)]
mod tests {
    use super::middle_cut;

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(middle_cut("short.json", 10), "short.json");
        assert_eq!(middle_cut("审阅/a_long_name.json", 10), "审阅/a….json");
    }
}
