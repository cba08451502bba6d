//! Evidence JSON of one rung: the reference's schema (same keys, same meaning) plus our own blocks.
//!
//! Our blocks are `provenance`, `stage_timings`, `restoration`, `fidelity`, `attention_mass` and, in `memory`, `figures` with
//! the kind of every figure.

use crate::Target;
use crate::journal::{Answerer, Finished};
use crate::plan::{Planned, RungPlan};
use evidence::{MemoryKind, OverriddenCheck, dataset_digest};
use niah::{Dataset, PromptVariant, Rung, Sample, Score, evicted};
use protocol::{
    Arm, Backend, BackendInfo, Decode, Device, DeviceMemory, Fidelity, Hello, LayerCounter, LayerGeometry,
    LayerKind, LoadedPack, Restore, RunSpec, TrialMemory, TrialResult,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Bytes in a gibibyte; the memory gate is 24 GiB.
const GIB: u64 = 1 << 30;

/// What was ordered.
#[derive(Clone, Copy)]
pub(crate) struct Order<'a> {
    pub run: &'a str,
    pub spec: &'a RunSpec,
    pub target: &'a Target,
    pub overridden: &'a [OverriddenCheck],
}

/// What a run knows beside its results.
pub(crate) struct RunFacts<'a> {
    pub order: Order<'a>,
    /// Who answered; at least one.
    pub answerers: &'a [Answerer],
    pub started: jiff::Timestamp,
    pub ended: jiff::Timestamp,
}

impl<'a> RunFacts<'a> {
    fn spec(&self) -> &'a RunSpec {
        self.order.spec
    }

    fn hello(&self) -> &'a Hello {
        &self.answerers[0].hello
    }

    pub(crate) fn pack(&self) -> &'a LoadedPack {
        &self.answerers[0].pack
    }
}

/// Every result of one rung: samples, and one result a sample for each arm.
pub(crate) struct RungResults {
    pub rung: Rung,
    pub dataset: Dataset,
    pub samples: Vec<Sample>,
    pub arms: Vec<(Arm, Vec<TrialResult>)>,
    /// How many trials each answerer did, by number.
    pub answered: Vec<usize>,
    /// How many trials were taken over from each earlier run.
    pub origins: BTreeMap<String, usize>,
}

impl RungResults {
    /// Every trial of a rung, in the order of samples.
    pub(crate) fn of(rung: &RungPlan, spec: &RunSpec, finished: &[(&Planned, &Finished)]) -> Self {
        let of_arm = |arm: &Arm| {
            let mut trials: Vec<_> = finished.iter().filter(|(planned, _)| planned.arm == *arm).collect();
            trials.sort_by_key(|(planned, _)| planned.sample);
            (*arm, trials.into_iter().map(|(_, finished)| finished.result.clone()).collect())
        };
        let workers = finished.iter().map(|(_, finished)| finished.worker + 1).max().unwrap_or(0);
        let mut answered = vec![0; workers];
        let mut origins = BTreeMap::new();
        for (_, finished) in finished {
            answered[finished.worker] += 1;
            *origins.entry(finished.origin.clone()).or_default() += 1;
        }
        Self {
            rung: rung.rung,
            dataset: rung.dataset,
            samples: rung.samples.clone(),
            arms: spec.arms.iter().map(of_arm).collect(),
            answered,
            origins,
        }
    }
}

/// `k3_integrated_niah_ctx70_1781130321.json`: rung and Unix second, as the reference names its files; of a target
/// elsewhere, its name behind them.
pub(crate) fn file_name(rung: Rung, ended: jiff::Timestamp, target: &Target) -> String {
    format!("k3_integrated_niah_ctx{}_{}{}.json", rung.0, ended.as_second(), suffix(target))
}

