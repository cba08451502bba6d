//! Rules on every arm, and on the prompts (RULES §1.1, §1.2).

use super::Case;
use crate::Finding;
use crate::json::{At, eq, eq6, median, round};
use crate::model::Arm;
use crate::normalise;
use crate::{Text, text};
use serde_json::{Value, json};

pub(super) fn rules(case: &Case, out: &mut Vec<Finding>) {
    for arm in &case.niah.arms {
        array_lengths(case, arm, out);
        flags(arm, out);
        recall_values(case, arm, out);
        case_sensitive(arm, out);
        overmatch(arm, out);
        throughput(case, arm, out);
        latency(case, arm, out);
    }
    attention_windows(case, out);
    prompt_lengths(case, out);
    degenerate_texts(case, out);
    tautology(case, out);
}

fn array_lengths(case: &Case, arm: &Arm, out: &mut Vec<Finding>) {
    let block = case.result(&arm.key);
    let len = |pointer| block.list(pointer).map(|list| list.len() as u64);
    let (decoded, correct) = (len("/per_sample_decoded"), len("/per_sample_correct"));
    let n = case.niah.n;
    if [decoded, correct].into_iter().flatten().any(|len| len != n) {
        let shown = |len: Option<u64>| len.map_or_else(|| text!("no", "无"), Text::same);
        let (texts, marks) = (shown(decoded), shown(correct));
        let message = text!(
            language => "{} holds {} texts and {} flags for {n} samples",
            "{}：文本 {}，标志 {}，样本 {n}",
            arm.key,
            texts.said(language),
            marks.said(language)
        );
        let data = json!({ "arm": arm.key, "decoded": decoded, "correct": correct, "n": n });
        out.push(Finding::new("ARRAY_LEN_MISMATCH", format!("/results/{}", arm.key), message, data));
    }
}

fn prompt_lengths(case: &Case, out: &mut Vec<Finding>) {
    let Some(lens) = normalise::prompt_lens(case.value, case.niah.kind) else { return };
    let (got, n) = (lens.len() as u64, case.niah.n);
    if got != n {
        let message = text!("{got} prompt lengths for {n} samples", "{n} 个样本却有 {got} 个提示词长度");
        let data = json!({ "field": "prompt_token_lens", "got": got, "n": n });
        out.push(Finding::new("ARRAY_LEN_MISMATCH", "/config/prompt_token_lens", message, data));
    }
}

fn flags(arm: &Arm, out: &mut Vec<Finding>) {
    let wrong: Vec<usize> = arm
        .rows
        .iter()
        .filter(|row| !row.answer.is_empty() && row.stored_hit.is_some_and(|stored| stored != row.hit))
        .map(|row| row.index)
        .collect();
    if let Some(first) = wrong.first() {
        let message = text!(
            "{}: the stored flags of samples {wrong:?} contradict their texts",
            "{}：样本 {wrong:?} 存储的标志与其文本矛盾",
            arm.key
        );
        let pointer = format!("/results/{}/per_sample_correct/{first}", arm.key);
        out.push(Finding::new(
            "RECALL_FLAG_MISMATCH",
            pointer,
            message,
            json!({ "arm": arm.key, "samples": wrong }),
        ));
    }
}

fn recall_values(case: &Case, arm: &Arm, out: &mut Vec<Finding>) {
    if case.niah.samples.is_empty() {
        return;
    }
    let block = case.result(&arm.key);
    let wrong_count = [
        ("/samples_correct", arm.hits),
        ("/samples_correct_ignoring_case", arm.hits_ignoring_case),
        ("/samples_total", case.niah.n),
    ]
    .into_iter()
    .any(|(key, count)| block.number(key).is_some_and(|stored| stored != count as f64));
    let claimed = block.number("/recall");
    if wrong_count || claimed.is_some_and(|claimed| !eq(claimed, arm.recall)) {
        let stored = claimed.map_or_else(
            || text!("no recall", "没有召回率"),
            |claimed| text!("recall {claimed}", "召回率 {claimed}"),
        );
        let message = text!(
            language => "{} stores {}; its texts give {}/{} = {}",
            "{} 存储的是：{}；由文本得出 {}/{} = {}",
            arm.key,
            stored.said(language),
            arm.hits,
            arm.n,
            arm.recall
        );
        let data = json!({ "arm": arm.key, "claimed": claimed, "recomputed": arm.recall });
        out.push(Finding::new(
            "RECALL_VALUE_MISMATCH",
            format!("/results/{}/recall", arm.key),
            message,
            data,
        ));
    }
}

fn alnum(text: &str) -> String {
    text.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect()
}

