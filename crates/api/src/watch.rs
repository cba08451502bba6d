//! Watching a workspace: whoever has it open hears when something in it has changed.

use crate::{ErrorCode, ErrorReport};
use evidence::SKIPPED_FOLDERS;
use notify::event::{EventKind, ModifyKind};
use notify::{Event, RecursiveMode, Watcher};
use serde::Serialize;
use std::path::{Component, Path};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use ts_rs::TS;

/// Changes that follow each other faster are told as one.
const QUIET: Duration = Duration::from_millis(200);
/// But nobody waits longer for them.
const MOST: Duration = Duration::from_secs(2);
/// How often it is tried whether anybody still listens.
const PULSE: Duration = Duration::from_secs(5);

/// What is told while a folder is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum Watched {
    /// Files or folders came, went or changed.
    Changed,
    /// Nothing has happened for a while.
    Quiet,
}

/// Watches a folder and all below it until `told` says that nobody listens.
pub(crate) fn watch(root: &Path, told: &dyn Fn(Watched) -> bool) -> Result<(), ErrorReport> {
    let (sender, changes) = mpsc::channel();
    let folder = root.to_owned();
    let unwatched = |e: notify::Error| {
        let hint =
            "read the folder again by hand after changes; many systems limit how many folders are watched";
        ErrorReport::new(ErrorCode::NotWatched, format!("{} cannot be watched: {e}", root.display()), hint)
    };
    let hear = move |event: notify::Result<Event>| {
        // After an error nobody knows what was missed.
        if event.map_or(true, |event| counts(&folder, &event)) {
            // The receiver is gone when the watch has ended.
            let _ = sender.send(());
        }
    };
    let mut watcher = notify::recommended_watcher(hear).map_err(unwatched)?;
    watcher.watch(root, RecursiveMode::Recursive).map_err(unwatched)?;
    loop {
        let news = match changes.recv_timeout(PULSE) {
            Ok(()) => {
                let began = Instant::now();
                while began.elapsed() < MOST && changes.recv_timeout(QUIET).is_ok() {}
                Watched::Changed
            }
            Err(RecvTimeoutError::Timeout) => Watched::Quiet,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        if !told(news) {
            return Ok(());
        }
    }
}

/// Whether an event may change what a workspace holds: being read does not, nor what is written into files that hold neither
/// evidence nor settings, nor what happens in folders that nobody looks into. Where events were lost, anything may have.
fn counts(root: &Path, event: &Event) -> bool {
    let is_json = |path: &Path| path.extension().is_some_and(|ending| ending == "json");
    let mut seen = event.paths.iter().filter(|path| !is_skipped(root, path));
    match event.kind {
        _ if event.need_rescan() => true,
        EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_)) => false,
        EventKind::Modify(ModifyKind::Data(_)) => seen.any(|path| is_json(path)),
        _ => seen.next().is_some(),
    }
}

fn is_skipped(root: &Path, path: &Path) -> bool {
    let below = path.strip_prefix(root).unwrap_or(path);
    below.components().any(|part| match part {
        Component::Normal(name) => SKIPPED_FOLDERS.iter().any(|skipped| name == *skipped),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Each step is seen before the next is made; what must not be told would be told before it.
    #[test]
    fn evidence_that_comes_changes_and_goes_is_told_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (heard, news) = mpsc::channel();
        let heard = Mutex::new(heard);
        std::thread::scope(|scope| {
            scope.spawn(|| watch(&root, &|news| heard.lock().unwrap().send(news).is_ok()).unwrap());
            let changed = || while news.recv_timeout(Duration::from_secs(20)).unwrap() != Watched::Changed {};
            // The first may be made before the folder is watched.
            let told = |n: usize| {
                files::write_atomic(&root.join(format!("{n}.json")), b"{}").unwrap();
                news.recv_timeout(3 * QUIET).is_ok()
            };
            assert!((0..100).any(told));
            files::write_atomic(&root.join("sub/a.json"), b"{}").unwrap();
            changed();
            std::fs::remove_file(root.join("sub/a.json")).unwrap();
            changed();
            drop(news);
            files::write_atomic(&root.join("last.json"), b"{}").unwrap();
        });
    }

    #[test]
    fn what_cannot_change_a_workspace_does_not_count() {
        let root = Path::new("/w");
        let event = |kind, path: &str| Event::new(kind).add_path(path.into());
        let (made, written) = (
            EventKind::Create(notify::event::CreateKind::Any),
            EventKind::Modify(ModifyKind::Data(notify::event::DataChange::Any)),
        );
        assert!(counts(root, &event(made, "/w/a.json")));
        assert!(counts(root, &event(made, "/w/results-v1.0")));
        let lost = Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan);
        assert!(counts(root, &lost));
        assert!(counts(root, &event(written, "/w/x/a.json")));
        for (kind, path) in [
            (written, "/w/.tmp123"),
            (made, "/w/.git/index.json"),
            (made, "/w/node_modules/a.json"),
            (written, "/w/model.safetensors"),
            (EventKind::Access(notify::event::AccessKind::Any), "/w/a.json"),
        ] {
            assert!(!counts(root, &event(kind, path)), "{kind:?} {path}");
        }
        // The root itself may lie in a hidden folder.
        assert!(counts(Path::new("/home/.x/w"), &event(made, "/home/.x/w/a.json")));
    }
}