/// What a target adds to the name of a file; nothing for this machine.
pub(crate) fn suffix(target: &Target) -> String {
    let name = match target {
        Target::Local => return String::new(),
        Target::Ssh(host) => host.as_str(),
        Target::Queue(_) => "queue",
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    format!("_{}", name.chars().map(plain).take(40).collect::<String>())
}

/// The whole document.
pub(crate) fn document(facts: &RunFacts, results: &RungResults) -> Value {
    let mac = facts.hello().host.os.starts_with("macOS");
    let mut document = json!({
        "schema_version": 2,
        "kind": if mac { "k3_integrated_niah_acceptance_mac" } else { "k3_integrated_niah_acceptance" },
        "config": config(facts, results, mac),
        "results": per_arm(facts, results, |arm, trials| arm_result(facts, results, arm, trials)),
        "attention_window": attention_window(facts, results),
        "memory": memory(facts, results),
        "gate": gate(facts, results),
        "stage_timings": per_arm(facts, results, |arm, trials| stage_rows(facts.spec(), arm, trials)),
        "restoration": where_measured(facts, results, |arm, trials| counters(facts.spec(), arm, trials)),
        "fidelity": where_measured(facts, results, fidelity),
        "attention_mass": where_measured(facts, results, |arm, trials| attention_mass(facts.pack(), arm, trials)),
        "provenance": provenance(facts, results),
    });
    if mac {
        document["throughput"] = throughput(facts, results);
        document["gate"]["recall_native_baseline"] = Value::Null;
        document["gate"]["evidence_violations"] = json!([]);
    }
    document
}

/// Key of an arm: the reference's names for the system under test and the oracle, the others beside them. A control
/// without a mode in its name is that of the system under test.
pub(crate) fn arm_key(spec: &RunSpec, arm: Arm) -> String {
    let tested = spec.system_under_test().and_then(Arm::mode);
    let (stem, mode) = match arm {
        Arm::Oracle => return "oracle".into(),
        Arm::SinkWindow => return "sink_window".into(),
        Arm::Restored(mode) => ("k3_cross_model", mode),
        Arm::NoRestoration(mode) => ("no_restoration", mode),
        Arm::Random(mode) => ("random_restoration", mode),
    };
    match mode {
        mode if tested == Some(mode) => stem.into(),
        Restore::S5 => format!("{stem}_s5"),
        Restore::FTheta => format!("{stem}_ftheta_only"),
        Restore::Mix(alpha) => format!("{stem}_alpha_{alpha}"),
        Restore::Identity => "k3_identity_restore".into(),
        Restore::SameCheckpoint => "k3_same_checkpoint".into(),
    }
}

fn per_arm(facts: &RunFacts, results: &RungResults, value: impl Fn(Arm, &[TrialResult]) -> Value) -> Value {
    let entries = results.arms.iter().map(|(arm, trials)| (arm_key(facts.spec(), *arm), value(*arm, trials)));
    Value::Object(entries.collect())
}

fn config(facts: &RunFacts, results: &RungResults, mac: bool) -> Value {
    let (spec, pack) = (facts.spec(), facts.pack());
    let restore = spec.system_under_test().and_then(Arm::mode);
    let controls = |arm: &&Arm| matches!(arm, Arm::NoRestoration(_) | Arm::Random(_));
    let full: Vec<usize> =
        (0..pack.layers.len()).filter(|i| pack.layers[*i].kind == LayerKind::Full).collect();
    let prompt_lens: Vec<usize> = results
        .arms
        .first()
        .map_or(Vec::new(), |(_, trials)| trials.iter().map(|trial| trial.prompt_tokens).collect());
    let mut config = json!({
        if mac { "verifier_path" } else { "verifier_id" }: part_id(facts, &pack.verifier),
        "drafter_id": pack.drafter.as_ref().map(|path| part_id(facts, path)),
        "f_theta_dir": pack.f_theta.as_ref().map(|path| part_id(facts, path)),
        "f_theta_config": pack.f_theta_config,
        "n_samples": spec.n_samples,
        "sink_size": spec.sink,
        "window_size": spec.window,
        "haystack_min_lines": results.dataset.min_lines,
        "haystack_max_lines": results.dataset.max_lines,
        "max_new_tokens": spec.max_new_tokens,
        "prefill_chunk": spec.prefill_chunk,
        "seed": spec.seed,
        "skip_oracle": !spec.arms.contains(&Arm::Oracle),
        "restore_mode": restore.map(|restore| restore.to_string()),
        "identity_restore": matches!(restore, Some(Restore::Identity | Restore::SameCheckpoint)),
        "controls": spec.arms.iter().filter(controls).collect::<Vec<_>>(),
        "random_seed": spec.arms.iter().any(|arm| matches!(arm, Arm::Random(_))).then_some(spec.seed),
        "s5_exact_full_attn": restore == Some(Restore::S5),
        "s5_exact_layers": if restore == Some(Restore::S5) { full.clone() } else { Vec::new() },
        "prompt_token_lens": prompt_lens,
        "prompt_variant": spec.prompt,
        "direct_answer_prompt": spec.prompt == PromptVariant::DirectAnswer,
        "decode": spec.decode,
        "teacher_forced": spec.decode == Decode::TeacherForced,
        "device": spec.device,
        "dtype": pack.compute_dtype,
        "stop_tokens": pack.stop_tokens,
    });
    if mac {
        config["eval_mode"] = json!(eval_mode(spec.decode));
        config["native_baseline_bypass"] = json!(false);
        config["full_attention_layers"] = json!(full);
    }
    config
}

/// `demo-pack/verifier`: the pack's folder before the part's, so that parts of two packs have two names.
pub(crate) fn part_id(facts: &RunFacts, part: &std::path::Path) -> String {
    if part.is_absolute() {
        return part.display().to_string();
    }
    let pack = facts.spec().pack.canonicalize().unwrap_or_else(|_| facts.spec().pack.clone());
    let folder = pack.file_name().map_or_else(|| "pack".into(), |name| name.to_string_lossy().into_owned());
    format!("{folder}/{}", part.display())
}

fn eval_mode(decode: Decode) -> &'static str {
    match decode {
        Decode::Incremental => "free_gen_incremental",
        Decode::Bounded => "free_gen_bounded",
        Decode::Reforward => "free_gen",
        Decode::TeacherForced => "teacher_forced",
    }
}

fn arm_result(facts: &RunFacts, results: &RungResults, arm: Arm, trials: &[TrialResult]) -> Value {
    let scores: Vec<Score> = trials
        .iter()
        .zip(&results.samples)
        .map(|(trial, sample)| Score::of(&trial.text, &sample.answer))
        .collect();
    let (hits, n) = (scores.iter().filter(|score| score.strict).count(), trials.len());
    let ignoring_case = scores.iter().filter(|score| score.ignoring_case).count();
    let latency: Vec<f64> = trials.iter().map(|trial| trial.timings.e2e_s).collect();
    let rates: Vec<f64> = trials.iter().map(rate).collect();
    let mut value = json!({
        "name": arm_key(facts.spec(), arm),
        "arm": arm,
        "samples_total": n,
        "samples_correct": hits,
        "recall": hits as f64 / n as f64,
        "samples_correct_ignoring_case": ignoring_case,
        "mean_latency_s": mean(&latency),
        "median_latency_s": median(&latency),
        "per_sample_decoded": trials.iter().map(|trial| trial.text.as_str()).collect::<Vec<_>>(),
        "per_sample_correct": scores.iter().map(|score| score.strict).collect::<Vec<_>>(),
        "per_sample_decode_tokens": trials.iter().map(|trial| trial.tokens.len()).collect::<Vec<_>>(),
        "per_sample_token_ids": trials.iter().map(|trial| trial.tokens.as_slice()).collect::<Vec<_>>(),
        "per_sample_throughput_tokens_per_sec": rates,
        "mean_throughput_tokens_per_sec": mean(&rates),
        "median_throughput_tokens_per_sec": median(&rates),
        "min_throughput_tokens_per_sec": rates.iter().copied().reduce(f64::min),
        "max_throughput_tokens_per_sec": rates.iter().copied().reduce(f64::max),
    });
    if facts.spec().system_under_test() == Some(arm) {
        value["system_under_test"] = json!("restored_cross_model");
    }
    value
}

