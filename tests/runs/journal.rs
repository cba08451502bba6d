//! The journal of this machine.

use crate::evidence::{files, is_whole, read, timeless};
use crate::place::{Place, demo_pack, demo_run, text};
use crate::processes::{descendants, signal, until};
use std::process::Command;

fn unfinished(place: &Place) -> serde_json::Value {
    serde_json::from_str(&place.succeed(&["runs", "--format", "json"]).0).unwrap()
}

/// Trials of the first unfinished run that are done.
fn done(place: &Place) -> u64 {
    let rusqlite = rusqlite::Connection::open(place.data().join("journal.sqlite"));
    let count = |db: rusqlite::Connection| db.query_row("select count(*) from trial", [], |row| row.get(0));
    rusqlite.and_then(count).unwrap_or(0)
}

#[test]
fn a_killed_run_goes_on_and_its_evidence_is_that_of_a_run_that_was_not() {
    let (place, whole, pack) = (Place::new(), Place::new(), demo_pack());
    let pack = pack.to_str().unwrap();
    whole.succeed(&demo_run(pack, "12", &[]));
    let mut child = place.start(&demo_run(pack, "12", &[]));
    until("some trials are done", || (done(&place) >= 5).then_some(()));
    let engine = descendants(child.id())[0];
    assert!(signal("-KILL", child.id()));
    child.wait().unwrap();
    until("the engine has ended with its host", || (!signal("-0", engine)).then_some(()));
    let kept = done(&place);
    assert!((5..36).contains(&kept), "{kept} of 36 trials");
    let runs = unfinished(&place);
    assert_eq!(runs[0]["done"], kept);
    assert_eq!(runs[0]["trials"], 36);
    assert!(!place.out().exists(), "no evidence of a rung that is not complete");
    let (_, said) = place.succeed(&demo_run(pack, "12", &["--resume"]));
    assert!(said.contains(&format!("{kept} of 36 trials are in the journal already")), "{said}");
    let (ours, theirs) = (files(&place.out()), files(&whole.out()));
    assert_eq!((ours.len(), theirs.len()), (1, 1));
    assert_eq!(timeless(&ours[0]), timeless(&theirs[0]));
    is_whole(&read(&ours[0]), 3, 12);
    // The same run went on: nothing was taken over from another.
    assert_eq!(read(&ours[0])["provenance"]["reused_trials"], serde_json::json!([]));
    assert_eq!(unfinished(&place), serde_json::json!([]));
}

#[test]
fn a_longer_run_takes_over_the_trials_of_a_shorter_one_and_says_so() {
    let (place, whole, pack) = (Place::new(), Place::new(), demo_pack());
    let pack = pack.to_str().unwrap();
    place.succeed(&demo_run(pack, "4", &[]));
    let first = read(&files(&place.out())[0])["provenance"]["run"].clone();
    std::fs::rename(place.out(), place.path("before")).unwrap();
    let (_, said) = place.succeed(&demo_run(pack, "6", &["--resume"]));
    assert!(said.contains("12 of 18 trials are in the journal already"), "{said}");
    let ours = files(&place.out());
    assert_eq!(
        read(&ours[0])["provenance"]["reused_trials"],
        serde_json::json!([{ "run": first, "trials": 12 }])
    );
    whole.succeed(&demo_run(pack, "6", &[]));
    assert_eq!(timeless(&ours[0]), timeless(&files(&whole.out())[0]));
    // Not asked to, a run measures anew.
    let (_, said) = place.succeed(&demo_run(pack, "4", &[]));
    assert!(!said.contains("in the journal already"), "{said}");
}

#[test]
fn an_older_journal_is_brought_up_to_date_and_a_newer_one_is_left_alone() {
    let (place, pack) = (Place::new(), demo_pack());
    let pack = pack.to_str().unwrap();
    let journal = || rusqlite::Connection::open(place.data().join("journal.sqlite")).unwrap();
    place.succeed(&demo_run(pack, "4", &[]));
    let older =
        "alter table run drop column reuse; alter table run drop column queued; pragma user_version = 1";
    journal().execute_batch(older).unwrap();
    let (_, said) = place.succeed(&demo_run(pack, "6", &["--resume"]));
    assert!(said.contains("12 of 18 trials are in the journal already"), "{said}");
    journal().execute_batch("pragma user_version = 9").unwrap();
    let said = place.fail(&demo_run(pack, "6", &["--resume"]));
    assert!(said.contains("layout 9"), "{said}");
    assert_eq!(journal().pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap(), 9);
}

