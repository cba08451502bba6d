//! Exact statistics of small counts.
//!
//! Clopper–Pearson: Biometrika 26 (1934) 404; Wilson: JASA 22 (1927) 209; McNemar: Psychometrika 12 (1947) 153.

use serde::Serialize;
use statrs::distribution::{Beta, Binomial, ContinuousCDF, DiscreteCDF};
use ts_rs::TS;

/// An interval for a proportion, as fractions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, TS)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Quantile of a Beta distribution by bisection on its exact distribution function (53 halvings: to the last bit).
fn beta_quantile(probability: f64, a: f64, b: f64) -> f64 {
    let Ok(beta) = Beta::new(a, b) else { return f64::NAN };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if beta.cdf(middle) < probability { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// Exact two-sided interval for `hits` of `n`, each tail `alpha`/2. With n = 0 nothing is known: [0, 1].
pub fn clopper_pearson(hits: u64, n: u64, alpha: f64) -> Interval {
    let (k, total) = (hits as f64, n as f64);
    let low = if hits == 0 { 0.0 } else { beta_quantile(alpha / 2.0, k, total - k + 1.0) };
    let high = if hits >= n { 1.0 } else { beta_quantile(1.0 - alpha / 2.0, k + 1.0, total - k) };
    Interval { low, high }
}

/// Exact one-sided 95 % upper bound on a rate of which `hits` of `n` were seen.
pub fn upper95(hits: u64, n: u64) -> f64 {
    clopper_pearson(hits, n, 0.10).high
}

/// Wilson score interval at 95 %.
pub fn wilson(hits: u64, n: u64) -> Interval {
    if n == 0 {
        return Interval { low: 0.0, high: 1.0 };
    }
    const Z: f64 = 1.959_963_984_540_054;
    let (p, n) = (hits as f64 / n as f64, n as f64);
    let centre = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    Interval { low: ((centre - half) / scale).max(0.0), high: ((centre + half) / scale).min(1.0) }
}

/// Exact two-sided McNemar test of `gained` against `lost` discordant pairs: the p-value.
pub fn mcnemar(gained: u64, lost: u64) -> f64 {
    let discordant = gained.saturating_add(lost);
    match Binomial::new(0.5, discordant) {
        Ok(binomial) if discordant > 0 => (2.0 * binomial.cdf(gained.min(lost))).min(1.0),
        _ => 1.0,
    }
}

/// How many more clean pairs (no loss) bring the one-sided 95 % bound on the loss rate to `margin` or below, given
/// `losses` in `n` pairs so far. None when not even a hundred thousand would.
pub fn pairs_needed(losses: u64, n: u64, margin: f64) -> Option<u64> {
    const LIMIT: u64 = 100_000;
    let decided = |more: u64| upper95(losses, n.saturating_add(more)) <= margin;
    if decided(0) {
        return Some(0);
    }
    if !decided(LIMIT) {
        return None;
    }
    let (mut no, mut yes) = (0, LIMIT);
    while yes - no > 1 {
        let middle = no + (yes - no) / 2;
        if decided(middle) { yes = middle } else { no = middle }
    }
    Some(yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, want: f64) {
        assert!((got - want).abs() < 5e-5, "{got}, not {want}");
    }

    /// scipy 1.11: `scipy.stats.binomtest(k, n).proportion_ci(method="exact")`.
    #[test]
    fn clopper_pearson_equals_scipy() {
        for (k, n, low, high) in [
            (10, 10, 0.6915, 1.0),
            (0, 10, 0.0, 0.3085),
            (5, 5, 0.4782, 1.0),
            (20, 20, 0.8316, 1.0),
            (13, 20, 0.4078, 0.8461),
            (7, 20, 0.1539, 0.5922),
            (1, 20, 0.0013, 0.2487),
            (1, 1, 0.025, 1.0),
        ] {
            let interval = clopper_pearson(k, n, 0.05);
            close(interval.low, low);
            close(interval.high, high);
        }
    }

    /// With no loss the bound has a closed form: 1 − 0.05^(1/n).
    #[test]
    fn bound_without_losses_has_a_closed_form() {
        for n in [1, 5, 10, 20, 59, 72] {
            close(upper95(0, n), 1.0 - 0.05_f64.powf(1.0 / n as f64));
        }
        close(upper95(1, 20), 0.2161);
    }

    #[test]
    fn fifty_nine_clean_pairs_decide_five_points() {
        assert_eq!(pairs_needed(0, 0, 0.05), Some(59));
        assert_eq!(pairs_needed(0, 10, 0.05), Some(49));
        assert_eq!(pairs_needed(0, 59, 0.05), Some(0));
        assert_eq!(pairs_needed(1, 20, 0.05), Some(93 - 20)); // 1 loss: 93 pairs, Hahn & Meeker, table A.16
        assert_eq!(pairs_needed(20, 20, 1e-9), None);
    }

    /// statsmodels 0.14: `proportion_confint(k, n, method="wilson")`; `mcnemar(…, exact=True)`.
    #[test]
    fn wilson_and_mcnemar_equal_statsmodels() {
        let interval = wilson(10, 10);
        close(interval.low, 0.7225);
        close(interval.high, 1.0);
        close(wilson(7, 20).low, 0.1812);
        close(wilson(7, 20).high, 0.5671);
        close(mcnemar(0, 5), 0.0625);
        close(mcnemar(2, 8), 0.1094);
        close(mcnemar(0, 0), 1.0);
    }
}
