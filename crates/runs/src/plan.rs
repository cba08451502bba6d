//! The trials of a run, and what makes one the same as another.

use crate::{RunError, Shard};
use niah::{Dataset, Rung, Sample};
use protocol::{Arm, Backend, Decode, Device, Hello, RunSpec, Trial};
use serde::{Deserialize, Serialize};

/// The program that answers: a trial is the same only where this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Version of the program.
    pub version: String,
    /// Git commit; none outside a checkout.
    pub commit: Option<String>,
    /// Whether the checkout had uncommitted changes.
    pub dirty: bool,
    /// Tensor library.
    pub backend: Backend,
    /// Device.
    pub device: Device,
}

impl Build {
    /// The engine that said `hello`, doing what `spec` asks for.
    pub fn of(hello: &Hello, spec: &RunSpec) -> Self {
        Self {
            version: hello.version.clone(),
            commit: hello.commit.clone(),
            dirty: hello.dirty,
            backend: spec.backend,
            device: spec.device,
        }
    }
}

/// One trial of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    pub rung: Rung,
    pub sample: usize,
    pub arm: Arm,
    /// What the engine is asked; its id is the identity of the trial.
    pub trial: Trial,
}

impl Planned {
    pub(crate) fn id(&self) -> &str {
        &self.trial.id
    }
}

/// One rung: its dataset, and the trials of it that are to be answered, arms taking turns on each sample, so that a drift
/// of the machine's speed meets all arms alike.
#[derive(Clone, Debug)]
pub(crate) struct RungPlan {
    pub rung: Rung,
    pub dataset: Dataset,
    pub samples: Vec<Sample>,
    pub trials: Vec<Planned>,
}

/// Every trial of `spec` answered by `build` on the pack of that digest, or those of one shard, rung by rung.
pub(crate) fn plan(
    spec: &RunSpec,
    build: &Build,
    pack: &str,
    shard: Option<Shard>,
) -> Result<Vec<RungPlan>, RunError> {
    spec.check()?;
    spec.ladder.iter().map(|rung| of_rung(spec, build, pack, shard, *rung)).collect()
}

fn of_rung(
    spec: &RunSpec,
    build: &Build,
    pack: &str,
    shard: Option<Shard>,
    rung: Rung,
) -> Result<RungPlan, RunError> {
    let dataset = rung.dataset(spec.seed, spec.n_samples);
    let samples: Vec<Sample> = dataset.samples()?.collect();
    let mine = |sample: &&Sample| shard.is_none_or(|shard| shard.holds(sample.index));
    let planned = |sample: &Sample, arm: Arm| {
        let mut trial = trial(spec, sample, arm);
        trial.id = identity(&trial, build, pack);
        Planned { rung, sample: sample.index, arm, trial }
    };
    let trials = samples.iter().filter(mine).flat_map(|s| spec.arms.iter().map(move |a| planned(s, *a)));
    Ok(RungPlan { rung, trials: trials.collect(), dataset, samples })
}

fn trial(spec: &RunSpec, sample: &Sample, arm: Arm) -> Trial {
    Trial {
        id: String::new(),
        arm,
        prompt: spec.prompt.text(sample),
        variant: spec.prompt,
        decode: spec.decode,
        sink: spec.sink,
        window: spec.window,
        max_new_tokens: spec.max_new_tokens,
        prefill_chunk: spec.prefill_chunk,
        seed: spec.seed,
        sample: sample.index,
        fidelity: spec.arms.contains(&Arm::Oracle),
        answer: (spec.decode == Decode::TeacherForced).then(|| spec.prompt.completion(sample)),
    }
}

/// SHA-256 over everything that the answer depends on: pack, program, the prompt's text and every setting of the trial.
/// The number of samples and the other arms are not among it, so a longer run finds the trials of a shorter one.
fn identity(trial: &Trial, build: &Build, pack: &str) -> String {
    // The oracle's own answer is the same whether or not its first step is kept for others.
    let asked = Trial { fidelity: trial.fidelity && trial.arm != Arm::Oracle, ..trial.clone() };
    files::sha256(serde_json::json!({ "pack": pack, "build": build, "trial": asked }).to_string().as_bytes())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use niah::PromptVariant;
    use protocol::Restore;
    use std::collections::BTreeSet;

    pub(crate) fn spec(n_samples: usize) -> RunSpec {
        RunSpec {
            pack: "pack".into(),
            backend: Backend::Candle,
            device: Device::Cpu,
            arms: vec![Arm::Oracle, Arm::Restored(Restore::S5)],
            decode: Decode::Incremental,
            ladder: vec![Rung(20), Rung(70)],
            n_samples,
            seed: 42,
            sink: 4,
            window: 64,
            max_new_tokens: 24,
            prefill_chunk: RunSpec::PREFILL_CHUNK,
            prompt: PromptVariant::Legacy,
        }
    }

    pub(crate) fn build() -> Build {
        Build {
            version: "1".into(),
            commit: None,
            dirty: false,
            backend: Backend::Candle,
            device: Device::Cpu,
        }
    }

    fn ids(spec: &RunSpec, build: &Build, pack: &str) -> BTreeSet<String> {
        let rungs = plan(spec, build, pack, None).unwrap();
        rungs.iter().flat_map(|rung| &rung.trials).map(|planned| planned.id().to_owned()).collect()
    }

    #[test]
    fn every_trial_has_an_id_of_its_own_and_a_longer_run_finds_those_of_a_shorter() {
        let short = ids(&spec(3), &build(), "pack");
        assert_eq!(short.len(), spec(3).trials());
        assert!(ids(&spec(5), &build(), "pack").is_superset(&short));
        let moved = RunSpec { pack: "elsewhere".into(), ..spec(3) };
        assert_eq!(ids(&moved, &build(), "pack"), short);
    }

    #[test]
    fn whatever_the_answer_depends_on_makes_another_trial() {
        let first = ids(&spec(2), &build(), "pack");
        let specs = [
            RunSpec { seed: 43, ..spec(2) },
            RunSpec { sink: 5, ..spec(2) },
            RunSpec { window: 65, ..spec(2) },
            RunSpec { max_new_tokens: 25, ..spec(2) },
            RunSpec { prefill_chunk: 511, ..spec(2) },
            RunSpec { decode: Decode::Bounded, ..spec(2) },
            RunSpec { prompt: PromptVariant::DirectAnswer, ..spec(2) },
        ];
        for other in specs {
            assert!(ids(&other, &build(), "pack").is_disjoint(&first), "{other:?}");
        }
        assert!(ids(&spec(2), &build(), "another").is_disjoint(&first));
        for other in [
            Build { version: "2".into(), ..build() },
            Build { commit: Some("abc".into()), ..build() },
            Build { dirty: true, ..build() },
            Build { device: Device::Cuda, ..build() },
        ] {
            assert!(ids(&spec(2), &other, "pack").is_disjoint(&first), "{other:?}");
        }
    }

    #[test]
    fn shards_are_all_trials_each_once() {
        let all = plan(&spec(7), &build(), "pack", None).unwrap();
        let mut found: Vec<String> = Vec::new();
        for index in 1..=3 {
            let shard = Shard::new(index, 3).unwrap();
            let part = plan(&spec(7), &build(), "pack", Some(shard)).unwrap();
            found.extend(part.iter().flat_map(|rung| &rung.trials).map(|planned| planned.id().to_owned()));
        }
        let mut wanted: Vec<String> =
            all.iter().flat_map(|rung| &rung.trials).map(|planned| planned.id().to_owned()).collect();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted);
    }
}
