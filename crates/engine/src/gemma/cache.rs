//! K/V that decoding keeps from one step to the next.

use super::Latents;
use super::plan::{Form, Part, Plan, is_worth_dropping, spare};
use crate::Error;
use crate::backend::Backend;
use protocol::{KvBytes, LayerKind};
use std::ops::Range;

/// What the plan says is held, in arrays that grow at the end and are dropped at the front.
pub struct Cache<T> {
    plan: Plan,
    positions: usize,
    /// For each layer with K/V of its own a run for each part of the plan.
    layers: Vec<Vec<Run<T>>>,
    latents: Option<Run<T>>,
}

/// Arrays whose rows along `axis` belong to consecutive positions.
struct Run<T> {
    axis: usize,
    arrays: Vec<T>,
    /// Position of the arrays' first row.
    first: usize,
    /// Positions that are held.
    positions: Range<usize>,
}

/// Something at a run of positions.
pub(super) type At<X> = (Range<usize>, X);

/// Rows of a part that a query may see.
pub(super) enum Held<T> {
    /// K and V, after norm and rotation.
    Both(T, T),
    /// V of a layer whose V is the raw K.
    Value(T),
    /// Latents.
    Latent(Latents<T>),
}

impl<T: Clone> Cache<T> {
    /// An empty cache. `latents` are those of `evicted`, where the plan keeps any.
    pub fn new(plan: Plan, latents: Option<(Range<usize>, Latents<T>)>) -> Self {
        let layers = plan.layers.iter().map(|layer| {
            let parts = layer.iter().flat_map(|(_, parts)| parts);
            parts.map(|part| Run::new(1, Vec::new(), part.positions.start..part.positions.start)).collect()
        });
        let latents = latents.map(|(positions, latents)| Run::new(0, vec![latents.k, latents.v], positions));
        Self { positions: 0, layers: layers.collect(), latents, plan }
    }

    /// Positions so far.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// What it was made by.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes of the arrays that are held, the room that they have left included.
    pub fn bytes<B: Backend<Tensor = T>>(&self, b: &B) -> KvBytes {
        let mut bytes = KvBytes::default();
        for (layer, runs) in self.plan.layers.iter().zip(&self.layers) {
            let total = runs.iter().map(|run| run.bytes(b)).sum::<u64>();
            match layer.as_ref().map(|(layer, _)| layer.geometry.kind) {
                Some(LayerKind::Sliding) => bytes.sliding_resident += total,
                Some(LayerKind::Full) => bytes.full_resident += total,
                None => {}
            }
        }
        bytes.latent = self.latents.as_ref().map_or(0, |latents| latents.bytes(b));
        bytes
    }

    /// Computes what is pending of it.
    pub fn evaluate<B: Backend<Tensor = T>>(&self, b: &B) -> Result<(), Error> {
        let runs = self.layers.iter().flatten().chain(&self.latents);
        b.evaluate(&runs.flat_map(|run| &run.arrays).collect::<Vec<_>>())
    }

    /// What `layer` holds from position `from` on.
    pub(super) fn rows<B: Backend<Tensor = T>>(
        &self,
        b: &B,
        layer: usize,
        from: usize,
    ) -> Result<Vec<At<Held<T>>>, Error> {
        let Some((_, parts)) = &self.plan.layers[layer] else { return Ok(Vec::new()) };
        let mut held = Vec::new();
        for (part, run) in parts.iter().zip(&self.layers[layer]) {
            let run = if part.form == Form::Latent { self.latents.as_ref() } else { Some(run) };
            let Some(run) = run else { continue };
            let all =
                if part.form == Form::Latent { part.held(self.positions) } else { run.positions.clone() };
            // The sink is small and stays: the mask knows whether it is seen.
            let seen = if part.limit.is_some() { from.clamp(all.start, all.end)..all.end } else { all };
            if !seen.is_empty() {
                held.push((seen.clone(), Held::of(part.form, run.views(b, seen)?)?));
            }
        }
        Ok(held)
    }

    /// K and V of `positions`, up to the last that `layer` has taken, where one array of each has all of them: also what
    /// no later query sees is there until it is dropped.
    pub(super) fn in_one_piece<B: Backend<Tensor = T>>(
        &self,
        b: &B,
        layer: usize,
        positions: Range<usize>,
    ) -> Result<Option<(T, T)>, Error> {
        let Some((_, parts)) = &self.plan.layers[layer] else { return Ok(None) };
        let has = |run: &Run<T>| run.first <= positions.start && run.positions.end == positions.end;
        let mut runs = parts.iter().zip(&self.layers[layer]).filter(|(part, _)| part.form == Form::Both);
        let Some((_, run)) = runs.find(|(_, run)| has(run)) else { return Ok(None) };
        let mut rows = run.views(b, positions)?.into_iter();
        Ok(rows.next().zip(rows.next()))
    }

