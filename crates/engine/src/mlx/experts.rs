//! Routed experts.

use super::weights::Weight;
use super::{dims, gelu_tanh, part};
use crate::Error;
use mlx_rs::Array;
use mlx_rs::ops::{self, argpartition_axis, argsort_axis, softmax_axis};

/// Up to this many experts, all of them in one matrix product beat gathering the chosen ones for each row.
const TOGETHER: i32 = 16;

/// From this many chosen experts on, rows are sorted by expert, so that each expert's weights are read once.
const SORTED: i32 = 64;

/// Experts as they are multiplied fastest.
pub struct Experts {
    kind: Kind,
    /// One output factor for each.
    factors: Array,
}

enum Kind {
    /// All of them on every row: gate and up [E·I, H], down [H, E·I].
    Together { gate: Weight, up: Weight, down: Weight },
    /// The chosen ones on each row: gate and up [E, I, H], down [E, H, I].
    Chosen { gate: Weight, up: Weight, down: Weight },
}

impl Experts {
    pub(super) fn of(gate: Weight, up: Weight, down: Weight, factors: &[f32]) -> Result<Self, Error> {
        let (count, _) = gate.experts();
        let kind = if count <= TOGETHER {
            Kind::Together { gate: gate.stacked()?, up: up.stacked()?, down: down.beside()? }
        } else {
            Kind::Chosen { gate, up, down }
        };
        Ok(Self { kind, factors: Array::from_slice(factors, &[count]) })
    }

    /// See [`crate::backend::Backend::mixture`].
    pub(super) fn mixture(&self, x: &Array, scores: &Array, top_k: i32) -> Result<Array, Error> {
        let (chosen, weights) = self.route(scores, top_k)?;
        match &self.kind {
            Kind::Together { gate, up, down } => {
                let weights = ops::zeros_like(scores)?.put_along_axis(&chosen, &weights, -1)?;
                let [rows, count] = dims(scores)?;
                let inner = gelu_tanh(&gate.product(x)?)?.multiply(up.product(x)?)?;
                let inner = inner.reshape(&[rows, count, -1])?.multiply(weights.expand_dims(2)?)?;
                down.product(&inner.reshape(&[rows, -1])?)
            }
            Kind::Chosen { gate, up, down } => {
                let order = Order::of(&chosen, top_k)?;
                let rows = order.rows(x)?;
                let product =
                    |weight: &Weight, rows: &Array| weight.products(rows, &order.experts, order.sorted);
                let inner = gelu_tanh(&product(gate, &rows)?)?.multiply(product(up, &rows)?)?;
                let out = order.back(&product(down, &inner)?)?;
                Ok(out.multiply(weights.expand_dims(2)?)?.sum_axis(1, false)?)
            }
        }
    }

    /// The `top_k` best-scored experts of each row and their weights, [T, k] each.
    fn route(&self, scores: &Array, top_k: i32) -> Result<(Array, Array), Error> {
        let [_, count] = dims(scores)?;
        let order = argpartition_axis(scores.negative()?, (top_k - 1).min(count - 1), -1)?;
        let chosen = part(&order, 1, 0..top_k.min(count) as usize)?;
        // Over the chosen alone: the others cancel out of what is renormalised.
        let weights = softmax_axis(scores.take_along_axis(&chosen, -1)?, -1, true)?;
        let weights = weights.multiply(self.factors.take_axis(&chosen, 0)?)?;
        Ok((chosen, weights))
    }
}

/// In which order the pairs of row and chosen expert are multiplied.
struct Order {
    /// For each pair its expert.
    experts: Array,
    sorted: bool,
    /// For each pair its row, and for each pair in the order of rows its place; none where that order is kept.
    moved: Option<(Array, Array)>,
    top_k: i32,
}

impl Order {
    fn of(chosen: &Array, top_k: i32) -> Result<Self, Error> {
        let flat = chosen.reshape(&[-1])?;
        if flat.dim(0) < SORTED {
            return Ok(Self { experts: flat, sorted: false, moved: None, top_k });
        }
        let order = argsort_axis(&flat, 0)?;
        let back = argsort_axis(&order, 0)?;
        let rows = order.floor_divide(Array::from_slice(&[top_k as u32], &[1]))?;
        Ok(Self { experts: flat.take_axis(&order, 0)?, sorted: true, moved: Some((rows, back)), top_k })
    }

    /// The rows of `x` [T, H] for each pair: [T·k, 1, H].
    fn rows(&self, x: &Array) -> Result<Array, Error> {
        let [rows, width] = dims(x)?;
        let each = match &self.moved {
            Some((rows, _)) => x.take_axis(rows, 0)?,
            None => {
                let repeated = ops::broadcast_to(x.expand_dims(1)?, &[rows, self.top_k, width])?;
                repeated.reshape(&[-1, width])?
            }
        };
        Ok(each.expand_dims(1)?)
    }

    /// Results [T·k, 1, H] in the order of rows: [T, k, H].
    fn back(&self, results: &Array) -> Result<Array, Error> {
        let flat = results.squeeze_axes(&[1])?;
        let flat = match &self.moved {
            Some((_, back)) => flat.take_axis(back, 0)?,
            None => flat,
        };
        let width = flat.dim(1);
        Ok(flat.reshape(&[-1, self.top_k, width])?)
    }
}
