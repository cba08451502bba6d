//! Loading a pack: every part, checked against each other and against the manifest's digests.

use crate::Error;
use crate::backend::Backend;
use crate::decode::{Models, Settings};
use crate::drafter::Drafter;
use crate::f_theta::FTheta;
use crate::fidelity::fidelity;
use crate::footprint;
use crate::gemma::Gemma;
use crate::headers::Headers;
use crate::noise::Noise;
use crate::restoration::Projection;
use crate::tokenizer::Tokenizer;
use files::Digests;
use protocol::{
    Arm, Decode, DeviceMemory, FoundPack, LoadedPack, Pack, Stage, Trial, TrialMemory, TrialResult,
    WeightFile,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// A pack in memory, ready for trials.
pub struct Engine<B: Backend> {
    models: Models<B>,
    tokenizer: Tokenizer,
    oracle: Option<OracleStep>,
    /// What the host is told of it.
    pub loaded: LoadedPack,
}

/// The oracle's first step on the prompt that it answered last.
struct OracleStep {
    prompt: Vec<u32>,
    logits: Vec<f32>,
}

impl<B: Backend> Engine<B> {
    /// Loads the pack in `folder` for `arms`.
    pub fn load(backend: B, folder: &Path, arms: &[Arm]) -> Result<Self, Error> {
        let start = Instant::now();
        let pack = Pack::open(folder)?;
        pack.require_parts()?;
        for arm in arms {
            if arm.needs_projection() && pack.manifest.f_theta.is_none() {
                return Err(Error::MissingPart { arm: *arm, part: "f_theta" });
            }
        }
        let verifier = Gemma::load(backend, &pack.verifier())?;
        let tokenizer = Tokenizer::load(&pack.verifier())?;
        let projection = projection(&pack, &verifier)?;
        let read = files_of(&pack, &verifier, &tokenizer, projection.as_ref());
        let weights = read.iter().map(|path| digest(&pack, path)).collect::<Result<Vec<_>, _>>()?;
        let loaded = LoadedPack {
            name: pack.manifest.name.clone(),
            demo: pack.manifest.demo,
            verifier: pack.manifest.verifier.clone(),
            drafter: pack.manifest.drafter.clone(),
            f_theta: pack.manifest.f_theta.clone(),
            f_theta_config: projection.as_ref().map(|projection| projection.f_theta.config.clone()),
            digest: pack_digest(&pack, &read, &weights),
            weights,
            layers: verifier.geometry(),
            compute_dtype: "f32".into(),
            weights_dtype: verifier.weights_dtype().to_owned(),
            stop_tokens: tokenizer.stop_tokens.clone(),
            seconds: start.elapsed().as_secs_f64(),
        };
        Ok(Self { models: Models { verifier, projection }, tokenizer, oracle: None, loaded })
    }

    /// Answers one trial; `progress` is told the stage and the tokens so far.
    pub fn answer(
        &mut self,
        trial: &Trial,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Stage, usize),
    ) -> Result<TrialResult, Error> {
        let start = Instant::now();
        let backend = self.models.verifier.backend();
        let _awake = backend.awake();
        backend.reset_device_peak()?;
        let mut device = None;
        let mut progress = |stage, tokens| {
            device = highest(device, backend.device_memory());
            progress(stage, tokens);
        };
        let prompt = if trial.variant.is_chat() {
            self.tokenizer.encode_chat(&trial.prompt)?
        } else {
            self.tokenizer.encode_raw(&trial.prompt)?
        };
        let forced = match &trial.answer {
            Some(answer) => self.tokenizer.encode_plain(answer)?,
            None => Vec::new(),
        };
        let settings = Settings {
            arm: trial.arm,
            decode: trial.decode,
            sink: trial.sink,
            window: trial.window,
            max_new_tokens: trial.max_new_tokens,
            prefill_chunk: trial.prefill_chunk,
            stop_tokens: &self.tokenizer.stop_tokens,
            forced: &forced,
            noise: Noise { seed: trial.seed, sample: trial.sample },
        };
        let encoded_s = start.elapsed().as_secs_f64();
        let generation = self.models.generate(&prompt, &settings, cancel, &mut progress)?;
        let device = highest(device, backend.device_memory());
        let text = self.tokenizer.decode(&generation.tokens)?;
        let mut timings = generation.timings;
        timings.first_token_s += encoded_s;
        timings.e2e_s = start.elapsed().as_secs_f64();
        let (prompt_tokens, counters) = (prompt.len(), generation.counters);
        let process_peak_bytes = footprint::peak_bytes();
        let fidelity = match (trial.fidelity, trial.arm) {
            (true, Arm::Oracle) => {
                self.oracle = Some(OracleStep { prompt, logits: generation.first_logits });
                None
            }
            (true, _) => {
                let oracle = self.oracle_step(prompt, trial, cancel)?;
                Some(fidelity(&oracle.logits, &generation.first_logits))
            }
            (false, _) => None,
        };
        Ok(TrialResult {
            id: trial.id.clone(),
            arm: trial.arm,
            text,
            tokens: generation.tokens,
            prompt_tokens,
            stop: generation.stop,
            timings,
            restoration: trial.arm.mode().map(|_| counters.restoration),
            fidelity,
            attention_mass: Some(counters.attention_mass).filter(|mass| !mass.is_empty()),
            projection_error: Some(counters.projection_error).filter(|errors| !errors.is_empty()),
            memory: TrialMemory {
                kv_counted: generation.kv_bytes,
                kv_forecast: generation.kv_forecast,
                kv_full_formula: generation.kv_full,
                kv_native_formula: generation.kv_native,
                process_peak_bytes,
                device,
            },
        })
    }
}

