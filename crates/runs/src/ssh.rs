//! A worker behind the system's own ssh: the user's configuration, agent and jump hosts, and a host key that is pinned here.

use crate::engine::{Engine, EngineProgram};
use crate::journal::{Journal, JournalError};
use crate::local::GLANCE;
use crate::plan::{Build, Planned};
use crate::target::{Answers, Opened, Take, Told};
use crate::{Cancel, RunError, find_pack, named_digest};
use evidence::text;
use protocol::{ErrorCode, Event, FoundPack, Hello, Order, Record, Request, RunSpec, Worker};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use ts_rs::TS;

/// Another file than `~/.ssh/config`, as with `ssh -F`.
const CONFIG_VARIABLE: &str = "KAKEYA_GATE_SSH_CONFIG";
/// Seconds until a host that does not answer is given up.
const CONNECT_S: u64 = 20;
/// A connection on which the other side is silent for thrice this many seconds is lost.
const ALIVE_S: u64 = 5;
/// Waiting times after a lost connection double from the first to the last.
const BACK_OFF: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(30)];
/// A run whose process over there dies this often without a new answer is given up.
const ORPHANED: usize = 5;
/// How long a run may take to end over there once it was told to.
const GIVE_UP: Duration = Duration::from_secs(10);
/// Where a copied program lies, below the home folder over there.
const INSTALLED: &str = ".local/share/kakeya-gate/bin";

/// How a machine is used. Kept by name; asked for once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Machine {
    /// Host, user@host, user@host:port, or an alias of the user's own configuration.
    pub host: String,
    /// The program over there.
    pub program: String,
    /// Folders over there that are packs, or hold some, beside those that it names itself.
    pub packs: Vec<PathBuf>,
}

impl Machine {
    /// A machine with the program in its path and the packs where it keeps them itself.
    pub fn new(host: &str) -> Self {
        Self { host: host.to_owned(), program: "kakeya-gate".into(), packs: Vec::new() }
    }
}

/// The key by which a host is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct HostKey {
    /// As OpenSSH shows it: `256 SHA256:… (ED25519)`.
    pub fingerprint: String,
    /// Whether it is pinned already.
    pub pinned: bool,
    /// The entry for known_hosts.
    pub entry: String,
}

/// What a look at a machine found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Probe {
    /// The machine.
    pub machine: Machine,
    /// Its pinned key.
    pub fingerprint: String,
    /// The program over there.
    pub hello: Hello,
    /// What it has.
    pub worker: Worker,
    /// Seconds from starting ssh to the first answer.
    pub reached_s: f64,
    /// How far its clock is ahead of ours, seconds; as exact as the answer was quick. Nothing is computed from it.
    pub clock_ahead_s: f64,
}

/// A worker behind ssh that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// There is no ssh, or no folder for its files.
    #[error("{action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Nobody has approved of the host's key.
    #[error("the key of {0} is not pinned")]
    NotPinned(String),
    /// The host shows another key than the pinned one.
    #[error("{host} shows another key than the one that is pinned; {said}")]
    WrongKey {
        /// The host.
        host: String,
        /// What ssh said.
        said: String,
    },
    /// The host does not let the user in.
    #[error("{host} refuses the log-in: {said}")]
    Denied {
        /// The host.
        host: String,
        /// What ssh said.
        said: String,
    },
    /// The host does not answer.
    #[error("{host} cannot be reached: {said}")]
    Unreachable {
        /// The host.
        host: String,
        /// What ssh said.
        said: String,
    },
    /// The host has no such program.
    #[error("{host} has no program {program}: {said}")]
    NoProgram {
        /// The host.
        host: String,
        /// The program.
        program: String,
        /// What its shell said.
        said: String,
    },
    /// The program over there is another version.
    #[error("{host} runs kakeya-gate {theirs}, this is {ours}: {said}")]
    Version {
        /// The host.
        host: String,
        /// Version over there.
        theirs: String,
        /// Version here.
        ours: String,
        /// What the engine said.
        said: String,
    },
    /// What came back is not what was sent.
    #[error("{host}: {what} did not arrive whole (SHA-256 differs)")]
    Damaged {
        /// The host.
        host: String,
        /// What was on its way.
        what: String,
    },
    /// The program is for other machines.
    #[error("{host} is {theirs}, the program is for {ours}")]
    OtherSystem {
        /// The host.
        host: String,
        /// Its system.
        theirs: String,
        /// This system.
        ours: String,
    },
}

