//! The engine against stored outputs of the reference implementations: every case of a folder of goldens for which it
//! holds the checkpoint.
//!
//! Such a folder has `manifest.json` (tolerances by class, and the class of each file), `checkpoints/NAME` and
//! `goldens/`: for each run `RUN_manifest.json` (checkpoints and cases), for each of its cases `RUN_CASE.safetensors`
//! with logits and maybe K/V, and further tensors in `RUN_CASE_kv.safetensors`.

use crate::Error;
use crate::backend::Backend;
use crate::config::Config;
use crate::decode::{Models, Settings};
use crate::drafter::Drafter;
use crate::f_theta::FTheta;
use crate::gemma::{Gemma, RawKv, Rows};
use crate::noise::Noise;
use crate::restoration::Projection;
use protocol::{Arm, Decode, DrafterEmbeddingScale, Restore, ValueRule};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Largest file of reference outputs that is read.
const GOLDEN_CAP: u64 = 1 << 30;
/// Relative part of the tolerance on K/V. Source: MODELS.md §6; `manifest.json` has only the absolute part.
const KV_RTOL: f64 = 1e-4;
/// Nearest rival of a greedy token that still counts as a decision. Source: `manifest.json`, tolerance class f32.
const DECISIVE: f64 = 5e-3;

/// One comparison.
#[derive(Clone, Debug)]
pub struct Check {
    /// Run and case, as `torch_moe_f32 t40_s4w16`.
    pub case: String,
    /// What is compared: an arm as the run names it, `greedy ARM`, `kv NAME`.
    pub what: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a comparison.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Numbers were compared.
    Compared {
        /// Largest absolute difference.
        difference: f64,
        /// What is allowed.
        tolerance: Tolerance,
        /// Whether every element is within it.
        holds: bool,
    },
    /// Generated tokens were compared; the text says where they part, if they do.
    Tokens(Option<String>),
    /// It could not be carried out, though all that it needs is there.
    Failed(String),
    /// It was not carried out, and why.
    Skipped(String),
}

/// `absolute + relative · |reference|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Absolute part.
    pub absolute: f64,
    /// Relative part.
    pub relative: f64,
}

/// How many comparisons ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Within the tolerance.
    pub good: usize,
    /// Beyond it, or impossible.
    pub failed: usize,
    /// Left out.
    pub skipped: usize,
}

impl Outcome {
    /// Whether it speaks against the engine; none if it says nothing.
    pub fn holds(&self) -> Option<bool> {
        match self {
            Self::Compared { holds, .. } => Some(*holds),
            Self::Tokens(parting) => Some(parting.is_none()),
            Self::Failed(_) => Some(false),
            Self::Skipped(_) => None,
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.outcome.holds() {
            Some(true) => "ok",
            Some(false) => "FAIL",
            None => "skipped",
        };
        write!(f, "{word:<7} {:<30} {:<36} ", self.case, self.what)?;
        match &self.outcome {
            Outcome::Compared { difference, tolerance: Tolerance { absolute, relative }, .. } => {
                write!(f, "max abs diff {difference:.2e}, tolerance {absolute:e} + {relative:e}·|x|")
            }
            Outcome::Tokens(None) => f.write_str("tokens equal"),
            Outcome::Tokens(Some(reason)) | Outcome::Failed(reason) | Outcome::Skipped(reason) => {
                f.write_str(reason)
            }
        }
    }
}

/// Runs every comparison of `folder` whose case or arm contains one of `only`, or all if that is empty. `report` is told
/// of each as soon as it is done. Fails where there are no goldens, or none that `only` names.
pub fn run<B: Backend + Clone>(
    backend: &B,
    folder: &Path,
    only: &[String],
    report: &mut dyn FnMut(&Check),
) -> Result<Tally, Error> {
    let mut session = Session { only, tally: Tally::default(), report };
    let classes = Classes::read(folder)?;
    for path in manifests(folder)? {
        let Some(run) = Run::read(folder, path)? else { continue };
        let mut models = run.models(backend);
        for (case, facts) in &run.cases {
            session.case(&Place { run: &run, classes: &classes, case, facts }, &mut models);
        }
    }
    let tally = session.tally;
    if tally.good + tally.failed == 0 {
        let what = if only.is_empty() { "nothing".into() } else { format!("nothing of {only:?}") };
        let reason = format!("{what} could be compared in {}, {} skipped", folder.display(), tally.skipped);
        return Err(Error::Trial(reason));
    }
    Ok(tally)
}

/// Manifests of runs, in the order of their names.
fn manifests(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let goldens = folder.join("goldens");
    let listing = std::fs::read_dir(&goldens).map_err(|e| Error::Weights {
        path: goldens.clone(),
        reason: format!("cannot be listed: {e}"),
        hint: "give the folder that holds manifest.json, checkpoints and goldens",
    })?;
    let paths = listing.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = paths.filter(|path| run_name(path).is_some()).collect();
    found.sort();
    Ok(found)
}

fn run_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_suffix("_manifest.json")
}

