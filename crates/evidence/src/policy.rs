//! The policy: every threshold that a gate decides by, and the digest that names it.

use crate::identity::Platform;
use files::FileError;
use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use ts_rs::TS;

/// The built-in policy, as text.
const BUILT_IN: &str = include_str!("policy.toml");

/// A policy is a handful of lines; whatever is longer is none.
const CAP: u64 = 1 << 20;

/// The thresholds, and where they come from.
#[derive(Clone, Debug, PartialEq, Serialize, TS, JsonSchema)]
pub struct Policy {
    /// The policy file, or `built in`.
    pub source: String,
    /// SHA-256 of its text.
    pub sha256: String,
    /// The thresholds.
    pub values: Thresholds,
}

/// The thresholds. `policy.toml` holds the same built-in values and says what each is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// How far two recalls may lie apart, percentage points, at most two decimals.
    #[serde(deserialize_with = "margin")]
    pub recall_margin_pp: f64,
    /// One-sided confidence that a pass needs.
    #[serde(deserialize_with = "confidence")]
    pub confidence: f64,
    /// What measured memory must stay below, GiB.
    #[serde(deserialize_with = "positive")]
    pub memory_limit_gib: f64,
    /// Rungs, in padding lines, that need evidence.
    #[serde(deserialize_with = "ladder")]
    pub ladder: Vec<u32>,
    /// Platforms that need it.
    #[serde(deserialize_with = "platforms")]
    pub platforms: Vec<Platform>,
    /// A restoration that never took longer restored nothing, seconds.
    #[serde(deserialize_with = "positive")]
    pub min_restoration_s: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            recall_margin_pp: 5.0,
            confidence: 0.95,
            memory_limit_gib: 24.0,
            ladder: niah::LADDER.to_vec(),
            platforms: vec![Platform::Cuda, Platform::Mac],
            min_restoration_s: 0.05,
        }
    }
}

impl Thresholds {
    /// Whether the recalls lie within the margin, decided in integers: hundredths of a percentage point against hits.
    pub fn within_margin(&self, hits: u64, oracle_hits: u64, n: u64) -> bool {
        u128::from(hits.abs_diff(oracle_hits)) * 10_000 <= hundredths(self.recall_margin_pp) * u128::from(n)
    }

    /// The margin as a fraction.
    pub(crate) fn margin(&self) -> f64 {
        self.recall_margin_pp / 100.0
    }

    /// The memory limit in bytes, rounded down.
    pub(crate) fn memory_limit_bytes(&self) -> u64 {
        (self.memory_limit_gib * (1_u64 << 30) as f64) as u64
    }
}

/// A policy that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its text is no policy.
    #[error("{path}, line {line}: {problem}", path = path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The key, what it holds, and what is allowed.
        problem: String,
    },
}

impl Policy {
    /// The built-in policy.
    pub fn built_in() -> Self {
        Self::new("built in", BUILT_IN, Thresholds::default())
    }

    /// The policy in a TOML file. Keys that it leaves out keep their built-in values.
    ///
    /// # Errors
    /// [`PolicyError`] when the file cannot be read, or holds an unknown key or a value that is not allowed.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let bytes = files::read_capped(path, CAP)?;
        let wrong = |at: usize, problem: String| PolicyError::Text {
            path: path.to_owned(),
            line: 1 + bytes.iter().take(at).filter(|byte| **byte == b'\n').count(),
            problem,
        };
        let text = std::str::from_utf8(&bytes)
            .map_err(|e| wrong(e.valid_up_to(), "the file is no UTF-8 text".to_owned()))?;
        let values = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            wrong(at, problem(text, at, e.message()))
        })?;
        Ok(Self::new(path.display().to_string(), text, values))
    }

    fn new(source: impl Into<String>, text: &str, values: Thresholds) -> Self {
        Self { source: source.into(), sha256: files::sha256(text.as_bytes()), values }
    }
}

