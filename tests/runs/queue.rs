//! Trials over a real nats-server on loopback.

use crate::evidence::{files, is_whole, read, timeless};
use crate::place::{PROGRAM, Place, demo_pack, demo_run, text, write};
use crate::processes::{Server, descendants, free_port, installed, listening, pause, signal, until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Nats {
    pub server: Server,
    program: PathBuf,
    config: PathBuf,
    port: u16,
}

impl Nats {
    /// Starts a server of the place's own; none where it is not installed.
    pub fn start(place: &Place, more: &str) -> Option<Self> {
        let program = installed("nats-server")?;
        let (port, config) = (free_port(), place.path("nats.conf"));
        let store = place.path("nats");
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\" }}\n{more}\n",
            store.display()
        );
        write(&config, text);
        let server = serve(&program, &config, port);
        Some(Self { server, program, config, port })
    }

    pub fn kill(&mut self) {
        signal("-KILL", self.server.0.id());
        self.server.0.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.server = serve(&self.program, &self.config, self.port);
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn target(&self) -> String {
        format!("queue:{}", self.url())
    }
}

fn serve(program: &Path, config: &Path, port: u16) -> Server {
    let mut command = Command::new(program);
    command.arg("-c").arg(config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Server(command.spawn().unwrap());
    listening(&mut server.0, port);
    server
}

/// A machine of its own that takes trials.
pub fn worker(place: &Place, name: &str, url: &str, program: &Path) -> Server {
    let mut command = Command::new(PROGRAM);
    command
        .args(["worker", "--nats", url, "--packs"])
        .arg(demo_pack())
        .envs(place.environment.iter().cloned());
    command
        .env("KAKEYA_GATE_DATA", place.path(name))
        .env("KAKEYA_GATE_PROGRAM", program)
        .stdin(Stdio::null());
    command.stderr(fs::File::create(place.path(&format!("{name}.log"))).unwrap());
    Server(command.spawn().unwrap())
}

/// Trials that the worker of that name has measured.
fn measured(place: &Place, name: &str) -> u64 {
    let count = |db: rusqlite::Connection| db.query_row("select count(*) from trial", [], |row| row.get(0));
    rusqlite::Connection::open(place.path(name).join("journal.sqlite")).and_then(count).unwrap_or(0)
}

#[test]
fn two_workers_share_a_run_and_each_trial_is_measured_once() {
    let (place, whole, pack) = (Place::new(), Place::new(), demo_pack());
    let Some(nats) = Nats::start(&place, "") else { return };
    let workers = ["one", "two"].map(|name| worker(&place, name, &nats.url(), Path::new(PROGRAM)));
    let (pack, target) = (pack.to_str().unwrap(), nats.target());
    place.succeed(&demo_run(pack, "20", &["--target", &target]));
    whole.succeed(&demo_run(pack, "20", &[]));
    let ours = files(&place.out());
    let (here, there) = (timeless(&files(&whole.out())[0]), timeless(&ours[0]));
    assert_eq!(there["results"], here["results"]);
    assert_eq!(there["restoration"], here["restoration"]);
    assert_eq!(there["fidelity"], here["fidelity"]);
    is_whole(&read(&ours[0]), 3, 20);
    assert!(ours[0].to_str().unwrap().ends_with("_queue.json"));
    assert_eq!(measured(&place, "one") + measured(&place, "two"), 60);
    drop(workers);
}

#[test]
fn a_worker_that_falls_silent_loses_its_trial_to_another() {
    let (place, pack) = (Place::new(), demo_pack());
    let Some(nats) = Nats::start(&place, "") else { return };
    let silent = worker(&place, "silent", &nats.url(), Path::new(PROGRAM));
    let target = nats.target();
    let mut child = place.start(&demo_run(pack.to_str().unwrap(), "40", &["--target", &target]));
    until("the worker works", || (measured(&place, "silent") >= 3).then_some(()));
    let all: Vec<u32> = descendants(silent.0.id()).into_iter().chain([silent.0.id()]).collect();
    all.iter().for_each(|process| assert!(signal("-STOP", *process)));
    let other = worker(&place, "other", &nats.url(), Path::new(PROGRAM));
    assert!(child.wait().unwrap().success());
    is_whole(&read(&files(&place.out())[0]), 3, 40);
    for process in all {
        signal("-CONT", process);
    }
    drop((silent, other));
}

/// A certificate authority of the place's own, and the certificate of a server on loopback: their files.
fn certificates(place: &Place) -> [PathBuf; 3] {
    let [authority, its_key, certificate, key, request, names] =
        ["ca.pem", "ca.key", "server.pem", "server.key", "server.csr", "names"].map(|name| place.path(name));
    write(&names, "subjectAltName=IP:127.0.0.1\n");
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    let openssl = |rest: String| {
        let output = Command::new("openssl").args(rest.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "openssl {rest}: {}", text(&output.stderr));
    };
    let path = |path: &Path| path.display().to_string();
    openssl(format!(
        "req -x509 {new_key} -subj /CN=gate-ca -keyout {} -out {}",
        path(&its_key),
        path(&authority)
    ));
    openssl(format!("req {new_key} -subj /CN=gate -keyout {} -out {}", path(&key), path(&request)));
    openssl(format!(
        "x509 -req -days 2 -in {} -CA {} -CAkey {} -CAcreateserial -extfile {} -out {}",
        path(&request),
        path(&authority),
        path(&its_key),
        path(&names),
        path(&certificate)
    ));
    [authority, certificate, key]
}

#[test]
fn an_encrypted_queue_is_used_when_its_authority_is_known_and_refused_otherwise() {
    let (mut place, pack) = (Place::new(), demo_pack());
    if installed("nats-server").is_none() || installed("openssl").is_none() {
        return eprintln!("skipped: nats-server or openssl is not installed");
    }
    let [authority, certificate, key] = certificates(&place);
    let tls = format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}");
    let Some(nats) = Nats::start(&place, &tls) else { return };
    let (pack, address) = (pack.to_str().unwrap(), nats.url().replace("nats://", "tls://"));
    let said = place.fail(&demo_run(pack, "1", &["--target", &format!("queue:{address}")]));
    assert!(said.contains("certificate"), "{said}");
    let contexts = place.path("config/nats/context");
    fs::create_dir_all(&contexts).unwrap();
    write(contexts.join("lab.json"), serde_json::json!({ "url": address, "ca": authority }).to_string());
    place.environment.push(("XDG_CONFIG_HOME", place.path("config")));
    let worker = worker(&place, "one", "lab", Path::new(PROGRAM));
    place.succeed(&demo_run(pack, "1", &["--target", "queue:lab"]));
    is_whole(&read(&files(&place.out())[0]), 3, 1);
    drop(worker);
}

#[test]
fn what_nobody_can_answer_is_given_up_and_a_later_try_may_succeed() {
    let (place, pack) = (Place::new(), demo_pack());
    let Some(nats) = Nats::start(&place, "") else { return };
    // An engine that greets and loads, and whose input ends before the first trial.
    let broken = place.path("broken");
    write(
        &broken,
        format!(
            "#!/bin/sh\n{{ for i in 1 2; do read -r line && printf '%s\\n' \"$line\"; done; }} | '{PROGRAM}' engine\n"
        ),
    );
    Command::new("chmod").arg("755").arg(&broken).status().unwrap();
    let worker_of = |name: &str, program: &Path| worker(&place, name, &nats.url(), program);
    let bad = worker_of("bad", &broken);
    let (pack, target) = (pack.to_str().unwrap(), nats.target());
    let said = place.fail(&demo_run(pack, "1", &["--target", &target]));
    assert!(said.contains("3 trials were given up by the queue after 5 deliveries each"), "{said}");
    assert_eq!(said.matches("given up after 5 deliveries: ").count(), 3, "each is told of: {said}");
    assert!(said.contains("rung 20, sample 0, oracle: given up"), "{said}");
    drop(bad);
    let good = worker_of("good", Path::new(PROGRAM));
    place.succeed(&demo_run(pack, "1", &["--target", &target, "--resume"]));
    is_whole(&read(&files(&place.out())[0]), 3, 1);
    drop(good);
}

#[test]
fn a_cancelled_run_is_taken_off_the_queue_and_goes_on_later() {
    let (place, pack) = (Place::new(), demo_pack());
    let Some(nats) = Nats::start(&place, "") else { return };
    let (pack, target) = (pack.to_str().unwrap(), nats.target());
    let busy = worker(&place, "busy", &nats.url(), Path::new(PROGRAM));
    let arguments = demo_run(pack, "60", &["--target", &target, "--resume"]);
    let mut child = place.start(&arguments);
    until("the worker works", || (measured(&place, "busy") >= 3).then_some(()));
    assert!(signal("-INT", child.id()));
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert!(measured(&place, "busy") < 180, "there is something left");
    place.succeed(&arguments);
    is_whole(&read(&files(&place.out())[0]), 3, 60);
    drop(busy);
}

#[test]
fn a_queue_without_workers_says_so_and_credentials_come_from_the_users_context() {
    let (mut place, pack) = (Place::new(), demo_pack());
    let users = "authorization { users: [ { user: \"gate\", password: \"secret\" } ] }";
    let Some(nats) = Nats::start(&place, users) else { return };
    let (pack, target) = (pack.to_str().unwrap(), nats.target());
    let said = place.fail(&demo_run(pack, "1", &["--target", &target]));
    assert!(said.contains("the queue") && said.contains("uthorization"), "{said}");
    let contexts = place.path("config/nats/context");
    fs::create_dir_all(&contexts).unwrap();
    let context = serde_json::json!({ "url": nats.url(), "user": "gate", "password": "secret" });
    write(contexts.join("lab.json"), context.to_string());
    place.environment.push(("XDG_CONFIG_HOME", place.path("config")));
    let child = place.command(&demo_run(pack, "1", &["--target", "queue:lab"])).spawn().unwrap();
    // It says after five seconds that nobody is there.
    pause(std::time::Duration::from_secs(8));
    let worker = worker(&place, "one", "lab", Path::new(PROGRAM));
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("nobody takes trials for program"), "{said}");
    drop(worker);
}
