//! The connection to a NATS server, and what travels over it.

use crate::RunError;
use crate::plan::Build;
use async_nats::jetstream::consumer::pull::{self, OrderedConfig};
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Subscriber};
use futures_util::StreamExt;
use protocol::{Arm, Hello, LoadedPack, Trial, TrialResult};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Display;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How often a trial is handed out before it is given up.
pub(crate) const DELIVERIES: usize = 5;
/// A worker that does not say within this time that it goes on has lost its trial.
pub(crate) const ACK_WAIT: Duration = Duration::from_secs(30);
/// The server knows ids of messages again for this long.
const REMEMBERED: Duration = Duration::from_hours(24);
/// Answers stay on the server for this long; by then they are in a journal.
const KEPT: Duration = Duration::from_hours(24 * 30);
/// A server that does not answer within this time is not there.
const PATIENCE: Duration = Duration::from_secs(10);
const CONTEXT_CAP: u64 = 1 << 20;

const TRIALS: &str = "KAKEYA_TRIALS";
const RESULTS: &str = "KAKEYA_RESULTS";
const ADVISORIES: &str = "KAKEYA_ADVISORIES";

/// Trials that one kind of worker can answer.
pub(crate) fn kind(build: &Build, pack: &str) -> String {
    let protocol = protocol::VERSION;
    let all = json!({ "protocol": protocol, "build": build, "pack": pack }).to_string();
    files::sha256(all.as_bytes())[..16].to_owned()
}

pub(crate) fn trials(kind: &str, run: &str) -> String {
    format!("kakeya.trials.{kind}.{run}")
}

pub(crate) fn results(run: &str) -> String {
    format!("kakeya.results.{run}")
}

pub(crate) fn dead(run: &str) -> String {
    format!("kakeya.dead.{run}")
}

pub(crate) fn live(run: &str) -> String {
    format!("kakeya.live.{run}")
}

/// A trial on the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ticket {
    pub run: String,
    pub trial: Trial,
    pub build: Build,
    pub pack: String,
    /// Arms of the whole run, so that a missing part of the pack is found before the first trial.
    pub arms: Vec<Arm>,
}

/// An answered trial, and who answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub id: String,
    pub build: Build,
    pub result: Box<TrialResult>,
    /// SHA-256 of the result as JSON.
    pub sha256: String,
    pub hello: Box<Hello>,
    pub loaded: Box<LoadedPack>,
}

impl Answer {
    pub(crate) fn digest(result: &TrialResult) -> String {
        files::sha256(json!(result).to_string().as_bytes())
    }

    pub(crate) fn is_whole(&self) -> bool {
        Self::digest(&self.result) == self.sha256 && self.result.id == self.id
    }
}

/// In a [`Dead`] letter: every trial of the run.
pub(crate) const ALL: &str = "*";

/// A trial that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dead {
    pub id: String,
    pub reason: String,
}

/// What the server says when a message was handed out as often as it may be.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Advisory {
    pub stream_seq: u64,
}

pub(crate) type Messages = pull::Ordered;

/// A connection with its streams.
pub(crate) struct Link {
    url: String,
    runtime: Runtime,
    client: Client,
    context: Context,
}

