//! Numbers recomputed from rows (RULES §5).

use crate::json::{At, round, spread};
use crate::model::{Niah, NiahKind};
use crate::normalise::{decode_rates, stage_rows};
use crate::stats::{
    Interval, clopper_pearson, conservative_difference, mcnemar, pairs_needed, tango, upper95,
};
use crate::{audit, json};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use ts_rs::TS;

/// The system under test against the oracle, and what only some kinds record.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct Recomputed {
    /// The paired comparison; null when an arm is missing.
    pub paired: Option<Paired>,
    /// Largest over smallest stage time, by arm and stage (Mac kind).
    pub spreads: Option<Spreads>,
    /// Median decode-only rates (Mac kind).
    pub decode_only: Option<DecodeOnly>,
    /// Longest time that building the restoration of one sample took, seconds; null when not recorded.
    pub restoration_s: Option<f64>,
    /// The stored speed-up.
    pub claimed_speedup: Option<f64>,
    /// The memory formula (Mac kind).
    pub analytic: Option<Analytic>,
    /// Codes of the reference's own gate on this file as it is (Mac kind).
    pub repo_gate_codes: Option<Vec<&'static str>>,
    /// The same read as schema 2, sorted, each once; only with a claimed speed-up.
    pub shadow_gate_codes: Option<Vec<&'static str>>,
}

/// The paired comparison of two arms on the same samples.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct Paired {
    /// 100·(hits of the system under test − hits of the oracle)/n, percentage points, 4 decimals.
    pub delta_pp: f64,
    /// 20·|Δhits| ≤ n.
    pub within_5pp: bool,
    /// What one sample weighs, percentage points, 2 decimals.
    pub flip_pp: f64,
    /// Samples that only the system under test recalls.
    pub gained: u64,
    /// Samples that only the oracle recalls.
    pub lost: u64,
    /// The oracle's hits: the samples that can show a loss.
    pub informative_n: u64,
    /// Hits of the system under test among the oracle's hits.
    pub retained: u64,
    /// Exact 95 % interval of the retention; null without an oracle hit.
    pub retention_interval: Option<Interval>,
    /// One-sided exact 95 % bound on the rate of lost samples.
    pub loss_upper95: f64,
    /// Upper end of the two-sided exact 95 % interval of that rate.
    pub loss_upper975: f64,
    /// Conservative 95 % interval of the difference, percentage points, 1 decimal: gains and losses each at 97.5 %.
    pub delta_interval_pp: Interval,
    /// Tango's 95 % score interval of the difference, percentage points, 1 decimal.
    pub delta_tango_pp: Interval,
    /// Samples on which both arms wrote the same text.
    pub identical_texts: u64,
    /// Samples.
    pub n: u64,
    /// Exact McNemar test of gains against losses: the p-value.
    pub mcnemar_p: f64,
    /// Further clean pairs that bring the one-sided bound to 5 points; null when out of reach.
    pub pairs_needed: Option<u64>,
}

/// Largest over smallest time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, TS, JsonSchema)]
pub struct Spreads {
    /// System under test, prefill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_prefill: Option<f64>,
    /// System under test, decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_decode: Option<f64>,
    /// Oracle, prefill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oracle_prefill: Option<f64>,
    /// Oracle, decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oracle_decode: Option<f64>,
}

/// Decode rates without prefill.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, TS, JsonSchema)]
pub struct DecodeOnly {
    /// Median of the system under test, tokens a second.
    pub cross_median_tok_s: f64,
    /// Median of the oracle.
    pub oracle_median_tok_s: f64,
    /// Their ratio.
    pub speedup: f64,
}

/// `prefill_s` if the key exists, else `restored_prefill_s`.
pub(crate) fn row_prefill(row: &Value) -> Option<f64> {
    let key = if row.pointer("/prefill_s").is_some() { "/prefill_s" } else { "/restored_prefill_s" };
    row.number(key)
}

pub(crate) fn recompute(value: &Value, niah: &Niah) -> Recomputed {
    let mac = niah.kind == NiahKind::CrossModelMac;
    let with_throughput = mac && value.at("/throughput").is_some();
    let claimed_speedup =
        value.number("/throughput/cross_model_speedup_vs_oracle_ar").filter(|_| with_throughput);
    let shadow = || {
        let mut codes = audit::repo_gate(value, Some(2));
        codes.sort_unstable();
        codes.dedup();
        codes
    };
    Recomputed {
        paired: paired(niah),
        spreads: with_throughput.then(|| spreads(value)),
        decode_only: with_throughput.then(|| decode_only(value)).flatten(),
        restoration_s: restoration_s(value, niah.kind.sut()),
        claimed_speedup,
        analytic: if mac { analytic(value) } else { None },
        repo_gate_codes: mac.then(|| audit::repo_gate(value, None)),
        shadow_gate_codes: claimed_speedup.map(|_| shadow()),
    }
}

/// The reference keeps stage times with throughput, we beside it.
fn restoration_s(value: &Value, sut: &str) -> Option<f64> {
    let ours = value.list(&format!("/stage_timings/{sut}")).unwrap_or_default();
    let rows = stage_rows(value, sut).iter().chain(ours);
    rows.filter_map(|row| row.number("/build_restoration_s")).reduce(f64::max)
}

