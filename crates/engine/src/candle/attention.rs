//! Softmax attention on the processor, in one pass over tiles of queries.
//!
//! A tile's scores stay in the cache between the two products, and a tile works only on keys that one of its queries
//! sees: a sliding layer pays for its window, however long the sequence is.

use crate::backend::Mask;
use crate::numeric;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::array::from_fn;
use std::ops::Range;

/// Queries of a tile. With two vectors of keys for each, sums and operands just fill 16 registers.
const TILE: usize = 6;

/// Columns of a panel: two of the widest vectors.
const PANEL: usize = 32;

/// From this many queries on, products in tiles repay laying keys and values out for them.
const WORTH_TILES: usize = 24;

/// Multiplications that are worth a second thread.
const SHARE: usize = 1 << 16;

/// An array [heads, positions, dim] in any order of its first two axes; the elements of a row lie together.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub values: &'a [f32],
    pub heads: usize,
    pub positions: usize,
    pub dim: usize,
    /// Elements from one head to the next.
    pub head_stride: usize,
    /// Elements from one position to the next.
    pub position_stride: usize,
}

impl<'a> Rows<'a> {
    pub fn row(&self, head: usize, position: usize) -> &'a [f32] {
        &self.values[head * self.head_stride + position * self.position_stride..][..self.dim]
    }
}

/// Keys and values of a run of positions, [kv_heads, positions, dim] each.
pub(crate) struct Keys<'a> {
    pub positions: Range<usize>,
    pub k: Rows<'a>,
    pub v: Rows<'a>,
}

/// What queries are compared with, and how.
pub(crate) struct Attention<'a> {
    /// In the order of their positions.
    pub keys: &'a [Keys<'a>],
    pub scale: f32,
    pub mask: Mask,
    /// Position of the first query.
    pub first: usize,
}

impl<'a> Attention<'a> {
    /// Softmax attention with grouped heads: [queries, heads · dim].
    pub fn of(&self, q: Rows) -> Vec<f32> {
        if q.positions < WORTH_TILES { self.few(q) } else { self.many(q) }
    }

    /// Positions that a query sees: an early range and one that ends near it.
    fn visible(&self, query: usize) -> [Range<usize>; 2] {
        let end = self.keys.last().map_or(0, |last| last.positions.end);
        let (early, near) = self.mask.visible(self.first + query, end);
        [early, near]
    }

    /// The smallest ranges, one or two that do not overlap, that hold what any of the queries sees.
    fn spans(&self, queries: Range<usize>) -> [Range<usize>; 2] {
        let [early, near] =
            queries.map(|query| self.visible(query)).fold([0..0, 0..0], |[early, near], more| {
                let [more_early, more_near] = more;
                [hull(early, more_early), hull(near, more_near)]
            });
        if early.end > near.start { [0..0, hull(early, near)] } else { [early, near] }
    }

    /// Where the positions `spans` lie: runs of rows.
    fn runs(&self, spans: &[Range<usize>; 2]) -> Vec<(&Keys<'a>, Range<usize>)> {
        let run = |(keys, span): (&'a Keys<'a>, &Range<usize>)| {
            let held = &keys.positions;
            let within = |position: usize| position.clamp(held.start, held.end) - held.start;
            let run = within(span.start)..within(span.end);
            (!run.is_empty()).then_some((keys, run))
        };
        self.keys.iter().flat_map(|keys| spans.iter().map(move |span| (keys, span))).filter_map(run).collect()
    }

    fn group(&self, q: Rows, head: usize) -> usize {
        head / (q.heads / self.keys.first().map_or(1, |keys| keys.k.heads))
    }

    /// Each query by itself, straight from the rows: in decoding, laying the keys out anew would cost more than it saves.
    fn few(&self, q: Rows) -> Vec<f32> {
        let runs: Vec<_> = (0..q.positions).map(|query| self.runs(&self.visible(query))).collect();
        let keys: usize = self.keys.iter().map(|keys| keys.positions.len()).sum();
        let mut out = vec![0f32; q.positions * q.heads * q.dim];
        let rows = out.par_chunks_mut(q.dim).with_min_len(SHARE.div_ceil(keys * q.dim));
        rows.enumerate().for_each_init(Vec::new, |scores, (index, out)| {
            let (query, head) = (index / q.heads, index % q.heads);
            let (runs, group) = (&runs[query][..], self.group(q, head));
            let q = q.row(head, query);
            Arch::new().dispatch(Query { q, group, runs, scale: self.scale, scores, out });
        });
        out
    }

