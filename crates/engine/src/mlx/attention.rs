//! Attention over segments under a described mask.

use super::{dims, part};
use crate::backend::{Mask, Segment};
use crate::columns::{Columns, queried, seen};
use crate::{Error, numeric};
use mlx_rs::fast::{ScaledDotProductAttentionMask as Shown, scaled_dot_product_attention};
use mlx_rs::{Array, ops};
use std::ops::Range;

/// See [`crate::backend::Backend::attention`]; `block` queries are scored at once.
pub(super) fn attention(
    q: &Array,
    keys: &[Segment<Array>],
    scale: f32,
    mask: Mask,
    block: usize,
) -> Result<Array, Error> {
    let [heads, queries, dim] = dims(q)?;
    let first = queried(keys, queries as usize)?;
    let mut blocks = Vec::new();
    for start in (0..queries as usize).step_by(block) {
        let end = (start + block).min(queries as usize);
        let seen = seen(keys, mask, first + start..first + end, |x, range| part(x, 1, range))?;
        let side =
            |side: fn(&Segment<Array>) -> &Array| joined(&seen, side)?.expand_dims(0).map_err(Error::from);
        let (k, v) = (side(|segment| &segment.k)?, side(|segment| &segment.v)?);
        let shown = Visible::of(mask, first + start..first + end, &Columns::of_segments(&seen));
        let q = part(q, 1, start..end)?.expand_dims(0)?;
        let out = scaled_dot_product_attention(&q, &k, &v, scale, shown.as_mask(), None)?;
        blocks.push(out.squeeze_axes(&[0])?.swap_axes(0, 1)?.reshape(&[(end - start) as i32, heads * dim])?);
    }
    Ok(if blocks.len() == 1 { blocks.swap_remove(0) } else { ops::concatenate(&blocks, 0)? })
}

/// See [`crate::backend::Backend::attention_mass`].
pub(super) fn mass(
    q: &Array,
    keys: &[Segment<Array>],
    scale: f32,
    mask: Mask,
    range: Range<usize>,
) -> Result<f64, Error> {
    let [heads, queries, dim] = dims(q)?;
    let position = queried(keys, queries as usize)? + queries as usize - 1;
    let seen = seen(keys, mask, position..position + 1, |x, range| part(x, 1, range))?;
    let (columns, k) = (Columns::of_segments(&seen), joined(&seen, |segment| &segment.k)?);
    let groups = k.dim(0);
    let last = part(q, 1, queries as usize - 1..queries as usize)?.reshape(&[groups, heads / groups, dim])?;
    let scores = last.matmul(k.swap_axes(1, 2)?)?.contiguous()?;
    let mut scores: Vec<f32> = scores.to_vec_exact().map_err(|error| Error::Tensor(error.to_string()))?;
    let (early, near) = mask.visible(position, position + 1);
    let (early, near, range) = (columns.of(early), columns.of(near), columns.of(range));
    let share = |row: &mut [f32]| {
        let inverse = numeric::softmax(row, scale, [early.clone(), near.clone()], &[0..0, 0..row.len()]);
        f64::from(inverse) * row[range.clone()].iter().copied().map(f64::from).sum::<f64>()
    };
    Ok(scores.chunks_mut(columns.count()).map(share).sum::<f64>() / f64::from(heads))
}

/// One side of all segments.
fn joined(seen: &[Segment<Array>], side: fn(&Segment<Array>) -> &Array) -> Result<Array, Error> {
    match seen {
        [segment] => Ok(side(segment).clone()),
        _ => Ok(ops::concatenate(&seen.iter().map(side).collect::<Vec<_>>(), 1)?),
    }
}

/// Which keys the queries of a block see, in the cheapest form that says it.
enum Visible {
    Everything,
    /// The last query all keys, the one before all but one, and so on.
    Causal,
    /// [queries, keys].
    These(Array),
}

impl Visible {
    fn of(mask: Mask, block: Range<usize>, columns: &Columns) -> Self {
        let (queries, keys) = (block.len(), columns.count());
        let rows: Vec<_> = block
            .map(|position| {
                let (early, near) = mask.visible(position, columns.end());
                (columns.of(early), columns.of(near))
            })
            .collect();
        // How far each query sees, where it sees everything up to there.
        let upto = |(early, near): &(Range<usize>, Range<usize>)| {
            (early.len() + near.len() == near.end).then_some(near.end)
        };
        if rows.iter().all(|row| upto(row) == Some(keys)) {
            return Self::Everything;
        }
        if keys >= queries
            && rows.iter().enumerate().all(|(i, row)| upto(row) == Some(keys - queries + 1 + i))
        {
            return Self::Causal;
        }
        let mut shown = vec![false; queries * keys];
        for (row, (early, near)) in shown.chunks_mut(keys).zip(rows) {
            row[early].fill(true);
            row[near].fill(true);
        }
        Self::These(Array::from_slice(&shown, &[queries as i32, keys as i32]))
    }

    fn as_mask(&self) -> Option<Shown<'_>> {
        match self {
            Self::Everything => None,
            Self::Causal => Some(Shown::Causal),
            Self::These(shown) => Some(Shown::Array(shown)),
        }
    }
}
