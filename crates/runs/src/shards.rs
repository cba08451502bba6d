//! Parts of a run, each measured where it was convenient, made into the evidence of the whole.
//!
//! A shard is a file that holds what the journal would: specification, program, pack, who answered, every trial. Merging
//! plans the whole run anew and demands each trial of it exactly once, by its id.

use crate::assemble::{self, Order, RunFacts, RungResults};
use crate::book;
use crate::journal::{Answerer, Finished};
use crate::plan::{self, Build, Planned, RungPlan};
use crate::target::Opened;
use crate::{RunError, Shard, Target};
use evidence::OverriddenCheck;
use jiff::Timestamp;
use niah::Rung;
use protocol::RunSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the file calls itself.
pub const KIND: &str = "kakeya_gate_shard";
const CAP: u64 = 1 << 30;

/// One part of one rung.
#[derive(Serialize, Deserialize)]
struct ShardFile {
    schema_version: u32,
    kind: String,
    run: String,
    shard: Shard,
    rung: Rung,
    spec: RunSpec,
    build: Build,
    pack_sha256: String,
    overridden_checks: Vec<OverriddenCheck>,
    started: Timestamp,
    ended: Timestamp,
    answerers: Vec<Answerer>,
    trials: BTreeMap<String, Finished>,
}

/// Name and content of a shard's file.
pub(crate) fn document(
    facts: &RunFacts,
    shard: Shard,
    opened: &Opened,
    rung: Rung,
    finished: &[(&Planned, &Finished)],
) -> (String, Value) {
    let order = facts.order;
    let file = ShardFile {
        schema_version: 1,
        kind: KIND.into(),
        run: order.run.to_owned(),
        shard,
        rung,
        spec: order.spec.clone(),
        build: opened.build.clone(),
        pack_sha256: opened.pack.clone(),
        overridden_checks: order.overridden.to_vec(),
        started: facts.started,
        ended: facts.ended,
        answerers: facts.answerers.to_vec(),
        trials: finished.iter().map(|(planned, f)| (planned.id().to_owned(), (*f).clone())).collect(),
    };
    let part = shard.to_string().replace('/', "of");
    let name = format!(
        "shard_{part}_ctx{}_{}{}.json",
        rung.0,
        facts.ended.as_second(),
        assemble::suffix(order.target)
    );
    (name, serde_json::json!(file))
}

/// Makes the shards of one run into its evidence: the files of every rung, named as a run names them, in `out`; or, where
/// `out` ends in `.json`, the one needle file of the one rung. Refuses shards that do not belong together, that overlap,
/// or that leave a trial out.
pub fn merge(paths: &[PathBuf], out: &Path) -> Result<Vec<PathBuf>, RunError> {
    let mut shards =
        paths.iter().map(|path| Ok((path.as_path(), read(path)?))).collect::<Result<Vec<_>, RunError>>()?;
    shards.sort_by_key(|(_, shard)| (shard.rung.0, shard.shard));
    let Some((first_path, first)) = shards.first() else {
        return Err(wrong(out, "no shard is given".into()));
    };
    for (path, shard) in &shards {
        if let Some(difference) = difference(first, shard) {
            let reason = format!("it has another {difference} than {}", first_path.display());
            return Err(wrong(path, reason));
        }
    }
    let rungs = plan::plan(&first.spec, &first.build, &first.pack_sha256, None)?;
    let mut written = Vec::new();
    for rung in &rungs {
        let of_rung: Vec<_> = shards.iter().filter(|(_, shard)| shard.rung == rung.rung).collect();
        written.extend(merge_rung(rung, &of_rung, first)?);
    }
    let names = written.iter().map(|(name, _)| name.as_str());
    let paths = match (out.extension().is_some_and(|end| end == "json"), rungs.len()) {
        (false, _) => book::free_paths(out, names)?,
        (true, 1) => std::iter::once(out.to_owned()).chain(beside(out, names.skip(1))?).collect(),
        (true, rungs) => {
            return Err(wrong(
                out,
                format!("these shards hold {rungs} rungs: name a folder, one file is written for each"),
            ));
        }
    };
    paths.iter().zip(&written).try_for_each(|(path, (_, document))| book::write(path, document))?;
    Ok(paths)
}

fn beside<'n>(out: &Path, names: impl Iterator<Item = &'n str>) -> Result<Vec<PathBuf>, RunError> {
    book::free_paths(out.parent().unwrap_or(Path::new(".")), names)
}

