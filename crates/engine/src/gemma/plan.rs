//! Which positions each layer keeps after a pass, and in which form: decided before prefill, and all that its memory
//! depends on. The cache allocates by it, and forecasts are read off it.

use protocol::{KvBytes, LayerGeometry, LayerKind};
use std::ops::Range;

/// K/V of one layer that projects its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayer {
    /// Kind and sizes.
    pub geometry: LayerGeometry,
    /// Whether V is the raw K, so that one of them can be made from the other.
    pub value_is_key: bool,
}

/// What is known of a sequence before its prefill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Positions of the prompt.
    pub prompt: usize,
    /// The evicted positions; empty for none.
    pub evicted: Range<usize>,
    /// Keys that a query of a sliding layer sees, its own counted.
    pub native_window: usize,
}

/// How the evicted positions of one layer are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// Like all others.
    Resident,
    /// K and V both, because neither follows from the other.
    Apart,
    /// As f_θ's latent.
    Latent,
    /// Not at all.
    Nowhere,
}

/// In which form a part holds its positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// K and V, after norm and rotation.
    Both,
    /// V alone, the raw projection after its norm: K is the same times the weight of K's norm, rotated.
    Value,
    /// Nothing of the layer's own; the shared latents.
    Latent,
}

/// A run of positions of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// First and last positions; the last part is open.
    pub positions: Range<usize>,
    pub form: Form,
    /// Keys before the next query that it still sees; none for all.
    pub limit: Option<usize>,
}

impl Part {
    fn open(start: usize, form: Form, limit: Option<usize>) -> Self {
        Self { positions: start..usize::MAX, form, limit }
    }

    fn pinned(positions: Range<usize>, form: Form) -> Self {
        Self { positions, form, limit: None }
    }

    /// First position that is still seen when `end` positions have passed.
    pub fn low(&self, end: usize) -> usize {
        self.limit.map_or(0, |limit| end.saturating_sub(limit)).max(self.positions.start)
    }

    /// Positions that are held when `end` have passed.
    pub fn held(&self, end: usize) -> Range<usize> {
        let end = self.positions.end.min(end);
        self.low(end).min(end)..end
    }
}

/// What every layer keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) prompt: usize,
    pub(super) layers: Vec<Option<(KvLayer, Vec<Part>)>>,
}

impl Plan {
    /// What the model's own masks let later queries see; of the evicted positions, what `evicted` says of each layer
    /// (resident or nowhere).
    pub fn native(
        layers: &[Option<KvLayer>],
        sequence: &Sequence,
        evicted: impl Fn(usize) -> Evicted,
    ) -> Self {
        Self::new(layers, sequence, |i, _, limit| match evicted(i) {
            Evicted::Nowhere if !sequence.evicted.is_empty() => {
                around(&sequence.evicted, Form::Both, None, limit)
            }
            _ => vec![Part::open(0, Form::Both, limit)],
        })
    }

    /// The first `sink` positions and the last `window`, its own counted, on every layer.
    pub fn sink_window(layers: &[Option<KvLayer>], sequence: &Sequence, sink: usize, window: usize) -> Self {
        let limit = Some(window.saturating_sub(1));
        let parts = vec![Part::pinned(0..sink, Form::Both), Part::open(sink, Form::Both, limit)];
        Self::new(layers, sequence, |_, _, _| parts.clone())
    }

    /// Sink and window, and of the evicted positions what `evicted` says of each layer. What no later query sees is
    /// dropped, but for the sink.
    pub fn bounded(
        layers: &[Option<KvLayer>],
        sequence: &Sequence,
        evicted: impl Fn(usize) -> Evicted,
    ) -> Self {
        Self::new(layers, sequence, |i, layer, limit| {
            let resident = if layer.value_is_key { Form::Value } else { Form::Both };
            let form = match evicted(i) {
                Evicted::Resident => Some(resident),
                Evicted::Apart => Some(Form::Both),
                Evicted::Latent => Some(Form::Latent),
                Evicted::Nowhere => None,
            };
            if sequence.evicted.is_empty() || form == Some(resident) {
                vec![Part::open(0, resident, limit)]
            } else {
                around(&sequence.evicted, resident, form, limit)
            }
        })
    }

    fn new(
        layers: &[Option<KvLayer>],
        sequence: &Sequence,
        parts: impl Fn(usize, &KvLayer, Option<usize>) -> Vec<Part>,
    ) -> Self {
        let planned = |(i, layer): (usize, &Option<KvLayer>)| {
            let layer = (*layer)?;
            let sliding = layer.geometry.kind == LayerKind::Sliding;
            Some((layer, parts(i, &layer, sliding.then(|| sequence.native_window.saturating_sub(1)))))
        };
        Self { prompt: sequence.prompt, layers: layers.iter().enumerate().map(planned).collect() }
    }

