//! Regenerated prompts of files, or of a dataset that nothing has run yet.

use crate::{ErrorReport, error};
use evidence::{Audit, Grid, MarkedPrompt, NeedlePrompt, shown_path};
use niah::{Dataset, PromptVariant, Sample};
use serde::Serialize;
use std::collections::BTreeSet;

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
            error::report("no-arm", format!("no file holds an arm {arm}"), &format!("choose among {names}"))
        }
        None => no_needles(),
    })
}

fn no_needles() -> ErrorReport {
    let message = "none of the files holds needle evidence whose prompts can be regenerated";
    error::report("no-needles", message, "give a file of a needle run, or a seed and a rung")
}

/// The prompts of a dataset.
pub fn prompts_of_dataset(dataset: &Dataset, choice: PromptChoice) -> Result<PromptsView, ErrorReport> {
    let samples: Vec<Sample> = dataset
        .samples()
        .map_err(|e| error::report("dataset", e, "give a rung or bounds from which a dataset can be made"))?
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

fn marked(
    samples: &[Sample],
    variant: PromptVariant,
    index: Option<usize>,
) -> Result<Option<MarkedPrompt>, ErrorReport> {
    let Some(index) = index else { return Ok(None) };
    let sample = samples.get(index).ok_or_else(|| {
        let message =
            format!("there is no sample {index}: the dataset has {}, counted from 0", samples.len());
        error::report("no-sample", message, "choose an index from the list")
    })?;
    Ok(Some(MarkedPrompt::new(sample, variant)))
}