/// Tokens a second over the whole trial, prefill included: the reference's definition.
fn rate(trial: &TrialResult) -> f64 {
    trial.tokens.len() as f64 / trial.timings.e2e_s
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Keys that the last query of the system under test may reach. Structural, from the settings: the proof that
/// restoration ran is in `restoration`, and what the query attends to is in `attention_mass`.
fn attention_window(facts: &RunFacts, results: &RungResults) -> Value {
    let spec = facts.spec();
    let tested = results.arms.iter().find(|(arm, _)| spec.system_under_test() == Some(*arm));
    let Some((_, trials)) = tested else { return json!({ "per_config": {} }) };
    let constraint =
        format!("causal_with_dlm_reconstruction (local_cache=sink={}+window={})", spec.sink, spec.window);
    let lens: Vec<f64> = trials.iter().map(|trial| trial.prompt_tokens as f64).collect();
    let rows: Vec<Value> = trials
        .iter()
        .map(|trial| {
            json!({
                "config": "v04_dlm_restored",
                "seq_len": trial.prompt_tokens,
                "effective_keys_at_last_query": trial.prompt_tokens,
                "structural_constraint": constraint,
            })
        })
        .collect();
    json!({ "per_config": { "k3_cross_model": {
        "config": "v04_dlm_restored",
        "structural_constraint": constraint,
        "samples_total": trials.len(),
        "effective_keys_at_last_query_mean": mean(&lens),
        "effective_keys_at_last_query_min": lens.iter().copied().fold(f64::INFINITY, f64::min) as u64,
        "effective_keys_at_last_query_max": lens.iter().copied().fold(0.0, f64::max) as u64,
        "effective_keys_at_last_query_median": median(&lens),
        "per_sample": rows,
    } } })
}

/// One block an arm, and one for the process that all arms share.
fn memory(facts: &RunFacts, results: &RungResults) -> Value {
    let mut blocks = per_arm(facts, results, |_, trials| arm_memory(facts, trials));
    let peak = results.arms.iter().filter_map(|(_, trials)| process_peak(trials)).max();
    if let Some(bytes) = peak {
        let counted =
            if facts.hello().host.os.contains("macOS") { "physical footprint" } else { "resident set" };
        let label = format!("highest {counted} of the engine process since its start");
        blocks["engine_process"] =
            json!({ "figures": [{ "label": label, "kind": MemoryKind::ProcessFootprint, "bytes": bytes }] });
    }
    blocks
}

/// The reference's counters (null where this device has none), and our figures with their kinds.
fn arm_memory(facts: &RunFacts, trials: &[TrialResult]) -> Value {
    let memories = trials.iter().map(|trial| &trial.memory);
    let largest = memories.max_by_key(|memory| memory.kv_full_formula.total());
    let mut figures = largest.map_or(Vec::new(), kv_figures);
    figures.extend(device_figures(facts.spec().backend, trials));
    let total_bytes = match facts.spec().device {
        Device::Cpu | Device::Metal => Some(facts.hello().host.memory_bytes),
        Device::Cuda => device_memory(trials).map(|memory| memory.total_bytes).max(),
    };
    json!({
        "device_kind": facts.spec().device,
        "device_name": backend(facts).map(|info| info.device_name.as_str()),
        "device_total_bytes": total_bytes,
        "current_allocated_bytes": null,
        "peak_allocated_bytes": null,
        "peak_reserved_bytes": null,
        "figures": figures,
    })
}

fn device_memory(trials: &[TrialResult]) -> impl Iterator<Item = DeviceMemory> {
    trials.iter().filter_map(|trial| trial.memory.device)
}

fn allocator_peak(trials: &[TrialResult]) -> Option<u64> {
    device_memory(trials).filter_map(|memory| memory.allocator_peak_bytes).max()
}

/// What the allocator counted and the highest of all samples, as far as library and device tell.
fn device_figures(library: Backend, trials: &[TrialResult]) -> Vec<Value> {
    let highest = |part: fn(&DeviceMemory) -> Option<u64>| {
        device_memory(trials).filter_map(|memory| part(&memory)).max()
    };
    let peak = match library {
        Backend::Candle => "CUDA pool high-water mark, weights included",
        Backend::Mlx => "MLX high-water mark, weights included",
    };
    let sampled = MemoryKind::DeviceSampled;
    let figures = [
        (peak, MemoryKind::AllocatorPeak, allocator_peak(trials)),
        (
            "device memory in use by all processes, highest sample",
            sampled,
            highest(|memory| memory.used_bytes),
        ),
        ("MLX arrays, highest sample", sampled, highest(|memory| memory.allocator_active_bytes)),
        (
            "freed memory that MLX keeps, highest sample",
            sampled,
            highest(|memory| memory.allocator_cache_bytes),
        ),
    ];
    let figure = |(label, kind, bytes)| Some(json!({ "label": label, "kind": kind, "bytes": bytes? }));
    figures.into_iter().filter_map(figure).collect()
}

/// K/V of one sample: the first figure of each kind is the whole.
fn kv_figures(memory: &TrialMemory) -> Vec<Value> {
    let figure =
        |label: &str, kind: MemoryKind, bytes: u64| json!({ "label": label, "kind": kind, "bytes": bytes });
    let mut figures = Vec::new();
    if let Some(counted) = memory.kv_counted {
        for (label, bytes) in [
            ("resident K/V at the end of decoding, largest sample", counted.total()),
            ("of it on sliding layers", counted.sliding_resident),
            ("of it on full-attention layers", counted.full_resident),
            ("of it latents of f_θ", counted.latent),
        ] {
            figures.push(figure(label, MemoryKind::KvCounted, bytes));
        }
    }
    let native = memory.kv_native_formula;
    for (label, bytes) in [
        ("K/V of an unbounded cache at the same length", memory.kv_full_formula.total()),
        ("K/V of the native cache at the same length", native.total()),
        ("of it on sliding layers, their native window", native.sliding_resident),
    ] {
        figures.push(figure(label, MemoryKind::Formula, bytes));
    }
    if let Some(forecast) = memory.kv_forecast {
        figures.push(figure("resident K/V, forecast", MemoryKind::Formula, forecast.total()));
    }
    figures
}

fn process_peak(trials: &[TrialResult]) -> Option<u64> {
    trials.iter().filter_map(|trial| trial.memory.process_peak_bytes).max()
}

/// The seed's gates. Each is null when it was not measured, except `recall_delta_within_5pp`, which the reference
/// writes as false without an oracle.
fn gate(facts: &RunFacts, results: &RungResults) -> Value {
    let hits = |wanted: Arm| {
        let (_, trials) = results.arms.iter().find(|(arm, _)| *arm == wanted)?;
        let hit = |(trial, sample): (&TrialResult, &Sample)| Score::of(&trial.text, &sample.answer).strict;
        Some(trials.iter().zip(&results.samples).filter(|pair| hit(*pair)).count())
    };
    let n = results.samples.len();
    let tested = facts.spec().system_under_test();
    let (cross, oracle) = (tested.and_then(hits), hits(Arm::Oracle));
    let lost = cross.zip(oracle).map(|(cross, oracle)| cross.abs_diff(oracle));
    let peak = match facts.spec().device {
        // A Mac's GPU allocates from the main memory: what the process holds is all of it.
        Device::Cpu | Device::Metal => {
            results.arms.iter().filter_map(|(_, trials)| process_peak(trials)).max()
        }
        Device::Cuda => results.arms.iter().filter_map(|(_, trials)| allocator_peak(trials)).max(),
    };
    json!({
        "architectural_correctness": tested.and_then(|arm| architecture(facts.spec(), results, arm)),
        "recall_cross_model": cross.map(|hits| hits as f64 / n as f64),
        "recall_oracle": oracle.map(|hits| hits as f64 / n as f64),
        "recall_delta_vs_oracle_pp": lost.map(|lost| 100.0 * lost as f64 / n as f64),
        "recall_delta_within_5pp": lost.is_some_and(|lost| 20 * lost <= n),
        "memory_under_24gb": peak.map(|bytes| bytes < 24 * GIB),
    })
}

/// Whether every evicted position of every layer was injected in every sample; null when nothing was evicted, because
/// then nothing was proved.
fn architecture(spec: &RunSpec, results: &RungResults, tested: Arm) -> Option<bool> {
    let (_, trials) = results.arms.iter().find(|(arm, _)| *arm == tested)?;
    let evicted_any = trials.iter().any(|trial| expected_positions(spec, trial) > 0);
    evicted_any.then(|| trials.iter().all(|trial| is_complete(spec, trial)))
}

/// Evicted positions that a trial had to restore, from the lengths alone: once at prefill, or anew for every token.
fn expected_positions(spec: &RunSpec, trial: &TrialResult) -> usize {
    let at = |len| evicted(len, spec.sink, spec.window).len();
    match spec.decode {
        Decode::Incremental | Decode::Bounded | Decode::TeacherForced => at(trial.prompt_tokens),
        Decode::Reforward => {
            (0..trial.tokens.len()).map(|generated| at(trial.prompt_tokens + generated)).sum()
        }
    }
}

/// Whether the engine's counters, kept where the injection happens, add up to what the lengths demand on every layer.
pub(crate) fn is_complete(spec: &RunSpec, trial: &TrialResult) -> bool {
    let expected = expected_positions(spec, trial);
    trial.restoration.as_ref().is_some_and(|counters| {
        !counters.layers.is_empty() && counters.layers.iter().all(|layer| layer.positions() == expected)
    })
}

fn stage_rows(spec: &RunSpec, arm: Arm, trials: &[TrialResult]) -> Value {
    let row = |(sample, trial): (usize, &TrialResult)| {
        let timings = &trial.timings;
        let mut row = json!({
            "sample": sample,
            "prompt_tokens": trial.prompt_tokens,
            "prefill_s": timings.prefill_s,
            "decode_s": timings.decode_s,
            "first_token_s": timings.first_token_s,
            "e2e_s": timings.e2e_s,
            "decode_loop": match spec.decode {
                Decode::Incremental => "generate_step",
                Decode::Bounded => "generate_step_bounded",
                Decode::Reforward => "full_reforward_per_token",
                Decode::TeacherForced => "teacher_forced",
            },
        });
        if arm.mode().is_some() {
            row["build_restoration_s"] = json!(timings.build_restoration_s);
        }
        if arm.is_restored() {
            row["restoration_active"] =
                json!(is_complete(spec, trial) && expected_positions(spec, trial) > 0);
        }
        row
    };
    Value::Array(trials.iter().enumerate().map(row).collect())
}

/// A block of the arms for which `value` has something to say.
fn where_measured(
    facts: &RunFacts,
    results: &RungResults,
    value: impl Fn(Arm, &[TrialResult]) -> Option<Value>,
) -> Value {
    let entries = results
        .arms
        .iter()
        .filter_map(|(arm, trials)| Some((arm_key(facts.spec(), *arm), value(*arm, trials)?)));
    Value::Object(entries.collect())
}

/// Distance of the first token's distribution from the oracle's: a row a sample, the worst and the mean.
fn fidelity(arm: Arm, trials: &[TrialResult]) -> Option<Value> {
    let measured: Vec<(usize, Fidelity)> =
        trials.iter().enumerate().filter_map(|(sample, trial)| Some((sample, trial.fidelity?))).collect();
    let summary = |of: fn(&[f64]) -> f64| {
        let pick =
            |value: fn(&Fidelity) -> f64| of(&measured.iter().map(|(_, f)| value(f)).collect::<Vec<_>>());
        json!({ "max_abs_logit_difference": pick(|f| f.max_abs_logit_difference), "kl": pick(|f| f.kl) })
    };
    let row = |(sample, f): &(usize, Fidelity)| json!({ "sample": sample, "max_abs_logit_difference": f.max_abs_logit_difference, "kl": f.kl });
    (!measured.is_empty()).then(|| {
        json!({
            "arm": arm,
            "against": "oracle",
            "step": "first token",
            "kl_unit": "nats",
            "mean": summary(mean),
            "worst": summary(|values| values.iter().copied().fold(0.0, f64::max)),
            "samples": measured.iter().map(row).collect::<Vec<_>>(),
        })
    })
}

/// Attention that the query of the first token pays to the evicted positions, layer by layer, mean over samples.
fn attention_mass(pack: &LoadedPack, arm: Arm, trials: &[TrialResult]) -> Option<Value> {
    let measured: Vec<&Vec<f64>> = trials.iter().filter_map(|trial| trial.attention_mass.as_ref()).collect();
    let layer = |(layer, geometry): (usize, &LayerGeometry)| {
        let masses: Vec<f64> = measured.iter().filter_map(|mass| mass.get(layer).copied()).collect();
        json!({ "layer": layer, "kind": geometry.kind, "mean": mean(&masses) })
    };
    (!measured.is_empty()).then(|| {
        json!({
            "arm": arm,
            "query": "first token",
            "heads": "mean",
            "samples": measured.len(),
            "layers": pack.layers.iter().enumerate().map(layer).collect::<Vec<_>>(),
        })
    })
}

/// Sums over the samples of one arm, layer by layer, and a row a sample.
fn counters(spec: &RunSpec, arm: Arm, trials: &[TrialResult]) -> Option<Value> {
    arm.mode()?;
    let all: Vec<_> = trials.iter().filter_map(|trial| trial.restoration.as_ref()).collect();
    let layers = all.first().map_or(0, |counters| counters.layers.len());
    let layer_sum = |i: usize| {
        let of_layer = || all.iter().filter_map(|counters| counters.layers.get(i));
        let count = |pick: fn(&LayerCounter) -> usize| of_layer().map(pick).sum::<usize>();
        json!({
            "layer": of_layer().next().map(|layer| layer.layer),
            "from_f_theta": count(|layer| layer.from_f_theta),
            "from_capture": count(|layer| layer.from_capture),
            "from_mix": count(|layer| layer.from_mix),
            "from_noise": count(|layer| layer.from_noise),
            "hidden": count(|layer| layer.hidden),
            "seconds": of_layer().map(|layer| layer.seconds).sum::<f64>(),
            "bytes": of_layer().map(|layer| layer.bytes).sum::<u64>(),
        })
    };
    let rows: Vec<Value> = trials
        .iter()
        .enumerate()
        .map(|(sample, trial)| {
            json!({
                "sample": sample,
                "prompt_tokens": trial.prompt_tokens,
                "passes": trial.restoration.as_ref().map(|counters| counters.passes),
                "evicted_positions": expected_positions(spec, trial),
                "complete": is_complete(spec, trial),
            })
        })
        .collect();
    Some(json!({
        "arm": arm,
        "complete": trials.iter().all(|trial| is_complete(spec, trial)),
        "passes": all.iter().map(|c| c.passes).sum::<usize>(),
        "evicted_positions": trials.iter().map(|trial| expected_positions(spec, trial)).sum::<usize>(),
        "drafter_positions": all.iter().map(|c| c.drafter_positions).sum::<usize>(),
        "projected_positions": all.iter().map(|c| c.projected_positions).sum::<usize>(),
        "injected_bytes": all.iter().flat_map(|c| &c.layers).map(|layer| layer.bytes).sum::<u64>(),
        "drafter_s": all.iter().map(|c| c.drafter_s).sum::<f64>(),
        "projection_s": all.iter().map(|c| c.projection_s).sum::<f64>(),
        "capture_s": all.iter().map(|c| c.capture_s).sum::<f64>(),
        "layers": (0..layers).map(layer_sum).collect::<Vec<_>>(),
        "samples": rows,
    }))
}

/// The block that the reference's gate on Mac reads. No speed-up is claimed: arms that share a machine and a minute are
/// no benchmark.
fn throughput(facts: &RunFacts, results: &RungResults) -> Value {
    let mut block = Map::new();
    for (arm, trials) in &results.arms {
        let key = match arm {
            Arm::Oracle => "oracle_native_ar",
            arm if facts.spec().system_under_test() == Some(*arm) => "k3_cross_model",
            _ => continue,
        };
        let tokens: usize = trials.iter().map(|trial| trial.tokens.len()).sum();
        let wall: f64 = trials.iter().map(|trial| trial.timings.e2e_s).sum();
        block.insert(
            key.to_owned(),
            json!({
                "tokens": tokens,
                "wall_seconds": wall,
                "tokens_per_second": tokens as f64 / wall,
                "mean_latency_per_sample_s": wall / trials.len() as f64,
                "timing_scope": "e2e_prefill_plus_decode",
                "eval_mode": eval_mode(facts.spec().decode),
                "stage_timings": stage_rows(facts.spec(), *arm, trials),
            }),
        );
    }
    block.insert("cross_model_speedup_vs_oracle_ar".into(), Value::Null);
    block.insert("speedup_withheld_reasons".into(), json!(["not a benchmark: no warm-up, no repetition"]));
    Value::Object(block)
}

/// What the engine says of the library and the device that the run asked for.
fn backend<'a>(facts: &RunFacts<'a>) -> Option<&'a BackendInfo> {
    backend_of(facts.hello(), facts.spec())
}