/// Tolerances by class, and classes by file.
struct Classes {
    tolerances: BTreeMap<String, Value>,
    files: BTreeMap<String, Value>,
}

impl Classes {
    fn read(folder: &Path) -> Result<Self, Error> {
        let config = Config::read(folder.join("manifest.json"))?;
        Ok(Self { tolerances: config.require("tolerance_classes")?, files: config.require("files")? })
    }

    /// The tolerance of `goldens/name`: on logits, or on K/V; else why there is none.
    fn of(&self, name: &str, kv: bool) -> Result<Tolerance, String> {
        let file = self.files.get(&format!("goldens/{name}"));
        let class = file.and_then(|file| file.get("tolerance_class")).and_then(Value::as_str);
        let class = class.ok_or_else(|| format!("manifest.json names no tolerance class of {name}"))?;
        let tolerance = self
            .tolerances
            .get(class)
            .ok_or_else(|| format!("manifest.json has no tolerance class {class}"))?;
        let number = |key: &str| match tolerance.get(key) {
            Some(Value::Number(number)) => number.as_f64().ok_or_else(|| format!("{key} is no number")),
            Some(Value::String(reason)) => Err(format!("{class}: {reason}")),
            _ => Err(format!("class {class} has no {key}")),
        };
        if kv {
            return Ok(Tolerance { absolute: number("kv_atol")?, relative: KV_RTOL });
        }
        Ok(Tolerance { absolute: number("logits_atol")?, relative: number("logits_rtol")? })
    }
}

/// One run of a reference implementation.
struct Run {
    name: String,
    folder: PathBuf,
    checkpoint: String,
    drafter: Option<String>,
    f_theta: Option<String>,
    cases: BTreeMap<String, Case>,
}

/// What the manifest of a run says of a case.
#[derive(Deserialize)]
struct Case {
    sink: usize,
    window: usize,
    arms: BTreeMap<String, ArmFacts>,
}

#[derive(Deserialize)]
struct ArmFacts {
    #[serde(default)]
    greedy16: Vec<u32>,
    greedy_min_top2_margin: Option<f64>,
}

impl Run {
    /// None for a manifest without cases.
    fn read(folder: &Path, path: PathBuf) -> Result<Option<Self>, Error> {
        let name = run_name(&path).unwrap_or_default().to_owned();
        let config = Config::read(path)?;
        let Some(cases) = config.optional("cases")? else { return Ok(None) };
        // Some name the type behind the folder: "f_theta-moe-tiny (f32)".
        let first = |text: String| text.split_whitespace().next().unwrap_or_default().to_owned();
        Ok(Some(Self {
            name,
            folder: folder.to_owned(),
            checkpoint: config.require("checkpoint")?,
            drafter: config.optional("drafter")?.map(first),
            f_theta: config.optional("f_theta")?.map(first),
            cases,
        }))
    }

