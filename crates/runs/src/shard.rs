//! A part of a run: every n-th sample, with all its arms.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use ts_rs::TS;

/// Part `index` of `of`, counted from 1; written `2/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
#[serde(into = "String", try_from = "String")]
#[ts(type = "string")]
pub struct Shard {
    index: usize,
    of: usize,
}

/// Not the name of a part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no shard: write i/n with 1 ≤ i ≤ n, for example 2/8")]
pub struct ShardError(String);

impl Shard {
    /// Part `index` of `of`, from 1.
    pub fn new(index: usize, of: usize) -> Result<Self, ShardError> {
        match (1..=of).contains(&index) {
            true => Ok(Self { index, of }),
            false => Err(ShardError(format!("{index}/{of}"))),
        }
    }

    /// Number of parts.
    pub fn of(self) -> usize {
        self.of
    }

    /// Whether the sample of that index belongs to it.
    pub fn holds(self, sample: usize) -> bool {
        sample % self.of == self.index - 1
    }

    /// How many of `samples` belong to it.
    pub fn share(self, samples: usize) -> usize {
        (0..samples).filter(|sample| self.holds(*sample)).count()
    }
}

impl Display for Shard {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        parts.and_then(|(index, of)| Self::new(index, of).ok()).ok_or_else(|| ShardError(text.to_owned()))
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> Self {
        shard.to_string()
    }
}

impl TryFrom<String> for Shard {
    type Error = ShardError;

    fn try_from(text: String) -> Result<Self, ShardError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_named_by_two_numbers() {
        for good in ["1/1", "2/8", "8/8"] {
            assert_eq!(good.parse::<Shard>().unwrap().to_string(), good);
        }
        for bad in ["", "0/8", "9/8", "1", "1/0", "a/b", "1/2/3"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }
}
