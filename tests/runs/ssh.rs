//! A worker behind a real sshd on loopback.

use crate::evidence::{files, is_whole, read, timeless};
use crate::place::{PROGRAM, Place, demo_pack, demo_run, text, write};
use crate::processes::{Server, descendants, free_port, installed, listening, pause, saying, signal, until};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A box of the name `box`, with its own data folder, packs and home.
pub struct Box {
    pub sshd: Server,
    program: PathBuf,
    port: u16,
    pub data: PathBuf,
    config: PathBuf,
}

impl Box {
    /// Starts an sshd of the place's own; none where it is not installed.
    pub fn start(place: &mut Place) -> Option<Self> {
        let program = installed("sshd")?;
        let folder = place.path("box");
        let (data, home) = (folder.join("data"), folder.join("home"));
        fs::create_dir_all(&home).unwrap();
        // Debian's sshd wants it when it runs as root; without root it does not.
        let _ = fs::create_dir_all("/run/sshd");
        for key in ["host", "user"] {
            keygen(&folder.join(key));
        }
        fs::copy(folder.join("user.pub"), folder.join("authorized")).unwrap();
        let port = free_port();
        let config = place.path("ssh.config");
        let user = text(&Command::new("id").arg("-un").output().unwrap().stdout);
        let mut client = format!("Host box\n  HostName 127.0.0.1\n  Port {port}\n  User {user}");
        write!(client, "  IdentityFile {}\n  IdentitiesOnly yes\n", folder.join("user").display()).unwrap();
        write(&config, client);
        place.environment.push(("KAKEYA_GATE_SSH_CONFIG", config.clone()));
        let settings = folder.join("sshd.config");
        // The user's own home stays out of it: a shell that is killed while it reads its start-up files may leave locks there.
        let text = format!(
            "ListenAddress 127.0.0.1\nHostKey {host}\nAuthorizedKeysFile {keys}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\n\
             SetEnv KAKEYA_GATE_DATA={data} KAKEYA_GATE_PACKS={packs} HOME={home}\n\
             ForceCommand cd \"$HOME\" && eval \"$SSH_ORIGINAL_COMMAND\"\n",
            host = folder.join("host").display(),
            keys = folder.join("authorized").display(),
            data = data.display(),
            packs = demo_pack().display(),
            home = home.display(),
        );
        write(&settings, text);
        let sshd = serve(&program, &settings, port);
        Some(Self { sshd, program, port, data, config: settings })
    }

    /// The same machine with another key.
    fn change_key(&mut self) {
        let folder = self.config.parent().unwrap();
        fs::remove_file(folder.join("host")).unwrap();
        keygen(&folder.join("host"));
        self.restart();
    }

    pub fn restart(&mut self) {
        signal("-KILL", self.sshd.0.id());
        self.sshd.0.wait().unwrap();
        self.sshd = serve(&self.program, &self.config, self.port);
    }

    pub fn fingerprint(&self) -> String {
        let key = self.config.with_file_name("host.pub");
        let said = Command::new("ssh-keygen").arg("-lf").arg(key).output().unwrap().stdout;
        text(&said).split_whitespace().nth(1).unwrap().to_owned()
    }

    /// Adds it as a target with the program under test.
    pub fn add(&self, place: &Place) {
        place.succeed(&["target", "add", "box", "--program", PROGRAM, "--fingerprint", &self.fingerprint()]);
    }

    /// How often each trial was measured over there: what its journal says, and what its account says.
    fn measured(&self) -> (u64, u64) {
        let Ok(db) = rusqlite::Connection::open(self.data.join("journal.sqlite")) else { return (0, 0) };
        let count = |query: &str| db.query_row(query, [], |row| row.get(0)).unwrap_or(0);
        let told = "select count(*) from record where text like '{\"type\":\"done\"%'";
        (count("select count(*) from trial"), count(told))
    }
}

fn keygen(path: &Path) {
    let _ = fs::remove_file(path.with_extension("pub"));
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
    assert!(made.unwrap().success());
}

fn serve(program: &Path, settings: &Path, port: u16) -> Server {
    let mut child = Command::new(program)
        .args(["-D", "-e", "-p", &port.to_string(), "-f"])
        .arg(settings)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(settings.with_extension("log")).unwrap())
        .spawn()
        .unwrap();
    listening(&mut child, port);
    Server(child)
}