impl SshError {
    /// Stable, for programs.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Io { .. } => ErrorCode::Ssh,
            Self::NotPinned(_) => ErrorCode::SshNotPinned,
            Self::WrongKey { .. } => ErrorCode::SshWrongKey,
            Self::Denied { .. } => ErrorCode::SshDenied,
            Self::Unreachable { .. } => ErrorCode::SshUnreachable,
            Self::NoProgram { .. } => ErrorCode::WorkerMissing,
            Self::Version { .. } => ErrorCode::WorkerVersion,
            Self::Damaged { .. } => ErrorCode::WorkerDamaged,
            Self::OtherSystem { .. } => ErrorCode::WorkerSystem,
        }
    }

    /// What to do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "install OpenSSH's client, and check the data folder",
            Self::NotPinned(_) => {
                "add the target first (`kakeya-gate target add HOST`) and compare its fingerprint"
            }
            Self::WrongKey { .. } => {
                "somebody may be listening in; only if you know that the key was changed: remove the target and add it again"
            }
            Self::Denied { .. } => {
                "log in once with `ssh HOST`; keys need an agent or no passphrase, since nothing can be typed here"
            }
            Self::Unreachable { .. } => {
                "check the name, the network and `ssh HOST`; a run over there goes on meanwhile"
            }
            Self::NoProgram { .. } | Self::Version { .. } => {
                "copy this program there with `kakeya-gate target copy HOST`, or name one with --program"
            }
            Self::Damaged { .. } => "try again; if it happens again, the disk over there may be full",
            Self::OtherSystem { .. } => "name a program for that system with --binary",
        }
    }
}

/// The files of one host in the data folder.
fn known_hosts(data: &Path, host: &str) -> PathBuf {
    data.join("hosts").join(&files::sha256(host.as_bytes())[..16])
}

/// ssh to `host`, nothing asked, nothing forwarded, no key accepted but those in `known`.
fn ssh(host: &str, known: &Path, strict: &str, more: &[&str]) -> Command {
    let mut command = Command::new("ssh");
    if let Some(config) = std::env::var_os(CONFIG_VARIABLE) {
        command.arg("-F").arg(config);
    }
    // Spaces in the path would end it; macOS has one in its data folder.
    let known = format!("UserKnownHostsFile=\"{}\"", known.display());
    let settings = [
        "BatchMode=yes".to_owned(),
        format!("StrictHostKeyChecking={strict}"),
        known,
        "GlobalKnownHostsFile=none".into(),
        "KnownHostsCommand=none".into(),
        "UpdateHostKeys=no".into(),
        "CheckHostIP=no".into(),
        "HashKnownHosts=no".into(),
        // A connection that another ssh has opened was checked against other keys.
        "ControlMaster=no".into(),
        "ControlPath=none".into(),
        "ForwardAgent=no".into(),
        "ClearAllForwardings=yes".into(),
        format!("ConnectTimeout={CONNECT_S}"),
        format!("ServerAliveInterval={ALIVE_S}"),
        "ServerAliveCountMax=3".into(),
    ];
    command.arg("-T");
    let settings = more.iter().copied().chain(settings.iter().map(String::as_str));
    command.args(settings.flat_map(|setting| ["-o", setting]));
    match host.rsplit_once(':').filter(|(name, port)| !name.contains(':') && port.parse::<u16>().is_ok()) {
        Some((name, port)) => command.args(["-p", port, "--", name]),
        None => command.args(["--", host]),
    };
    command
}

