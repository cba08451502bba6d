//! Files of two platforms that belong side by side.

use evidence::{Audit, PairVerdict, Platform, Scope};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use ts_rs::TS;

/// Files of one platform and rung that are tried; more of them are repetitions.
const MOST_OF_A_RUNG: usize = 24;

/// A CUDA and a Mac file of the same rung.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct PairView {
    /// The rung, or line bounds.
    pub rung: String,
    /// The file from CUDA: the baseline.
    pub cuda: PathBuf,
    /// The file from the Mac.
    pub mac: PathBuf,
    /// Whether the two may be laid side by side.
    pub verdict: PairVerdict,
}

/// For every CUDA file the Mac file of the same rung with which most axes compare; the most comparable pairs first.
pub fn pairs(audits: &[Audit]) -> Vec<PairView> {
    let mut rungs: BTreeMap<String, [Vec<&Audit>; 2]> = BTreeMap::new();
    for audit in audits.iter().filter(|audit| audit.niah.is_some()) {
        let [cuda, mac] = rungs.entry(audit.rung_label()).or_default();
        match audit.identity.platform {
            Platform::Cuda if cuda.len() < MOST_OF_A_RUNG => cuda.push(audit),
            Platform::Mac if mac.len() < MOST_OF_A_RUNG => mac.push(audit),
            _ => {}
        }
    }
    let mut pairs: Vec<(Reverse<usize>, PairView)> = Vec::new();
    for (rung, [cuda, mac]) in &rungs {
        for baseline in cuda {
            let rated = mac.iter().map(|other| rate(rung, baseline, other));
            pairs.extend(rated.min_by_key(|(rating, _)| *rating));
        }
    }
    pairs.sort_by_key(|(rating, _)| *rating);
    pairs.into_iter().map(|(_, pair)| pair).collect()
}

fn rate(rung: &str, cuda: &Audit, mac: &Audit) -> (Reverse<usize>, PairView) {
    let comparison = evidence::compare(cuda, mac);
    let comparable = comparison.axes.iter().filter(|axis| axis.scope != Scope::No).count();
    let weight = match comparison.verdict {
        PairVerdict::Diffable => 20,
        PairVerdict::DiffableWithWarning => 10,
        PairVerdict::NotComparable => 0,
    };
    let verdict = comparison.verdict;
    let pair = PairView { rung: rung.to_owned(), cuda: cuda.path.clone(), mac: mac.path.clone(), verdict };
    (Reverse(weight + comparable), pair)
}