fn paired(niah: &Niah) -> Option<Paired> {
    let (sut, oracle) = niah.recounted()?;
    let n = niah.n;
    if n == 0 {
        return None;
    }
    let rows = || sut.rows.iter().zip(&oracle.rows);
    let count = |wanted: fn(bool, bool) -> bool| rows().filter(|(s, o)| wanted(s.hit, o.hit)).count() as u64;
    let gained = count(|sut, oracle| sut && !oracle).min(n);
    let lost = count(|sut, oracle| !sut && oracle).min(n);
    let informative_n = oracle.hits;
    let retained = informative_n.saturating_sub(lost);
    let delta = sut.hits as f64 - oracle.hits as f64;
    Some(Paired {
        delta_pp: round(100.0 * delta / n as f64, 4),
        within_5pp: within_5pp(sut.hits, oracle.hits, n),
        flip_pp: round(100.0 / n as f64, 2),
        gained,
        lost,
        informative_n,
        retained,
        retention_interval: (informative_n > 0)
            .then(|| clopper_pearson(retained, informative_n, 0.05).rounded(4)),
        loss_upper95: round(upper95(lost, n), 4),
        loss_upper975: round(clopper_pearson(lost, n, 0.05).high, 4),
        delta_interval_pp: conservative_difference(gained, lost, n).percentage_points(),
        delta_tango_pp: tango(gained, lost, n).percentage_points(),
        identical_texts: rows().filter(|(s, o)| s.text == o.text).count() as u64,
        n,
        mcnemar_p: mcnemar(gained, lost),
        pairs_needed: pairs_needed(lost, n, 0.05, 0.95),
    })
}

/// The gate, in integers: a float comparison would decide exact 5 points by rounding luck.
pub(crate) fn within_5pp(hits: u64, oracle_hits: u64, n: u64) -> bool {
    20 * hits.abs_diff(oracle_hits) <= n
}

fn spreads(value: &Value) -> Spreads {
    let of = |block: &str, time: fn(&Value) -> Option<f64>| {
        spread(stage_rows(value, block).iter().filter_map(time)).map(|ratio| round(ratio, 3))
    };
    let decode = |row: &Value| row.number("/decode_s");
    Spreads {
        cross_prefill: of("k3_cross_model", row_prefill),
        cross_decode: of("k3_cross_model", decode),
        oracle_prefill: of("oracle_native_ar", row_prefill),
        oracle_decode: of("oracle_native_ar", decode),
    }
}

fn decode_only(value: &Value) -> Option<DecodeOnly> {
    let median_rate = |block: &str, arm: &str| {
        let results = value.at("/results").and_then(|results| results.get(arm))?;
        json::median(&decode_rates(results, stage_rows(value, block)))
    };
    let cross = median_rate("k3_cross_model", "k3_cross_model")?;
    let oracle = median_rate("oracle_native_ar", "oracle")?;
    Some(DecodeOnly {
        cross_median_tok_s: round(cross, 4),
        oracle_median_tok_s: round(oracle, 4),
        speedup: round(cross / oracle, 3),
    })
}

/// The memory table of the Mac kind: a formula throughout, recomputed from its layers (RULES §5, memory).
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct Analytic {
    /// Resident bytes of the bounded cache.
    pub total: f64,
    /// Bytes of a cache that keeps every position of every layer.
    pub naive: f64,
    /// Bytes of the model's own cache, whose sliding layers keep 1024 positions.
    pub native: f64,
    /// The stored saving, percent.
    pub claimed_savings_pct: Option<f64>,
    /// The saving against the unbounded cache, percent, 1 decimal.
    pub savings_pct: Option<f64>,
    /// The saving against the native cache, percent, 1 decimal.
    pub savings_vs_native_pct: Option<f64>,
    /// The stored measured peak, 10⁶ bytes.
    pub measured_peak_mb: Option<f64>,
}

/// Positions that a sliding layer of the model keeps by itself.
const NATIVE_WINDOW: f64 = 1024.0;

pub(crate) fn analytic(value: &Value) -> Option<Analytic> {
    let s5 = value.at("/memory/s5")?;
    let (len, dtype_bytes) = (s5.number("/seq_len")?, 2.0);
    let layers = s5.list("/per_layer")?;
    let per_token =
        |layer: &Value| Some(2.0 * layer.number("/n_kv_heads")? * layer.number("/head_dim")? * dtype_bytes);
    let sum = |sliding: bool| -> f64 {
        let of_kind =
            layers.iter().filter(|layer| (layer.text("/layer_type") == Some("sliding_attention")) == sliding);
        of_kind.filter_map(per_token).sum()
    };
    let (sliding, full) = (sum(true), sum(false));
    let total: f64 = layers.iter().filter_map(|layer| layer.number("/resident_bytes")).sum();
    let naive = len * (sliding + full);
    let native = len.min(NATIVE_WINDOW) * sliding + len * full;
    let saving = |of: f64| (of != 0.0).then(|| round(100.0 * (1.0 - total / of), 1));
    Some(Analytic {
        total,
        naive,
        native,
        claimed_savings_pct: value.number("/memory/savings_vs_naive_pct"),
        savings_pct: saving(naive),
        savings_vs_native_pct: saving(native),
        measured_peak_mb: value.number("/memory/measured_peak_mb"),
    })
}