fn check(place: &Place, id: &str) -> (String, String) {
    let output = place.output(&["target", "check", "box", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["checks"].as_array().unwrap();
    let row = rows.iter().find(|row| row["id"] == id).unwrap();
    (row["status"].as_str().unwrap().to_owned(), row["measured"].as_str().unwrap().to_owned())
}

#[test]
fn a_machine_is_added_tested_and_answers_like_this_one() {
    let (mut place, whole, pack) = (Place::new(), Place::new(), demo_pack());
    let Some(machine) = Box::start(&mut place) else { return };
    let pack = pack.to_str().unwrap();
    let arguments = demo_run(pack, "6", &["--target", "ssh:box"]);
    let said = place.fail(&arguments);
    assert!(said.contains("the key of box is not pinned"), "{said}");
    let said = place.fail(&["target", "add", "box"]);
    assert!(said.contains(&machine.fingerprint()) && said.contains("nobody is here to approve"), "{said}");
    let said = place.fail(&["target", "add", "box", "--fingerprint", "SHA256:another"]);
    assert!(said.contains("not SHA256:another"), "{said}");
    machine.add(&place);
    for (id, words) in [
        ("worker-reached", "answered after"),
        ("worker-key", "pinned"),
        ("worker-program", "protocol"),
        ("worker-devices", "candle on cpu"),
        ("worker-memory", "main memory"),
        ("worker-disk", "B"),
        ("worker-packs", "sha256:"),
        ("worker-clock", "s "),
    ] {
        let (status, measured) = check(&place, id);
        assert!(["pass", "warn"].contains(&status.as_str()) && measured.contains(words), "{id}: {measured}");
    }
    place.succeed(&arguments);
    whole.succeed(&demo_run(pack, "6", &[]));
    let ours = files(&place.out());
    assert_eq!(timeless(&ours[0]), timeless(&files(&whole.out())[0]));
    let (here, there) = (read(&files(&whole.out())[0]), read(&ours[0]));
    assert_eq!(there["provenance"]["target"], "ssh:box");
    assert_eq!(there["provenance"]["spec_sha256"], here["provenance"]["spec_sha256"]);
    assert!(ours[0].to_str().unwrap().ends_with("_box.json"));
    assert_eq!(machine.measured(), (18, 18));
    // A pack may be named by its digest, or by its name over there.
    let digest = format!("sha256:{}", here["provenance"]["pack_sha256"].as_str().unwrap());
    let name = here["provenance"]["pack_name"].as_str().unwrap();
    for pack in [&digest[..20], name] {
        place.succeed(&demo_run(pack, "1", &["--target", "ssh:box"]));
    }
    let said = place.fail(&demo_run("sha256:0123456789abcdef", "1", &["--target", "ssh:box"]));
    assert!(said.contains("box has no pack sha256:0123456789abcdef; it has"), "{said}");
    assert!(place.succeed(&["target", "list"]).0.contains("ssh:box"));
    place.succeed(&["target", "remove", "box"]);
    assert!(place.fail(&arguments).contains("not pinned"));
}

#[test]
fn another_key_is_refused() {
    let mut place = Place::new();
    let Some(mut machine) = Box::start(&mut place) else { return };
    machine.add(&place);
    machine.change_key();
    let pack = demo_pack();
    let said = place.fail(&demo_run(pack.to_str().unwrap(), "1", &["--target", "ssh:box"]));
    assert!(said.contains("shows another key than the one that is pinned"), "{said}");
    let (status, measured) = check(&place, "worker-reached");
    assert!(status == "fail" && measured.contains("another key"), "{measured}");
    assert_eq!(machine.measured(), (0, 0));
}

#[test]
fn a_missing_program_another_version_and_a_refused_log_in_are_told_apart() {
    let mut place = Place::new();
    let Some(machine) = Box::start(&mut place) else { return };
    let add = |program: &str| {
        place.output(&[
            "target",
            "add",
            "box",
            "--program",
            program,
            "--fingerprint",
            &machine.fingerprint(),
        ]);
        check(&place, "worker-reached")
    };
    let (status, measured) = add("kakeya-gate-absent");
    assert!(status == "fail" && measured.contains("has no program kakeya-gate-absent"), "{measured}");
    // What an engine of another protocol answers to a greeting.
    let old = place.path("old");
    let answer = r#"{"type":"failed","code":"protocol-version","message":"the host speaks protocol 4, this engine 1","hint":""}"#;
    write(&old, format!("#!/bin/sh\nread greeting\necho '{answer}'\nread more\n"));
    executable(&old);
    let (status, measured) = add(old.to_str().unwrap());
    assert!(status == "fail" && measured.contains("another protocol"), "{measured}");
    // Copying this program there mends both.
    let (said, _) = place.succeed(&["target", "copy", "box"]);
    assert!(said.contains("protocol 4"), "{said}");
    assert!(place.succeed(&["target", "list"]).0.contains(".local/share/kakeya-gate/bin/kakeya-gate-"));
    write(place.path("box/authorized"), "");
    let (status, measured) = check(&place, "worker-reached");
    assert!(status == "fail" && measured.contains("refuses the log-in"), "{measured}");
}

fn executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_clock_that_is_wrong_is_told_and_changes_nothing() {
    let (mut place, whole, pack) = (Place::new(), Place::new(), demo_pack());
    let Some(machine) = Box::start(&mut place) else { return };
    if installed("faketime").is_none() {
        return;
    }
    let late = place.path("late");
    write(&late, format!("#!/bin/sh\nexec faketime -f '+7200s' '{PROGRAM}' \"$@\"\n"));
    executable(&late);
    let program = late.to_str().unwrap();
    place.output(&["target", "add", "box", "--program", program, "--fingerprint", &machine.fingerprint()]);
    let (status, measured) = check(&place, "worker-clock");
    let ahead: f64 = measured.split_whitespace().next().unwrap().parse().unwrap();
    assert!(status == "warn" && (7150.0..7250.0).contains(&ahead), "{measured}");
    let pack = pack.to_str().unwrap();
    place.succeed(&demo_run(pack, "3", &["--target", "ssh:box"]));
    whole.succeed(&demo_run(pack, "3", &[]));
    let ours = files(&place.out());
    assert_eq!(timeless(&ours[0]), timeless(&files(&whole.out())[0]));
    let provenance = &read(&ours[0])["provenance"];
    let [started, ended] = ["started", "ended"]
        .map(|name| provenance[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap());
    let now = jiff::Timestamp::now();
    assert!(started <= ended && ended <= now && now.duration_since(ended).as_secs() < 600);
}

/// The process of the run over there.
pub fn carrier(machine: &Box) -> Option<u32> {
    let run = fs::read_dir(machine.data.join("runs")).ok()?.find_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.strip_suffix(".lock").map(str::to_owned)
    })?;
    saying(&format!("engine --run {run}")).first().copied()
}

#[test]
fn a_cut_connection_neither_stops_nor_repeats_work() {
    let (mut place, whole, pack) = (Place::new(), Place::new(), demo_pack());
    let Some(machine) = Box::start(&mut place) else { return };
    machine.add(&place);
    let pack = pack.to_str().unwrap();
    let arguments = demo_run(pack, "30", &["--target", "ssh:box"]);
    let child = place.command(&arguments).spawn().unwrap();
    until("some trials are done over there", || (machine.measured().0 >= 3).then_some(()));
    // The connection, in the middle of a sample: ssh here, and what sshd has started there.
    for process in descendants(child.id()) {
        signal("-KILL", process);
    }
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("the run over there goes on; trying again"), "{said}");
    whole.succeed(&demo_run(pack, "30", &[]));
    assert_eq!(timeless(&files(&place.out())[0]), timeless(&files(&whole.out())[0]));
    assert_eq!(machine.measured(), (90, 90));
}