/// The key that a host shows now, before anything else is said to it; and whether it is the pinned one.
pub fn host_key(data: &Path, host: &str) -> Result<HostKey, RunError> {
    let io = |action: &str, source| SshError::Io { action: action.to_owned(), source };
    let pinned = known_hosts(data, host);
    let folder = data.join("hosts");
    std::fs::create_dir_all(&folder).map_err(|e| io("cannot make the folder for host keys", e))?;
    let fresh = folder.join(format!("new-{}", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    // The key is noted before the log-in, which is not tried at all.
    let no_log_in = ["PreferredAuthentications=none", "PubkeyAuthentication=no", "LogLevel=ERROR"];
    let said = output(ssh(host, &fresh, "accept-new", &no_log_in), &[])?;
    let entry = std::fs::read_to_string(&fresh).unwrap_or_default();
    let shown = fingerprint(&fresh);
    let _ = std::fs::remove_file(&fresh);
    if entry.trim().is_empty() {
        return Err(failure(host, "", &said).into());
    }
    let known = std::fs::read_to_string(&pinned).unwrap_or_default();
    Ok(HostKey { fingerprint: shown?, pinned: known == entry, entry })
}

fn fingerprint(known: &Path) -> Result<String, RunError> {
    let mut command = Command::new("ssh-keygen");
    command.arg("-lf").arg(known);
    let said = output(command, &[])?;
    let text = String::from_utf8_lossy(&said.stdout);
    // `256 SHA256:… host (ED25519)`: the host is named elsewhere.
    let words: Vec<&str> = text.lines().next().unwrap_or_default().split_whitespace().collect();
    Ok(match words.as_slice() {
        [bits, hash, .., kind] => format!("{bits} {hash} {kind}"),
        _ => text.trim().to_owned(),
    })
}

/// Keeps a machine, and pins the key that the user approved of.
pub fn add_machine(data: &Path, machine: &Machine, key: &HostKey) -> Result<(), RunError> {
    files::write_atomic(&known_hosts(data, &machine.host), key.entry.as_bytes())?;
    Ok(Journal::open(data)?.set_machine(&machine.host, machine)?)
}

/// Forgets a machine and its key; whether it was known.
pub fn remove_machine(data: &Path, host: &str) -> Result<bool, RunError> {
    match std::fs::remove_file(known_hosts(data, host)) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(SshError::Io { action: "cannot remove the host's key".into(), source }.into())
        }
        _ => Ok(Journal::open(data)?.forget_machine(host)?),
    }
}

/// The machines that are known, by name.
pub fn machines(data: &Path) -> Result<Vec<Machine>, RunError> {
    Ok(Journal::open(data)?.machines()?)
}

fn machine(journal: &Journal, host: &str) -> Result<Machine, JournalError> {
    let known: Vec<Machine> = journal.machines()?;
    Ok(known.into_iter().find(|machine| machine.host == host).unwrap_or_else(|| Machine::new(host)))
}

/// Reaches a machine and looks at what it has. Its key must be pinned.
pub fn probe(data: &Path, host: &str) -> Result<Probe, RunError> {
    let machine = machine(&Journal::open(data)?, host)?;
    let began = Instant::now();
    let (mut engine, hello) = connect(data, &machine)?;
    let reached_s = began.elapsed().as_secs_f64();
    let worker = engine.worker(&machine.packs)?;
    let now = jiff::Timestamp::now().as_duration().as_secs_f64();
    let known = known_hosts(data, host);
    Ok(Probe {
        fingerprint: fingerprint(&known)?,
        clock_ahead_s: worker.clock_s - now,
        machine,
        hello,
        worker,
        reached_s,
    })
}

