//! A hundred kills at random: no trial is lost, none counts twice, and the evidence is that of a run that nothing happened to.

use crate::evidence::{files, is_whole, read, timeless};
use crate::place::{PROGRAM, Place, demo_pack, demo_run};
use crate::processes::{Dice, Server, descendants, pause, signal, until};
use crate::queue::{Nats, worker};
use crate::ssh::{Box, carrier};
use serde_json::Value;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

/// Twenty samples, three arms.
const SAMPLES: &str = "20";
const TRIALS: u64 = 60;

/// The run that nothing happened to.
fn whole() -> Value {
    let (place, pack) = (Place::new(), demo_pack());
    place.succeed(&demo_run(pack.to_str().unwrap(), SAMPLES, &[]));
    timeless(&files(&place.out())[0])
}

/// Starts the run, and again whenever it ends before its time, and strikes `kills` times: each strike gets the run's
/// process and says whether it hit something.
fn under_fire(
    place: &Place,
    target: &str,
    kills: usize,
    dice: &mut Dice,
    strike: &mut dyn FnMut(u32, &mut Dice) -> bool,
) {
    let pack = demo_pack();
    let arguments = demo_run(pack.to_str().unwrap(), SAMPLES, &["--target", target, "--resume"]);
    let start = || place.start(&arguments);
    let mut child: Child = start();
    let mut hits = 0;
    while hits < kills {
        pause(Duration::from_millis(20 + dice.roll(300)));
        match child.try_wait().unwrap() {
            Some(ended) if ended.success() || is_done(place) => {
                // Done before its time: what is left of the kills meets a run of its own.
                std::fs::remove_dir_all(place.out()).unwrap();
                forget(place);
                child = start();
            }
            Some(_) => child = start(),
            None => hits += usize::from(strike(child.id(), dice)),
        }
    }
    until("the run has ended well", || match child.try_wait().unwrap() {
        Some(ended) if ended.success() || is_done(place) => Some(()),
        Some(_) => {
            child = start();
            None
        }
        None => None,
    });
}

/// Whether a run is done: it may be struck after that and before its process has ended, and has no need to go on then.
fn is_done(place: &Place) -> bool {
    let journal = place.data().join("journal.sqlite");
    let done = "select count(*) from run where state = 'done'";
    // Struck before there was a journal, or before there was anything in it.
    journal.exists()
        && rusqlite::Connection::open(journal)
            .and_then(|db| db.query_row(done, [], |row| row.get::<_, u64>(0)))
            .is_ok_and(|runs| runs > 0)
}

/// Makes every run of the journal one that has never been.
fn forget(place: &Place) {
    let db = rusqlite::Connection::open(place.data().join("journal.sqlite")).unwrap();
    db.pragma_update(None, "foreign_keys", true).unwrap();
    db.execute("delete from run", []).unwrap();
}

/// One evidence file, the same as that of the whole run, out of one run's trials, each there once.
fn is_as_if_nothing_had_happened(place: &Place, whole: &Value, same_host: bool) {
    let written = files(&place.out());
    assert_eq!(written.len(), 1, "{written:?}");
    let ours = timeless(&written[0]);
    is_whole(&read(&written[0]), 3, 20);
    if same_host {
        assert_eq!(ours, *whole);
    }
    for part in ["config", "results", "restoration", "fidelity", "attention_mass", "gate"] {
        assert_eq!(ours[part], whole[part], "{part}");
    }
    let db = rusqlite::Connection::open(place.data().join("journal.sqlite")).unwrap();
    let run = &read(&written[0])["provenance"]["run"];
    let count: u64 = db
        .query_row("select count(distinct id) from trial where run = ?1", [run.as_str().unwrap()], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(count, TRIALS);
}

fn kill(process: Option<u32>) -> bool {
    process.is_some_and(|process| signal("-KILL", process))
}

#[test]
fn here_30_kills_of_app_and_engine() {
    let (place, whole) = (Place::new(), whole());
    under_fire(&place, "local", 30, &mut Dice(2026), &mut |app, dice| {
        let engines = descendants(app);
        if dice.roll(2) == 0 { kill(Some(app)) } else { kill(dice.pick(&engines)) }
    });
    is_as_if_nothing_had_happened(&place, &whole, true);
}

#[test]
fn behind_ssh_40_kills_of_app_connection_worker_engine_and_server() {
    let (mut place, whole) = (Place::new(), whole());
    let Some(mut machine) = Box::start(&mut place) else { return };
    machine.add(&place);
    under_fire(&place, "ssh:box", 40, &mut Dice(1130), &mut |app, dice| match dice.roll(10) {
        0 | 1 => kill(Some(app)),
        // ssh, or the engine that tells the packs of this machine.
        2 | 3 => kill(dice.pick(&descendants(app))),
        // The connection's end over there: sshd, its shell, the engine that follows.
        4 | 5 => kill(dice.pick(&descendants(machine.sshd.0.id()))),
        6 | 7 => kill(carrier(&machine)),
        8 => kill(carrier(&machine).and_then(|carrier| dice.pick(&descendants(carrier)))),
        _ => {
            machine.restart();
            true
        }
    });
    is_as_if_nothing_had_happened(&place, &whole, true);
}

#[test]
fn on_a_queue_30_kills_of_app_server_workers_and_engines() {
    let (place, whole) = (Place::new(), whole());
    let Some(mut nats) = Nats::start(&place, "") else { return };
    let (url, target) = (nats.url(), nats.target());
    let hire = |name: &str| worker(&place, name, &url, Path::new(PROGRAM));
    let mut workers: Vec<(&str, Server)> = vec![("one", hire("one")), ("two", hire("two"))];
    under_fire(&place, &target, 30, &mut Dice(1984), &mut |app, dice| match dice.roll(8) {
        0 | 1 => kill(Some(app)),
        2 => {
            nats.kill();
            pause(Duration::from_millis(dice.roll(200)));
            nats.restart();
            true
        }
        3 | 4 => {
            let at = usize::try_from(dice.roll(2)).unwrap();
            let (name, _) = workers.remove(at);
            workers.push((name, hire(name)));
            true
        }
        _ => {
            let processes: Vec<u32> =
                workers.iter().flat_map(|(_, worker)| descendants(worker.0.id())).collect();
            kill(dice.pick(&processes))
        }
    });
    is_as_if_nothing_had_happened(&place, &whole, false);
}
