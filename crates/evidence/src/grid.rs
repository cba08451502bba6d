//! Recall by needle depth and context length, over any set of files.

use crate::audit::{Audit, system};
use crate::identity::Platform;
use crate::model::{Arm, Niah};
use niah::Sample;
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Bins of depth, each a tenth of the padding lines.
pub const DEPTH_BINS: usize = 10;

/// Hits of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GridCell {
    /// Strict hits.
    pub hits: u64,
    /// Samples.
    pub n: u64,
}

impl GridCell {
    fn add(&mut self, hit: bool) {
        self.hits += u64::from(hit);
        self.n += 1;
    }
}

/// One arm on one platform at one length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GridRow {
    /// Arm, by its key in `/results`.
    pub arm: String,
    /// Machine.
    pub platform: Platform,
    /// Rung, padding lines; null off the ladder.
    pub rung: Option<u32>,
    /// Fewest and most padding lines of the files.
    pub lines: [u64; 2],
    /// By depth, from the start of the prompt to its end.
    pub depths: [GridCell; DEPTH_BINS],
    /// All depths.
    pub all: GridCell,
    /// Files that are counted.
    pub files: usize,
}

/// A file that is not counted, because another one holds the same samples of the same system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// The file.
    pub path: PathBuf,
    /// The one that is counted.
    pub same_as: PathBuf,
}

/// Depth × length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Grid {
    /// By arm, platform and length.
    pub rows: Vec<GridRow>,
    /// Duplicates.
    pub left_out: Vec<LeftOut>,
}

/// Pools needle evidence by arm, platform and length; `arm` keeps one arm only. Of files that put the same samples to the
/// same system the largest counts, of equal ones the first by path: pooling both would count one measurement twice.
pub fn grid(audits: &[Audit], arm: Option<&str>) -> Grid {
    let (kept, left_out) = once_each(audits);
    let mut rows: BTreeMap<_, GridRow> = BTreeMap::new();
    for (audit, niah) in kept {
        let (platform, lines) = (audit.identity.platform, niah.lines().unwrap_or_default());
        for counted in niah.arms.iter().filter(|found| arm.is_none_or(|arm| arm == found.key)) {
            let length = niah.rung.map_or((lines[0], lines[1]), |rung| (u64::from(rung), 0));
            let row = rows.entry((counted.key.clone(), platform, length)).or_insert_with(|| GridRow {
                arm: counted.key.clone(),
                platform,
                rung: niah.rung,
                lines,
                depths: [GridCell::default(); DEPTH_BINS],
                all: GridCell::default(),
                files: 0,
            });
            row.count(counted, niah, lines);
        }
    }
    Grid { rows: rows.into_values().collect(), left_out }
}

impl GridRow {
    fn count(&mut self, arm: &Arm, niah: &Niah, [low, high]: [u64; 2]) {
        self.files += 1;
        self.lines = [self.lines[0].min(low), self.lines[1].max(high)];
        for (row, sample) in arm.rows.iter().zip(&niah.samples) {
            self.depths[bin(sample)].add(row.hit);
            self.all.add(row.hit);
        }
    }
}

/// The tenth of the padding in which the needle lies, in integers.
fn bin(sample: &Sample) -> usize {
    let tenth = u64::from(sample.needle_line) * DEPTH_BINS as u64 / u64::from(sample.padding_lines.max(1));
    (tenth as usize).min(DEPTH_BINS - 1)
}

/// Same system and first prompt, then one list of prompts a beginning of the other: the same evidence.
fn once_each(audits: &[Audit]) -> (Vec<(&Audit, &Niah)>, Vec<LeftOut>) {
    let needles = audits.iter().filter_map(|audit| Some((audit, audit.niah.as_ref()?)));
    let mut needles: Vec<_> = needles.filter(|(_, niah)| !niah.samples.is_empty()).collect();
    needles.sort_by_key(|(audit, niah)| (Reverse(niah.samples.len()), &audit.path));
    let mut kept: BTreeMap<String, Vec<(&Audit, &Niah)>> = BTreeMap::new();
    let mut left_out = Vec::new();
    for (audit, niah) in needles {
        let group = kept.entry(format!("{}\n{:?}", system(audit, niah), niah.samples.first())).or_default();
        match group.iter().find(|(_, larger)| larger.samples.starts_with(&niah.samples)) {
            Some((other, _)) => {
                left_out.push(LeftOut { path: audit.path.clone(), same_as: other.path.clone() })
            }
            None => group.push((audit, niah)),
        }
    }
    (kept.into_values().flatten().collect(), left_out)
}