    /// The two implementations feed the drafter differently and differ in V of layers without a V projection.
    fn conventions(&self) -> (DrafterEmbeddingScale, ValueRule) {
        if self.name.starts_with("mlx") {
            (DrafterEmbeddingScale::One, ValueRule::InjectedKey)
        } else {
            (DrafterEmbeddingScale::Hidden, ValueRule::Projected)
        }
    }

    /// The models of the run; else why there are none.
    fn models<B: Backend + Clone>(&self, backend: &B) -> Result<Models<B>, Outcome> {
        let folder = |name: &str| {
            let folder = self.folder.join("checkpoints").join(name);
            let absent = || Outcome::Skipped(format!("there is no checkpoint {}", folder.display()));
            folder.is_dir().then_some(folder.clone()).ok_or_else(absent)
        };
        let failed = |e: Error| Outcome::Failed(e.to_string());
        let verifier = Gemma::load(backend.clone(), &folder(&self.checkpoint)?).map_err(failed)?;
        let projection = match (&self.drafter, &self.f_theta) {
            (Some(drafter), Some(f_theta)) => {
                let drafter = Drafter::load(backend, &folder(drafter)?).map_err(failed)?;
                let f_theta = FTheta::load(backend, &folder(f_theta)?).map_err(failed)?;
                f_theta.check(&drafter, &verifier).map_err(failed)?;
                let (embedding_scale, value_rule) = self.conventions();
                Some(Projection { drafter, f_theta, embedding_scale, value_rule })
            }
            _ => None,
        };
        Ok(Models { verifier, projection })
    }
}

/// The arm behind a run's word for it, and its rule for V where that is not the run's; else why it is none.
fn arm(word: &str) -> Result<(Arm, Option<ValueRule>), String> {
    let plain = |arm| Ok((arm, None));
    match word {
        "oracle" => plain(Arm::Oracle),
        "sink_window" | "sink_window_mask" => plain(Arm::SinkWindow),
        "restored_f_theta" => plain(Arm::Restored(Restore::FTheta)),
        "restored_f_theta_veqk" => Ok((Arm::Restored(Restore::FTheta), Some(ValueRule::InjectedKey))),
        "restored_s5" => plain(Arm::Restored(Restore::S5)),
        "identity" => plain(Arm::Restored(Restore::Identity)),
        "dlm_restored_same_checkpoint" => plain(Arm::Restored(Restore::SameCheckpoint)),
        "sink_window_cache.steps" => {
            Err("prefills with full attention: an arm that this engine has not".into())
        }
        "restored_prefill_cache.first" => Err("the reference injects nothing there (MODELS.md §3.4)".into()),
        _ => match word.strip_prefix("alpha_").map(str::parse) {
            Some(Ok(alpha)) => plain(Arm::Restored(Restore::Mix(alpha))),
            _ => Err("this engine has no such arm".into()),
        },
    }
}

/// A case and where it stands.
struct Place<'a> {
    run: &'a Run,
    classes: &'a Classes,
    case: &'a str,
    facts: &'a Case,
}

impl Place<'_> {
    fn settings(&self, arm: Arm, max_new_tokens: usize) -> Settings<'static> {
        Settings {
            arm,
            decode: Decode::Reforward,
            sink: self.facts.sink,
            window: self.facts.window,
            max_new_tokens,
            prefill_chunk: usize::MAX,
            stop_tokens: &[],
            forced: &[],
            noise: Noise { seed: 0, sample: 0 },
        }
    }

    /// The arm that `word` stands for, with the models set to the run's rule for V or the word's own.
    fn arm<B: Backend>(&self, word: &str, models: &mut Models<B>) -> Result<Arm, Outcome> {
        let (arm, rule) = arm(word).map_err(Outcome::Skipped)?;
        if arm == Arm::SinkWindow && self.facts.sink + self.facts.window == 0 {
            return Err(Outcome::Skipped("no query sees anything; this engine refuses that".into()));
        }
        if let Some(projection) = &mut models.projection {
            projection.value_rule = rule.unwrap_or(self.run.conventions().1);
        }
        Ok(arm)
    }

    fn golden(&self, suffix: &str) -> Result<(String, Golden), Outcome> {
        let name = format!("{}_{}{suffix}.safetensors", self.run.name, self.case);
        let path = self.run.folder.join("goldens").join(&name);
        if !path.exists() {
            return Err(Outcome::Skipped(format!("there is no {}", path.display())));
        }
        Golden::open(&path).map(|golden| (name, golden)).map_err(|e| Outcome::Failed(e.to_string()))
    }
}