fn wrong(path: &Path, reason: String) -> RunError {
    RunError::Shards { path: path.to_owned(), reason }
}

fn read(path: &Path) -> Result<ShardFile, RunError> {
    let bytes = files::read_regular(path, CAP)?;
    let shard: ShardFile =
        serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(&bytes))
            .map_err(|e| wrong(path, format!("it is no shard: at {}: {}", e.path(), e.inner())))?;
    match (shard.kind.as_str(), shard.schema_version) {
        (KIND, 1) => Ok(shard),
        (kind, version) => Err(wrong(path, format!("it is no shard but {kind}, version {version}"))),
    }
}

/// What keeps two shards from being parts of one run.
fn difference(a: &ShardFile, b: &ShardFile) -> Option<String> {
    if a.spec.digest() != b.spec.digest() {
        let (a, b) = (serde_json::json!(a.spec), serde_json::json!(b.spec));
        let fields = a.as_object()?.iter().filter(|(key, value)| b.get(key.as_str()) != Some(value));
        let ours = |key: &str| !["pack", "backend", "device"].contains(&key);
        let names: Vec<_> = fields.map(|(key, _)| key.as_str()).filter(|key| ours(key)).collect();
        return Some(format!("specification ({})", names.join(", ")));
    }
    [
        ("program, library or device", a.build != b.build),
        ("pack", a.pack_sha256 != b.pack_sha256),
        ("number of shards", a.shard.of() != b.shard.of()),
        ("list of overridden checks", a.overridden_checks != b.overridden_checks),
    ]
    .into_iter()
    .find_map(|(what, differs)| differs.then(|| what.to_owned()))
}

fn merge_rung(
    rung: &RungPlan,
    shards: &[&(&Path, ShardFile)],
    first: &ShardFile,
) -> Result<Vec<(String, Value)>, RunError> {
    let mut answerers: Vec<Answerer> = Vec::new();
    let mut merged: BTreeMap<&str, (&Path, Finished)> = BTreeMap::new();
    for (path, shard) in shards.iter().map(|(path, shard)| (*path, shard)) {
        for (id, finished) in &shard.trials {
            let answerer = shard.answerers.get(finished.worker);
            let answerer =
                answerer.ok_or_else(|| wrong(path, format!("nobody is named who answered trial {id}")))?;
            let worker = answerers.iter().position(|known| known.is_same_as(answerer));
            let worker = worker.unwrap_or_else(|| {
                answerers.push(answerer.clone());
                answerers.len() - 1
            });
            // What a shard's own run measured belongs to the whole.
            let origin =
                if finished.origin == shard.run { first.run.clone() } else { finished.origin.clone() };
            let finished = Finished { worker, origin, result: finished.result.clone() };
            if let Some((earlier, _)) = merged.insert(id, (path, finished)) {
                return Err(wrong(
                    path,
                    format!("trial {} is in {} too", &id[..12.min(id.len())], earlier.display()),
                ));
            }
        }
    }
    let missing: Vec<&Planned> =
        rung.trials.iter().filter(|planned| !merged.contains_key(planned.id())).collect();
    if let Some(planned) = missing.first() {
        let place = shards.first().map_or(Path::new("shards"), |(path, _)| *path);
        let (all, at) = (rung.trials.len(), planned.sample % first.shard.of() + 1);
        return Err(wrong(
            place,
            format!(
                "{} of {all} trials of rung {} are in no shard; the first, sample {}, {}, belongs to shard {at}/{}",
                missing.len(),
                rung.rung.0,
                planned.sample,
                planned.arm,
                first.shard.of()
            ),
        ));
    }
    if merged.len() > rung.trials.len() {
        let place = shards.first().map_or(Path::new("shards"), |(path, _)| *path);
        return Err(wrong(place, format!("it holds trials that rung {} does not have", rung.rung.0)));
    }
    let finished: Vec<(&Planned, &Finished)> =
        rung.trials.iter().filter_map(|planned| Some((planned, &merged.get(planned.id())?.1))).collect();
    let times = shards.iter().map(|(_, shard)| (shard.started, shard.ended));
    let (started, ended) =
        times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((first.started, first.ended));
    let order = Order {
        run: &first.run,
        spec: &first.spec,
        target: &Target::Local,
        overridden: &first.overridden_checks,
    };
    let facts = RunFacts { order, answerers: &answerers, started, ended };
    book::documents(&facts, &RungResults::of(rung, &first.spec, &finished))
}
