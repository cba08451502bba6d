//! Where a run happens.

use crate::plan::{Build, Planned};
use crate::{Cancel, RunError};
use evidence::Text;
use protocol::{Record, RunSpec};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use ts_rs::TS;

/// A place for runs, as it is named: `local`, `ssh:user@host`, `queue:nats://host`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
#[serde(into = "String", try_from = "String")]
#[ts(type = "string")]
pub enum Target {
    /// A child process on this machine.
    #[default]
    Local,
    /// A worker behind the system's ssh: a host, a user and host, or an alias of the user's own configuration.
    Ssh(String),
    /// Whoever takes trials from a queue.
    Queue(String),
}

/// Not the name of a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no target: write local, ssh:HOST or queue:URL")]
pub struct TargetError(String);

impl Display for Target {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Ssh(host) => write!(f, "ssh:{host}"),
            Self::Queue(url) => write!(f, "queue:{url}"),
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let wrong = || TargetError(text.to_owned());
        // ssh takes a first letter `-` for an option, and one argument is one word.
        let word =
            |rest: &str| !rest.is_empty() && !rest.starts_with('-') && !rest.contains(char::is_whitespace);
        match text.split_once(':') {
            None if text == "local" => Ok(Self::Local),
            Some(("ssh", host)) if word(host) => Ok(Self::Ssh(host.to_owned())),
            Some(("queue", url)) if word(url) => Ok(Self::Queue(url.to_owned())),
            _ => Err(wrong()),
        }
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Self, TargetError> {
        text.parse()
    }
}

/// What is known once a target is open, before its first answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Opened {
    /// The program that will answer.
    pub build: Build,
    /// Digest of the pack that it will answer with.
    pub pack: String,
}

/// What is told while trials are answered.
pub(crate) enum Told {
    /// A record, as a worker's account has it.
    Record(Record),
    /// Something that a person should read.
    Notice(Text),
}

/// A worker's account is English: it does not know who will read it.
impl From<Told> for Record {
    fn from(told: Told) -> Self {
        match told {
            Told::Record(record) => record,
            Told::Notice(line) => Self::Notice { line: line.en().to_owned() },
        }
    }
}

/// Where that goes, with the number up to which the account of a worker elsewhere has been read; 0 where there is none.
pub(crate) type Take<'a> = &'a mut dyn FnMut(u64, Told) -> Result<(), RunError>;

/// Something that answers trials.
pub(crate) trait Answers {
    /// Reaches it.
    fn open(&mut self, spec: &RunSpec, cancel: &Cancel) -> Result<Opened, RunError>;

    /// Answers every trial, in whatever order; `take` is told. Starts reading an account elsewhere after record `after`.
    fn answer(
        &mut self,
        trials: &[&Planned],
        after: u64,
        cancel: &Cancel,
        take: Take,
    ) -> Result<(), RunError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_english_in_a_workers_account() {
        let notice = evidence::text!("gone", "不在了");
        let Record::Notice { line } = Told::Notice(notice).into() else { panic!("a notice stays one") };
        assert_eq!(line, "gone");
    }

    #[test]
    fn a_target_reads_as_it_is_written() {
        for good in ["local", "ssh:box", "ssh:a@b.example:22", "queue:nats://h:4222", "queue:tls://h"] {
            assert_eq!(good.parse::<Target>().unwrap().to_string(), good);
        }
        for bad in ["", "ssh:", "ssh", "queue:", "ssh:-oProxyCommand=x", "ssh:a b", "ftp:x", "local:x"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
