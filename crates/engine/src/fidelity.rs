//! How far an arm's next-token distribution is from the oracle's.

use protocol::Fidelity;

/// Distance of `logits` from those of the `oracle`; both over the whole vocabulary.
pub fn fidelity(oracle: &[f32], logits: &[f32]) -> Fidelity {
    let difference = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs();
    let (p, q) = (log_softmax(oracle), log_softmax(logits));
    Fidelity {
        max_abs_logit_difference: oracle.iter().zip(logits).map(difference).fold(0.0, f64::max),
        kl: p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>().max(0.0),
    }
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shifted: Vec<f64> = logits.iter().map(|x| f64::from(*x) - f64::from(max)).collect();
    let log_sum = shifted.iter().map(|x| x.exp()).sum::<f64>().ln();
    shifted.into_iter().map(|x| x - log_sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_shift_is_no_divergence_and_a_coin_flip_is_known() {
        let shifted = fidelity(&[1.0, 2.0, 3.0], &[3.0, 4.0, 5.0]);
        assert!((shifted.max_abs_logit_difference - 2.0).abs() < 1e-9 && shifted.kl < 1e-12);
        // p = (1/2, 1/2), q = (1/4, 3/4): KL = ½ ln 2 + ½ ln ⅔
        let coin = fidelity(&[0.0, 0.0], &[0.0, 3f32.ln()]);
        assert!((coin.kl - 0.5 * (2f64.ln() + (2.0f64 / 3.0).ln())).abs() < 1e-6);
    }
}