    /// Takes the rows `k` and `v` of the next positions of `layer`, as far as the plan keeps them.
    pub(super) fn push<B: Backend<Tensor = T>>(
        &mut self,
        b: &B,
        layer: usize,
        k: &T,
        v: &T,
    ) -> Result<(), Error> {
        let Some((_, parts)) = &self.plan.layers[layer] else { return Ok(()) };
        let new = self.positions..self.positions + b.shape(k)[1];
        for (part, run) in parts.iter().zip(&mut self.layers[layer]) {
            let rows: &[&T] = match part.form {
                Form::Both => &[k, v],
                Form::Value => &[v],
                Form::Latent => continue,
            };
            run.push(b, part, rows, new.clone(), self.plan.prompt)?;
        }
        Ok(())
    }

    /// All layers have taken the positions up to `end`: latents that nobody sees any more are dropped.
    pub(super) fn advance<B: Backend<Tensor = T>>(&mut self, b: &B, end: usize) -> Result<(), Error> {
        self.positions = end;
        let Some(latents) = &mut self.latents else { return Ok(()) };
        let last = latents.positions.end;
        let seen =
            self.plan.first_latent(end).map_or(last, |first| first.clamp(latents.positions.start, last));
        let (dead, live) = (seen - latents.first, last - seen);
        if dead > 0 && (end <= self.plan.prompt || is_worth_dropping(dead, live)) {
            if live == 0 {
                self.latents = None;
            } else {
                latents.compact(b, seen)?;
            }
        }
        Ok(())
    }
}

impl<T> Held<T> {
    fn of(form: Form, rows: Vec<T>) -> Result<Self, Error> {
        let mut rows = rows.into_iter();
        match (form, rows.next(), rows.next()) {
            (Form::Both, Some(k), Some(v)) => Ok(Self::Both(k, v)),
            (Form::Value, Some(v), None) => Ok(Self::Value(v)),
            (Form::Latent, Some(k), Some(v)) => Ok(Self::Latent(Latents { k, v })),
            _ => Err(Error::Tensor(format!("a cache part of form {form:?} lacks an array"))),
        }
    }
}

impl<T> Run<T> {
    fn new(axis: usize, arrays: Vec<T>, positions: Range<usize>) -> Self {
        Self { axis, arrays, first: positions.start, positions }
    }

    fn bytes<B: Backend<Tensor = T>>(&self, b: &B) -> u64 {
        self.arrays.iter().map(|array| b.bytes(array)).sum()
    }

    fn capacity<B: Backend<Tensor = T>>(&self, b: &B) -> usize {
        self.arrays.first().map_or(0, |array| b.shape(array)[self.axis])
    }

    /// Rows of `positions`, which must be held.
    fn views<B: Backend<Tensor = T>>(&self, b: &B, positions: Range<usize>) -> Result<Vec<T>, Error> {
        let range = positions.start - self.first..positions.end - self.first;
        self.arrays.iter().map(|array| b.view(array, self.axis, range.clone())).collect()
    }

    /// Copies what is held from `start` on into arrays without room to spare.
    fn compact<B: Backend<Tensor = T>>(&mut self, b: &B, start: usize) -> Result<(), Error> {
        let range = start - self.first..self.positions.end - self.first;
        let part = |array| b.slice(array, self.axis, range.clone());
        self.arrays = self.arrays.iter().map(part).collect::<Result<_, _>>()?;
        (self.first, self.positions.start) = (start, start);
        Ok(())
    }

    /// Appends the rows of `new` that `part` keeps, and forgets what it keeps no more.
    fn push<B: Backend<Tensor = T>>(
        &mut self,
        b: &B,
        part: &Part,
        rows: &[&T],
        new: Range<usize>,
        prompt: usize,
    ) -> Result<(), Error> {
        let kept = part.held(new.end);
        let start = new.start.max(kept.start).min(kept.end);
        self.positions.start = self.positions.start.max(kept.start).min(self.positions.end);
        let live = self.positions.clone();
        if start >= kept.end {
            return Ok(());
        }
        if kept.end > self.first + self.capacity(b) {
            let wanted = kept.len();
            let room =
                if new.end <= prompt { wanted.max(part.held(prompt).len()) } else { wanted + spare(wanted) };
            self.move_to(b, rows, live, kept.start, room)?;
        }
        for (array, row) in self.arrays.iter_mut().zip(rows) {
            let row = b.view(row, self.axis, start - new.start..kept.end - new.start)?;
            b.write(array, self.axis, start - self.first, &row)?;
        }
        self.positions = kept;
        Ok(())
    }

    /// New arrays, shaped as `like` but with `room` rows, of which the first belongs to `first`; what is `live` moves.
    fn move_to<B: Backend<Tensor = T>>(
        &mut self,
        b: &B,
        like: &[&T],
        live: Range<usize>,
        first: usize,
        room: usize,
    ) -> Result<(), Error> {
        let old = if live.is_empty() { Vec::new() } else { self.views(b, live.clone())? };
        let empty = |like: &&T| {
            let mut shape = b.shape(like);
            shape[self.axis] = room;
            b.zeros(&shape)
        };
        let mut arrays = like.iter().map(empty).collect::<Result<Vec<_>, _>>()?;
        for (array, old) in arrays.iter_mut().zip(&old) {
            b.write(array, self.axis, live.start - first, old)?;
        }
        (self.arrays, self.first) = (arrays, first);
        Ok(())
    }
}