fn backend_of<'a>(hello: &'a Hello, spec: &RunSpec) -> Option<&'a BackendInfo> {
    let asked = |info: &&BackendInfo| info.backend == spec.backend && info.device == spec.device;
    hello.backends.iter().find(asked)
}

pub(crate) fn provenance(facts: &RunFacts, results: &RungResults) -> Value {
    let (spec, hello, pack) = (facts.spec(), facts.hello(), facts.pack());
    let backend = backend(facts);
    json!({
        "program": "kakeya-gate",
        "program_version": hello.version,
        "git_commit": hello.commit,
        "git_dirty": hello.dirty,
        "protocol": hello.protocol,
        "pack_name": pack.name,
        "demo": pack.demo,
        "weights": pack.weights,
        "weights_dtype": pack.weights_dtype,
        "dtype": pack.compute_dtype,
        "layers": pack.layers,
        "dataset": {
            "seed": results.dataset.seed,
            "n_samples": results.dataset.n_samples,
            "min_lines": results.dataset.min_lines,
            "max_lines": results.dataset.max_lines,
            "rung": results.rung,
            "prompt_variant": spec.prompt,
            "sha256": dataset_digest(&results.samples, spec.prompt),
        },
        "host": hello.host,
        "backend": spec.backend,
        "backend_version": backend.map(|info| info.version.as_str()),
        "device": spec.device,
        "device_name": backend.map(|info| info.device_name.as_str()),
        "device_driver": backend.and_then(|info| info.driver.as_deref()),
        "started": facts.started,
        "ended": facts.ended,
        "overridden_checks": facts.order.overridden,
        "run": facts.order.run,
        "target": facts.order.target,
        "spec_sha256": spec.digest(),
        "pack_sha256": pack.digest,
        "workers": workers(facts, results),
        "reused_trials": reused(facts, results),
    })
}