/// Comparisons in progress.
struct Session<'a> {
    only: &'a [String],
    tally: Tally,
    report: &'a mut dyn FnMut(&Check),
}

impl Session<'_> {
    /// Carries out one comparison, if it is wanted.
    fn check(&mut self, place: &Place<'_>, what: &str, compare: impl FnOnce() -> Result<Outcome, Outcome>) {
        let (case, what) = (format!("{} {}", place.run.name, place.case), what.to_owned());
        let text = format!("{case} {what}");
        if !self.only.is_empty() && !self.only.iter().any(|part| text.contains(part.as_str())) {
            return;
        }
        let outcome = compare().unwrap_or_else(|outcome| outcome);
        match outcome.holds() {
            Some(true) => self.tally.good += 1,
            Some(false) => self.tally.failed += 1,
            None => self.tally.skipped += 1,
        }
        (self.report)(&Check { case, what, outcome });
    }

    fn case<B: Backend>(&mut self, place: &Place<'_>, models: &mut Result<Models<B>, Outcome>) {
        let models = match models {
            Ok(models) => models,
            Err(outcome) => return self.check(place, "checkpoint", || Ok(outcome.clone())),
        };
        let (file, golden) = match place.golden("") {
            Ok(found) => found,
            Err(outcome) => return self.check(place, "outputs", || Err(outcome)),
        };
        let ids = match golden.integers("input_ids") {
            Ok(ids) => ids,
            Err(e) => return self.check(place, "input_ids", || Err(failure(e))),
        };
        for word in golden.names("logits.") {
            self.check(place, &word, || logits(place, models, &file, &golden, &ids, &word));
        }
        if place.facts.arms.contains_key("identity") {
            self.check(place, "identity = oracle", || identity(place, models, &ids));
        }
        for (word, facts) in &place.facts.arms {
            self.check(place, &format!("greedy {word}"), || greedy(place, models, &file, &ids, word, facts));
        }
        let kv = if golden.names("drafter.k.").is_empty() {
            place.golden("_kv").ok()
        } else {
            Some((file, golden))
        };
        let Some((file, golden)) = kv else { return };
        for part in ["drafter", "f_theta", "own"] {
            if !golden.names(&format!("{part}.k.")).is_empty() {
                let what = format!("kv {part}");
                self.check(place, &what, || raw_kv(place, models, &file, &golden, &ids, part));
            }
        }
    }
}

static NEVER: AtomicBool = AtomicBool::new(false);

fn failure(error: impl fmt::Display) -> Outcome {
    Outcome::Failed(error.to_string())
}

/// Logits of one forward over `ids`, all rows.
fn forward<B: Backend>(
    place: &Place<'_>,
    models: &Models<B>,
    ids: &[u32],
    arm: Arm,
) -> Result<Vec<f32>, Outcome> {
    let (settings, mut counters) = (place.settings(arm, 1), models.counters());
    let (logits, _) = models.forward(ids, &settings, Rows::All, &mut counters, &NEVER).map_err(failure)?;
    models.verifier.backend().to_f32(&logits).map_err(failure)
}

