//! From a document to the one model of needle evidence.

use crate::json::{At, integer, median, round, whole};
use crate::labels::memory_label;
use crate::model::{
    Acceptance, Arm, ArmAttention, ArmFidelity, CURRENT, DRIVER, MemoryFigure, MemoryKind, Niah, NiahKind,
    PEAK, PromptFit, Provenance, Restoration, Row, Settings, ThroughputFigure, TimeScope,
};
use crate::recompute::analytic;
use crate::stats::{clopper_pearson, wilson};
use niah::{Dataset, Rung, Sample, Score};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The samples of these bounds; None when no dataset can be made from them.
fn samples(n: u64, min_lines: Option<u64>, max_lines: Option<u64>, seed: Option<i64>) -> Option<Vec<Sample>> {
    let dataset = Dataset {
        seed: seed?,
        n_samples: usize::try_from(n).ok()?,
        min_lines: u32::try_from(min_lines?).ok()?,
        max_lines: u32::try_from(max_lines?).ok()?,
    };
    Some(dataset.samples().ok()?.collect())
}

/// The needle evidence in a file; None for other kinds and for files that do not say how many samples they hold.
pub(crate) fn niah(value: &Value) -> Option<Niah> {
    let kind = NiahKind::of(value.text("/kind")?)?;
    let n = value.whole("/config/n_samples")?;
    let seed = value.at("/config/seed").and_then(integer);
    let (min_lines, max_lines) =
        (value.whole("/config/haystack_min_lines"), value.whole("/config/haystack_max_lines"));
    let samples = samples(n, min_lines, max_lines, seed).unwrap_or_default();
    let prompt_lens = prompt_lens(value, kind);
    let text = |pointers: &[&str]| pointers.iter().find_map(|pointer| value.text(pointer)).map(str::to_owned);
    let provenance: Option<Provenance> =
        value.at("/provenance").and_then(|block| serde_json::from_value(block.clone()).ok());
    let bound = |lines: Option<u64>| u32::try_from(lines?).ok();
    let ladder_rung =
        bound(min_lines).zip(bound(max_lines)).and_then(|(low, high)| Some(Rung::of_bounds(low, high)?.0));
    let arms = arms(value, kind, n, &samples);
    let lens = prompt_lens.as_deref();
    Some(Niah {
        kind,
        n,
        seed,
        min_lines,
        max_lines,
        rung: ladder_rung.or_else(|| provenance.as_ref().and_then(|provenance| provenance.dataset.rung)),
        sink: value.whole("/config/sink_size"),
        window: value.whole("/config/window_size"),
        max_new_tokens: value.whole("/config/max_new_tokens"),
        verifier: text(&["/config/model", "/config/verifier_id", "/config/verifier_path"]),
        drafter: text(&["/config/drafter_id"]),
        f_theta: text(&["/config/f_theta_dir"]),
        s5: value.is_on("/config/s5_exact_full_attn"),
        identity: value.is_on("/config/identity_restore"),
        settings: Settings {
            dtype: text(&["/config/dtype"]).unwrap_or_default(),
            attention: text(&["/config/attn_impl"]),
            codec: value.is_on("/kl/kl_on") || value.is_on("/config/compress_full_attn"),
            stateful: value.is_on("/stateful"),
            warmup: value.whole("/config/decode_warmup_tokens"),
        },
        decode: text(match kind {
            NiahKind::CrossModelMac => &["/config/eval_mode", "/config/decode"],
            _ => &["/config/decode"],
        })
        .unwrap_or_else(|| "re-forward".to_owned()),
        prompt_tokens_min: lens
            .and_then(|lens| lens.iter().copied().min())
            .or_else(|| value.whole("/config/prompt_token_len_min")),
        prompt_tokens_max: lens
            .and_then(|lens| lens.iter().copied().max())
            .or_else(|| value.whole("/config/prompt_token_len_max")),
        prompt_fit: prompt_fit(value, lens, &samples),
        prompt_lens: prompt_lens.unwrap_or_default(),
        memory: memory(value, kind),
        throughput: throughput(value, kind, &arms),
        arms,
        restoration: own_block(value, "/restoration", |entry, key| Restoration { key, ..entry }),
        fidelity: own_block(value, "/fidelity", |entry, key| ArmFidelity { key, ..entry }),
        attention: own_block(value, "/attention_mass", |entry, key| ArmAttention { key, ..entry }),
        provenance,
        samples,
    })
}