/// Who answered how many trials of this rung, where it was more than one.
fn workers(facts: &RunFacts, results: &RungResults) -> Option<Vec<Value>> {
    let row = |(answerer, trials): (&Answerer, &usize)| {
        let info = backend_of(&answerer.hello, facts.spec());
        json!({
            "host": answerer.hello.host,
            "program_version": answerer.hello.version,
            "backend_version": info.map(|info| info.version.as_str()),
            "device_name": info.map(|info| info.device_name.as_str()),
            "device_driver": info.and_then(|info| info.driver.as_deref()),
            "trials": trials,
        })
    };
    let answered = facts.answerers.iter().zip(&results.answered).filter(|(_, trials)| **trials > 0);
    let rows: Vec<Value> = answered.map(row).collect();
    (rows.len() > 1).then_some(rows)
}

/// Trials that earlier runs measured, run by run.
fn reused(facts: &RunFacts, results: &RungResults) -> Vec<Value> {
    let others = results.origins.iter().filter(|(run, _)| *run != facts.order.run);
    others.map(|(run, trials)| json!({ "run": run, "trials": trials })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{Host, KvBytes, LayerError, RestorationCounters, StageTimings, Stop};

    const LAYERS: usize = 3;

    fn kv(sliding_resident: u64) -> KvBytes {
        KvBytes { sliding_resident, ..KvBytes::default() }
    }

    fn hello(os: &str) -> Hello {
        let host = Host {
            os: os.into(),
            arch: "aarch64".into(),
            cpu: "a chip".into(),
            cores: 8,
            memory_bytes: 24 << 30,
        };
        let device = BackendInfo {
            backend: Backend::Candle,
            device: Device::Cpu,
            version: "1".into(),
            device_name: "a chip".into(),
            driver: None,
            probe_seconds: 0.001,
        };
        Hello { protocol: 1, version: "0".into(), commit: None, dirty: false, backends: vec![device], host }
    }

    fn spec(decode: Decode, sink: usize, window: usize) -> RunSpec {
        RunSpec {
            pack: "pack".into(),
            backend: Backend::Candle,
            device: Device::Cpu,
            arms: vec![Arm::Oracle, Arm::Restored(Restore::S5)],
            decode,
            ladder: vec![Rung(20)],
            n_samples: 2,
            seed: 42,
            sink,
            window,
            max_new_tokens: 24,
            prefill_chunk: RunSpec::PREFILL_CHUNK,
            prompt: PromptVariant::Legacy,
        }
    }

    fn pack() -> LoadedPack {
        let layer = |kind| LayerGeometry { kind, kv_heads: 1, head_dim: 8 };
        LoadedPack {
            name: "a pack".into(),
            demo: false,
            verifier: "verifier".into(),
            drafter: Some("drafter".into()),
            f_theta: Some("f_theta".into()),
            f_theta_config: None,
            weights: Vec::new(),
            digest: "a digest".into(),
            layers: vec![layer(LayerKind::Sliding), layer(LayerKind::Sliding), layer(LayerKind::Full)],
            compute_dtype: "f32".into(),
            weights_dtype: "bf16".into(),
            stop_tokens: vec![1],
            seconds: 0.1,
        }
    }

    /// A trial of 100 prompt tokens and 3 generated ones that injected `injected` positions into every layer.
    fn trial(arm: Arm, text: &str, injected: usize) -> TrialResult {
        let layers = (0..LAYERS)
            .map(|layer| LayerCounter { layer, from_f_theta: injected, ..LayerCounter::default() })
            .collect();
        let counters = RestorationCounters {
            passes: 1,
            evicted_positions: injected,
            drafter_positions: 100,
            projected_positions: injected * LAYERS,
            layers,
            drafter_s: 0.1,
            projection_s: 0.1,
            capture_s: 0.0,
        };
        let restored = arm.is_restored();
        TrialResult {
            id: "20/0".into(),
            arm,
            text: text.into(),
            tokens: vec![5, 6, 1],
            prompt_tokens: 100,
            stop: Stop::StopToken,
            timings: StageTimings {
                build_restoration_s: restored.then_some(0.2),
                prefill_s: 0.3,
                decode_s: 0.1,
                first_token_s: 0.5,
                e2e_s: 0.7,
            },
            restoration: restored.then_some(counters),
            fidelity: restored.then_some(Fidelity { max_abs_logit_difference: 0.5, kl: 1e-4 }),
            attention_mass: Some(vec![0.25; LAYERS]),
            projection_error: None,
            memory: TrialMemory {
                kv_counted: Some(kv(1000)),
                kv_forecast: Some(kv(1000)),
                kv_full_formula: kv(2000),
                kv_native_formula: kv(1500),
                process_peak_bytes: Some(1 << 20),
                device: None,
            },
        }
    }

    fn written(os: &str, injected: usize) -> Value {
        let spec = spec(Decode::Incremental, 4, 64);
        let results = results(&spec, |arm, sample| trial(arm, &sample.answer, injected));
        document(&facts(&spec, &answered(&hello(os), &pack())), &results)
    }

    fn results(spec: &RunSpec, answer: impl Fn(Arm, &Sample) -> TrialResult) -> RungResults {
        let dataset = Rung(20).dataset(spec.seed, spec.n_samples);
        let samples: Vec<Sample> = dataset.samples().unwrap().collect();
        let of_arm = |arm: &Arm| (*arm, samples.iter().map(|sample| answer(*arm, sample)).collect());
        RungResults {
            rung: Rung(20),
            dataset,
            arms: spec.arms.iter().map(of_arm).collect(),
            samples,
            answered: vec![spec.arms.len() * spec.n_samples],
            origins: BTreeMap::new(),
        }
    }

    fn answered(hello: &Hello, pack: &LoadedPack) -> [Answerer; 1] {
        [Answerer { hello: hello.clone(), pack: pack.clone() }]
    }

    fn facts<'a>(spec: &'a RunSpec, answerers: &'a [Answerer]) -> RunFacts<'a> {
        let now = jiff::Timestamp::from_second(1_781_130_321).unwrap();
        let order = Order { run: "a run", spec, target: &Target::Local, overridden: &[] };
        RunFacts { order, answerers, started: now, ended: now }
    }

    fn arms(words: &[&str]) -> Vec<Arm> {
        words.iter().map(|word| word.parse().unwrap()).collect()
    }

    #[test]
    fn memory_of_a_gpu_is_told_by_kind_and_judged_instead_of_the_process() {
        let spec = RunSpec { device: Device::Cuda, ..spec(Decode::Incremental, 4, 64) };
        let mut hello = hello("Linux");
        let chip = hello.backends[0].clone();
        let gpu = BackendInfo {
            device: Device::Cuda,
            device_name: "a GPU".into(),
            driver: Some("580.1".into()),
            ..chip
        };
        hello.backends.push(gpu);
        let with = |peak: Option<u64>| {
            let results = results(&spec, |arm, sample| {
                let mut trial = trial(arm, &sample.answer, 32);
                trial.memory.device = Some(DeviceMemory {
                    allocator_peak_bytes: peak,
                    allocator_active_bytes: None,
                    allocator_cache_bytes: None,
                    used_bytes: Some((30 << 30) + sample.index as u64),
                    total_bytes: 40 << 30,
                });
                trial
            });
            document(&facts(&spec, &answered(&hello, &pack())), &results)
        };
        let told = |peak: Option<u64>| with(peak)["gate"]["memory_under_24gb"].clone();
        assert_eq!(
            [Some(23 << 30), Some(25 << 30), None].map(told),
            [json!(true), json!(false), Value::Null]
        );
        let document = with(Some(5));
        let arm = &document["memory"]["oracle"];
        assert_eq!(arm["device_name"], "a GPU");
        assert_eq!(arm["device_total_bytes"], 40_u64 << 30);
        let figure = |kind: &str| {
            let figures = arm["figures"].as_array().unwrap();
            figures.iter().find(|figure| figure["kind"] == kind).unwrap()["bytes"].clone()
        };
        assert_eq!(figure("allocator-peak"), 5);
        assert_eq!(figure("device-sampled"), (30_u64 << 30) + 1);
        assert_eq!(document["provenance"]["device_driver"], "580.1");
    }

    #[test]
    fn keys_follow_the_reference_and_controls_their_mode() {
        let words =
            ["oracle", "restored:mix:0.5", "restored:f-theta", "restored:s5", "random:f-theta", "random:s5"];
        let spec = RunSpec { arms: arms(&words), ..spec(Decode::Incremental, 4, 64) };
        let keys: Vec<String> = spec.arms.iter().map(|arm| arm_key(&spec, *arm)).collect();
        assert_eq!(
            keys,
            [
                "oracle",
                "k3_cross_model_alpha_0.5",
                "k3_cross_model",
                "k3_cross_model_s5",
                "random_restoration",
                "random_restoration_s5"
            ]
        );
    }

    #[test]
    fn a_control_that_recalls_as_much_is_named_and_fidelity_cannot_be_edited() {
        let words = ["oracle", "restored:s5", "no-restoration:s5", "random:s5"];
        let spec = RunSpec { arms: arms(&words), ..spec(Decode::Incremental, 4, 64) };
        let (hello, pack) = (hello("Linux"), pack());
        let with = |blind: Arm| {
            let text =
                |arm: Arm, sample: &Sample| if arm == blind { "".into() } else { sample.answer.clone() };
            let results = results(&spec, |arm, sample| trial(arm, &text(arm, sample), 32));
            document(&facts(&spec, &answered(&hello, &pack)), &results)
        };
        let named = |document: &Value| {
            let findings = audited(document).findings.into_iter();
            let named = findings.filter(|finding| finding.code == "RESTORATION_NOT_LOAD_BEARING");
            named.map(|finding| finding.data["arm"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(named(&with(Arm::Random(Restore::S5))), ["no_restoration"]);
        assert_eq!(named(&with(Arm::NoRestoration(Restore::S5))), ["random_restoration"]);
        let mut document = with(Arm::Oracle);
        assert_eq!(document["config"]["random_seed"], 42);
        assert_eq!(document["config"]["controls"], json!(["no-restoration:s5", "random:s5"]));
        assert!(!audited(&document).has("FIDELITY_STAT_MISMATCH"));
        document["fidelity"]["k3_cross_model"]["worst"]["kl"] = json!(0.0);
        assert!(audited(&document).has("FIDELITY_STAT_MISMATCH"));
    }

    #[test]
    fn teacher_forcing_is_named_on_every_machine() {
        for os in ["Linux", "macOS 26.1"] {
            let spec = spec(Decode::TeacherForced, 4, 64);
            let results = results(&spec, |arm, sample| trial(arm, &sample.answer, 32));
            let named = audited(&document(&facts(&spec, &answered(&hello(os), &pack())), &results)).findings;
            assert_eq!(named.iter().filter(|finding| finding.code == "TEACHER_FORCED").count(), 1, "{os}");
        }
    }

    #[test]
    fn a_sweep_states_its_error_and_our_audit_finds_nothing_wrong_with_it() {
        let words = ["oracle", "restored:mix:1", "restored:mix:0", "restored:mix:0.5"];
        let spec = RunSpec { arms: arms(&words), ..spec(Decode::Incremental, 4, 64) };
        let error = |layer, squared_error| LayerError { layer, squared_error, squared_norm: 2.0 };
        let results = results(&spec, |arm, sample| TrialResult {
            projection_error: Some(vec![error(0, 0.1), error(1, 0.2), error(2, 0.3)]),
            ..trial(arm, &sample.answer, 32)
        });
        let (hello, pack) = (hello("Linux"), pack());
        let answered = answered(&hello, &pack);
        let facts = facts(&spec, &answered);
        let mut sweep = crate::sweep::document(&facts, &results).unwrap();
        assert_eq!(
            document(&facts, &results)["gate"]["recall_cross_model"],
            Value::Null,
            "mixtures are not judged"
        );
        let baseline = &sweep["f_theta_baseline_rel_mse"];
        assert!((baseline["overall"].as_f64().unwrap() - 0.1).abs() < 1e-12, "{baseline}");
        assert!((baseline["full_attn"].as_f64().unwrap() - 0.15).abs() < 1e-12);
        assert_eq!(baseline["samples"], 2);
        assert_eq!(sweep["sweep"][1]["alpha"], 0.5);
        let codes: Vec<&str> = audited(&sweep).findings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, ["N_TOO_SMALL"]);
        sweep["sweep"][1]["eff_rel_mse_overall"] = json!(0.02);
        assert!(audited(&sweep).has("SWEEP_VALUE_MISMATCH"));
        let none = RungResults { arms: Vec::new(), ..results };
        assert_eq!(crate::sweep::document(&facts, &none), None);
    }

    fn audited(document: &Value) -> evidence::Audit {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        files::write_atomic(&path, document.to_string().as_bytes()).unwrap();
        evidence::audit(&[evidence::read(&path.as_path().into()).unwrap()]).remove(0)
    }

    #[test]
    fn the_reference_gate_finds_nothing_in_a_file_from_a_mac() {
        let document = written("macOS 26.1", 32);
        assert_eq!(document["kind"], "k3_integrated_niah_acceptance_mac");
        let audit = audited(&document);
        assert_eq!(audit.recomputed.as_ref().unwrap().repo_gate_codes, Some(Vec::new()));
        let errors: Vec<_> =
            audit.findings.iter().filter(|f| f.severity == evidence::Severity::Error).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        assert_eq!(audit.verdict, evidence::Verdict::Pass);
    }

    #[test]
    fn architecture_is_true_only_when_every_position_was_injected() {
        for (injected, correct) in [(32, json!(true)), (31, json!(false)), (33, json!(false))] {
            assert_eq!(
                written("Linux", injected)["gate"]["architectural_correctness"],
                correct,
                "{injected}"
            );
        }
        assert!(audited(&written("Linux", 31)).has("RESTORATION_NOT_EXECUTED"));
    }

    #[test]
    fn nothing_evicted_proves_nothing() {
        let spec = spec(Decode::Incremental, 4, 1000);
        let result = trial(Arm::Restored(Restore::S5), "", 0);
        assert_eq!(expected_positions(&spec, &result), 0);
        let arms = vec![(Arm::Restored(Restore::S5), vec![result])];
        let dataset = Rung(20).dataset(42, 1);
        let (answered, origins) = (vec![1], BTreeMap::new());
        let results = RungResults { rung: Rung(20), dataset, samples: Vec::new(), arms, answered, origins };
        assert_eq!(architecture(&spec, &results, Arm::Restored(Restore::S5)), None);
    }

    #[test]
    fn reforward_restores_anew_for_every_token() {
        let result = trial(Arm::Restored(Restore::S5), "", 0);
        assert_eq!(expected_positions(&spec(Decode::Reforward, 4, 64), &result), 32 + 33 + 34);
    }
}