/// The parser's words behind the key that stands in the line, unless they name it.
fn problem(text: &str, at: usize, words: &str) -> String {
    let line = text.get(..at).map_or(0, |before| before.matches('\n').count());
    let key = text.lines().nth(line).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
    let words = words.replace('\n', ", ");
    match key {
        Some(key) if !words.contains(key) => format!("{key}: {words}"),
        _ => words,
    }
}

fn hundredths(pp: f64) -> u128 {
    (pp * 100.0).round() as u128
}

/// A number, whole or not, that must lie where `holds` says.
struct Number {
    allowed: &'static str,
    holds: fn(f64) -> bool,
}

impl Visitor<'_> for Number {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.allowed)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<f64, E> {
        let number = value as f64;
        if (self.holds)(number) {
            Ok(number)
        } else {
            Err(E::invalid_value(Unexpected::Signed(value), &self))
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<f64, E> {
        if (self.holds)(value) { Ok(value) } else { Err(E::invalid_value(Unexpected::Float(value), &self)) }
    }
}

fn margin<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    from.deserialize_any(Number {
        allowed: "a number of percentage points above 0, at most 100, with at most two decimals",
        holds: |pp| pp > 0.0 && pp <= 100.0 && hundredths(pp) as f64 / 100.0 == pp,
    })
}

fn confidence<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let allowed = "a number from 0.5 up to, not including, 1";
    from.deserialize_any(Number { allowed, holds: |confidence| (0.5..1.0).contains(&confidence) })
}

fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let allowed = "a number above 0, at most 1000000";
    from.deserialize_any(Number { allowed, holds: |number| number > 0.0 && number <= 1e6 })
}

fn ladder<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    let allowed = "at least one rung is needed, each a whole number of padding lines above 0, none twice";
    let rungs = Vec::<u32>::deserialize(from).map_err(|_| D::Error::custom(allowed))?;
    let distinct: BTreeSet<u32> = rungs.iter().copied().collect();
    let fine = !rungs.is_empty() && distinct.len() == rungs.len() && !distinct.contains(&0);
    if fine { Ok(rungs) } else { Err(D::Error::custom(allowed)) }
}

fn platforms<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Platform>, D::Error> {
    let allowed = r#"at least one platform is needed, each "cuda", "mac" or "cpu", none twice"#;
    let names = Vec::<String>::deserialize(from).map_err(|_| D::Error::custom(allowed))?;
    let platform = |name: &String| match name.as_str() {
        "cuda" => Some(Platform::Cuda),
        "mac" => Some(Platform::Mac),
        "cpu" => Some(Platform::Cpu),
        _ => None,
    };
    let platforms: Option<Vec<Platform>> = names.iter().map(platform).collect();
    let distinct = |platforms: &Vec<Platform>| {
        !platforms.is_empty() && platforms.iter().collect::<BTreeSet<_>>().len() == platforms.len()
    };
    platforms.filter(distinct).ok_or_else(|| D::Error::custom(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_holds_the_built_in_thresholds() {
        let written: Thresholds = toml::from_str(BUILT_IN).unwrap();
        assert_eq!(written, Thresholds::default());
        let keys = BUILT_IN.lines().filter(|line| !line.starts_with('#') && line.contains('=')).count();
        assert_eq!(keys, 6, "every threshold is written down");
    }

    #[test]
    fn the_margin_is_decided_in_integers() {
        let five = Thresholds::default();
        assert!(five.within_margin(19, 20, 20), "exactly 5 points");
        assert!(!five.within_margin(18, 20, 20));
        assert!(five.within_margin(u64::MAX / 20, 0, u64::MAX));
        let fine = Thresholds { recall_margin_pp: 0.29, ..Thresholds::default() };
        assert!(fine.within_margin(29, 0, 10_000), "0.29·100 is 28.999… as floats");
        assert!(!fine.within_margin(30, 0, 10_000));
    }
}