#[test]
fn nobody_continues_a_run_that_goes_on_and_a_cancelled_one_can_be_discarded() {
    let (place, pack) = (Place::new(), demo_pack());
    let mut child = place.start(&demo_run(pack.to_str().unwrap(), "200", &[]));
    until("a trial is done", || (done(&place) > 0).then_some(()));
    assert_eq!(unfinished(&place), serde_json::json!([]), "it is alive");
    let journal = rusqlite::Connection::open(place.data().join("journal.sqlite")).unwrap();
    let id: String = journal.query_row("select id from run", [], |row| row.get(0)).unwrap();
    assert!(place.fail(&["runs", "--discard", &id]).contains("a process works on the run"));
    assert!(signal("-INT", child.id()));
    assert_eq!(child.wait().unwrap().code(), Some(2));
    let runs = unfinished(&place);
    assert_eq!(runs[0]["state"], "stopped");
    place.succeed(&["runs", "--discard", runs[0]["id"].as_str().unwrap()]);
    assert_eq!(unfinished(&place), serde_json::json!([]));
    assert_eq!(done(&place), 0);
}

#[test]
fn an_engine_that_dies_is_started_again() {
    let (place, whole, pack) = (Place::new(), Place::new(), demo_pack());
    let pack = pack.to_str().unwrap();
    let child = place.command(&demo_run(pack, "20", &[])).spawn().unwrap();
    until("some trials are done", || (done(&place) >= 3).then_some(()));
    assert!(signal("-KILL", descendants(child.id())[0]));
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("ended (signal: 9 (SIGKILL))") && said.contains("started again"), "{said}");
    whole.succeed(&demo_run(pack, "20", &[]));
    assert_eq!(timeless(&files(&place.out())[0]), timeless(&files(&whole.out())[0]));
}

#[test]
fn a_run_that_goes_on_with_another_program_writes_beside_the_evidence_that_is_there() {
    let (place, pack) = (Place::new(), demo_pack());
    let mut arguments = demo_run(pack.to_str().unwrap(), "8", &[]);
    let ladder = arguments.iter().position(|argument| *argument == "20").unwrap();
    arguments[ladder] = "20,70";
    let mut child = place.start(&arguments);
    until("the first rung is written and the second begun", || (done(&place) >= 25).then_some(()));
    assert!(signal("-KILL", child.id()));
    child.wait().unwrap();
    let first = files(&place.out()).remove(0);
    let before = std::fs::read(&first).unwrap();
    // What another build has answered has other ids.
    let db = rusqlite::Connection::open(place.data().join("journal.sqlite")).unwrap();
    db.execute("update trial set id = 'another build: ' || id", []).unwrap();
    arguments.push("--resume");
    let (printed, _) = place.succeed(&arguments);
    assert_eq!(printed.lines().count(), 2);
    assert_eq!(files(&place.out()).len(), 3, "{printed}");
    assert_eq!(std::fs::read(&first).unwrap(), before);
}

#[test]
fn a_full_disk_loses_nothing() {
    let (mut place, whole, pack) = (Place::new(), Place::new(), demo_pack());
    let small = place.path("small");
    std::fs::create_dir(&small).unwrap();
    let mount = |options: &str| {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&small).output();
        mounted.is_ok_and(|output| output.status.success())
    };
    if !mount("size=200k") {
        return eprintln!("skipped: this user may not mount a small disk");
    }
    let unmounted = Unmount(small.clone());
    place.environment[0].1 = small.join("data");
    let arguments = demo_run(pack.to_str().unwrap(), "40", &[]);
    let said = place.fail(&arguments);
    assert!(said.contains("full") && said.contains("free some space"), "{said}");
    assert!(mount("remount,size=64m"));
    let (_, said) = place.succeed(&demo_run(pack.to_str().unwrap(), "40", &["--resume"]));
    assert!(said.contains("in the journal already"), "{said}");
    whole.succeed(&arguments);
    assert_eq!(timeless(&files(&place.out())[0]), timeless(&files(&whole.out())[0]));
    drop(unmounted);
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
