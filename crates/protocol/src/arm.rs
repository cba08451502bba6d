//! The arms of an evaluation.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use ts_rs::TS;

/// Weight of the true K/V in a mixture, in thousandths, so that its text is its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alpha(u16);

impl Alpha {
    const ONE: u16 = 1000;

    /// The weight, 0 to 1.
    pub fn weight(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ONE)
    }
}

impl fmt::Display for Alpha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.weight())
    }
}

impl FromStr for Alpha {
    type Err = ArmError;

    fn from_str(text: &str) -> Result<Self, ArmError> {
        let thousandths = text.parse::<f64>().unwrap_or(f64::NAN) * f64::from(Self::ONE);
        let whole = thousandths.round();
        if (thousandths - whole).abs() < 1e-6 && (0.0..=f64::from(Self::ONE)).contains(&whole) {
            Ok(Self(whole as u16))
        } else {
            Err(ArmError::Alpha(text.to_owned()))
        }
    }
}

/// Where a restored arm takes the K/V of evicted positions from. As text: `s5`, `f-theta`, `identity`,
/// `same-checkpoint`, `mix:0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Restore {
    /// f_θ on sliding layers; full-attention layers keep the verifier's own K/V of a clean forward.
    S5,
    /// f_θ on every layer.
    FTheta,
    /// The verifier's own K/V of a clean forward on every layer: proves the plumbing, must equal the oracle.
    Identity,
    /// The verifier as its own drafter, without f_θ: the reference's arrangement before it had a drafter. The same
    /// arithmetic as identity; the forward counts as the drafter's.
    SameCheckpoint,
    /// On every layer α of the verifier's own K/V and 1 − α of f_θ's, before norm and rotation.
    Mix(Alpha),
}

impl Restore {
    /// The modes in which f_θ alone fills some layers, so that a control can take its place.
    pub const PROJECTED: [Self; 2] = [Self::S5, Self::FTheta];

    /// Whether the drafter and f_θ must be there.
    pub fn needs_projection(self) -> bool {
        matches!(self, Self::S5 | Self::FTheta | Self::Mix(_))
    }
}

impl fmt::Display for Restore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S5 => f.write_str("s5"),
            Self::FTheta => f.write_str("f-theta"),
            Self::Identity => f.write_str("identity"),
            Self::SameCheckpoint => f.write_str("same-checkpoint"),
            Self::Mix(alpha) => write!(f, "mix:{alpha}"),
        }
    }
}

impl FromStr for Restore {
    type Err = ArmError;

    fn from_str(text: &str) -> Result<Self, ArmError> {
        match text {
            "s5" => Ok(Self::S5),
            "f-theta" => Ok(Self::FTheta),
            "identity" => Ok(Self::Identity),
            "same-checkpoint" => Ok(Self::SameCheckpoint),
            _ => match text.strip_prefix("mix:") {
                Some(alpha) => alpha.parse().map(Self::Mix),
                None => Err(ArmError::Mode(text.to_owned())),
            },
        }
    }
}

/// One way of answering a prompt. As text: `oracle`, `sink-window`, `restored:MODE`, `no-restoration:MODE`,
/// `random:MODE`; see [`Restore`] for the modes.
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
    /// Control: where f_θ would act in that mode, evicted positions are hidden from every later one.
    NoRestoration(Restore),
    /// Control: where f_θ would act in that mode, noise with the mean and norm of f_θ's own output.
    Random(Restore),
}

impl Arm {
    /// Every arm but mixtures, of which there is one for each weight; in the order in which a report shows them.
    pub const ALL: [Self; 10] = [
        Self::Oracle,
        Self::SinkWindow,
        Self::Restored(Restore::S5),
        Self::Restored(Restore::FTheta),
        Self::Restored(Restore::Identity),
        Self::Restored(Restore::SameCheckpoint),
        Self::NoRestoration(Restore::S5),
        Self::NoRestoration(Restore::FTheta),
        Self::Random(Restore::S5),
        Self::Random(Restore::FTheta),
    ];

    /// Whether evicted positions are restored; controls are not.
    pub fn is_restored(self) -> bool {
        matches!(self, Self::Restored(_))
    }

    /// How evicted positions are filled, by restoration or by a control in its place.
    pub fn mode(self) -> Option<Restore> {
        match self {
            Self::Oracle | Self::SinkWindow => None,
            Self::Restored(mode) | Self::NoRestoration(mode) | Self::Random(mode) => Some(mode),
        }
    }

    /// Whether the drafter and f_θ must be there: noise takes its mean and norm from f_θ's output.
    pub fn needs_projection(self) -> bool {
        match self {
            Self::Restored(mode) | Self::Random(mode) => mode.needs_projection(),
            Self::Oracle | Self::SinkWindow | Self::NoRestoration(_) => false,
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oracle => f.write_str("oracle"),
            Self::SinkWindow => f.write_str("sink-window"),
            Self::Restored(mode) => write!(f, "restored:{mode}"),
            Self::NoRestoration(mode) => write!(f, "no-restoration:{mode}"),
            Self::Random(mode) => write!(f, "random:{mode}"),
        }
    }
}

/// A word that names no arm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArmError {
    /// Not an arm at all.
    #[error(
        "{0:?} is no arm: use oracle, sink-window, restored:MODE, no-restoration:MODE or random:MODE, where MODE is \
         s5, f-theta, identity, same-checkpoint or mix:A"
    )]
    Arm(String),
    /// A mode that does not exist.
    #[error("{0:?} is no way to restore: use s5, f-theta, identity, same-checkpoint or mix:A")]
    Mode(String),
    /// A weight that is none.
    #[error("{0:?} is no weight of a mixture: use 0 to 1 with at most three decimals")]
    Alpha(String),
    /// A control of a mode in which f_θ does not act alone on any layer.
    #[error("{0} has no control, because f_θ fills no layer alone there: use s5 or f-theta")]
    NoControl(Restore),
}

impl FromStr for Arm {
    type Err = ArmError;

    fn from_str(text: &str) -> Result<Self, ArmError> {
        let control = |mode: &str| match mode.parse()? {
            mode if Restore::PROJECTED.contains(&mode) => Ok(mode),
            mode => Err(ArmError::NoControl(mode)),
        };
        match text.split_once(':') {
            None if text == "oracle" => Ok(Self::Oracle),
            None if text == "sink-window" => Ok(Self::SinkWindow),
            Some(("restored", mode)) => mode.parse().map(Self::Restored),
            Some(("no-restoration", mode)) => control(mode).map(Self::NoRestoration),
            Some(("random", mode)) => control(mode).map(Self::Random),
            _ => Err(ArmError::Arm(text.to_owned())),
        }
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
