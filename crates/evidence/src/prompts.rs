//! Regenerated prompts: what was asked, what should be answered, how deep the needle lies.

use crate::model::Niah;
use niah::{PromptVariant, Sample};
use schemars::JsonSchema;
use serde::Serialize;
use ts_rs::TS;

/// Where the token fraction comes from, in words.
pub const TOKEN_DEPTH: &str = "an estimate, nothing was tokenised: tokens per padding line × needle line ÷ prompt tokens, with \
                               tokens per line fitted to the recorded prompt lengths";

/// One prompt of a dataset, without its text.
#[derive(Clone, Debug, PartialEq, Serialize, TS, JsonSchema)]
pub struct NeedlePrompt {
    /// Position in the dataset, from 0.
    pub index: usize,
    /// The code to recall.
    pub answer: String,
    /// Padding lines.
    pub padding_lines: u32,
    /// Padding lines before the needle.
    pub needle_line: u32,
    /// Depth as a fraction of the padding lines.
    pub line_depth: f64,
    /// Depth as a fraction of the prompt's tokens, estimated ([`TOKEN_DEPTH`]); null without recorded prompt lengths.
    pub token_depth: Option<f64>,
}

impl NeedlePrompt {
    /// The prompt of a sample. `tokens` are the dataset's tokens per padding line and the prompt's own length.
    pub fn new(sample: &Sample, tokens: Option<(i64, u64)>) -> Self {
        let estimate = |(per_line, prompt): (i64, u64)| {
            let depth = per_line as f64 * f64::from(sample.needle_line) / prompt as f64;
            (0.0..=1.0).contains(&depth).then_some(depth)
        };
        Self {
            index: sample.index,
            answer: sample.answer.clone(),
            padding_lines: sample.padding_lines,
            needle_line: sample.needle_line,
            line_depth: sample.depth(),
            token_depth: tokens.and_then(estimate),
        }
    }
}

impl Niah {
    /// The regenerated prompts; none when no dataset can be made from the recorded bounds.
    pub fn prompts(&self) -> Vec<NeedlePrompt> {
        let per_line = self.prompt_fit.as_ref().and_then(|fit| fit.tokens_per_line);
        let tokens = |at: usize| per_line.zip(self.prompt_lens.get(at).copied());
        self.samples.iter().enumerate().map(|(at, sample)| NeedlePrompt::new(sample, tokens(at))).collect()
    }

    /// How the prompts were put: as recorded, else as their lengths tell, else as the dataset has them.
    pub fn prompt_variant(&self) -> PromptVariant {
        let recorded = self.provenance.as_ref().map(|provenance| provenance.dataset.prompt_variant);
        let fitted = self.prompt_fit.as_ref().map(|fit| fit.variant);
        recorded.unwrap_or(match fitted {
            Some("direct_answer_18tok") => PromptVariant::DirectAnswer,
            _ => PromptVariant::Legacy,
        })
    }
}

/// A whole prompt, cut at its needle: the three parts in a row are the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MarkedPrompt {
    /// Text before the needle.
    pub before: String,
    /// The needle's own line.
    pub needle: String,
    /// Text after it.
    pub after: String,
}

impl MarkedPrompt {
    /// The text of a sample, before any chat template.
    pub fn new(sample: &Sample, variant: PromptVariant) -> Self {
        let text = variant.text(sample);
        let at = text.find(&sample.needle()).unwrap_or(text.len());
        let (before, rest) = text.split_at(at);
        let (needle, after) = rest.split_at(sample.needle().len().min(rest.len()));
        Self { before: before.to_owned(), needle: needle.to_owned(), after: after.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niah::Rung;

    fn sample() -> Sample {
        Rung(20).dataset(42, 3).samples().unwrap().nth(2).unwrap()
    }

    #[test]
    fn the_parts_of_a_marked_prompt_are_the_prompt() {
        use PromptVariant::{DirectAnswer, Legacy, Raw, RawCue};
        for variant in [Legacy, DirectAnswer, Raw, RawCue] {
            let (sample, marked) = (sample(), MarkedPrompt::new(&sample(), variant));
            assert_eq!(format!("{}{}{}", marked.before, marked.needle, marked.after), variant.text(&sample));
            assert_eq!(marked.needle, format!("IMPORTANT: the secret code is {}.", sample.answer));
            assert_eq!(marked.before.matches("Note ").count(), sample.needle_line as usize);
        }
    }

    #[test]
    fn token_depth_follows_from_lengths_and_is_null_when_they_make_no_sense() {
        let sample = sample();
        let depth = |tokens| NeedlePrompt::new(&sample, tokens).token_depth;
        let lines = u64::from(sample.padding_lines);
        let near = depth(Some((20, 20 * lines + 60))).unwrap();
        assert!(near < sample.depth() && near > 0.8 * sample.depth(), "{near}");
        assert_eq!(
            [depth(None), depth(Some((20, 0))), depth(Some((-20, 500))), depth(Some((900, 5)))],
            [None; 4]
        );
    }
}