/// Kinds that hold an acceptance run.
pub(crate) const DFLASH: [&str; 2] =
    ["k3_dflash_specdecode_acceptance", "k3_dflash_specdecode_acceptance_mac"];

/// The acceptance run in a file of one of these kinds.
pub(crate) fn acceptance(value: &Value, shape: &str) -> Option<Acceptance> {
    let prompts = value.list("/per_prompt").filter(|_| DFLASH.contains(&shape))?;
    let texts: Option<Vec<String>> =
        prompts.iter().map(|prompt| prompt.text("/prompt").map(str::to_owned)).collect();
    Some(Acceptance {
        block_size: value.whole("/config/block_size"),
        num_steps: value.whole("/config/num_steps"),
        max_new_tokens: value.whole("/config/max_new_tokens"),
        prompts: texts.unwrap_or_default(),
    })
}

/// Prompt lengths as stored, in tokens; None when they are not recorded.
pub(crate) fn prompt_lens(value: &Value, kind: NiahKind) -> Option<Vec<u64>> {
    if let Some(lens) = value.list("/config/prompt_token_lens") {
        return lens.iter().map(whole).collect();
    }
    let rows = value.list(&format!("/attention_window/per_config/{}/per_sample", kind.sut()))?;
    rows.iter().map(|row| row.whole("/seq_len")).collect()
}

/// Longer prompts than this exist in no evidence; hostile lengths must not overflow the fit.
const LONGEST_PROMPT: u64 = 1 << 40;

/// RULES §5, `prompt_fingerprint`: the slope of prompt length over line count, and what is left.
fn prompt_fit(value: &Value, lens: Option<&[u64]>, samples: &[Sample]) -> Option<PromptFit> {
    let bound = |key: &str| value.whole(key).filter(|len| *len < LONGEST_PROMPT).map(|len| len as i64);
    let lens = lens.filter(|lens| lens.iter().all(|len| *len < LONGEST_PROMPT));
    let lines: Vec<i64> = samples.iter().map(|sample| i64::from(sample.padding_lines)).collect();
    let (shortest, longest) = (lines.iter().min().copied()?, lines.iter().max().copied()?);
    let slope = |tokens: i64, lines: i64| round(tokens as f64 / lines as f64, 0) as i64;
    let (tokens_per_line, overhead) = match lens {
        Some(lens) => {
            let pairs: Vec<(i64, i64)> =
                lens.iter().map(|len| *len as i64).zip(lines.iter().copied()).collect();
            let (first_len, first_lines) = *pairs.first()?;
            if pairs.iter().all(|(_, l)| *l == first_lines) {
                let fits = |s: &i64| (25..=75).contains(&(first_len - s * first_lines));
                let fitting: Vec<i64> = [20, 18].into_iter().filter(fits).collect();
                let shown = fitting.first().copied().unwrap_or(20);
                let left = first_len - shown * first_lines;
                (if fitting.len() == 1 { Some(shown) } else { None }, [left, left])
            } else {
                let at = |wanted: i64| pairs.iter().find(|(_, l)| *l == wanted);
                let (longest_len, _) = at(pairs.iter().map(|(_, l)| *l).max()?)?;
                let (shortest_len, _) = at(pairs.iter().map(|(_, l)| *l).min()?)?;
                let span = pairs.iter().map(|(_, l)| *l).max()? - pairs.iter().map(|(_, l)| *l).min()?;
                let s = slope(longest_len - shortest_len, span);
                let left = |(len, l): &(i64, i64)| len - s * l;
                (Some(s), [pairs.iter().map(left).min()?, pairs.iter().map(left).max()?])
            }
        }
        None => {
            let low = bound("/config/prompt_token_len_min")?;
            let high = bound("/config/prompt_token_len_max")?;
            if longest == shortest {
                return None;
            }
            let s = slope(high - low, longest - shortest);
            (Some(s), [low - s * shortest, high - s * longest])
        }
    };
    let variant = match tokens_per_line {
        Some(18) => "direct_answer_18tok",
        Some(20) => "legacy_20tok",
        _ => "unknown",
    };
    Some(PromptFit { tokens_per_line, overhead, variant })
}