#[test]
fn the_laptop_is_closed_and_opened_again() {
    let (mut place, whole, pack) = (Place::new(), Place::new(), demo_pack());
    let Some(machine) = Box::start(&mut place) else { return };
    machine.add(&place);
    let pack = pack.to_str().unwrap();
    let arguments = demo_run(pack, "20", &["--target", "ssh:box"]);
    let mut child = place.start(&arguments);
    until("some trials are done over there", || (machine.measured().0 >= 3).then_some(()));
    for process in descendants(child.id()).into_iter().chain([child.id()]) {
        signal("-KILL", process);
    }
    child.wait().unwrap();
    until("the run over there has ended by itself", || {
        (machine.measured().0 == 60 && carrier(&machine).is_none()).then_some(())
    });
    let (_, said) = place.succeed(&demo_run(pack, "20", &["--target", "ssh:box", "--resume"]));
    whole.succeed(&demo_run(pack, "20", &[]));
    let ours = files(&place.out());
    assert_eq!(timeless(&ours[0]), timeless(&files(&whole.out())[0]), "{said}");
    is_whole(&read(&ours[0]), 3, 20);
    assert_eq!(machine.measured(), (60, 60));
}

#[test]
fn cancelling_ends_the_run_over_there_and_a_worker_that_is_slow_is_waited_for() {
    let (mut place, pack) = (Place::new(), demo_pack());
    let Some(machine) = Box::start(&mut place) else { return };
    machine.add(&place);
    let arguments = demo_run(pack.to_str().unwrap(), "200", &["--target", "ssh:box"]);
    let mut child = place.start(&arguments);
    let process = until("the run is carried over there", || carrier(&machine));
    until("some trials are done over there", || (machine.measured().0 >= 3).then_some(()));
    let engine = descendants(process)[0];
    assert!(signal("-STOP", engine));
    pause(std::time::Duration::from_secs(3));
    let before = machine.measured().0;
    assert!(signal("-0", process) && signal("-0", child.id()), "slow is not dead");
    assert!(signal("-CONT", engine));
    until("the slow worker goes on", || (machine.measured().0 > before).then_some(()));
    assert!(signal("-INT", child.id()));
    assert_eq!(child.wait().unwrap().code(), Some(2));
    until("nobody works over there", || carrier(&machine).is_none().then_some(()));
    assert!(machine.measured().0 < 600);
}

#[test]
fn one_click_for_two_machines_gives_comparable_evidence() {
    let (mut place, pack) = (Place::new(), demo_pack());
    let Some(machine) = Box::start(&mut place) else { return };
    machine.add(&place);
    let more = ["--target", "local", "--target", "ssh:box"];
    let (printed, _) = place.succeed(&demo_run(pack.to_str().unwrap(), "5", &more));
    let paths: Vec<PathBuf> = printed.lines().map(PathBuf::from).collect();
    assert_eq!(paths.len(), 2);
    let digests: Vec<_> = paths.iter().map(|path| read(path)["provenance"]["spec_sha256"].clone()).collect();
    assert_eq!(digests[0], digests[1]);
    assert_eq!(timeless(&paths[0]), timeless(&paths[1]));
}