/// The stored rows of an arm's logits.
fn logits<B: Backend>(
    place: &Place<'_>,
    models: &mut Models<B>,
    file: &str,
    golden: &Golden,
    ids: &[u32],
    word: &str,
) -> Result<Outcome, Outcome> {
    let arm = place.arm(word, models)?;
    let tolerance = place.classes.of(file, false).map_err(Outcome::Skipped)?;
    let rows = golden.integers("rows").map_err(failure)?;
    let ours = picked(&forward(place, models, ids, arm)?, ids.len(), &rows)?;
    let theirs = golden.floats(&format!("logits.{word}")).map_err(failure)?;
    Ok(compared(&ours, &theirs, tolerance))
}

/// With its own K/V put back, the verifier says what it says without.
fn identity<B: Backend>(place: &Place<'_>, models: &Models<B>, ids: &[u32]) -> Result<Outcome, Outcome> {
    let restored = forward(place, models, ids, Arm::Restored(Restore::Identity))?;
    let tolerance = Tolerance { absolute: 1e-5, relative: 0.0 };
    Ok(compared(&restored, &forward(place, models, ids, Arm::Oracle)?, tolerance))
}

/// The tokens that follow the prompt.
fn greedy<B: Backend>(
    place: &Place<'_>,
    models: &mut Models<B>,
    file: &str,
    ids: &[u32],
    word: &str,
    facts: &ArmFacts,
) -> Result<Outcome, Outcome> {
    let arm = place.arm(word, models)?;
    place.classes.of(file, false).map_err(Outcome::Skipped)?;
    let Some(margin) = facts.greedy_min_top2_margin else {
        return Err(Outcome::Skipped("its margin to the next best token is not known".into()));
    };
    if margin < DECISIVE {
        return Err(Outcome::Skipped(format!("the next best token comes within {margin}")));
    }
    if arm.is_restored() && place.run.conventions().1 == ValueRule::InjectedKey {
        return Err(Outcome::Skipped("mlx restores once, over the prompt alone".into()));
    }
    let settings = place.settings(arm, facts.greedy16.len());
    let generation = models.generate(ids, &settings, &NEVER, &mut |_, _| ()).map_err(failure)?;
    let pairs = generation.tokens.iter().zip(&facts.greedy16).enumerate();
    let parting = pairs.into_iter().find(|(_, (ours, theirs))| ours != theirs);
    Ok(Outcome::Tokens(
        parting.map(|(i, (ours, theirs))| format!("token {i} is {ours} where the reference has {theirs}")),
    ))
}

