//! Exact statistics of small counts.
//!
//! Clopper–Pearson: Biometrika 26 (1934) 404; Wilson: JASA 22 (1927) 209; McNemar: Psychometrika 12 (1947) 153;
//! Tango: Stat. Med. 17 (1998) 891.

use crate::json::round;
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

impl Interval {
    /// Both ends rounded to `places` decimals.
    pub(crate) fn rounded(self, places: usize) -> Self {
        Self { low: round(self.low, places), high: round(self.high, places) }
    }

    /// Both ends in percentage points, rounded to 1 decimal.
    pub(crate) fn percentage_points(self) -> Self {
        Self { low: 100.0 * self.low, high: 100.0 * self.high }.rounded(1)
    }
}

/// The normal quantile that leaves 2.5 % above it.
const Z975: f64 = 1.959_963_984_540_054;

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
    Interval { low, high: upper_bound(hits, n, 1.0 - alpha / 2.0) }
}

/// Exact one-sided upper bound on a rate of which `hits` of `n` were seen.
pub fn upper_bound(hits: u64, n: u64, confidence: f64) -> f64 {
    let (k, total) = (hits as f64, n as f64);
    if hits >= n { 1.0 } else { beta_quantile(confidence, k + 1.0, total - k) }
}

/// The same at 95 %.
pub fn upper95(hits: u64, n: u64) -> f64 {
    upper_bound(hits, n, 0.95)
}