    /// Tiles of queries over keys and values laid out in panels.
    fn many(&self, q: Rows) -> Vec<f32> {
        let panels = Panels::of(&self.runs(&self.spans(0..q.positions)));
        let width = q.heads * q.dim;
        let mut out = vec![0f32; q.positions * width];
        let scratch = || vec![0f32; TILE * panels.columns.next_multiple_of(PANEL)];
        out.par_chunks_mut(TILE * width).enumerate().for_each_init(scratch, |scores, (tile, out)| {
            let queries = tile * TILE..(tile * TILE + TILE).min(q.positions);
            Arch::new().dispatch(Tile { attention: self, q, queries, panels: &panels, scores, out });
        });
        out
    }
}

/// One query of one head, for [`Arch::dispatch`].
struct Query<'a> {
    q: &'a [f32],
    /// The head of its keys and values.
    group: usize,
    /// What it sees.
    runs: &'a [(&'a Keys<'a>, Range<usize>)],
    scale: f32,
    scores: &'a mut Vec<f32>,
    /// \[dim\], all 0
    out: &'a mut [f32],
}

impl WithSimd for Query<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { q, group, runs, scale, scores, out } = self;
        scores.clear();
        for (keys, run) in runs {
            // No `extend`: a closure handed over would stay compiled for the oldest processor.
            for row in run.clone() {
                scores.push(numeric::dot(simd, q, keys.k.row(group, row)));
            }
        }
        let all = [0..0, 0..scores.len()];
        let inverse = numeric::softmax(scores, scale, all.clone(), &all);
        let mut weights = scores.iter();
        for (keys, run) in runs {
            for (row, weight) in run.clone().zip(&mut weights) {
                numeric::add_scaled(out, keys.v.row(group, row), weight * inverse);
            }
        }
    }
}

/// The smallest range that holds both.
fn hull(a: Range<usize>, b: Range<usize>) -> Range<usize> {
    match (a.is_empty(), b.is_empty()) {
        (true, _) => b,
        (_, true) => a,
        _ => a.start.min(b.start)..a.end.max(b.end),
    }
}

/// Keys and values in the order in which [`product`] reads them; what is missing to whole panels is 0.
struct Panels {
    /// Runs of positions, one column each.
    positions: Vec<Range<usize>>,
    columns: usize,
    heads: usize,
    dim: usize,
    /// For each head and run of columns [dim, PANEL].
    keys: Vec<f32>,
    /// For each head and run of dimensions [columns, PANEL].
    values: Vec<f32>,
}

impl Panels {
    fn of(runs: &[(&Keys, Range<usize>)]) -> Self {
        let rows: Vec<(&Keys, usize)> =
            runs.iter().flat_map(|(keys, run)| run.clone().map(|row| (*keys, row))).collect();
        let (heads, dim) = rows.first().map_or((0, 0), |(keys, _)| (keys.k.heads, keys.k.dim));
        let key_panels = rows.len().div_ceil(PANEL);
        let mut keys = vec![0f32; heads * key_panels * dim * PANEL];
        keys.par_chunks_mut(dim * PANEL).enumerate().for_each(|(index, panel)| {
            let (head, start) = (index / key_panels, index % key_panels * PANEL);
            for (column, (keys, row)) in rows[start..].iter().take(PANEL).enumerate() {
                let cells = panel.chunks_exact_mut(PANEL).zip(keys.k.row(head, *row));
                cells.for_each(|(cells, value)| cells[column] = *value);
            }
        });
        let value_panels = dim.div_ceil(PANEL);
        let mut values = vec![0f32; heads * value_panels * rows.len() * PANEL];
        values.par_chunks_mut(rows.len() * PANEL).enumerate().for_each(|(index, panel)| {
            let (head, start) = (index / value_panels, index % value_panels * PANEL);
            let end = dim.min(start + PANEL);
            for ((keys, row), cells) in rows.iter().zip(panel.chunks_exact_mut(PANEL)) {
                cells[..end - start].copy_from_slice(&keys.v.row(head, *row)[start..end]);
            }
        });
        let shift = |(keys, run): &(&Keys, Range<usize>)| {
            keys.positions.start + run.start..keys.positions.start + run.end
        };
        Self { positions: runs.iter().map(shift).collect(), columns: rows.len(), heads, dim, keys, values }
    }

    /// Columns of the positions `range`; those without a column lie between two runs.
    fn columns(&self, range: Range<usize>) -> Range<usize> {
        let before = |position: usize| {
            self.positions.iter().map(|run| position.clamp(run.start, run.end) - run.start).sum::<usize>()
        };
        before(range.start)..before(range.end)
    }

