//! Regenerated prompts of files, or of a dataset that nothing has run yet.

use crate::{ErrorCode, ErrorReport};
use evidence::{Audit, Grid, MarkedPrompt, NeedlePrompt, shown_path};
use niah::{Dataset, PromptVariant, Sample};
use serde::Serialize;
use std::collections::BTreeSet;
use ts_rs::TS;

/// Prompts of files or of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptsView {
    /// How `token_depth` comes about, in words.
    pub token_depth: &'static str,
    /// One set for each file, or the one of the dataset.
    pub sets: Vec<PromptSet>,
}

/// The prompts of one dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptSet {
    /// The file; null for a dataset that was asked for by its seed.
    pub path: Option<String>,
    /// Seed.
    pub seed: i64,
    /// Fewest and most padding lines.
    pub lines: [u64; 2],
    /// How the prompts are put.
    pub prompt_variant: PromptVariant,
    /// Prompt by prompt.
    pub prompts: Vec<NeedlePrompt>,
    /// The whole text of the sample that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<MarkedPrompt>,
}

/// What is shown beside the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptChoice {
    /// How to put the prompts (default: as the file says).
    pub variant: Option<PromptVariant>,
    /// The sample whose text is shown.
    pub sample: Option<usize>,
}

fn view(sets: Vec<PromptSet>) -> PromptsView {
    PromptsView { token_depth: evidence::TOKEN_DEPTH, sets }
}

/// The prompts of every needle file among the audited ones; none at all is an error.
pub fn prompts_of_files(audits: &[Audit], choice: PromptChoice) -> Result<PromptsView, ErrorReport> {
    let sets = audits.iter().filter_map(|audit| {
        let niah = audit.niah.as_ref().filter(|niah| !niah.samples.is_empty())?;
        let (seed, lines) = niah.seed.zip(niah.lines())?;
        let variant = choice.variant.unwrap_or_else(|| niah.prompt_variant());
        let set = |sample| PromptSet {
            path: Some(shown_path(&audit.path)),
            seed,
            lines,
            prompt_variant: variant,
            prompts: niah.prompts(),
            sample,
        };
        Some(marked(&niah.samples, variant, choice.sample).map(set))
    });
    let sets: Vec<PromptSet> = sets.collect::<Result<_, _>>()?;
    if sets.is_empty() { Err(no_needles()) } else { Ok(view(sets)) }
}

/// Recall by needle depth and length over the needle files among the audited ones, of one arm or of all; nothing to count is
/// an error.
pub fn grid(audits: &[Audit], arm: Option<&str>) -> Result<Grid, ErrorReport> {
    let grid = evidence::grid(audits, arm);
    if !grid.rows.is_empty() {
        return Ok(grid);
    }
    let arms = audits.iter().filter_map(|audit| audit.niah.as_ref()).flat_map(|niah| &niah.arms);
    let arms: BTreeSet<&str> = arms.map(|arm| arm.key.as_str()).collect();
    Err(match arm.filter(|_| !arms.is_empty()) {
        Some(arm) => {
            let names = arms.into_iter().collect::<Vec<_>>().join(", ");
            let message = format!("no file holds an arm {arm}; there are {names}");
            ErrorReport::new(ErrorCode::NoArm, message, "choose one of these")
        }
        None => no_needles(),
    })
}

fn no_needles() -> ErrorReport {
    let message = "none of the files holds needle evidence whose prompts can be regenerated";
    ErrorReport::new(ErrorCode::NoNeedles, message, "give a file of a needle run, or a seed and a rung")
}

/// The prompts of a dataset.
pub fn prompts_of_dataset(dataset: &Dataset, choice: PromptChoice) -> Result<PromptsView, ErrorReport> {
    let samples: Vec<Sample> = dataset
        .samples()
        .map_err(|e| {
            ErrorReport::new(ErrorCode::Dataset, e, "give a rung or bounds from which a dataset can be made")
        })?
        .collect();
    let variant = choice.variant.unwrap_or_default();
    Ok(view(vec![PromptSet {
        path: None,
        seed: dataset.seed,
        lines: [dataset.min_lines.into(), dataset.max_lines.into()],
        prompt_variant: variant,
        prompts: samples.iter().map(|sample| NeedlePrompt::new(sample, None)).collect(),
        sample: marked(&samples, variant, choice.sample)?,
    }]))
}

/// What a bounded cache does with a part of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum Zone {
    /// Kept: the first positions.
    Sink,
    /// Not kept, and restored where an arm restores.
    Evicted,
    /// Kept: the last positions.
    Window,
    /// The file does not say how long the prompt was, or how much is kept.
    Unknown,
}

/// A stretch of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct PromptPart {
    /// The text.
    pub text: String,
    /// What a bounded cache does with it.
    pub zone: Zone,
    /// Whether it is the needle.
    pub needle: bool,
}

