//! The whole main job on the demo pack.

use crate::error::Error;
use crate::place;
use crate::process::{command, run, run_and_read};
use crate::setup;
use std::fs;
use std::path::{Path, PathBuf};

/// The pack's folder in the workspace.
const PACK: &str = "demo-pack";
/// Where the app puts evidence in a workspace.
const EVIDENCE: &str = "evidence";

/// Opens the app on the demo workspace; without a display does the same job on the command line.
pub(crate) fn main_job(headless: bool) -> Result<(), Error> {
    let workspace = workspace()?;
    if headless || !has_display() { without_window(&workspace) } else { window(&workspace) }
}

fn has_display() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    std::env::consts::OS != "linux" || set("DISPLAY") || set("WAYLAND_DISPLAY")
}

/// A workspace with a copy of the demo pack, which may be broken and repaired at will. Evidence that it holds stays.
fn workspace() -> Result<PathBuf, Error> {
    let folder = place::root().join("demo-output/workspace");
    copy(&place::root().join("assets/demo-pack"), &folder.join(PACK))?;
    Ok(folder)
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let failed = |path: &Path, source| Error::File { path: path.display().to_string(), source };
    fs::create_dir_all(to).map_err(|e| failed(to, e))?;
    for entry in fs::read_dir(from).map_err(|e| failed(from, e))? {
        let entry = entry.map_err(|e| failed(from, e))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(|e| failed(&source, e))?;
        }
    }
    Ok(())
}

fn window(workspace: &Path) -> Result<(), Error> {
    setup::everything(false)?;
    run(&mut command("npm", &["--prefix", "ui", "run", "build"]))?;
    run(&mut command("cargo", &["build", "--package", "cli", "--package", "kakeya-gate-app"]))?;
    if !workspace.join(EVIDENCE).is_dir() {
        eprintln!("running the demo pack once, so that every place has results to show");
        evidence(&place::built("kakeya-gate")?, workspace)?;
    }
    eprintln!("opening the demo workspace {}", workspace.display());
    run(command(place::built("kakeya-gate-app")?, &["--workspace"]).arg(workspace))
}

/// Preflight, run, audit, report.
fn without_window(workspace: &Path) -> Result<(), Error> {
    eprintln!("without a window: doing the main job on the command line");
    run(&mut command("cargo", &["build", "--package", "cli"]))?;
    let gate = place::built("kakeya-gate")?;
    run(command(&gate, &["preflight"]).arg(workspace.join(PACK)))?;
    let evidence = evidence(&gate, workspace)?;
    let audited = run(command(&gate, &["audit"]).args(&evidence));
    for name in ["gate.html", "gate.md"] {
        let out = workspace.join(name);
        let written = run_and_read(command(&gate, &["report"]).args(&evidence).arg("-o").arg(&out))?;
        print!("report: {written}");
    }
    audited
}

/// Runs every arm on both rungs, about a minute on two cores; the program prints one evidence file a line.
fn evidence(gate: &Path, workspace: &Path) -> Result<Vec<PathBuf>, Error> {
    let settings = ["--ladder", "20,70", "-n", "20", "--arms", "oracle,sink-window,restored"];
    let mut run = command(gate, &["run", "--restore", "s5,f-theta,identity"]);
    let run =
        run.args(settings).arg("--pack").arg(workspace.join(PACK)).arg("--out").arg(workspace.join(EVIDENCE));
    Ok(run_and_read(run)?.lines().map(PathBuf::from).collect())
}