/// Raw K/V of every layer: the drafter's, f_θ's, or the verifier's own.
fn raw_kv<B: Backend>(
    place: &Place<'_>,
    models: &mut Models<B>,
    file: &str,
    golden: &Golden,
    ids: &[u32],
    part: &str,
) -> Result<Outcome, Outcome> {
    let tolerance = place.classes.of(file, true).map_err(Outcome::Skipped)?;
    // What f_θ gives, before any rule for V.
    if let Some(projection) = &mut models.projection {
        projection.value_rule = ValueRule::Projected;
    }
    let positions = match golden.integers("positions") {
        Ok(positions) => positions,
        Err(_) => (0..ids.len() as u32).collect(),
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (layer, kv) in layers(models, ids, part).map_err(failure)?.into_iter().enumerate() {
        for (side, values) in [("k", &kv.k), ("v", &kv.v)] {
            let values = models.verifier.backend().to_f32(values).map_err(failure)?;
            ours.extend(picked(&values, ids.len(), &positions)?);
            theirs.extend(golden.floats(&format!("{part}.{side}.{layer}")).map_err(failure)?);
        }
    }
    Ok(compared(&ours, &theirs, tolerance))
}

fn layers<B: Backend>(models: &Models<B>, ids: &[u32], part: &str) -> Result<Vec<RawKv<B::Tensor>>, Error> {
    let verifier = &models.verifier;
    let count = verifier.geometry().len();
    if part == "own" {
        let wanted = (0..count).map(|layer| verifier.projects(layer).0).collect();
        return Ok(verifier
            .capture(ids, wanted, 0..ids.len(), usize::MAX, &NEVER)?
            .into_iter()
            .flatten()
            .collect());
    }
    let Some(projection) = &models.projection else { return Ok(Vec::new()) };
    let drafted = projection.draft(verifier, ids, &NEVER)?;
    if part == "f_theta" {
        let latents = projection.encode(verifier, &drafted)?;
        let layers = (0..count).map(|layer| projection.decode(verifier, layer, &latents));
        return layers.collect();
    }
    let b = verifier.backend();
    let width = projection.drafter.kv_heads * projection.drafter.head_dim;
    let side = |x: &B::Tensor, layer: usize| b.slice(x, 1, layer * width..(layer + 1) * width);
    let layer = |layer| Ok(RawKv { k: side(&drafted.k, layer)?, v: side(&drafted.v, layer)? });
    (0..projection.drafter.layers()).map(layer).collect()
}

/// The numbers of `rows`, out of the `count` rows of `values`.
fn picked(values: &[f32], count: usize, rows: &[u32]) -> Result<Vec<f32>, Outcome> {
    let width = values.len().checked_div(count).unwrap_or(0);
    let row = |row: &u32| {
        let start = (*row as usize).checked_mul(width)?;
        values.get(start..start.checked_add(width)?)
    };
    let found: Option<Vec<&[f32]>> = rows.iter().map(row).collect();
    found.map(|rows| rows.concat()).ok_or_else(|| failure(format!("rows {rows:?} of {count} positions")))
}

fn compared(ours: &[f32], theirs: &[f32], tolerance: Tolerance) -> Outcome {
    if ours.len() != theirs.len() {
        return failure(format!("{} numbers where the reference has {}", ours.len(), theirs.len()));
    }
    let mut difference = 0f64;
    let mut holds = true;
    for (ours, theirs) in ours.iter().zip(theirs) {
        let apart = (f64::from(*ours) - f64::from(*theirs)).abs();
        // Not the other way round, so that no number at all is no agreement.
        holds &= apart <= tolerance.absolute + tolerance.relative * f64::from(theirs.abs());
        difference = if apart > difference || apart.is_nan() { apart } else { difference };
    }
    Outcome::Compared { difference, tolerance, holds }
}

/// A file of reference outputs.
struct Golden {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Golden {
    fn open(path: &Path) -> Result<Self, Error> {
        let golden = Self { path: path.to_owned(), bytes: files::read_capped(path, GOLDEN_CAP)? };
        golden.tensors().map(|_| ())?;
        Ok(golden)
    }

    fn tensors(&self) -> Result<SafeTensors<'_>, Error> {
        SafeTensors::deserialize(&self.bytes).map_err(|e| self.wrong(e.to_string()))
    }

    /// What follows `prefix` in the names of tensors that begin with it, sorted.
    fn names(&self, prefix: &str) -> Vec<String> {
        let Ok(tensors) = self.tensors() else { return Vec::new() };
        let rest = tensors.names().into_iter().filter_map(|name| name.strip_prefix(prefix));
        let mut names: Vec<String> = rest.map(str::to_owned).collect();
        names.sort();
        names
    }

    fn floats(&self, name: &str) -> Result<Vec<f32>, Error> {
        self.words(name, Dtype::F32, f32::from_le_bytes)
    }

    fn integers(&self, name: &str) -> Result<Vec<u32>, Error> {
        self.words(name, Dtype::I32, u32::from_le_bytes)
    }

    fn words<T>(&self, name: &str, dtype: Dtype, read: fn([u8; 4]) -> T) -> Result<Vec<T>, Error> {
        let tensors = self.tensors()?;
        let view = tensors.tensor(name).map_err(|e| self.wrong(e.to_string()))?;
        if view.dtype() != dtype {
            return Err(self.wrong(format!("{name} is {:?} where {dtype:?} is meant", view.dtype())));
        }
        let words = view.data().as_chunks::<4>().0;
        Ok(words.iter().map(|word| read(*word)).collect())
    }

    fn wrong(&self, reason: String) -> Error {
        Error::Weights { path: self.path.clone(), reason, hint: "generate the goldens again" }
    }
}
