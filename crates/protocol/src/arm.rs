//! The arms of an evaluation.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use ts_rs::TS;

/// Where a restored arm takes the K/V of evicted positions from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Restore {
    /// f_θ on sliding layers; full-attention layers keep the verifier's own K/V of a clean forward.
    S5,
    /// f_θ on every layer.
    FTheta,
    /// The verifier's own K/V of a clean forward on every layer: proves the plumbing, must equal the oracle.
    Identity,
}

/// One way of answering a prompt. As text: `oracle`, `sink-window`, `restored:s5`, `restored:f-theta`,
/// `restored:identity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
#[serde(into = "String", try_from = "String")]
#[ts(as = "String")]
pub enum Arm {
    /// The verifier with its whole native memory.
    Oracle,
    /// The verifier that sees only sink and window, nothing restored.
    SinkWindow,
    /// Evicted positions restored.
    Restored(Restore),
}

impl Arm {
    /// Every arm, in the order in which a report shows them.
    pub const ALL: [Self; 5] = [
        Self::Oracle,
        Self::SinkWindow,
        Self::Restored(Restore::S5),
        Self::Restored(Restore::FTheta),
        Self::Restored(Restore::Identity),
    ];

    /// Whether K/V are injected at evicted positions.
    pub fn is_restored(self) -> bool {
        matches!(self, Self::Restored(_))
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Oracle => "oracle",
            Self::SinkWindow => "sink-window",
            Self::Restored(Restore::S5) => "restored:s5",
            Self::Restored(Restore::FTheta) => "restored:f-theta",
            Self::Restored(Restore::Identity) => "restored:identity",
        })
    }
}

/// A word that names no arm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no arm: use oracle, sink-window, restored:s5, restored:f-theta or restored:identity")]
pub struct ArmError(String);

impl FromStr for Arm {
    type Err = ArmError;

    fn from_str(text: &str) -> Result<Self, ArmError> {
        Self::ALL.into_iter().find(|arm| arm.to_string() == text).ok_or_else(|| ArmError(text.to_owned()))
    }
}

impl TryFrom<String> for Arm {
    type Error = ArmError;

    fn try_from(text: String) -> Result<Self, ArmError> {
        text.parse()
    }
}

impl From<Arm> for String {
    fn from(arm: Arm) -> Self {
        arm.to_string()
    }
}
