//! The commands of the window. `ui/src/lib/backend/tauri.ts` is their other side.

use crate::{Desk, ask};
use api::{
    Begin, Cancel, ComparisonView, ErrorReport, EvidenceDetail, EvidenceList, Export, PreflightReport,
    PreflightRequest, Run, RunEvent, Target, Workspace,
};
use evidence::{GateReport, OverriddenCheck};
use preflight::{Change, Check, DigestProgress, Fixed};
use protocol::RunSpec;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use tauri::ipc::Channel;
use tauri::{AppHandle, State};

type Answer<T> = Result<T, ErrorReport>;

/// Does the work on a thread that may block; the window stays alive.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Answer<T> + Send + 'static) -> Answer<T> {
    tauri::async_runtime::spawn_blocking(work).await.unwrap_or_else(|panicked| {
        Err(ErrorReport {
            code: "panicked".into(),
            message: panicked.to_string(),
            hint: "this is a fault of the program: report it with what you did last".into(),
        })
    })
}

#[tauri::command]
pub(crate) fn starting_workspace(desk: State<Desk>) -> Option<PathBuf> {
    desk.workspace.clone()
}

#[tauri::command]
pub(crate) async fn choose_workspace(app: AppHandle) -> Answer<Option<PathBuf>> {
    aside(move || Ok(ask::folder(&app))).await
}

#[tauri::command]
pub(crate) async fn open_workspace(folder: PathBuf) -> Answer<Workspace> {
    aside(move || api::open_workspace(&folder)).await
}

#[tauri::command]
pub(crate) async fn preflight(request: PreflightRequest) -> Answer<PreflightReport> {
    aside(move || api::preflight(&request, &api::program_beside()?)).await
}

#[tauri::command]
pub(crate) async fn preflight_check(request: PreflightRequest, id: String) -> Answer<Check> {
    aside(move || api::preflight_check(&request, &api::program_beside()?, &id)).await
}

#[tauri::command]
pub(crate) async fn preflight_fix_preview(request: PreflightRequest, id: String) -> Answer<Option<Change>> {
    aside(move || api::preflight_fix_preview(&request, &id)).await
}

/// Makes the fix of a check; lines of a command that takes long come on the way.
#[tauri::command]
pub(crate) async fn preflight_fix(
    request: PreflightRequest,
    id: String,
    on_line: Channel<String>,
) -> Answer<Fixed> {
    aside(move || api::preflight_fix(&request, &id, &mut |line| drop(on_line.send(line.to_owned())))).await
}

#[tauri::command]
pub(crate) async fn preflight_undo(request: PreflightRequest, id: String) -> Answer<PathBuf> {
    aside(move || api::preflight_undo(&request, &id)).await
}

/// Hashes what the pack's manifest states digests of, until done or until another pack is to be hashed.
#[tauri::command]
pub(crate) async fn preflight_digests(
    desk: State<'_, Desk>,
    pack: PathBuf,
    on_progress: Channel<DigestProgress>,
) -> Answer<()> {
    let turns = Arc::clone(&desk.hashing);
    let turn = turns.fetch_add(1, Ordering::Relaxed) + 1;
    aside(move || {
        api::preflight_digests(&pack, &mut |progress| {
            on_progress.send(progress).is_ok() && turns.load(Ordering::Relaxed) == turn
        })
    })
    .await
}

#[tauri::command]
pub(crate) fn preflight_markdown(report: PreflightReport) -> String {
    api::preflight_markdown(&report)
}

#[tauri::command]
pub(crate) fn default_spec(pack: PathBuf) -> RunSpec {
    api::default_spec(&pack)
}

#[tauri::command]
pub(crate) fn check_spec(spec: RunSpec) -> Answer<()> {
    Ok(spec.check().map_err(api::RunError::from)?)
}

/// Runs to the end; one run at a time. `overridden` are the failing checks that the user decided to run in spite of.
#[tauri::command]
pub(crate) async fn run(
    desk: State<'_, Desk>,
    spec: RunSpec,
    out: PathBuf,
    overridden: Vec<OverriddenCheck>,
    on_event: Channel<RunEvent>,
) -> Answer<Vec<PathBuf>> {
    let cancel = Cancel::default();
    claim(&desk, &cancel)?;
    let outcome = aside(move || {
        let run = Run {
            spec,
            target: Target::Local,
            out,
            program: api::program_beside()?,
            data: api::data_folder()?,
            begin: Begin::Anew,
            shard: None,
            cancel,
            overridden,
        };
        // A closed window no longer listens; its run is about to end with it.
        Ok(run.execute(|event| drop(on_event.send(event)))?)
    })
    .await;
    *running(&desk) = None;
    outcome
}

fn claim(desk: &Desk, cancel: &Cancel) -> Answer<()> {
    let mut running = running(desk);
    if running.is_some() {
        return Err(ErrorReport {
            code: "busy".into(),
            message: "a run is going on".into(),
            hint: "wait for it, or cancel it".into(),
        });
    }
    *running = Some(cancel.clone());
    Ok(())
}

#[tauri::command]
pub(crate) fn cancel_run(desk: State<Desk>) {
    if let Some(cancel) = running(&desk).as_ref() {
        cancel.cancel();
    }
}

fn running(desk: &Desk) -> MutexGuard<'_, Option<Cancel>> {
    desk.running.lock().unwrap_or_else(PoisonError::into_inner)
}

#[tauri::command]
pub(crate) async fn choose_evidence(app: AppHandle) -> Answer<Vec<PathBuf>> {
    aside(move || Ok(ask::evidence(&app))).await
}

#[tauri::command]
pub(crate) async fn list_evidence(paths: Vec<PathBuf>) -> Answer<EvidenceList> {
    aside(move || Ok(api::list_evidence(&paths))).await
}

#[tauri::command]
pub(crate) async fn evidence_detail(path: PathBuf, neighbours: Vec<PathBuf>) -> Answer<EvidenceDetail> {
    aside(move || api::evidence_detail(&path, &neighbours)).await
}

#[tauri::command]
pub(crate) async fn compare(paths: Vec<PathBuf>, baseline: Option<PathBuf>) -> Answer<ComparisonView> {
    aside(move || api::compare(&paths, baseline.as_deref())).await
}

#[tauri::command]
pub(crate) async fn gate(paths: Vec<PathBuf>) -> Answer<GateReport> {
    aside(move || api::gate(&paths, None)).await
}

#[tauri::command]
pub(crate) async fn report_markdown(request: Export) -> Answer<String> {
    aside(move || api::report_markdown(&request)).await
}

/// Asks where to, then writes; the file's ending chooses the format. None when the user changes their mind.
#[tauri::command]
pub(crate) async fn export_report(app: AppHandle, request: Export) -> Answer<Option<PathBuf>> {
    aside(move || ask::report(&app).map(|out| api::export(&request, &out)).transpose()).await
}