fn case_sensitive(arm: &Arm, out: &mut Vec<Finding>) {
    let misses = || arm.rows.iter().filter(|row| !row.hit && !row.answer.is_empty());
    let case_extra: Vec<usize> = misses().filter(|row| row.hit_ignoring_case).map(|row| row.index).collect();
    let format_extra: Vec<usize> =
        misses().filter(|row| alnum(&row.text).contains(&alnum(&row.answer))).map(|row| row.index).collect();
    let digits_extra: Vec<usize> = misses()
        .filter(|row| row.answer.rsplit('-').next().is_some_and(|digits| row.text.contains(digits)))
        .map(|row| row.index)
        .collect();
    if case_extra.is_empty() && format_extra.is_empty() {
        return;
    }
    let share = |extra: usize| (arm.hits + extra as u64) as f64 / arm.n as f64;
    let message = text!(
        "{}: {}/{} strictly, {}/{} when case is ignored",
        "{}：严格规则命中 {}/{}，忽略大小写命中 {}/{}",
        arm.key,
        arm.hits,
        arm.n,
        arm.hits_ignoring_case,
        arm.n
    );
    let data = json!({
        "arm": arm.key,
        "case_insensitive_extra": case_extra,
        "format_insensitive_extra": format_extra,
        "digits_only_extra": digits_extra,
        "recall_strict": arm.recall,
        "recall_case_insensitive": share(case_extra.len()),
        "recall_format_insensitive": share(format_extra.len()),
    });
    out.push(Finding::new("CASE_SENSITIVE_MISS", format!("/results/{}", arm.key), message, data));
}

/// The answer only stands there followed by another digit.
fn overmatch(arm: &Arm, out: &mut Vec<Finding>) {
    let only_longer = |text: &str, answer: &str| {
        let mut ends =
            text.match_indices(answer).map(|(at, found)| text[at + found.len()..].chars().next()).peekable();
        ends.peek().is_some() && ends.all(|next| next.is_some_and(|c| c.is_ascii_digit()))
    };
    let samples: Vec<usize> = arm
        .rows
        .iter()
        .filter(|row| !row.answer.is_empty() && only_longer(&row.text, &row.answer))
        .map(|row| row.index)
        .collect();
    if !samples.is_empty() {
        let message = text!(
            "{}: in samples {samples:?} the code only begins a longer number",
            "{}：样本 {samples:?} 中代号只是更长数字的开头",
            arm.key
        );
        let data = json!({ "arm": arm.key, "samples": samples });
        out.push(Finding::new("SUBSTRING_OVERMATCH", format!("/results/{}", arm.key), message, data));
    }
}

fn rates(block: &Value) -> Option<Vec<f64>> {
    block.numbers("/per_sample_throughput_tokens_per_sec").filter(|rates| !rates.is_empty())
}

fn throughput(case: &Case, arm: &Arm, out: &mut Vec<Finding>) {
    let block = case.result(&arm.key);
    let Some(rates) = rates(block) else { return };
    let differs = |key: &str, want: f64| block.number(key).is_some_and(|stored| !eq(stored, want));
    let unequal = |key: &str, want: Option<f64>| {
        block.number(key).zip(want).is_some_and(|(stored, want)| stored != want)
    };
    let wrong = differs("/mean_throughput_tokens_per_sec", rates.iter().sum::<f64>() / case.niah.n as f64)
        || median(&rates).is_some_and(|want| differs("/median_throughput_tokens_per_sec", want))
        || unequal("/min_throughput_tokens_per_sec", rates.iter().copied().reduce(f64::min))
        || unequal("/max_throughput_tokens_per_sec", rates.iter().copied().reduce(f64::max));
    if wrong {
        let message = text!(
            "{}: mean, median, least or largest rate does not follow from the samples' rates",
            "{}：速率的平均值、中位数、最小值或最大值与各样本的速率不符",
            arm.key
        );
        let pointer = format!("/results/{}/mean_throughput_tokens_per_sec", arm.key);
        out.push(Finding::new("THROUGHPUT_STAT_MISMATCH", pointer, message, json!({ "arm": arm.key })));
    }
}

fn latency(case: &Case, arm: &Arm, out: &mut Vec<Finding>) {
    let block = case.result(&arm.key);
    let Some(rates) = rates(block) else { return };
    if let Some(tokens) = block.numbers("/per_sample_decode_tokens") {
        let seconds: Vec<f64> =
            tokens.iter().zip(&rates).map(|(t, rate)| if *rate == 0.0 { 0.0 } else { t / rate }).collect();
        let mean = seconds.iter().sum::<f64>() / case.niah.n as f64;
        let claimed = block.number("/mean_latency_s");
        let median_differs = block
            .number("/median_latency_s")
            .zip(median(&seconds))
            .is_some_and(|(stored, want)| !eq6(stored, want));
        if claimed.is_some_and(|claimed| !eq6(mean, claimed)) || median_differs {
            let message = text!(
                "{}: stored latencies do not follow from tokens and rates (mean {mean:.3} s)",
                "{}：存储的延迟与词元数和速率不符（平均 {mean:.3} 秒）",
                arm.key
            );
            let data = json!({ "arm": arm.key, "recomputed_mean": mean, "claimed_mean": claimed });
            let pointer = format!("/results/{}/mean_latency_s", arm.key);
            out.push(Finding::new("LATENCY_STAT_MISMATCH", pointer, message, data));
        }
    }
    latency_spread(arm, &rates, out);
}

