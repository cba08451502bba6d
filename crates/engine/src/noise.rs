//! Noise that takes the place of f_θ's output in a control.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

/// Which noise: the same seed and sample give the same numbers on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// Seed of the run.
    pub seed: i64,
    /// Sample index.
    pub sample: usize,
}

impl Noise {
    /// Gaussian numbers, as many as `values`, with their mean and their norm. `stream` tells the arrays of one sample
    /// apart; a longer array begins with the same draws.
    pub fn like(self, values: &[f32], stream: u32) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed as u64);
        rng.set_stream(((self.sample as u64) << 32) | u64::from(stream));
        let drawn: Vec<f64> = StandardNormal.sample_iter(&mut rng).take(values.len()).collect();
        let (mean, deviation) = moments(values.iter().copied().map(f64::from));
        let (drawn_mean, drawn_deviation) = moments(drawn.iter().copied());
        let factor = if drawn_deviation > 0.0 { deviation / drawn_deviation } else { 0.0 };
        drawn.into_iter().map(|x| (mean + (x - drawn_mean) * factor) as f32).collect()
    }
}

/// Mean and standard deviation; 0 of nothing.
fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = (values.clone().count() as f64).max(1.0);
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_reproducible_and_has_the_mean_and_norm_of_its_model() {
        let values: Vec<f32> = (0..4096).map(|i| 0.3 + (i as f32 * 0.37).sin().powi(3)).collect();
        let noise = Noise { seed: 42, sample: 3 };
        let drawn = noise.like(&values, 5);
        assert_eq!(drawn, noise.like(&values, 5));
        let others = [
            Noise { seed: 43, ..noise }.like(&values, 5),
            Noise { sample: 4, ..noise }.like(&values, 5),
            noise.like(&values, 6),
        ];
        for other in others.iter().chain([&values]) {
            let product: f32 = drawn.iter().zip(other).map(|(a, b)| (a - 0.3) * (b - 0.3)).sum();
            assert!(product.abs() / 4096.0 < 0.05, "{product}: independent of each other and of their model");
        }
        let sums =
            |x: &[f32]| x.iter().fold((0.0, 0.0), |(s, q), x| (s + f64::from(*x), q + f64::from(*x).powi(2)));
        let ((sum, squares), (drawn_sum, drawn_squares)) = (sums(&values), sums(&drawn));
        assert!((sum - drawn_sum).abs() < 1e-3 && (squares - drawn_squares).abs() < 1e-3);
        assert!(noise.like(&[], 0).is_empty());
        assert_eq!(noise.like(&[2.5], 0), [2.5]);
    }
}