/// An engine over there.
fn connect(data: &Path, machine: &Machine) -> Result<(Engine, Hello), RunError> {
    let host = machine.host.as_str();
    let known = known_hosts(data, host);
    if !known.is_file() {
        return Err(SshError::NotPinned(host.to_owned()).into());
    }
    let mut command = ssh(host, &known, "yes", &[]);
    command.arg(format!("{} engine", quoted(&machine.program)));
    Engine::start_command(command).map_err(|error| explain(machine, error))
}

/// What went wrong on the way to an engine, in the words of ssh.
fn explain(machine: &Machine, error: RunError) -> RunError {
    match error {
        RunError::Lost { code: Some(code @ (255 | 126 | 127)), last_words, .. } => {
            let said = last_words.trim().replace("\n  ", "; ");
            explained(&machine.host, &machine.program, code, said).into()
        }
        RunError::Engine(report) if report.code == ErrorCode::ProtocolVersion => SshError::Version {
            host: machine.host.clone(),
            theirs: "of another protocol".into(),
            ours: env!("CARGO_PKG_VERSION").into(),
            said: report.message,
        }
        .into(),
        error => error,
    }
}

fn failure(host: &str, program: &str, output: &Output) -> SshError {
    let said = String::from_utf8_lossy(&output.stderr);
    explained(host, program, output.status.code().unwrap_or(255), said.trim().replace('\n', "; "))
}

fn explained(host: &str, program: &str, code: i32, said: String) -> SshError {
    let host = host.to_owned();
    let has = |words: &str| said.contains(words);
    match code {
        126 | 127 => SshError::NoProgram { host, program: program.to_owned(), said },
        _ if has("Host key verification failed") || has("HOST IDENTIFICATION HAS CHANGED") => {
            SshError::WrongKey { host, said }
        }
        _ if has("Permission denied") || has("Too many authentication failures") => {
            SshError::Denied { host, said }
        }
        _ => SshError::Unreachable { host, said },
    }
}

/// One word for the shell over there.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Runs a command with that input to its end.
fn output(mut command: Command, input: &[u8]) -> Result<Output, RunError> {
    let io = |action: &str, source| SshError::Io { action: action.to_owned(), source };
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| io(&format!("cannot start {name}"), e))?;
    let mut stdin = child.stdin.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(stdin) = stdin.as_mut() {
                // A command that does not read its input says why by itself.
                let _ = stdin.write_all(input);
            }
        });
        child.wait_with_output().map_err(|e| io(&format!("cannot wait for {name}"), e).into())
    })
}

/// Copies a program to the machine and keeps that it is there; the machine with it. Without `binary` this very program is
/// copied, and the machine must be of the same kind.
pub fn copy_program(data: &Path, host: &str, binary: Option<&Path>) -> Result<Machine, RunError> {
    let journal = Journal::open(data)?;
    let mut machine = machine(&journal, host)?;
    let io = |action: &str, source| SshError::Io { action: action.to_owned(), source };
    let path = match binary {
        Some(path) => path.to_owned(),
        None => {
            same_system(data, host)?;
            std::env::current_exe().map_err(|e| io("cannot find this program", e))?
        }
    };
    let mut bytes = Vec::new();
    std::fs::File::open(&path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|e| io(&format!("cannot read {}", path.display()), e))?;
    let name = format!("kakeya-gate-{}", env!("CARGO_PKG_VERSION"));
    let (new, installed) = (format!("{INSTALLED}/.{name}.new"), format!("{INSTALLED}/{name}"));
    let receive = format!(
        "mkdir -p {INSTALLED} && cat > {new} && chmod 755 {new} && (sha256sum {new} || shasum -a 256 {new})"
    );
    let there = remote(data, host, &receive, &bytes)?;
    if !there.starts_with(&files::sha256(&bytes)) {
        return Err(SshError::Damaged { host: host.to_owned(), what: path.display().to_string() }.into());
    }
    // A program that is running keeps the old file.
    remote(data, host, &format!("mv -f {new} {installed}"), &[])?;
    machine.program = format!("./{installed}");
    journal.set_machine(host, &machine)?;
    Ok(machine)
}

