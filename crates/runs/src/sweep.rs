//! The α sweep of one rung: recall against the error that is left when true K/V are mixed into f_θ's.
//!
//! The reference's kind `k3_s6_fidelity_recall_sweep` (same keys, same meaning), plus what it lacks: the samples behind the
//! error, the texts behind the recall, the oracle.

use crate::Target;
use crate::assemble::{RunFacts, RungResults, part_id, provenance, suffix};
use niah::{Rung, Sample, Score};
use protocol::{Alpha, Arm, LayerError, LayerKind, Restore, TrialResult};
use serde_json::{Value, json};

/// As the reference names it, with our rung and Unix second.
pub(crate) fn file_name(rung: Rung, ended: jiff::Timestamp, target: &Target) -> String {
    format!("k3_s6_fidelity_recall_sweep_ctx{}_{}{}.json", rung.0, ended.as_second(), suffix(target))
}

/// The document; none without mixtures.
pub(crate) fn document(facts: &RunFacts, results: &RungResults) -> Option<Value> {
    let mut mixtures: Vec<(Alpha, &[TrialResult])> = results.arms.iter().filter_map(mixture).collect();
    mixtures.sort_by_key(|(alpha, _)| *alpha);
    let (_, trials) = mixtures.first()?;
    let errors: Vec<&[LayerError]> =
        trials.iter().filter_map(|trial| trial.projection_error.as_deref()).collect();
    let all = relative(&errors, |_| true);
    let full = relative(&errors, |layer| kind(facts, layer) == Some(LayerKind::Full));
    let row = |(alpha, trials): &(Alpha, &[TrialResult])| {
        let left = (1.0 - alpha.weight()).powi(2);
        let mut row = recall(&results.samples, trials);
        row["alpha"] = json!(alpha.weight());
        row["eff_rel_mse_overall"] = json!(all.map(|error| left * error));
        row["eff_rel_mse_full_attn"] = json!(full.map(|error| left * error));
        row
    };
    let oracle = results.arms.iter().find(|(arm, _)| *arm == Arm::Oracle);
    let spec = facts.order.spec;
    Some(json!({
        "schema_version": 1,
        "kind": "k3_s6_fidelity_recall_sweep",
        "config": {
            "f_theta_dir": facts.pack().f_theta.as_ref().map(|path| part_id(facts, path)),
            "n_samples": spec.n_samples,
            "sink_size": spec.sink,
            "window_size": spec.window,
            "max_new_tokens": spec.max_new_tokens,
            "haystack_min_lines": results.dataset.min_lines,
            "haystack_max_lines": results.dataset.max_lines,
            "seed": spec.seed,
            "prompt_token_lens": trials.iter().map(|trial| trial.prompt_tokens).collect::<Vec<_>>(),
            "prompt_variant": spec.prompt,
            "decode": spec.decode,
            "device": spec.device,
        },
        "f_theta_baseline_rel_mse": {
            "overall": all,
            "full_attn": full,
            "samples": errors.len(),
            "definition": "squared error of f_theta's raw K and V against the captured ones at the evicted positions of \
                           the prompt, over the captured ones' squared norm; summed over samples, layers, K and V",
            "per_layer": layers(facts, &errors),
        },
        "sweep": mixtures.iter().map(row).collect::<Vec<_>>(),
        "oracle": oracle.map(|(_, trials)| recall(&results.samples, trials)),
        "provenance": provenance(facts, results),
    }))
}

fn mixture((arm, trials): &(Arm, Vec<TrialResult>)) -> Option<(Alpha, &[TrialResult])> {
    match arm {
        Arm::Restored(Restore::Mix(alpha)) => Some((*alpha, trials)),
        _ => None,
    }
}

fn kind(facts: &RunFacts, layer: usize) -> Option<LayerKind> {
    facts.pack().layers.get(layer).map(|layer| layer.kind)
}

/// Squared error over squared norm of the layers that are `wanted`; none where there is nothing to divide by.
fn relative(samples: &[&[LayerError]], wanted: impl Fn(usize) -> bool) -> Option<f64> {
    let sum = |value: fn(&LayerError) -> f64| {
        samples.iter().copied().flatten().filter(|error| wanted(error.layer)).map(value).sum::<f64>()
    };
    let norm = sum(|error| error.squared_norm);
    (norm > 0.0).then(|| sum(|error| error.squared_error) / norm)
}

fn layers(facts: &RunFacts, samples: &[&[LayerError]]) -> Value {
    let first = samples.first().copied().unwrap_or_default();
    let row = |error: &LayerError| {
        let layer = error.layer;
        json!({ "layer": layer, "kind": kind(facts, layer), "rel_mse": relative(samples, |other| other == layer) })
    };
    first.iter().map(row).collect()
}

fn recall(samples: &[Sample], trials: &[TrialResult]) -> Value {
    let hit = |(trial, sample): (&TrialResult, &Sample)| Score::of(&trial.text, &sample.answer).strict;
    let correct: Vec<bool> = trials.iter().zip(samples).map(hit).collect();
    let hits = correct.iter().filter(|hit| **hit).count();
    json!({
        "recall": hits as f64 / trials.len() as f64,
        "samples_correct": hits,
        "samples_total": trials.len(),
        "per_sample_decoded": trials.iter().map(|trial| trial.text.as_str()).collect::<Vec<_>>(),
        "per_sample_correct": correct,
    })
}