fn latency_spread(arm: &Arm, rates: &[f64], out: &mut Vec<Finding>) {
    let (low, high) =
        rates.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), r| (low.min(*r), high.max(*r)));
    if low <= 0.0 {
        return;
    }
    let ratio = round(high / low, 2);
    if ratio > 3.0 {
        let message = text!(
            "{}: the fastest sample ran {ratio}× as fast as the slowest",
            "{}：最快样本的速度是最慢样本的 {ratio} 倍",
            arm.key
        );
        let data = json!({
            "arm": arm.key,
            "ratio": ratio,
            "mean_tok_s": arm.mean_tok_s.map(|rate| round(rate, 4)),
            "median_tok_s": arm.median_tok_s.map(|rate| round(rate, 4)),
        });
        let pointer = format!("/results/{}/per_sample_throughput_tokens_per_sec", arm.key);
        out.push(Finding::new("LATENCY_SPREAD", pointer, message, data));
    }
}

fn attention_windows(case: &Case, out: &mut Vec<Finding>) {
    let blocks = case.value.at("/attention_window/per_config").and_then(Value::as_object);
    for (arm, block) in blocks.into_iter().flatten() {
        if wrong_mean(block) || wrong_rows(case, arm, block) {
            let message = text!(
                "{arm}: the attention window's mean or rows do not follow from the prompt lengths",
                "{arm}：注意力窗口的平均值或各行与提示词长度不符"
            );
            let pointer = format!("/attention_window/per_config/{arm}");
            out.push(Finding::new("ATTN_WINDOW_MISMATCH", pointer, message, json!({ "arm": arm })));
        }
    }
}

const KEYS: &str = "/effective_keys_at_last_query";

fn wrong_mean(block: &Value) -> bool {
    let rows = block.list("/per_sample").unwrap_or_default();
    let sum: Option<f64> = rows.iter().map(|row| row.number(KEYS)).sum();
    let mean = sum.filter(|_| !rows.is_empty()).map(|sum| sum / rows.len() as f64);
    let stored = block.number("/effective_keys_at_last_query_mean");
    mean.zip(stored).is_some_and(|(mean, stored)| !eq(mean, stored))
}

/// The baseline reaches sink and window, every other arm the whole prompt.
fn wrong_rows(case: &Case, arm: &str, block: &Value) -> bool {
    let reach = match arm {
        "v03_sink_window" => case.niah.sink.zip(case.niah.window).map(|(s, w)| s.saturating_add(w) as f64),
        _ => Some(f64::INFINITY),
    };
    let wrong = |row: &Value, reach: f64| {
        let (keys, len) = (row.number(KEYS), row.number("/seq_len"));
        keys.zip(len).is_some_and(|(keys, len)| keys != len.min(reach))
    };
    let rows = block.list("/per_sample").unwrap_or_default();
    reach.is_some_and(|reach| rows.iter().any(|row| wrong(row, reach)))
}

fn tautology(case: &Case, out: &mut Vec<Finding>) {
    let pointer =
        format!("/attention_window/per_config/{}/effective_attention_fraction_mean", case.niah.kind.sut());
    if case.value.number(&pointer) == Some(1.0) {
        let message = text!(
            "the attention fraction of the arm under test is 1.0: a length divided by itself",
            "受测实验臂的注意力比例为 1.0：一个长度除以它自己"
        );
        out.push(Finding::new("ARCH_GATE_TAUTOLOGY", pointer, message, json!({ "value": 1.0 })));
    }
}

fn degenerate_texts(case: &Case, out: &mut Vec<Finding>) {
    let Some(arm) = case.niah.sut() else { return };
    let samples: Vec<usize> =
        arm.rows.iter().filter(|row| degenerate(&row.text)).map(|row| row.index).collect();
    if let Some(first) = samples.first() {
        let message = text!(
            "{}: samples {samples:?} end in one repeated phrase",
            "{}：样本 {samples:?} 以同一短语反复结尾",
            arm.key
        );
        let pointer = format!("/results/{}/per_sample_decoded/{first}", arm.key);
        out.push(Finding::new(
            "OUTPUT_DEGENERATE",
            pointer,
            message,
            json!({ "arm": arm.key, "samples": samples }),
        ));
    }
}

/// RULES §0: eight equal short lines in a row, or an end that repeats a unit of at most eight characters.
pub(super) fn degenerate(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut run = 0;
    for (i, line) in lines.iter().enumerate() {
        run = if i > 0 && lines[i - 1] == *line { run + 1 } else { 1 };
        if run >= 8 && line.chars().count() <= 12 {
            return true;
        }
    }
    let trimmed: Vec<char> = text.trim().chars().collect();
    if trimmed.len() < 16 {
        return false;
    }
    let tail = &trimmed[trimmed.len().saturating_sub(256)..];
    (1..=8).any(|unit| repeats(tail, unit) >= 8 && repeats(tail, unit) * unit >= 16)
}

/// How often the last `unit` characters repeat at the end.
fn repeats(tail: &[char], unit: usize) -> usize {
    let mut chunks = tail.rchunks_exact(unit);
    let Some(last) = chunks.next() else { return 0 };
    1 + chunks.take_while(|chunk| *chunk == last).count()
}