fn same_system(data: &Path, host: &str) -> Result<(), RunError> {
    let theirs = remote(data, host, "uname -sm", &[])?.trim().to_owned();
    let ours = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("macos", "aarch64") => "Darwin arm64".to_owned(),
        ("macos", arch) => format!("Darwin {arch}"),
        (_, arch) => format!("Linux {arch}"),
    };
    match theirs == ours {
        true => Ok(()),
        false => Err(SshError::OtherSystem { host: host.to_owned(), theirs, ours }.into()),
    }
}

/// What a command over there prints; an error unless it succeeds.
fn remote(data: &Path, host: &str, script: &str, input: &[u8]) -> Result<String, RunError> {
    let known = known_hosts(data, host);
    if !known.is_file() {
        return Err(SshError::NotPinned(host.to_owned()).into());
    }
    let mut command = ssh(host, &known, "yes", &[]);
    command.arg(format!("sh -c {}", quoted(script)));
    let output = output(command, input)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(failure(host, "sh", &output).into()),
    }
}

/// A run on a machine behind ssh.
pub(crate) struct Ssh<'a> {
    data: &'a Path,
    machine: Machine,
    program: &'a EngineProgram,
    run: &'a str,
    engine: Option<Engine>,
    spec: Option<RunSpec>,
    pack: String,
}

impl<'a> Ssh<'a> {
    pub(crate) fn new(
        journal: &Journal,
        data: &'a Path,
        host: &str,
        program: &'a EngineProgram,
        run: &'a str,
    ) -> Result<Self, RunError> {
        let machine = machine(journal, host)?;
        Ok(Self { data, machine, program, run, engine: None, spec: None, pack: String::new() })
    }

    /// The pack over there that is meant: by its digest, as the same pack here, or by its name or folder over there.
    fn choose_pack(&self, worker: &Worker, asked: &Path) -> Result<FoundPack, RunError> {
        if named_digest(asked).is_none() && !asked.is_dir() {
            let meant = |pack: &&FoundPack| {
                pack.folder == asked || Path::new(&pack.name) == asked.file_name().map_or(asked, Path::new)
            };
            if let Some(pack) = worker.packs.iter().filter(|pack| pack.digest.is_some()).find(meant) {
                return Ok(pack.clone());
            }
        }
        find_pack(&self.machine.host, worker, &crate::digest_of(self.program, asked)?)
    }

    /// Reads the account from `after` on until it ends, the connection is lost, or the user cancels.
    fn follow(
        &mut self,
        order: &Order,
        after: &mut u64,
        cancel: &Cancel,
        take: Take,
    ) -> Result<Followed, RunError> {
        if self.engine.is_none() {
            self.engine = Some(connect(self.data, &self.machine)?.0);
        }
        let Some(engine) = self.engine.as_mut() else { return Ok(Followed::Orphaned) };
        engine.send(&Request::Start(order.clone()))?;
        engine.wait("starting the run over there", accepted)?;
        engine.send(&Request::Follow { run: order.run.clone(), after: *after })?;
        let mut ended = None;
        loop {
            if cancel.is_cancelled() {
                return Err(give_up(engine, order));
            }
            match engine.next(GLANCE, "following the run over there")? {
                Some(Event::Record { number, text, sha256 }) => {
                    if files::sha256(text.as_bytes()) != sha256 {
                        let what = format!("record {number} of the run");
                        return Err(SshError::Damaged { host: self.machine.host.clone(), what }.into());
                    }
                    *after = number;
                    match serde_json::from_str(&text) {
                        Ok(Record::Ended { error }) => ended = Some(error),
                        Ok(record) => take(number, Told::Record(record))?,
                        Err(_) => return Err(RunError::Garbled(text.chars().take(200).collect())),
                    }
                }
                Some(Event::Left { .. }) => {
                    return match ended {
                        Some(None) => Ok(Followed::ToTheEnd),
                        Some(Some(report)) => Err(report.into()),
                        None => Ok(Followed::Orphaned),
                    };
                }
                Some(Event::Failed(report)) => return Err(report.into()),
                Some(_) | None => {}
            }
        }
    }
}

