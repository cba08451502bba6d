//! What is still to be measured before every recall gate of one platform is decided.

use crate::stats::pairs_needed;
use crate::{Audit, GateCell, GateKind, GateReport, GateVerdict, Platform};
use std::collections::BTreeSet;

/// A run that would decide what is undecided or missing, as far as clean pairs can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Rungs, in padding lines, ascending.
    pub rungs: Vec<u32>,
    /// Samples a rung: those of the largest file that is undecided with what it lacks, or what an unmeasured rung takes.
    pub samples: u64,
}

/// What `platform` lacks of the gates that `report` decided from `audits`; none when nothing is missing or undecided.
pub fn wanted(audits: &[Audit], report: &GateReport, platform: Platform) -> Option<Wanted> {
    let limits = &report.policy.values;
    let fresh = pairs_needed(0, 0, limits.margin(), limits.confidence)?;
    let mut found = Wanted { rungs: Vec::new(), samples: 0 };
    let mut add = |rung, samples: u64| {
        found.rungs.push(rung);
        found.samples = found.samples.max(samples);
    };
    let open = |cell: &&GateCell| is_open(cell, platform) && !is_decided(report, cell);
    for cell in report.cells.iter().filter(open) {
        if let Some((rung, n)) = measured(audits, cell) {
            add(rung, cell.samples_needed.map_or(fresh, |more| n + more));
        }
    }
    if limits.platforms.contains(&platform) {
        let paired = paired(audits, platform);
        limits.ladder.iter().filter(|rung| !paired.contains(rung)).for_each(|rung| add(*rung, fresh));
    }
    found.rungs.sort_unstable();
    found.rungs.dedup();
    (!found.rungs.is_empty()).then_some(found)
}

fn is_open(cell: &GateCell, platform: Platform) -> bool {
    let open = matches!(cell.verdict, GateVerdict::Undecided | GateVerdict::Missing);
    cell.gate == GateKind::Recall && cell.platform == platform && open
}

/// Whether another file has decided the same gate: an older one with fewer samples stays undecided beside it.
fn is_decided(report: &GateReport, open: &GateCell) -> bool {
    let same =
        |cell: &&GateCell| (cell.gate, cell.platform, &cell.rung) == (open.gate, open.platform, &open.rung);
    report.cells.iter().filter(same).any(|cell| matches!(cell.verdict, GateVerdict::Pass | GateVerdict::Fail))
}

/// Rung and samples of the file that a cell rests on; none off the ladder, where nobody can run again what was run.
fn measured(audits: &[Audit], cell: &GateCell) -> Option<(u32, u64)> {
    let file = cell.file.as_ref()?;
    let niah = audits.iter().find(|audit| audit.path == *file)?.niah.as_ref()?;
    Some((niah.rung?, niah.n))
}

/// Rungs at which both arms ran.
fn paired(audits: &[Audit], platform: Platform) -> BTreeSet<u32> {
    let of = audits.iter().filter(|audit| audit.identity.platform == platform);
    of.filter_map(|audit| audit.niah.as_ref().filter(|niah| niah.pair().is_some())?.rung).collect()
}