impl<B: Backend> Engine<B> {
    /// The oracle's first step on `prompt`: kept from its own trial, or made now.
    fn oracle_step(
        &mut self,
        prompt: Vec<u32>,
        trial: &Trial,
        cancel: &AtomicBool,
    ) -> Result<&OracleStep, Error> {
        let step = match self.oracle.take().filter(|step| step.prompt == prompt) {
            Some(step) => step,
            None => {
                let settings = Settings {
                    arm: Arm::Oracle,
                    decode: Decode::Incremental,
                    sink: trial.sink,
                    window: trial.window,
                    max_new_tokens: 1,
                    prefill_chunk: trial.prefill_chunk,
                    stop_tokens: &self.tokenizer.stop_tokens,
                    forced: &[],
                    noise: Noise { seed: trial.seed, sample: trial.sample },
                };
                let generation = self.models.generate(&prompt, &settings, cancel, &mut |_, _| {})?;
                OracleStep { prompt, logits: generation.first_logits }
            }
        };
        Ok(self.oracle.insert(step))
    }
}

/// Drafter and f_θ, checked against the verifier; none if the pack has none.
pub(crate) fn projection<B: Backend>(
    pack: &Pack,
    verifier: &Gemma<B>,
) -> Result<Option<Projection<B>>, Error> {
    let manifest = &pack.manifest;
    let (Some(drafter), Some(f_theta), Some(embedding_scale), Some(value_rule)) =
        (pack.drafter(), pack.f_theta(), manifest.drafter_embedding_scale, manifest.value_rule)
    else {
        return Ok(None);
    };
    let drafter = Drafter::load(verifier.backend(), &drafter)?;
    let f_theta = FTheta::load(verifier.backend(), &f_theta)?;
    f_theta.check(&drafter, verifier)?;
    Ok(Some(Projection { drafter, f_theta, embedding_scale, value_rule }))
}

/// Every file that a loaded pack was read from.
fn files_of<B: Backend>(
    pack: &Pack,
    verifier: &Gemma<B>,
    tokenizer: &Tokenizer,
    projection: Option<&Projection<B>>,
) -> Vec<PathBuf> {
    let mut read = verifier.files().to_vec();
    // A GGUF file is both.
    read.extend(tokenizer.files.iter().filter(|path| !verifier.files().contains(path)).cloned());
    if let (Some(projection), Some(drafter), Some(f_theta)) = (projection, pack.drafter(), pack.f_theta()) {
        read.extend([drafter.join("config.json"), f_theta.join("f_theta_config.json")]);
        read.extend(projection.drafter.files().iter().chain(projection.f_theta.files()).cloned());
    }
    read
}