impl Link {
    /// Connects and makes the streams that are not there. `url` is an address, or the name of a context of the `nats` tool.
    pub(crate) fn open(url: &str) -> Result<Self, RunError> {
        let wrong = |reason: String| RunError::Queue { url: url.to_owned(), reason };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|e| wrong(e.to_string()))?;
        let (address, options) = runtime.block_on(options(url)).map_err(&wrong)?;
        let client = runtime.block_on(options.connection_timeout(PATIENCE).connect(&address));
        let client = client.map_err(|e| wrong(e.to_string()))?;
        let context = {
            // It starts a task of its own.
            let _inside = runtime.enter();
            jetstream::new(client.clone())
        };
        let link = Self { url: url.to_owned(), runtime, client, context };
        let streams = [
            (TRIALS, vec!["kakeya.trials.*.*".to_owned()], RetentionPolicy::WorkQueue, Duration::ZERO),
            (RESULTS, vec![results("*"), dead("*")], RetentionPolicy::Limits, KEPT),
            (
                ADVISORIES,
                vec![format!("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{TRIALS}.*")],
                RetentionPolicy::Limits,
                KEPT,
            ),
        ];
        for (name, subjects, retention, max_age) in streams {
            link.run(link.context.get_or_create_stream(Config {
                name: name.into(),
                subjects,
                retention,
                max_age,
                storage: StorageType::File,
                duplicate_window: REMEMBERED.min(if max_age.is_zero() { REMEMBERED } else { max_age }),
                ..Config::default()
            }))?;
        }
        Ok(link)
    }

    pub(crate) fn wrong(&self, error: &dyn Display) -> RunError {
        RunError::Queue { url: self.url.clone(), reason: error.to_string() }
    }

    /// Waits for an answer of the server. One that is restarting is asked again until it is back or patience ends.
    pub(crate) fn run<T, E: Display>(
        &self,
        work: impl IntoFuture<Output = Result<T, E>>,
    ) -> Result<T, RunError> {
        self.runtime.block_on(async { work.await }).map_err(|e| self.wrong(&e))
    }

    /// Waits so long for something.
    pub(crate) fn wait<T>(&self, patience: Duration, work: impl Future<Output = T>) -> Option<T> {
        self.runtime.block_on(async { tokio::time::timeout(patience, work).await.ok() })
    }

    /// Publishes tickets under their ids, and waits until the server has written them all.
    pub(crate) fn publish_all(&self, subject: &str, tickets: Vec<(String, Ticket)>) -> Result<(), RunError> {
        let mut written = Vec::new();
        for (id, ticket) in tickets {
            let message = PublishMessage::build().message_id(id).payload(json!(ticket).to_string().into());
            written.push(self.run(self.context.send_publish(subject.to_owned(), message))?);
        }
        written.into_iter().try_for_each(|ack| self.run(ack).map(drop))
    }

    /// Publishes under an id, and waits until the server has written it.
    pub(crate) fn publish(&self, subject: &str, id: String, body: &impl Serialize) -> Result<(), RunError> {
        let message = PublishMessage::build().message_id(id).payload(json!(body).to_string().into());
        let ack = self.run(self.context.send_publish(subject.to_owned(), message))?;
        self.run(ack).map(drop)
    }

    /// Tells whoever listens now.
    pub(crate) fn tell(&self, subject: &str, body: &impl Serialize) {
        // Nobody depends on it.
        let _ =
            self.runtime.block_on(self.client.publish(subject.to_owned(), json!(body).to_string().into()));
    }

    pub(crate) fn listen(&self, subject: &str) -> Result<Subscriber, RunError> {
        self.run(self.client.subscribe(subject.to_owned()))
    }

    /// Everything of a subject after a sequence number, and what comes.
    pub(crate) fn read(&self, subject: &str, after: u64) -> Result<Messages, RunError> {
        self.read_stream(
            RESULTS,
            subject.to_owned(),
            DeliverPolicy::ByStartSequence { start_sequence: after + 1 },
        )
    }

    /// Every message that was handed out too often, and what comes.
    pub(crate) fn advisories(&self) -> Result<Messages, RunError> {
        self.read_stream(ADVISORIES, String::new(), DeliverPolicy::All)
    }

    fn read_stream(
        &self,
        stream: &str,
        filter_subject: String,
        deliver_policy: DeliverPolicy,
    ) -> Result<Messages, RunError> {
        let config = OrderedConfig { filter_subject, deliver_policy, ..OrderedConfig::default() };
        let consumer: Consumer<OrderedConfig> =
            self.run(self.context.create_consumer_on_stream(config, stream))?;
        self.run(consumer.messages())
    }

    /// What was given up of a run until now.
    pub(crate) fn dead_letters(&self, run: &str) -> Result<Vec<Dead>, RunError> {
        let subject = dead(run);
        let stream = self.run(self.context.get_stream_no_info(RESULTS))?;
        let mut letters = Vec::new();
        let mut next = 1;
        loop {
            let found = stream.raw_message_builder().sequence(next).next_by_subject(subject.clone()).send();
            let Ok(message) = self.runtime.block_on(found) else { return Ok(letters) };
            next = message.sequence + 1;
            letters.extend(serde_json::from_slice(&message.payload).ok());
        }
    }

    /// Gives a trial up that was handed out too often without anybody saying why: its workers died over it.
    pub(crate) fn bury(&self, run: &str, kind: &str, advisory: &Advisory) -> Result<(), RunError> {
        let stream = self.run(self.context.get_stream_no_info(TRIALS))?;
        let found = self.runtime.block_on(stream.get_raw_message(advisory.stream_seq));
        // Somebody else has dealt with it.
        let Ok(message) = found else { return Ok(()) };
        if message.subject.as_str() != trials(kind, run) {
            return Ok(());
        }
        let Ok(ticket) = serde_json::from_slice::<Ticket>(&message.payload) else { return Ok(()) };
        let id = ticket.trial.id;
        let reason = format!("handed out {DELIVERIES} times, and every worker died or fell silent over it");
        self.publish(&dead(run), format!("{run}.{id}.dead.{}", advisory.stream_seq), &Dead { id, reason })?;
        self.run(stream.delete_message(advisory.stream_seq)).map(drop)
    }

    /// Takes a run's trials off the queue. A letter says so first: the server would take the same ids for repetitions.
    pub(crate) fn withdraw(&self, kind: &str, run: &str) -> Result<(), RunError> {
        let letter = Dead { id: ALL.into(), reason: "withdrawn by its run".into() };
        let moment = jiff::Timestamp::now().as_nanosecond();
        self.publish(&dead(run), format!("{run}.withdrawn.{moment}"), &letter)?;
        let stream = self.run(self.context.get_stream_no_info(TRIALS))?;
        self.run(stream.purge().filter(trials(kind, run))).map(drop)
    }

    /// Whether a worker of that kind waits or works.
    pub(crate) fn is_anybody_there(&self, kind: &str) -> Result<bool, RunError> {
        let stream = self.run(self.context.get_stream_no_info(TRIALS))?;
        let info = self.runtime.block_on(stream.consumer_info(kind));
        Ok(info.is_ok_and(|info| info.num_waiting > 0 || info.num_ack_pending > 0))
    }

    /// The common consumer of all workers of a kind.
    pub(crate) fn consumer(&self, kind: &str) -> Result<Consumer<pull::Config>, RunError> {
        let config = pull::Config {
            durable_name: Some(kind.to_owned()),
            filter_subject: trials(kind, "*"),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            max_deliver: i64::try_from(DELIVERIES).unwrap_or(i64::MAX),
            max_ack_pending: 100_000,
            ..pull::Config::default()
        };
        self.run(self.context.create_consumer_on_stream(config, TRIALS))
    }

    /// At most so many messages; waits for the first one only as long as said.
    pub(crate) fn fetch(
        &self,
        consumer: &Consumer<pull::Config>,
        most: usize,
        patience: Duration,
    ) -> Result<Vec<jetstream::Message>, RunError> {
        self.runtime.block_on(async {
            let fetched = consumer.batch().max_messages(most).expires(patience).messages().await;
            let mut batch = fetched.map_err(|e| self.wrong(&e))?;
            let mut messages = Vec::new();
            // What has arrived is worked on at once; the server keeps what was not sent.
            while let Some(message) = batch.next().await {
                messages.push(message.map_err(|e| self.wrong(&e))?);
                if messages.len() == most {
                    break;
                }
            }
            Ok(messages)
        })
    }
}

