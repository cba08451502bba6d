//! One function per command: true when what was checked holds.

use crate::arguments::{AuditArgs, CompareArgs, Format, GateArgs, PreflightArgs, ReportArgs, RunArgs};
use crate::progress::Progress;
use crate::text;
use api::{Cancel, ErrorReport, Export, Run};
use evidence::{GateVerdict, Severity};
use serde::Serialize;
use std::io::Write;

type Outcome = Result<bool, ErrorReport>;

fn failed(code: &str, message: impl ToString, hint: &str) -> ErrorReport {
    ErrorReport { code: code.to_owned(), message: message.to_string(), hint: hint.to_owned() }
}

/// Prints a result. A closed pipe (`| head`) is no error.
fn print(text: &str) -> Result<(), ErrorReport> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(failed("output", format!("cannot write the result: {e}"), "check where standard output goes"))
        }
        _ => Ok(()),
    }
}

fn json(value: &impl Serialize) -> Result<String, ErrorReport> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| failed("output", e, "this is a fault of the program; please report it"))?;
    Ok(text + "\n")
}

pub(crate) fn preflight(args: &PreflightArgs) -> Outcome {
    let report = api::preflight(&args.pack, &api::program_beside()?)?;
    print(&match args.format {
        Format::Text => text::preflight(&report),
        Format::Json => json(&report)?,
        Format::Markdown => api::preflight_markdown(&report),
    })?;
    Ok(report.may_run)
}

pub(crate) fn run(args: &RunArgs) -> Outcome {
    let cancel = Cancel::default();
    let stop = cancel.clone();
    ctrlc::set_handler(move || stop.cancel())
        .map_err(|e| failed("signal", e, "start the program from an ordinary terminal"))?;
    let run = Run { spec: args.spec(), out: args.out.clone(), program: api::program_beside()?, cancel };
    let mut progress = Progress::new(args.quiet);
    let paths = run.execute(|event| progress.show(event))?;
    print(&paths.iter().map(|path| format!("{}\n", path.display())).collect::<String>())?;
    Ok(true)
}

pub(crate) fn audit(args: &AuditArgs) -> Outcome {
    let audits = api::load(&args.paths)?;
    print(&match args.format {
        Format::Text => text::audit(&audits),
        Format::Json => json(&audits)?,
        Format::Markdown => text::audit_markdown(&audits),
    })?;
    let error =
        |audit: &evidence::Audit| audit.findings.iter().any(|finding| finding.severity == Severity::Error);
    Ok(!audits.iter().any(error))
}

pub(crate) fn compare(args: &CompareArgs) -> Outcome {
    let view = api::compare(&args.paths, args.baseline.as_deref())?;
    print(&match args.format {
        Format::Text => text::compare(&view),
        Format::Json => json(&view)?,
        Format::Markdown => text::compare_markdown(&view),
    })?;
    Ok(true)
}

pub(crate) fn gate(args: &GateArgs) -> Outcome {
    let report = api::gate(&args.paths, args.policy.as_deref())?;
    print(&match args.format {
        Format::Text => text::gate(&report),
        Format::Json => json(&report)?,
        Format::Markdown => text::gate_markdown(&report),
    })?;
    Ok(report.verdict == GateVerdict::Pass)
}

pub(crate) fn report(args: &ReportArgs) -> Outcome {
    let request = Export {
        paths: args.paths.clone(),
        policy: args.policy.clone(),
        reviewer: args.reviewer.clone(),
        notes: args.notes.clone(),
    };
    let path = api::export(&request, &args.out)?;
    print(&format!("{}\n", path.display()))?;
    Ok(true)
}

pub(crate) fn engine() -> Outcome {
    let identity = engine::Identity {
        version: api::VERSION.to_owned(),
        commit: option_env!("KAKEYA_GATE_COMMIT").map(str::to_owned),
        dirty: option_env!("KAKEYA_GATE_DIRTY") == Some("true"),
    };
    engine::serve(std::io::BufReader::new(std::io::stdin()), std::io::stdout(), identity)
        .map_err(|e| failed("engine", e, "start the engine through the app or `kakeya-gate run`"))?;
    Ok(true)
}