fn arms(value: &Value, kind: NiahKind, n: u64, samples: &[Sample]) -> Vec<Arm> {
    let Some(results) = value.at("/results").and_then(Value::as_object) else { return Vec::new() };
    results
        .iter()
        .filter(|(_, arm)| arm.is_object())
        .map(|(key, block)| {
            let rows = stage_rows(value, stage_block(kind, key));
            let first: Vec<f64> = rows.iter().filter_map(|row| row.number("/first_token_s")).collect();
            Arm {
                decode_tok_s: median(&decode_rates(block, rows)),
                prefill_tok_s: median(&prefill_rates(rows)),
                first_token_s: median(&first),
                ..arm(key, block, n, samples)
            }
        })
        .collect()
}

fn arm(key: &str, block: &Value, n: u64, samples: &[Sample]) -> Arm {
    let list = |pointer: &str| block.list(pointer).unwrap_or_default();
    let (texts, flags) = (list("/per_sample_decoded"), list("/per_sample_correct"));
    let tokens = list("/per_sample_decode_tokens");
    let rates = block.numbers("/per_sample_throughput_tokens_per_sec").filter(|rates| !rates.is_empty());
    let rows: Vec<Row> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let text = text.as_str().unwrap_or_default().to_owned();
            let sample = samples.get(index);
            let answer = sample.map_or_else(String::new, |sample| sample.answer.clone());
            let score = Score::of(&text, &answer);
            Row {
                index,
                depth: sample.map(Sample::depth),
                hit: score.strict,
                hit_ignoring_case: score.ignoring_case,
                stored_hit: flags.get(index).and_then(Value::as_bool),
                tokens: tokens.get(index).and_then(whole),
                rate: rates.as_ref().and_then(|rates| rates.get(index).copied()),
                answer,
                text,
            }
        })
        .collect();
    let hits = rows.iter().filter(|row| row.hit).count() as u64;
    let mean = |rates: &Vec<f64>| rates.iter().sum::<f64>() / rates.len() as f64;
    Arm {
        key: key.to_owned(),
        n,
        hits,
        hits_ignoring_case: rows.iter().filter(|row| row.hit_ignoring_case).count() as u64,
        recall: if n == 0 { 0.0 } else { hits as f64 / n as f64 },
        interval: clopper_pearson(hits.min(n), n, 0.05),
        wilson: wilson(hits.min(n), n),
        mean_tok_s: rates.as_ref().map(mean),
        median_tok_s: rates.as_deref().and_then(median),
        decode_tok_s: None,
        prefill_tok_s: None,
        first_token_s: None,
        mean_latency_s: block.number("/mean_latency_s"),
        rates: rates.unwrap_or_default(),
        tokens: block.numbers("/per_sample_decode_tokens").unwrap_or_default(),
        rows,
    }
}

fn memory(value: &Value, kind: NiahKind) -> Vec<MemoryFigure> {
    let base = if kind == NiahKind::SameCheckpoint { "/memory/per_config" } else { "/memory" };
    let mut figures = Vec::new();
    let Some(blocks) = value.at(base).and_then(Value::as_object) else { return figures };
    for (arm, block) in blocks {
        let mut push = |label: &str, bytes: Option<u64>, kind| {
            figures.extend(bytes.map(|bytes| MemoryFigure {
                arm: arm.clone(),
                label: memory_label(label),
                bytes,
                kind,
            }));
        };
        push(PEAK, block.whole("/peak_allocated_bytes"), MemoryKind::AllocatorPeak);
        push(DRIVER, block.whole("/driver_allocated_bytes"), MemoryKind::DeviceSampled);
        push(CURRENT, block.whole("/current_allocated_bytes"), MemoryKind::DeviceSampled);
        for figure in block.list("/figures").unwrap_or_default() {
            let kind = figure.at("/kind").and_then(|kind| serde_json::from_value(kind.clone()).ok());
            if let (Some(label), Some(kind)) = (figure.text("/label"), kind) {
                push(label, figure.whole("/bytes"), kind);
            }
        }
    }
    let mut of_sut = |label: &str, bytes: Option<f64>, figure_kind| {
        figures.extend(bytes.filter(|bytes| *bytes >= 0.0).map(|bytes| MemoryFigure {
            arm: kind.sut().to_owned(),
            label: memory_label(label),
            bytes: bytes.round() as u64,
            kind: figure_kind,
        }));
    };
    of_sut("resident K/V", value.number("/memory/s5/total_resident_bytes"), MemoryKind::Formula);
    let table = analytic(value);
    let native = table.as_ref().map(|table| table.native);
    of_sut("K/V of the native cache", native, MemoryKind::Formula);
    of_sut("K/V of an unbounded cache", table.map(|table| table.naive), MemoryKind::Formula);
    of_sut(PEAK, value.number("/memory/measured_peak_mb").map(|mb| mb * 1e6), MemoryKind::AllocatorPeak);
    figures
}