/// A context of the `nats` tool: what of it is used here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NatsContext {
    url: String,
    creds: String,
    nkey: String,
    user: String,
    password: String,
    token: String,
    cert: String,
    key: String,
    ca: String,
}

/// The address and how to log in there.
async fn options(url: &str) -> Result<(String, ConnectOptions), String> {
    let plain = ConnectOptions::new().name("kakeya-gate");
    if url.contains("://") {
        let encrypted = url.starts_with("tls://");
        return Ok((url.to_owned(), plain.require_tls(encrypted)));
    }
    let path =
        context_file(url).ok_or("no folder for configuration is known; give an address, nats://HOST")?;
    let told = |e: &dyn Display| format!("the context {}: {e}", path.display());
    let bytes = files::read_regular(&path, CONTEXT_CAP).map_err(|e| told(&e))?;
    let context: NatsContext = serde_json::from_slice(&bytes).map_err(|e| told(&e))?;
    let mut options = plain;
    if !context.ca.is_empty() {
        options = options.add_root_certificates(home(&context.ca));
    }
    if !context.cert.is_empty() {
        options = options.add_client_certificate(home(&context.cert), home(&context.key));
    }
    if !context.creds.is_empty() {
        options = options.credentials_file(home(&context.creds)).await.map_err(|e| told(&e))?;
    } else if !context.nkey.is_empty() {
        let seed = files::read_regular(&home(&context.nkey), CONTEXT_CAP).map_err(|e| told(&e))?;
        options = options.nkey(String::from_utf8_lossy(&seed).trim().to_owned());
    } else if !context.token.is_empty() {
        options = options.token(context.token);
    } else if !context.user.is_empty() {
        options = options.user_and_password(context.user, context.password);
    }
    let encrypted = context.url.starts_with("tls://");
    Ok((context.url, options.require_tls(encrypted)))
}

fn context_file(name: &str) -> Option<PathBuf> {
    let set = std::env::var_os("XDG_CONFIG_HOME").filter(|set| !set.is_empty()).map(PathBuf::from);
    let folder = set.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")))?;
    // A name, never a path.
    let name = Path::new(name).file_name()?.to_str()?;
    Some(folder.join("nats/context").join(format!("{name}.json")))
}

/// `~/…` as the tool writes it.
fn home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    }
}