/// How following a run ended.
enum Followed {
    ToTheEnd,
    /// Its process over there is gone.
    Orphaned,
}

fn accepted(event: Event) -> Option<()> {
    matches!(event, Event::Accepted { .. }).then_some(())
}

/// Ends the run over there, too.
fn give_up(engine: &mut Engine, order: &Order) -> RunError {
    let asked = Instant::now();
    let run = order.run.clone();
    if engine.send(&Request::Leave).and_then(|()| engine.send(&Request::Stop { run })).is_ok() {
        while asked.elapsed() < GIVE_UP {
            match engine.next(GLANCE, "stopping the run over there") {
                Ok(Some(Event::Accepted { .. })) | Err(_) => break,
                Ok(_) => {}
            }
        }
    }
    RunError::Cancelled
}

impl Answers for Ssh<'_> {
    fn open(&mut self, spec: &RunSpec, _: &Cancel) -> Result<Opened, RunError> {
        let (mut engine, hello) = connect(self.data, &self.machine)?;
        let worker = engine.worker(&self.machine.packs)?;
        let pack = self.choose_pack(&worker, &spec.pack)?.digest.unwrap_or_default();
        self.engine = Some(engine);
        self.pack.clone_from(&pack);
        self.spec = Some(spec.clone());
        Ok(Opened { build: Build::of(&hello, spec), pack })
    }

    fn answer(
        &mut self,
        trials: &[&Planned],
        mut after: u64,
        cancel: &Cancel,
        take: Take,
    ) -> Result<(), RunError> {
        let Some(spec) = self.spec.clone() else { return Ok(()) };
        let order = Order {
            run: self.run.to_owned(),
            spec,
            pack: self.pack.clone(),
            packs: self.machine.packs.clone(),
            trials: trials.iter().map(|planned| planned.id().to_owned()).collect(),
        };
        let (mut wait, mut orphaned, mut known) = (BACK_OFF[0], 0, after);
        loop {
            let followed = self.follow(&order, &mut after, cancel, take);
            if after > known {
                (wait, orphaned, known) = (BACK_OFF[0], 0, after);
            }
            let line = match followed {
                Ok(Followed::ToTheEnd) => return Ok(()),
                Ok(Followed::Orphaned) if orphaned < ORPHANED => {
                    orphaned += 1;
                    text!(
                        "the run's process over there is gone; started again",
                        "那边的运行进程已经不在；已重新启动"
                    )
                }
                Ok(Followed::Orphaned) => {
                    return Err(RunError::Lost {
                        how: format!("died {ORPHANED} times without an answer"),
                        code: None,
                        doing: format!("carrying the run through on {}", self.machine.host),
                        last_words: String::new(),
                    });
                }
                Err(error @ (RunError::Lost { .. } | RunError::Ssh(SshError::Unreachable { .. }))) => {
                    self.engine = None;
                    text!(
                        "{error}; the run over there goes on; trying again in {:.0} s",
                        "连接中断，那边的运行仍在继续；{:.0} 秒后重试：{error}",
                        wait.as_secs_f64()
                    )
                }
                Err(error) => return Err(error),
            };
            take(0, Told::Notice(line))?;
            pause(wait, cancel)?;
            wait = (wait * 2).min(BACK_OFF[1]);
        }
    }
}

fn pause(wait: Duration, cancel: &Cancel) -> Result<(), RunError> {
    let began = Instant::now();
    while began.elapsed() < wait {
        if cancel.is_cancelled() {
            return Err(RunError::Cancelled);
        }
        crate::look_again_after(GLANCE.min(wait));
    }
    Ok(())
}