/// Name of an arm's block of stage timings.
fn stage_block(kind: NiahKind, arm: &str) -> &str {
    if kind == NiahKind::CrossModelMac && arm == "oracle" { "oracle_native_ar" } else { arm }
}

/// Rows of stage timings: under `/throughput/BLOCK` on the Mac, under `/stage_timings/ARM` in our own files.
pub(crate) fn stage_rows<'a>(value: &'a Value, block: &str) -> &'a [Value] {
    let mac = value.list(&format!("/throughput/{block}/stage_timings"));
    mac.or_else(|| value.list(&format!("/stage_timings/{block}"))).unwrap_or_default()
}

/// Tokens over decode seconds, sample by sample, where both are positive (RULES §5).
pub(crate) fn decode_rates(arm: &Value, rows: &[Value]) -> Vec<f64> {
    let tokens = arm.list("/per_sample_decode_tokens").unwrap_or_default();
    rows.iter()
        .zip(tokens)
        .filter_map(|(row, tokens)| Some((row.number("/decode_s")?, tokens.as_f64()?)))
        .filter(|(seconds, tokens)| *seconds > 0.0 && *tokens > 0.0)
        .map(|(seconds, tokens)| tokens / seconds)
        .collect()
}

/// Prompt tokens over prefill seconds, sample by sample, where both are stated and positive.
fn prefill_rates(rows: &[Value]) -> Vec<f64> {
    rows.iter()
        .filter_map(|row| Some((row.number("/prompt_tokens")?, row.number("/prefill_s")?)))
        .filter(|(tokens, seconds)| *tokens > 0.0 && *seconds > 0.0)
        .map(|(tokens, seconds)| tokens / seconds)
        .collect()
}

fn throughput(value: &Value, kind: NiahKind, arms: &[Arm]) -> Vec<ThroughputFigure> {
    let incremental =
        value.at("/stage_timings").is_some() && value.text("/config/decode") != Some("reforward");
    let row_scope = if incremental { TimeScope::EndToEnd } else { TimeScope::Reforward };
    let figures = arms.iter().flat_map(|arm| {
        let block = value.at("/throughput").and_then(|blocks| blocks.get(stage_block(kind, &arm.key)));
        let whole = match block {
            Some(block) => block.number("/tokens_per_second").map(|rate| (rate, wall_scope(block))),
            None => arm.mean_tok_s.map(|rate| (rate, row_scope)),
        };
        let decode = arm.decode_tok_s.map(|rate| (rate, TimeScope::DecodeOnly));
        let figure = |(tok_s, scope)| ThroughputFigure { arm: arm.key.clone(), tok_s, scope };
        [whole.map(figure), decode.map(figure)]
    });
    figures.flatten().collect()
}

/// What a block's `wall_seconds` cover: as stated, else as its rows add up.
fn wall_scope(block: &Value) -> TimeScope {
    let sum = |key: &str| -> Option<f64> {
        block.list("/stage_timings")?.iter().map(|row| row.number(key)).sum::<Option<f64>>()
    };
    let adds_up = |key: &str| {
        sum(key).zip(block.number("/wall_seconds")).is_some_and(|(sum, wall)| (sum - wall).abs() <= 0.02)
    };
    if block.text("/timing_scope") == Some("e2e_prefill_plus_decode") || adds_up("/e2e_s") {
        TimeScope::EndToEnd
    } else if adds_up("/decode_s") {
        TimeScope::DecodeOnly
    } else {
        TimeScope::Unstated
    }
}

/// The readable entries of one of our own blocks, which has one an arm.
fn own_block<T: DeserializeOwned>(value: &Value, pointer: &str, keyed: impl Fn(T, String) -> T) -> Vec<T> {
    let Some(blocks) = value.at(pointer).and_then(Value::as_object) else { return Vec::new() };
    let parsed = |(key, block): (&String, &Value)| {
        serde_json::from_value(block.clone()).ok().map(|entry| keyed(entry, key.clone()))
    };
    blocks.iter().filter_map(parsed).collect()
}