/// Wilson score interval for `hits` of `n` at 95 %: approximate, but closer to the nominal level on average than the
/// exact one. With n = 0 nothing is known: [0, 1].
pub fn wilson(hits: u64, n: u64) -> Interval {
    if n == 0 {
        return Interval { low: 0.0, high: 1.0 };
    }
    let (p, n) = ((hits as f64 / n as f64).min(1.0), n as f64);
    let centre = p + Z975 * Z975 / (2.0 * n);
    let half = Z975 * (p * (1.0 - p) / n + Z975 * Z975 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z975 * Z975 / n;
    // At p = 0 and p = 1 one end is p itself; rounding must not move it past.
    Interval { low: ((centre - half) / scale).clamp(0.0, p), high: ((centre + half) / scale).clamp(p, 1.0) }
}

/// Conservative 95 % interval of the paired difference (gains − losses)/n, as fractions: gains and losses each get an
/// exact 97.5 % interval, rounded to 4 decimals, and the far ends are subtracted (Bonferroni; RULES §5).
pub fn conservative_difference(gained: u64, lost: u64, n: u64) -> Interval {
    let bound = |count| clopper_pearson(count, n, 0.025).rounded(4);
    let (gain, loss) = (bound(gained), bound(lost));
    Interval { low: gain.low - loss.high, high: gain.high - loss.low }
}

/// Tango's 95 % score interval of the paired difference (gains − losses)/n, as fractions: every difference that a score
/// test at 5 % does not reject. At 0 that test is McNemar's. With n = 0 nothing is known: [−1, 1].
pub fn tango(gained: u64, lost: u64, n: u64) -> Interval {
    if n == 0 {
        return Interval { low: -1.0, high: 1.0 };
    }
    let (b, c, n) = (gained as f64, lost as f64, n as f64);
    let estimate = ((b - c) / n).clamp(-1.0, 1.0);
    let limit = |end: f64| {
        let (mut inside, mut outside) = (estimate, end);
        for _ in 0..60 {
            let middle = (inside + outside) / 2.0;
            if tango_rejects(b, c, n, middle) { outside = middle } else { inside = middle }
        }
        (inside + outside) / 2.0
    };
    Interval { low: limit(-1.0), high: limit(1.0) }
}

/// Whether the score test at 5 % rejects `delta`, with `b` gains and `c` losses in `n` pairs.
fn tango_rejects(b: f64, c: f64, n: f64, delta: f64) -> bool {
    // The likelihood under `delta` is largest where the loss rate solves 2n·p² + linear·p − c·δ(1 − δ) = 0.
    let linear = (2.0 * n - b + c) * delta - b - c;
    let root = (linear * linear + 8.0 * n * c * delta * (1.0 - delta)).max(0.0).sqrt();
    let loss_rate = (root - linear) / (4.0 * n);
    let variance = n * (2.0 * loss_rate + delta * (1.0 - delta));
    (b - c - n * delta).powi(2) > Z975 * Z975 * variance
}

/// Exact two-sided McNemar test of `gained` against `lost` discordant pairs: the p-value.
pub fn mcnemar(gained: u64, lost: u64) -> f64 {
    let discordant = gained.saturating_add(lost);
    match Binomial::new(0.5, discordant) {
        Ok(binomial) if discordant > 0 => (2.0 * binomial.cdf(gained.min(lost))).min(1.0),
        _ => 1.0,
    }
}

/// Whether `upper_bound` is at most `margin`; one value of the distribution function says it.
fn bounded(hits: u64, n: u64, margin: f64, confidence: f64) -> bool {
    let beta = Beta::new(hits as f64 + 1.0, n as f64 - hits as f64);
    margin >= 1.0 || beta.is_ok_and(|beta| beta.cdf(margin) >= confidence)
}

/// How many more clean pairs (no loss) bring the one-sided bound on the loss rate to `margin` or below, given `losses` in
/// `n` pairs so far. None when not even a hundred thousand would.
pub fn pairs_needed(losses: u64, n: u64, margin: f64, confidence: f64) -> Option<u64> {
    const LIMIT: u64 = 100_000;
    let decided = |more: u64| bounded(losses, n.saturating_add(more), margin, confidence);
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
    use proptest::prelude::*;

    fn close(got: f64, want: f64) {
        assert!((got - want).abs() < 5e-5, "{got}, not {want}");
    }

    fn within(got: Interval, low: f64, high: f64, tolerance: f64) {
        let near = (got.low - low).abs() < tolerance && (got.high - high).abs() < tolerance;
        assert!(near, "{got:?}, not [{low}, {high}]");
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
        assert_eq!(pairs_needed(0, 0, 0.05, 0.95), Some(59));
        assert_eq!(pairs_needed(0, 10, 0.05, 0.95), Some(49));
        assert_eq!(pairs_needed(0, 59, 0.05, 0.95), Some(0));
        assert_eq!(pairs_needed(1, 20, 0.05, 0.95), Some(93 - 20)); // 1 loss: 93 pairs, Hahn & Meeker, table A.16
        assert_eq!(pairs_needed(0, 0, 0.05, 0.975), Some(72));
        assert_eq!(pairs_needed(20, 20, 1e-9, 0.95), None);
    }

    /// statsmodels 0.15.0: `proportion_confint(k, n, method="wilson")`; `mcnemar(…, exact=True)`.
    #[test]
    fn wilson_and_mcnemar_equal_statsmodels() {
        for (k, n, low, high) in [
            (0, 10, 0.0, 0.277533),
            (10, 10, 0.722467, 1.0),
            (7, 20, 0.181192, 0.567146),
            (19, 20, 0.763869, 0.991118),
            (59, 59, 0.938871, 1.0),
        ] {
            within(wilson(k, n), low, high, 1e-6);
        }
        close(mcnemar(0, 5), 0.0625);
        close(mcnemar(2, 8), 0.1094);
        close(mcnemar(0, 0), 1.0);
    }

    /// scipy 1.17.1, without the closed form: the likelihood under a difference is maximised by `optimize.brentq` on its
    /// derivative, and the two limits are found by `brentq` on the score. The first row is the airway example of
    /// Fagerland, Lydersen & Laake (Stat. Med. 33 (2014) 2850), who print −0.517 to −0.026 for Tango's interval.
    #[test]
    fn tango_equals_a_numerical_solution() {
        for (gained, lost, n, low, high) in [
            (1, 7, 21, -0.517232, -0.026003),
            (0, 0, 10, -0.277533, 0.277533),
            (0, 1, 20, -0.236131, 0.119181),
            (2, 8, 20, -0.555209, 0.010895),
            (0, 5, 20, -0.468701, -0.048594),
            (6, 6, 20, -0.327200, 0.327200),
            (3, 1, 72, -0.038558, 0.103980),
            (10, 0, 10, 0.444934, 1.0),
            (0, 5, 5, -1.0, -0.131035),
            (12, 2, 50, 0.061112, 0.344709),
        ] {
            within(tango(gained, lost, n), low, high, 1e-6);
        }
    }

    /// scipy 1.17.1: `binomtest(k, n).proportion_ci(0.975, "exact")` of gains and losses, rounded to 4 decimals.
    #[test]
    fn conservative_difference_equals_scipy() {
        for (gained, lost, n, low, high) in [
            (0, 0, 10, -0.3548, 0.3548),
            (0, 1, 20, -0.2793, 0.1962),
            (2, 8, 20, -0.6596, 0.1790),
            (3, 1, 72, -0.0787, 0.1289),
            (0, 5, 5, -1.0000, 0.1674),
        ] {
            within(conservative_difference(gained, lost, n), low, high, 1e-9);
        }
    }

    #[test]
    fn nothing_is_known_of_no_pairs() {
        let nothing = Interval { low: -1.0, high: 1.0 };
        assert_eq!((tango(0, 0, 0), conservative_difference(0, 0, 0)), (nothing, nothing));
    }

    /// Gains, losses and the number of pairs.
    fn pairs() -> impl Strategy<Value = (u64, u64, u64)> {
        (1..=300_u64)
            .prop_flat_map(|n| (0..=n, Just(n)))
            .prop_flat_map(|(discordant, n)| (0..=discordant, Just(discordant), Just(n)))
            .prop_map(|(gained, discordant, n)| (gained, discordant - gained, n))
    }

    const ROUNDING: f64 = 1e-9;

    proptest! {
        #[test]
        fn intervals_of_a_rate_hold_it_and_rise_with_it((gained, lost, n) in pairs()) {
            let hits = gained + lost;
            let exact = |hits| clopper_pearson(hits, n, 0.05);
            for interval in [&exact as &dyn Fn(u64) -> Interval, &|hits| wilson(hits, n)] {
                let (rate, now, other) = (hits as f64 / n as f64, interval(hits), interval(n - hits));
                prop_assert!(0.0 <= now.low && now.low <= rate && rate <= now.high && now.high <= 1.0);
                prop_assert!((now.low - (1.0 - other.high)).abs() < ROUNDING, "hits and misses mirror");
                if hits < n {
                    let more = interval(hits + 1);
                    prop_assert!(now.low < more.low && now.high < more.high);
                }
            }
        }

        #[test]
        fn intervals_of_a_difference_hold_it_and_mirror((gained, lost, n) in pairs()) {
            let estimate = (gained as f64 - lost as f64) / n as f64;
            for interval in [tango, conservative_difference] {
                let (now, mirrored) = (interval(gained, lost, n), interval(lost, gained, n));
                prop_assert!(-1.0 <= now.low && now.high <= 1.0);
                // The exact bounds are rounded to 4 decimals, which may move an end by 1e-4.
                prop_assert!(now.low <= estimate + 1e-4 && estimate <= now.high + 1e-4);
                prop_assert!((now.low + mirrored.high).abs() < ROUNDING);
            }
        }

        /// At a difference of 0 the score test is McNemar's asymptotic one: (b − c)²/(b + c) against z².
        #[test]
        fn tango_excludes_zero_when_mcnemar_does((gained, lost, n) in pairs()) {
            let interval = tango(gained, lost, n);
            let statistic = (gained as f64 - lost as f64).powi(2) / (gained + lost) as f64;
            let significant = gained + lost > 0 && statistic > Z975 * Z975;
            prop_assert_eq!(interval.low > 0.0 || interval.high < 0.0, significant);
        }

        #[test]
        fn mcnemar_does_not_care_which_arm_is_first((gained, lost, _) in pairs()) {
            let p = mcnemar(gained, lost);
            prop_assert!((0.0..=1.0).contains(&p));
            prop_assert_eq!(p, mcnemar(lost, gained));
        }

        #[test]
        fn the_pairs_needed_decide_and_one_less_does_not((_, lost, n) in pairs()) {
            prop_assume!(lost <= 5);
            let needed = pairs_needed(lost, n, 0.05, 0.95).unwrap();
            prop_assert!(upper95(lost, n + needed) <= 0.05);
            prop_assert!(needed == 0 || upper95(lost, n + needed - 1) > 0.05);
        }
    }
}
