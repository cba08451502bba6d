//! One function per command; each ends with its exit code.

use crate::arguments::{
    AuditArgs, AuditFormat, CompareArgs, Format, GateArgs, GateFormat, MergeArgs, PreflightArgs, PromptsArgs,
    ReportArgs, RunArgs, RunsArgs, SelftestArgs, ServeArgs, TextOrJson, device,
};
use crate::progress::{Board, bytes_bar, files_bar};
use crate::text;
use api::{
    AuditDocument, Begin, Cancel, CompareDocument, ErrorCode, ErrorReport, Export, PreflightRequest,
    PromptChoice, Run, Target,
};
use evidence::{Audit, GateVerdict, Language, Scan, Severity};
use preflight::Fixed;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) type Outcome = Result<ExitCode, ErrorReport>;

/// The exit code of what could be checked.
pub(crate) fn holds(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Tells what could not be done; gives the exit code for it.
pub(crate) fn complain(error: &ErrorReport) -> ExitCode {
    eprintln!("error: {}\n  hint: {}", error.message, error.hint);
    ExitCode::from(2)
}

/// Prints a result. A closed pipe (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), ErrorReport> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(ErrorReport::new(
            ErrorCode::Output,
            format!("cannot write the result: {e}"),
            "check where standard output goes",
        )),
        _ => Ok(()),
    }
}

pub(crate) fn json(value: &impl Serialize) -> Result<String, ErrorReport> {
    let text = serde_json::to_string_pretty(value).map_err(|e| {
        ErrorReport::new(ErrorCode::Output, e, "this is a fault of the program; please report it")
    })?;
    Ok(text + "\n")
}

pub(crate) fn preflight(args: &PreflightArgs) -> Outcome {
    if let Target::Ssh(host) = &args.target {
        let report = api::test_target(&api::data_folder()?, host)?;
        eprintln!("{}", text::target(&report));
        if report.probe.is_none() {
            return Ok(holds(false));
        }
    }
    let (program, request) = (api::program_beside()?, preflight_request(args));
    if let Some(id) = &args.undo {
        eprintln!("{}: as it was", api::preflight_undo(&request, id)?.display());
    }
    if let Some(id) = &args.fix {
        fix(&request, id)?;
    }
    if args.fix_safe {
        let report = api::preflight(&request, &program)?;
        let fixable = report.checks.iter().filter(|check| check.fixable);
        fixable.into_iter().try_for_each(|check| fix(&request, &check.id))?;
    }
    if args.digests {
        let bar = bytes_bar();
        api::preflight_digests(&args.pack, &mut |progress| {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
            true
        })?;
        bar.finish_and_clear();
    }
    let report = api::preflight(&request, &program)?;
    print(&match args.format {
        Format::Text => text::preflight(&report),
        Format::Json => json(&report)?,
        Format::Markdown => api::preflight_markdown(&report, Language::En),
    })?;
    Ok(holds(report.may_run))
}

fn preflight_request(args: &PreflightArgs) -> PreflightRequest {
    PreflightRequest {
        pack: args.pack.clone(),
        spec: None,
        spec_file: args.spec.clone(),
        out: Some(args.workspace.join("evidence")),
        counterpart: args.counterpart.clone(),
    }
}

/// Shows the change, then makes it.
fn fix(request: &PreflightRequest, id: &str) -> Result<(), ErrorReport> {
    let Some(change) = api::preflight_fix_preview(request, id)? else {
        eprintln!("{id}: nothing to fix");
        return Ok(());
    };
    eprint!("{}", text::change(&change));
    match api::preflight_fix(request, id, &mut |line| eprintln!("{line}"))? {
        Fixed::Changed { backup, .. } => eprintln!("{id}: fixed; the old content is in {}", backup.display()),
        Fixed::Ran { .. } => eprintln!("{id}: done"),
        Fixed::Nothing => eprintln!("{id}: nothing to fix"),
    }
    Ok(())
}