    /// [dim, PANEL] of panel `panel`.
    fn keys(&self, head: usize, panel: usize) -> &[f32] {
        let len = self.dim * PANEL;
        &self.keys[(head * self.columns.div_ceil(PANEL) + panel) * len..][..len]
    }

    /// [columns, PANEL] of the dimensions of panel `panel`.
    fn values(&self, head: usize, panel: usize) -> &[f32] {
        let len = self.columns * PANEL;
        &self.values[(head * self.dim.div_ceil(PANEL) + panel) * len..][..len]
    }
}

/// Up to [`TILE`] queries, all heads.
struct Tile<'a> {
    attention: &'a Attention<'a>,
    q: Rows<'a>,
    queries: Range<usize>,
    panels: &'a Panels,
    /// [TILE, columns], in whole panels
    scores: &'a mut [f32],
    /// [queries, heads · dim]
    out: &'a mut [f32],
}

impl WithSimd for Tile<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { attention, q, queries, panels, scores, out } = self;
        let spans = attention.spans(queries.clone()).map(|span| panels.columns(span));
        let visible: Vec<_> = queries
            .clone()
            .map(|query| attention.visible(query).map(|range| panels.columns(range)))
            .collect();
        let stride = scores.len() / TILE;
        for head in 0..q.heads {
            let group = head / (q.heads / panels.heads);
            // A short tile repeats its last query.
            let rows: [&[f32]; TILE] = from_fn(|i| q.row(head, (queries.start + i).min(queries.end - 1)));
            for panel in spans.iter().flat_map(|span| span.start / PANEL..span.end.div_ceil(PANEL)) {
                let mut sums = [[0f32; PANEL]; TILE];
                product(simd, rows, panels.keys(group, panel), &mut sums);
                for (row, sums) in scores.chunks_exact_mut(stride).zip(&sums) {
                    row[panel * PANEL..][..PANEL].copy_from_slice(sums);
                }
            }
            let mut inverse = [0f32; TILE];
            for ((row, inverse), visible) in scores.chunks_exact_mut(stride).zip(&mut inverse).zip(&visible) {
                *inverse = numeric::softmax(row, attention.scale, visible.clone(), &spans);
            }
            for panel in 0..q.dim.div_ceil(PANEL) {
                let values = panels.values(group, panel);
                let mut sums = [[0f32; PANEL]; TILE];
                for span in spans.iter().filter(|span| !span.is_empty()) {
                    let weights: [&[f32]; TILE] = from_fn(|i| &scores[i * stride..][span.clone()]);
                    product(simd, weights, &values[span.start * PANEL..span.end * PANEL], &mut sums);
                }
                let start = head * q.dim + panel * PANEL;
                let end = start + PANEL.min(q.dim - panel * PANEL);
                for ((out, sums), inverse) in out.chunks_exact_mut(q.heads * q.dim).zip(&sums).zip(inverse) {
                    out[start..end].iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * inverse);
                }
            }
        }
    }
}

/// Adds `rows` [TILE, n] times `panel` [n, PANEL] to `sums`.
#[inline(always)]
fn product<S: Simd>(simd: S, rows: [&[f32]; TILE], panel: &[f32], sums: &mut [[f32; PANEL]; TILE]) {
    let depth = panel.len() / PANEL;
    let rows = rows.map(|row| &row[..depth]);
    let pair = 2 * S::F32_LANES;
    for start in (0..PANEL).step_by(pair) {
        let mut sum: [[S::f32s; 2]; TILE] = from_fn(|row| {
            let (sums, _) = S::as_simd_f32s(&sums[row][start..start + pair]);
            [sums[0], sums[1]]
        });
        for (i, cells) in panel.chunks_exact(PANEL).enumerate() {
            let (cells, _) = S::as_simd_f32s(&cells[start..start + pair]);
            let (left, right) = (cells[0], cells[1]);
            for (sum, row) in sum.iter_mut().zip(rows) {
                let factor = simd.splat_f32s(row[i]);
                sum[0] = simd.mul_add_f32s(factor, left, sum[0]);
                sum[1] = simd.mul_add_f32s(factor, right, sum[1]);
            }
        }
        for (sums, sum) in sums.iter_mut().zip(sum) {
            let (sums, _) = S::as_mut_simd_f32s(&mut sums[start..start + pair]);
            (sums[0], sums[1]) = (sum[0], sum[1]);
        }
    }
}