/// See [`LoadedPack::digest`]. Files are named by the part that they belong to, so that the digest does not depend on where
/// the parts lie.
fn pack_digest(pack: &Pack, read: &[PathBuf], weights: &[WeightFile]) -> String {
    let parts =
        [("verifier", Some(pack.verifier())), ("drafter", pack.drafter()), ("f_theta", pack.f_theta())];
    let named = |path: &Path| {
        let within = |(part, folder): &(&str, Option<PathBuf>)| {
            Some(Path::new(part).join(path.strip_prefix(folder.as_ref()?).ok()?))
        };
        parts.iter().find_map(within).unwrap_or_else(|| path.to_owned())
    };
    let files: BTreeMap<PathBuf, &str> =
        read.iter().zip(weights).map(|(path, file)| (named(path), file.sha256.as_str())).collect();
    let manifest = &pack.manifest;
    let all = serde_json::json!({
        "drafter_embedding_scale": manifest.drafter_embedding_scale,
        "value_rule": manifest.value_rule,
        "files": files,
    });
    files::sha256(all.to_string().as_bytes())
}

/// A pack by its headers and digests: what it would be once loaded, without reading a number of it.
pub(crate) fn find(folder: &Path) -> FoundPack {
    let problem = |name: String, error: Error| FoundPack {
        folder: folder.to_owned(),
        name,
        digest: None,
        bytes: 0,
        problem: Some(error.to_string()),
    };
    let pack = match Pack::open(folder).and_then(|pack| pack.require_parts().map(|()| pack)) {
        Ok(pack) => pack,
        Err(error) => return problem(folder.display().to_string(), error.into()),
    };
    let name = pack.manifest.name.clone();
    match described(&pack) {
        Ok((digest, bytes)) => {
            FoundPack { folder: folder.to_owned(), name, digest: Some(digest), bytes, problem: None }
        }
        Err(error) => problem(name, error),
    }
}

fn described(pack: &Pack) -> Result<(String, u64), Error> {
    let verifier = Gemma::load(Headers::default(), &pack.verifier())?;
    let tokenizer = Tokenizer::load(&pack.verifier())?;
    let projection = projection(pack, &verifier)?;
    let read = files_of(pack, &verifier, &tokenizer, projection.as_ref());
    let weights = read.iter().map(|path| digest(pack, path)).collect::<Result<Vec<_>, _>>()?;
    Ok((pack_digest(pack, &read, &weights), weights.iter().map(|file| file.bytes).sum()))
}

/// The file with its digest, held against the manifest if that names one.
fn digest(pack: &Pack, path: &Path) -> Result<WeightFile, Error> {
    let relative: PathBuf = path.strip_prefix(&pack.folder).unwrap_or(path).to_owned();
    let found = Digests::kept_in(files::digest_cache()).of(path)?;
    let bytes = std::fs::metadata(path).map(|metadata| metadata.len()).unwrap_or_default();
    match pack.manifest.sha256.get(&relative) {
        Some(expected) if !expected.eq_ignore_ascii_case(&found) => {
            Err(Error::Digest { path: path.to_owned(), found, expected: expected.clone() })
        }
        _ => Ok(WeightFile { path: relative, bytes, sha256: found }),
    }
}

/// Two readings of a device's memory as one: its own high-water mark only grows, what is in use is sampled.
fn highest(earlier: Option<DeviceMemory>, now: Option<DeviceMemory>) -> Option<DeviceMemory> {
    let (Some(earlier), Some(now)) = (earlier, now) else { return now.or(earlier) };
    Some(DeviceMemory {
        allocator_active_bytes: earlier.allocator_active_bytes.max(now.allocator_active_bytes),
        allocator_cache_bytes: earlier.allocator_cache_bytes.max(now.allocator_cache_bytes),
        used_bytes: earlier.used_bytes.max(now.used_bytes),
        ..now
    })
}
