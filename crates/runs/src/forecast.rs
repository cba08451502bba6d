//! How long a run will take, from what trials took before.

use crate::run::absolute;
use crate::{Journal, JournalledRun, RunError, Target};
use niah::Rung;
use protocol::{Arm, RunSpec};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use ts_rs::TS;

/// So many earlier runs are looked at, the latest first.
const RUNS: usize = 20;
/// Prompts are taken for equally long whose lengths differ by a smaller logarithm: those of one rung do, whose lines vary by a
/// tenth either way.
const SAME_LENGTH: f64 = 0.25;

/// The time of a run, and what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct TimeForecast {
    /// Seconds of all trials, one after the other; loading the pack comes on top.
    pub seconds: f64,
    /// Finished trials that it rests on: of the pack that was loaded from that folder last, with this library, device and
    /// loop, on this target.
    pub measured: usize,
    /// Rungs of which no trial was ever finished: their time is that of the nearest length, times the ratio of the lengths.
    pub scaled: Vec<u32>,
}

/// What one finished trial took.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pace {
    arm: Arm,
    prompt_tokens: usize,
    seconds: f64,
}

/// Foretells the time of `spec` on `target` from the journal; `lengths` are the prompts' tokens, rung by rung. None while an
/// arm or the length of a rung is not known.
pub fn forecast(
    data: &Path,
    spec: &RunSpec,
    target: &Target,
    lengths: &[(Rung, usize)],
) -> Result<Option<TimeForecast>, RunError> {
    let paces = paces(&Journal::open(data)?, spec, target)?;
    Ok(sum(spec, &paces, lengths))
}

fn paces(journal: &Journal, spec: &RunSpec, target: &Target) -> Result<Vec<Pace>, RunError> {
    let pack = absolute(&spec.pack);
    let alike = |run: &JournalledRun| {
        let of = &run.spec;
        run.target == *target
            && (of.backend, of.device, of.decode) == (spec.backend, spec.device, spec.decode)
            && of.pack == pack
    };
    let (mut paces, mut latest) = (Vec::new(), None);
    for run in journal.runs()?.iter().filter(|run| run.done > 0 && alike(run)).take(RUNS) {
        let packs: Vec<String> =
            journal.answerers(&run.id)?.into_iter().map(|answerer| answerer.pack.digest).collect();
        // The pack may have been another one before; what lies in the folder now was most likely loaded last.
        let latest: &Option<String> = latest.get_or_insert_with(|| packs.last().cloned());
        // What was taken over from another run counts there.
        let own = journal
            .finished(&run.id)?
            .into_values()
            .filter(|finished| finished.origin == run.id && packs.get(finished.worker) == latest.as_ref());
        paces.extend(own.map(|finished| Pace {
            arm: finished.result.arm,
            prompt_tokens: finished.result.prompt_tokens,
            seconds: finished.result.timings.e2e_s,
        }));
    }
    Ok(paces)
}

fn sum(spec: &RunSpec, paces: &[Pace], lengths: &[(Rung, usize)]) -> Option<TimeForecast> {
    let (mut seconds, mut scaled, mut used) = (0.0, Vec::new(), BTreeSet::new());
    for rung in &spec.ladder {
        let (_, tokens) = lengths.iter().find(|(known, _)| known == rung)?;
        for arm in &spec.arms {
            let of = of_trial(paces, *arm, *tokens)?;
            seconds += of.seconds * spec.n_samples as f64;
            used.extend(of.used);
            if of.scaled && scaled.last() != Some(&rung.0) {
                scaled.push(rung.0);
            }
        }
    }
    Some(TimeForecast { seconds, measured: used.len(), scaled })
}

/// What one trial will take.
struct OfTrial {
    seconds: f64,
    /// Places of the paces that this rests on.
    used: Vec<usize>,
    /// They were of another length.
    scaled: bool,
}

/// The mean of an arm's trials on prompts of the length nearest to `tokens`, brought to that length.
fn of_trial(paces: &[Pace], arm: Arm, tokens: usize) -> Option<OfTrial> {
    let apart = |at: usize| (paces[at].prompt_tokens.max(1) as f64 / tokens.max(1) as f64).ln().abs();
    let of_arm = || (0..paces.len()).filter(|at| paces[*at].arm == arm);
    let nearest = of_arm().map(apart).min_by(f64::total_cmp)?;
    let used: Vec<usize> = of_arm().filter(|at| apart(*at) <= nearest + SAME_LENGTH).collect();
    let mean = |of: fn(&Pace) -> f64| used.iter().map(|at| of(&paces[*at])).sum::<f64>() / used.len() as f64;
    let ratio = tokens as f64 / mean(|pace| pace.prompt_tokens as f64).max(1.0);
    let (seconds, scaled) = (mean(|pace| pace.seconds), nearest > SAME_LENGTH);
    Some(OfTrial { seconds: if scaled { seconds * ratio } else { seconds }, used, scaled })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::spec;
    use protocol::Restore;

    const S5: Arm = Arm::Restored(Restore::S5);

    fn pace(arm: Arm, prompt_tokens: usize, seconds: f64) -> Pace {
        Pace { arm, prompt_tokens, seconds }
    }

    #[test]
    fn measured_lengths_count_as_they_are_and_others_by_the_nearest() {
        let paces = [
            pace(Arm::Oracle, 1000, 1.0),
            pace(Arm::Oracle, 1020, 3.0),
            pace(Arm::Oracle, 200, 100.0),
            pace(S5, 1000, 4.0),
        ];
        let lengths = [(Rung(20), 1000), (Rung(70), 4000)];
        let forecast = sum(&spec(10), &paces, &lengths).unwrap();
        assert_eq!(forecast.scaled, [70]);
        let wanted = 10.0 * (2.0 + 4.0) + 10.0 * (2.0 * 4000.0 / 1010.0 + 4.0 * 4.0);
        assert!((forecast.seconds - wanted).abs() < 1e-9, "{} is not {wanted}", forecast.seconds);
        // The one on a short prompt was of no use.
        assert_eq!(forecast.measured, 3);
    }

    #[test]
    fn nothing_is_foretold_of_an_arm_that_never_ran_or_a_length_that_is_unknown() {
        let paces = [pace(Arm::Oracle, 1000, 1.0)];
        assert_eq!(sum(&spec(1), &paces, &[(Rung(20), 1000), (Rung(70), 4000)]), None);
        let paces = [paces[0], pace(S5, 1000, 1.0)];
        assert_eq!(sum(&spec(1), &paces, &[(Rung(20), 1000)]), None);
        assert!(sum(&spec(1), &paces, &[(Rung(20), 1000), (Rung(70), 4000)]).is_some());
    }
}
