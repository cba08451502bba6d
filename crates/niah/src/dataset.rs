//! The dataset generator. Source: the reference's `make_niah_dataset`; goldens `dataset/niah_dataset.json`.

use crate::python_random::PythonRandom;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

const PREFIXES: [&str; 15] = [
    "ALPHA", "BETA", "GAMMA", "DELTA", "EPSILON", "ZETA", "ETA", "THETA", "IOTA", "KAPPA", "ORCHID", "PINE",
    "MAPLE", "OAK", "BIRCH",
];
const FILLER_TAIL: &str = "and does not contain the answer.";
const QUESTION: &str = "Question: what is the secret code? Answer:";
/// The reference's short-answer variant rewrites the tail of every padding line …
const DIRECT_FILLER_TAIL: &str = "and is unrelated filler.";
/// … and asks for the bare code. Both strings are part of the format: one other byte is another dataset.
const DIRECT_INSTRUCTION: &str =
    "\n\nReturn only the secret code in PREFIX-NNNN format. Do not explain, reason, or add any other text.";
const CUE: &str = "\n\nIMPORTANT: the secret code is";
/// The needle is never among the first or last four lines, so a haystack needs at least eight.
const MARGIN: u32 = 4;

/// What a dataset is generated from; the same values give the same prompts on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Dataset {
    /// Seed of the generator.
    pub seed: i64,
    /// Number of samples. Samples come in sequence: a shorter dataset is a prefix of a longer one.
    pub n_samples: usize,
    /// Fewest padding lines of a prompt, inclusive.
    pub min_lines: u32,
    /// Most padding lines of a prompt, inclusive.
    pub max_lines: u32,
}

/// One needle prompt: what tells it from another. Its text follows from these values and is made when asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Sample {
    /// Position in the dataset, from 0.
    pub index: usize,
    /// The code to recall, `PREFIX-dddd`.
    pub answer: String,
    /// Padding lines before the needle.
    pub needle_line: u32,
    /// Padding lines in all.
    pub padding_lines: u32,
}

impl Sample {
    /// Where the needle lies, as a fraction of the padding: 0 = at the start, 1 = at the end.
    pub fn depth(&self) -> f64 {
        f64::from(self.needle_line) / f64::from(self.padding_lines)
    }

    /// The needle's own line.
    pub fn needle(&self) -> String {
        format!("IMPORTANT: the secret code is {}.", self.answer)
    }

    /// The dataset's own text, before any [`PromptVariant`].
    pub fn prompt(&self) -> String {
        let mut lines: Vec<String> = (0..self.padding_lines)
            .map(|i| format!("Note {i:04}: this paragraph is unrelated padding {FILLER_TAIL}"))
            .collect();
        lines.insert(self.needle_line.min(self.padding_lines) as usize, format!("\n{}\n", self.needle()));
        lines.push(QUESTION.to_owned());
        lines.join("\n")
    }
}

/// Bounds from which no dataset can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// A haystack too short to hide the needle in.
    #[error(
        "min_lines = {0}: a haystack needs at least 8 lines, because the needle keeps 4 lines off both ends"
    )]
    TooShort(u32),
    /// The bounds are the wrong way round.
    #[error("min_lines = {min} is above max_lines = {max}")]
    Reversed {
        /// Lower bound given.
        min: u32,
        /// Upper bound given.
        max: u32,
    },
    /// Nothing to generate.
    #[error("n_samples = 0: ask for at least one sample")]
    Empty,
    /// More lines or samples than any run can use; protects readers of hostile files.
    #[error("{what} = {value} is above the limit of {limit}")]
    TooLarge {
        /// Which bound.
        what: &'static str,
        /// Value given.
        value: u64,
        /// Largest value accepted.
        limit: u64,
    },
}

const MAX_LINES: u32 = 1_000_000;
const MAX_SAMPLES: usize = 100_000;

impl Dataset {
    /// Checks the bounds without generating anything.
    pub fn check(&self) -> Result<(), DatasetError> {
        if self.n_samples == 0 {
            return Err(DatasetError::Empty);
        }
        if self.min_lines < 2 * MARGIN {
            return Err(DatasetError::TooShort(self.min_lines));
        }
        if self.min_lines > self.max_lines {
            return Err(DatasetError::Reversed { min: self.min_lines, max: self.max_lines });
        }
        if self.max_lines > MAX_LINES {
            return Err(DatasetError::TooLarge {
                what: "max_lines",
                value: self.max_lines.into(),
                limit: MAX_LINES.into(),
            });
        }
        if self.n_samples > MAX_SAMPLES {
            return Err(DatasetError::TooLarge {
                what: "n_samples",
                value: self.n_samples as u64,
                limit: MAX_SAMPLES as u64,
            });
        }
        Ok(())
    }

    /// Generates the samples one after the other.
    pub fn samples(&self) -> Result<impl Iterator<Item = Sample>, DatasetError> {
        self.check()?;
        let (low, high) = (self.min_lines, self.max_lines);
        let mut random = PythonRandom::new(self.seed);
        Ok((0..self.n_samples).map(move |index| sample(&mut random, index, low, high)))
    }
}

/// The order of the draws is part of the format: lines, prefix, code, place of the needle.
fn sample(random: &mut PythonRandom, index: usize, low: u32, high: u32) -> Sample {
    let padding_lines = random.randint(low, high);
    let prefix = random.choice(&PREFIXES);
    let answer = format!("{prefix}-{}", random.randint(1000, 9999));
    let needle_line = random.randint(MARGIN, padding_lines - MARGIN);
    Sample { index, answer, needle_line, padding_lines }
}

/// How a dataset prompt is put to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum PromptVariant {
    /// The dataset's text as one user turn of the chat template.
    #[default]
    Legacy,
    /// Neutral filler and an instruction to answer with the bare code, as one user turn.
    DirectAnswer,
    /// The dataset's text without a chat template.
    Raw,
    /// The text without a chat template, ending in a copy cue (for base models).
    RawCue,
}

impl PromptVariant {
    /// The text that reaches the chat template (or the tokenizer, for the raw variants).
    pub fn text(self, sample: &Sample) -> String {
        let prompt = sample.prompt();
        match self {
            Self::Legacy | Self::Raw => prompt,
            Self::DirectAnswer => prompt.replace(FILLER_TAIL, DIRECT_FILLER_TAIL) + DIRECT_INSTRUCTION,
            Self::RawCue => prompt + CUE,
        }
    }

    /// The answer as it continues the text: a raw text ends in the middle of a line, an assistant's turn begins anew.
    pub fn completion(self, sample: &Sample) -> String {
        let gap = if self.is_chat() { "" } else { " " };
        format!("{gap}{}", sample.answer)
    }

    /// Whether the text is wrapped in the tokenizer's chat template.
    pub fn is_chat(self) -> bool {
        matches!(self, Self::Legacy | Self::DirectAnswer)
    }
}