/// A flag that Ctrl-C sets.
pub(crate) fn cancel_on_signal() -> Result<Cancel, ErrorReport> {
    let cancel = Cancel::default();
    let stop = cancel.clone();
    ctrlc::set_handler(move || stop.cancel())
        .map_err(|e| ErrorReport::new(ErrorCode::Signal, e, "start the program from an ordinary terminal"))?;
    Ok(cancel)
}

/// Runs on every target at once; the first error counts once all have ended.
pub(crate) fn run(args: &RunArgs) -> Outcome {
    let cancel = cancel_on_signal()?;
    let spec = args
        .spec()
        .map_err(|e| ErrorReport::new(ErrorCode::BadSpec, e, "correct the setting and start again"))?;
    let (data, program) = (api::data_folder()?, api::program_beside()?);
    let board = Board::new(args.quiet, args.targets.len() > 1);
    let runs: Vec<Run> = args
        .targets
        .iter()
        .map(|target| {
            let begin = if args.resume {
                api::resume_or_reuse(&data, &spec, target, args.shard)?
            } else {
                Begin::Anew
            };
            Ok(Run {
                spec: spec.clone(),
                target: target.clone(),
                out: args.out.clone(),
                program: program.clone(),
                data: data.clone(),
                begin,
                shard: args.shard,
                cancel: cancel.clone(),
                overridden: Vec::new(),
            })
        })
        .collect::<Result<_, ErrorReport>>()?;
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let follow = |run: &Run| {
            let mut progress = board.follow(&run.target);
            run.execute(|event| progress.show(event))
        };
        let threads: Vec<_> = runs.iter().map(|run| scope.spawn(move || follow(run))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let mut error = None;
    for outcome in outcomes {
        match outcome {
            Ok(paths) => {
                print(&paths.iter().map(|path| format!("{}\n", path.display())).collect::<String>())?
            }
            Err(problem) if error.is_none() => error = Some(ErrorReport::from(problem)),
            Err(problem) => drop(complain(&ErrorReport::from(problem))),
        }
    }
    error.map_or(Ok(ExitCode::SUCCESS), Err)
}

pub(crate) fn merge(args: &MergeArgs) -> Outcome {
    let paths = api::merge(&args.paths, &args.out)?;
    print(&paths.iter().map(|path| format!("{}\n", path.display())).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn runs(args: &RunsArgs) -> Outcome {
    let data = api::data_folder()?;
    if let Some(id) = &args.discard {
        api::discard_run(&data, id)?;
    }
    let runs = api::unfinished_runs(&data)?;
    print(&match args.format {
        TextOrJson::Text => text::runs(&runs),
        TextOrJson::Json => json(&runs)?,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Reads and audits what lies below the paths, with a bar on a terminal.
fn scan(paths: &[PathBuf]) -> Result<Scan, ErrorReport> {
    let places = api::find_evidence(paths)?;
    let bar = files_bar(places.len());
    let scan = evidence::scan(&places, || bar.inc(1));
    bar.finish_and_clear();
    Ok(scan)
}

/// Files that could not be read are told after the result of the others; one of them is enough for the exit code.
fn ended(scan: &Scan, good: bool) -> ExitCode {
    let mut code = holds(good);
    for problem in &scan.unreadable {
        code = complain(&api::unreadable(problem));
    }
    code
}

pub(crate) fn audit(args: &AuditArgs) -> Outcome {
    let scan = scan(&args.paths)?;
    print(&match args.format {
        AuditFormat::Text => text::audit(&scan.audits),
        AuditFormat::Json => json(&AuditDocument::from(&scan))?,
        AuditFormat::Markdown => text::audit_markdown(&scan.audits),
        AuditFormat::Sarif => json(&api::sarif(&scan))?,
    })?;
    let error = |audit: &Audit| audit.findings.iter().any(|finding| finding.severity == Severity::Error);
    Ok(ended(&scan, !scan.audits.iter().any(error)))
}

pub(crate) fn prompts(args: &PromptsArgs) -> Outcome {
    let choice = PromptChoice { variant: args.prompt.map(Into::into), sample: args.sample };
    if let Some(dataset) = args.dataset() {
        print_prompts(args, &api::prompts_of_dataset(&dataset, choice)?, text::prompts)?;
        return Ok(ExitCode::SUCCESS);
    }
    let scan = scan(&args.paths)?;
    if args.grid {
        print_prompts(args, &api::grid(&scan.audits, args.arm.as_deref())?, text::grid)?;
    } else {
        print_prompts(args, &api::prompts_of_files(&scan.audits, choice)?, text::prompts)?;
    }
    Ok(ended(&scan, true))
}

fn print_prompts<T: Serialize>(
    args: &PromptsArgs,
    result: &T,
    text: fn(&T) -> String,
) -> Result<(), ErrorReport> {
    print(&match args.format {
        TextOrJson::Text => text(result),
        TextOrJson::Json => json(result)?,
    })
}

pub(crate) fn compare(args: &CompareArgs) -> Outcome {
    let view = api::compare(&args.paths, args.baseline.as_deref())?;
    print(&match args.format {
        Format::Text => text::compare(&view),
        Format::Json => json(&CompareDocument::from(&view))?,
        Format::Markdown => text::compare_markdown(&view),
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn gate(args: &GateArgs) -> Outcome {
    let report = api::gate(&args.paths, args.policy.as_deref())?;
    print(&match args.format {
        GateFormat::Text => text::gate(&report),
        GateFormat::Json => json(&report)?,
        GateFormat::Markdown => text::gate_markdown(&report),
        GateFormat::Junit => api::gate_junit(&report)?,
    })?;
    Ok(holds(report.verdict == GateVerdict::Pass))
}

pub(crate) fn report(args: &ReportArgs) -> Outcome {
    let request = Export {
        paths: args.paths.clone(),
        policy: args.policy.clone(),
        reviewer: args.reviewer.clone(),
        notes: args.notes.clone(),
    };
    let path = api::export(&request, &args.out, args.lang)?;
    print(&format!("{}\n", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn selftest(args: &SelftestArgs) -> Outcome {
    let from_environment = || Some(PathBuf::from(std::env::var_os("KAKEYA_GATE_REFERENCE")?).join("golden"));
    let golden = args.golden.clone().or_else(from_environment).ok_or_else(|| {
        ErrorReport::new(ErrorCode::NoGoldens, "no folder of reference outputs is given", "add --golden DIR")
    })?;
    let backend = args.backend.into();
    let device = device(args.device, backend);
    let mut written = Ok(());
    let tally = engine::self_test(backend, device, &golden, &args.only, &mut |check| {
        if written.is_ok() {
            written = print(&format!("{check}\n"));
        }
    });
    let tally = tally.map_err(|e| e.report())?;
    written?;
    eprintln!("{} ok, {} failed, {} skipped", tally.good, tally.failed, tally.skipped);
    Ok(holds(tally.failed == 0))
}

pub(crate) fn serve(args: &ServeArgs) -> Outcome {
    if !serve::has_pages() {
        let hint = "run: npm --prefix ui ci && npm --prefix ui run build, then build the program again";
        return Err(ErrorReport::new(ErrorCode::NoPages, "this program was built without its pages", hint));
    }
    eprintln!("open this address in a browser; each opens one page. Stop with Ctrl-C.");
    let say = |address: &str| drop(print(&format!("{address}\n")));
    serve::serve(args.port, args.workspace.clone(), say).map_err(|e| {
        ErrorReport::new(ErrorCode::Serve, e, "choose another port, or leave --port out to take a free one")
    })?;
    Ok(ExitCode::SUCCESS)
}
