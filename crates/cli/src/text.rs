//! Results as text for a terminal, and as Markdown.

mod audit;
mod prompts;

pub(crate) use audit::{audit, audit_markdown};
pub(crate) use prompts::{grid, prompts};

use api::{ComparisonView, JournalledRun, Machine, PreflightReport, RunState, TargetReport};
use evidence::{Comparison, GateReport, Scope};
use preflight::{Change, Check, Group, Status};
use report::{escape, tame};
use std::fmt::Write;

/// A table with columns as wide as their widest cell.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// A Markdown table; cells are escaped, because texts and names come from files.
fn markdown_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = format!("| {} |\n|{}\n", header.join(" | "), "---|".repeat(header.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| escape(cell)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

pub(crate) fn preflight(report: &PreflightReport) -> String {
    let mut out = rows(&report.checks);
    let failing = report.checks.iter().filter(|check| check.status == Status::Fail).count();
    let verdict =
        if failing == 0 { "a run may start".to_owned() } else { format!("{failing} to fix before a run") };
    let _ = writeln!(out, "{} checks in {:.2} s: {verdict}", report.checks.len(), report.seconds);
    out
}

/// What a test of a machine found.
pub(crate) fn target(report: &TargetReport) -> String {
    format!("{}\n{}", tame(&report.target.to_string()), rows(&report.checks))
}

/// The machines that are known.
pub(crate) fn machines(machines: &[Machine]) -> String {
    let mut out = String::new();
    for Machine { host, program, packs } in machines {
        let packs: Vec<String> = packs.iter().map(|packs| packs.display().to_string()).collect();
        let _ = writeln!(out, "ssh:{:<32} {} {}", tame(host), tame(program), tame(&packs.join(" ")));
    }
    if out.is_empty() { "no machines; add one with `kakeya-gate target add HOST`\n".into() } else { out }
}

/// Runs that can be continued.
pub(crate) fn runs(runs: &[JournalledRun]) -> String {
    let mut out = String::new();
    for run in runs {
        let ladder: Vec<String> = run.spec.ladder.iter().map(|rung| rung.0.to_string()).collect();
        let why = match (&run.error, run.state) {
            (Some(error), _) => error.message.clone(),
            (None, RunState::Stopped) => "cancelled".into(),
            (None, RunState::Queued) => "waiting for its target".into(),
            (None, RunState::Open | RunState::Failed | RunState::Done) => "its process died".into(),
        };
        let _ = writeln!(
            out,
            "{}  {}/{} trials  rungs {}  n {}  {}  {}\n    {}",
            run.id,
            run.done,
            run.trials,
            ladder.join(","),
            run.spec.n_samples,
            tame(&run.target.to_string()),
            tame(&run.spec.pack.display().to_string()),
            tame(&why),
        );
    }
    if out.is_empty() { "every run has ended\n".into() } else { out }
}

/// The lines of a checklist, group by group.
fn rows(checks: &[Check]) -> String {
    let status = |check: &Check| match check.status {
        Status::Pass => "pass",
        Status::Warn => "WARN",
        Status::Fail => "FAIL",
        Status::Skipped => "skip",
    };
    let (mut out, mut group) = (String::new(), None);
    for check in checks {
        if group.replace(check.group) != Some(check.group) {
            let _ = writeln!(out, "{}", title(check.group));
        }
        let _ = writeln!(out, "  {}  {:<32} {}", status(check), check.title.en(), tame(check.measured.en()));
        if !check.hint.en().is_empty() {
            let _ = writeln!(out, "        → {}", tame(check.hint.en()));
        }
        if !check.command.is_empty() {
            let _ = writeln!(out, "        $ {}", tame(&check.command));
        }
        if check.fixable {
            let _ = writeln!(out, "        fix: --fix {}", check.id);
        }
        if check.undoable {
            let _ = writeln!(out, "        undo: --undo {}", check.id);
        }
    }
    out
}

fn title(group: Group) -> &'static str {
    match group {
        Group::Host => "Host",
        Group::Worker => "Worker",
        Group::Engine => "Engine",
        Group::Pack => "Model pack",
        Group::Verifier => "Verifier",
        Group::Tokenizer => "Tokenizer",
        Group::Drafter => "Drafter",
        Group::FTheta => "f_θ",
        Group::Specification => "Specification",
    }
}

/// What a fix would do: the difference of a file, or a command.
pub(crate) fn change(change: &Change) -> String {
    let path = tame(&change.path.display().to_string());
    if change.diff.is_empty() {
        return format!("in {path}\n$ {}\n", tame(&change.command));
    }
    let lines = change.diff.lines().map(|line| format!("{}\n", tame(line)));
    format!("{path}\n{}", lines.collect::<String>())
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// The word that a value has in JSON.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn scope(scope: &Scope) -> String {
    match scope {
        Scope::Whole => "yes".to_owned(),
        Scope::Part(limit) => limit.en().to_owned(),
        Scope::No => "no".to_owned(),
    }
}

fn axes(comparison: &Comparison) -> Vec<Vec<String>> {
    let row = |axis: &evidence::Axis| {
        vec![axis.name.label().en().to_owned(), scope(&axis.scope), tame(axis.reason.en())]
    };
    comparison.axes.iter().map(row).collect()
}

fn differing(comparison: &Comparison) -> Vec<Vec<String>> {
    let differs = comparison.factors.iter().filter(|factor| factor.differs);
    differs
        .map(|factor| vec![factor.name.en().to_owned(), tame(factor.a.en()), tame(factor.b.en())])
        .collect()
}

fn memory(comparison: &Comparison) -> Vec<Vec<String>> {
    let bytes = |bytes: Option<u64>| {
        bytes.map_or_else(|| "–".to_owned(), |bytes| format!("{:.2} MB", bytes as f64 / 1e6))
    };
    let rows = comparison.memory.iter();
    rows.map(|row| {
        vec![
            row.kind.label().en().to_owned(),
            tame(&row.arm),
            tame(row.label.en()),
            bytes(row.a),
            bytes(row.b),
        ]
    })
    .collect()
}

fn agreement(comparison: &Comparison) -> String {
    let agreement = &comparison.agreement;
    format!(
        "{n} samples: {} same hit or miss, {} same text of the arm under test, {} same text of the oracle",
        agreement.same_flags,
        agreement.same_sut_texts,
        agreement.same_oracle_texts,
        n = agreement.n
    )
}

pub(crate) fn compare(view: &ComparisonView) -> String {
    let mut out = String::new();
    for comparison in &view.comparisons {
        let _ = writeln!(
            out,
            "A {}\nB {}",
            tame(&comparison.a.display().to_string()),
            tame(&comparison.b.display().to_string())
        );
        let _ = writeln!(out, "{}: {}", word(&comparison.class), word(&comparison.verdict));
        let _ = write!(out, "{}", indent(&table(&axes(comparison))));
        let _ = writeln!(out, "  {}", agreement(comparison));
        if let Some(delta) = comparison.delta_pp {
            let _ = writeln!(out, "  recall of B − A: {delta:+.1} pp");
        }
        let _ = write!(out, "{}", indent(&table(&differing(comparison))));
        let _ = write!(out, "{}", indent(&table(&memory(comparison))));
    }
    out
}

pub(crate) fn compare_markdown(view: &ComparisonView) -> String {
    let mut out = String::new();
    for comparison in &view.comparisons {
        let name = |path: &std::path::Path| escape(&path.file_name().unwrap_or_default().to_string_lossy());
        let _ = writeln!(
            out,
            "**{}** against **{}**: {}\n",
            name(&comparison.b),
            name(&comparison.a),
            word(&comparison.verdict)
        );
        out += &markdown_table(&["axis", "comparable", "why"], &axes(comparison));
        let _ = writeln!(out, "\n{}\n", agreement(comparison));
        out += &markdown_table(&["differs", "A", "B"], &differing(comparison));
        out.push('\n');
        out += &markdown_table(&["kind", "arm", "figure", "A", "B"], &memory(comparison));
    }
    out
}

fn gate_rows(report: &GateReport) -> Vec<Vec<String>> {
    let row = |cell: &evidence::GateCell| {
        let file = cell.file.as_deref().and_then(std::path::Path::file_name);
        vec![
            cell.verdict.label().en().to_owned(),
            cell.title.en().to_owned(),
            cell.rung.clone(),
            cell.platform.label().to_owned(),
            tame(cell.figures.en()),
            tame(cell.why.en()),
            file.map_or_else(|| "–".to_owned(), |name| tame(&name.to_string_lossy())),
        ]
    };
    report.cells.iter().map(row).collect()
}

fn policy(report: &GateReport) -> String {
    format!("Policy: {}, SHA-256 {}", report.policy.source, report.policy.sha256)
}

pub(crate) fn gate(report: &GateReport) -> String {
    format!("{}{}\n{}\n", table(&gate_rows(report)), report.headline.en(), tame(&policy(report)))
}

pub(crate) fn gate_markdown(report: &GateReport) -> String {
    let table = markdown_table(
        &["verdict", "gate", "rung", "platform", "figures", "why", "file"],
        &gate_rows(report),
    );
    let (headline, policy) = (escape(report.headline.en()), escape(&policy(report)));
    format!("**{}** {headline}\n\n{table}\n{policy}\n", report.verdict.label().en())
}