    /// First position whose latent some layer still sees when `end` positions have passed; none without latents.
    pub(super) fn first_latent(&self, end: usize) -> Option<usize> {
        let parts = self.layers.iter().flatten().flat_map(|(_, parts)| parts);
        let latent = parts.filter(|part| part.form == Form::Latent && part.low(end) < part.positions.end);
        latent.map(|part| part.low(end)).min()
    }

    /// Bytes when the prompt and `generated` more positions have passed, for latents of `rank` numbers on either side
    /// and numbers of `width` bytes. Formula; the cache's own count comes from its arrays, which are of these sizes.
    pub fn bytes(&self, generated: usize, rank: usize, width: usize) -> KvBytes {
        let mut bytes = KvBytes::default();
        for (layer, parts) in self.layers.iter().flatten() {
            let rows = |part: &Part| rows(part, self.prompt, generated) * numbers(layer, part.form);
            let total = (parts.iter().map(rows).sum::<usize>() * width) as u64;
            match layer.geometry.kind {
                LayerKind::Sliding => bytes.sliding_resident += total,
                LayerKind::Full => bytes.full_resident += total,
            }
        }
        bytes.latent = (self.latent_rows(generated) * 2 * rank * width) as u64;
        bytes
    }

    fn latent_rows(&self, generated: usize) -> usize {
        let parts = self.layers.iter().flatten().flat_map(|(_, parts)| parts);
        let Some(end) = parts.filter(|part| part.form == Form::Latent).map(|part| part.positions.end).max()
        else {
            return 0;
        };
        let mut first = self.first_latent(self.prompt).unwrap_or(end);
        for passed in 1..=generated {
            let seen = self.first_latent(self.prompt + passed).unwrap_or(end);
            if is_worth_dropping(seen - first, end - seen) {
                first = seen;
            }
        }
        end - first
    }
}

/// Bytes of K and V of all `positions` on every layer, in numbers of `width` bytes: what an unbounded cache holds, by
/// formula.
pub fn full_bytes(layers: &[Option<KvLayer>], positions: usize, width: usize) -> KvBytes {
    capped_bytes(layers, positions, usize::MAX, width)
}

/// Bytes of K and V of all `positions` on full-attention layers and of the last `native_window` on sliding ones, in
/// numbers of `width` bytes: what the model's own cache holds, by formula.
pub fn native_bytes(
    layers: &[Option<KvLayer>],
    positions: usize,
    native_window: usize,
    width: usize,
) -> KvBytes {
    capped_bytes(layers, positions, native_window, width)
}

fn capped_bytes(layers: &[Option<KvLayer>], positions: usize, window: usize, width: usize) -> KvBytes {
    let of = |kind: LayerKind, positions: usize| {
        let layers = layers.iter().flatten().filter(|layer| layer.geometry.kind == kind);
        (layers.map(|layer| numbers(layer, Form::Both)).sum::<usize>() * positions * width) as u64
    };
    KvBytes {
        sliding_resident: of(LayerKind::Sliding, positions.min(window)),
        full_resident: of(LayerKind::Full, positions),
        latent: 0,
    }
}

/// Numbers of one position of a layer.
fn numbers(layer: &KvLayer, form: Form) -> usize {
    let one = layer.geometry.kv_heads * layer.geometry.head_dim;
    match form {
        Form::Both => 2 * one,
        Form::Value => one,
        Form::Latent => 0,
    }
}

/// Sink, evicted positions in `form` if any, and the rest.
fn around(evicted: &Range<usize>, resident: Form, form: Option<Form>, limit: Option<usize>) -> Vec<Part> {
    let mut parts = vec![Part::pinned(0..evicted.start, resident)];
    parts.extend(form.map(|form| Part { positions: evicted.clone(), form, limit }));
    parts.push(Part::open(evicted.end, resident, limit));
    parts
}

/// Rows that the array of a part has room for after `generated` positions beyond the prompt.
fn rows(part: &Part, prompt: usize, generated: usize) -> usize {
    let mut capacity = part.held(prompt).len();
    let mut used = capacity;
    for end in prompt + 1..=prompt + generated {
        if end > part.positions.end {
            break;
        }
        if used == capacity {
            used = part.held(end).len();
            capacity = used + spare(used);
        } else {
            used += 1;
        }
    }
    capacity
}

/// Rows that an array of `rows` grows by at once while tokens are generated: often enough not to waste much, seldom
/// enough that copying costs less than attending.
pub(super) fn spare(rows: usize) -> usize {
    (rows / 16).max(8)
}

/// Whether an array of which `dead` rows are unseen and `live` seen is copied to get rid of the unseen.
pub(super) fn is_worth_dropping(dead: usize, live: usize) -> bool {
    dead > 0 && (live == 0 || dead >= spare(live))
}