/// A regenerated prompt, before any chat template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct PromptView {
    /// Sample, from 0.
    pub index: usize,
    /// How the prompt is put.
    pub variant: PromptVariant,
    /// Its length as recorded, tokens, template included.
    pub tokens: Option<u64>,
    /// Positions that are kept at the start, and at the end.
    pub kept: [Option<u64>; 2],
    /// The text, in parts. Where the zones meet is an estimate: nothing was tokenised, tokens count as equally long.
    pub parts: Vec<PromptPart>,
}

/// The prompt of a sample of a needle file.
pub(crate) fn prompt(audit: &Audit, index: usize) -> Result<PromptView, ErrorReport> {
    let niah = audit.niah.as_ref().filter(|niah| !niah.samples.is_empty()).ok_or_else(no_needles)?;
    let variant = niah.prompt_variant();
    let tokens = niah.prompt_lens.get(index).copied();
    let Some(marked) = marked(&niah.samples, variant, Some(index))? else { return Err(no_needles()) };
    let length = marked.before.len() + marked.needle.len() + marked.after.len();
    let zones = Zones::new(length, tokens, niah.sink.zip(niah.window));
    let mut parts = Vec::new();
    let mut at = 0;
    for (text, needle) in [(&marked.before, false), (&marked.needle, true), (&marked.after, false)] {
        parts.extend(zones.cut(at, text).map(|(text, zone)| PromptPart { text, zone, needle }));
        at += text.len();
    }
    Ok(PromptView { index, variant, tokens, kept: [niah.sink, niah.window], parts })
}

/// Bytes of the text at which the sink ends and the window begins; None where that is not known.
struct Zones(Option<[usize; 2]>);

impl Zones {
    fn new(length: usize, tokens: Option<u64>, kept: Option<(u64, u64)>) -> Self {
        let bytes = |positions: u64, tokens: u64| {
            (positions.min(tokens) as f64 / tokens.max(1) as f64 * length as f64).round() as usize
        };
        let ends = |(tokens, (sink, window))| {
            let sink = bytes(sink, tokens);
            [sink, length.saturating_sub(bytes(window, tokens)).max(sink)]
        };
        Self(tokens.zip(kept).map(ends))
    }

    /// The stretches of a text that begins at this byte of the prompt, each with its zone.
    fn cut<'a>(&self, start: usize, text: &'a str) -> impl Iterator<Item = (String, Zone)> + 'a {
        let [sink, window] = self.0.unwrap_or([start; 2]).map(|end| {
            let mut at = end.saturating_sub(start).min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        });
        let zones =
            if self.0.is_some() { [Zone::Sink, Zone::Evicted, Zone::Window] } else { [Zone::Unknown; 3] };
        let texts = [&text[..sink], &text[sink..window], &text[window..]];
        let stretches = texts.into_iter().zip(zones).filter(|(text, _)| !text.is_empty());
        stretches.map(|(text, zone)| (text.to_owned(), zone))
    }
}

fn marked(
    samples: &[Sample],
    variant: PromptVariant,
    index: Option<usize>,
) -> Result<Option<MarkedPrompt>, ErrorReport> {
    let Some(index) = index else { return Ok(None) };
    let sample = samples.get(index).ok_or_else(|| {
        let message =
            format!("there is no sample {index}: the dataset has {}, counted from 0", samples.len());
        ErrorReport::new(ErrorCode::NoSample, message, "choose an index from the list")
    })?;
    Ok(Some(MarkedPrompt::new(sample, variant)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_meet_where_positions_say_and_lose_nothing() {
        let zones = Zones::new(100, Some(50), Some((4, 10)));
        let text = "é".repeat(50);
        let cut: Vec<(String, Zone)> = zones.cut(0, &text).collect();
        let lengths: Vec<(usize, Zone)> = cut.iter().map(|(text, zone)| (text.len(), *zone)).collect();
        assert_eq!(lengths, [(8, Zone::Sink), (72, Zone::Evicted), (20, Zone::Window)]);
        let middle: Vec<(String, Zone)> = zones.cut(40, "needle").collect();
        assert_eq!(middle, [("needle".to_owned(), Zone::Evicted)]);
    }

    #[test]
    fn a_prompt_that_is_kept_whole_has_nothing_evicted() {
        let zones = Zones::new(10, Some(5), Some((4, 64)));
        let cut: Vec<Zone> = zones.cut(0, "0123456789").map(|(_, zone)| zone).collect();
        assert_eq!(cut, [Zone::Sink, Zone::Window]);
        let unknown: Vec<Zone> =
            Zones::new(10, None, Some((4, 64))).cut(0, "0123456789").map(|(_, z)| z).collect();
        assert_eq!(unknown, [Zone::Unknown]);
    }
}
