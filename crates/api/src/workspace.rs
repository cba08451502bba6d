//! A workspace: any folder with model packs and evidence in it.

use crate::{ErrorCode, ErrorReport};
use niah::{PromptVariant, Rung};
use protocol::{Arm, Backend, Decode, Pack, Restore, RunSpec};
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use ts_rs::TS;

/// Packs and checkpoints are looked for this many folders deep.
const DEPTH: usize = 5;
const F_THETA_CONFIG: &str = "f_theta_config.json";
const CONFIG_CAP: u64 = 16 << 20;
/// Folder inside the workspace that receives evidence.
const EVIDENCE_FOLDER: &str = "evidence";

/// What a folder holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct Workspace {
    /// The folder, absolute.
    pub root: PathBuf,
    /// Folder that receives the evidence of runs.
    pub out: PathBuf,
    /// Model packs, found by their `pack.json`.
    pub packs: Vec<PackEntry>,
    /// f_θ checkpoints, found by their `f_theta_config.json`, inside packs and outside.
    pub f_thetas: Vec<FThetaEntry>,
    /// Evidence files.
    pub evidence: Vec<PathBuf>,
}

/// One model pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct PackEntry {
    /// The pack folder.
    pub folder: PathBuf,
    /// Its name, or the folder's when the manifest cannot be read.
    pub name: String,
    /// The demonstration pack.
    pub demo: bool,
    /// Why the manifest cannot be used.
    pub problem: Option<String>,
}

/// One f_θ checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct FThetaEntry {
    /// Its folder.
    pub folder: PathBuf,
    /// Numbers of a latent; null where its configuration cannot be read.
    pub rank: Option<u64>,
    /// Layers of the drafter that it reads, and of the verifier that it writes; null where they are not stated.
    pub layers: Option<[u64; 2]>,
    /// Folder of the pack that it lies in.
    pub pack: Option<PathBuf>,
}

/// Looks through a folder.
pub fn open_workspace(folder: &Path) -> Result<Workspace, ErrorReport> {
    let root = folder.canonicalize().ok().filter(|root| root.is_dir()).ok_or_else(|| {
        ErrorReport::new(
            ErrorCode::NoWorkspace,
            format!("{} is no folder", folder.display()),
            "choose a folder that exists",
        )
    })?;
    let packs = folders_with("pack.json", &root);
    let f_thetas = folders_with(F_THETA_CONFIG, &root);
    let pack_of = |path: &Path| packs.iter().find(|pack| path.starts_with(pack));
    let found = evidence::find(std::slice::from_ref(&root)).into_iter().map(|place| place.path);
    Ok(Workspace {
        out: root.join(EVIDENCE_FOLDER),
        evidence: found.filter(|path| pack_of(path).is_none()).collect(),
        f_thetas: f_thetas.iter().map(|folder| f_theta(folder, pack_of(folder))).collect(),
        packs: packs.iter().map(|folder| entry(folder)).collect(),
        root,
    })
}

fn folders_with(file: &str, root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    find_folders(file, root, DEPTH, &mut found);
    found.sort();
    found
}

/// Folders that hold the file; what lies below one is part of it.
fn find_folders(file: &str, folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if folder.join(file).is_file() {
        found.push(folder.to_owned());
        return;
    }
    if depth == 0 {
        return;
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && entry.file_name() != "node_modules" && entry.file_type().is_ok_and(|kind| kind.is_dir())
        {
            find_folders(file, &entry.path(), depth - 1, found);
        }
    }
}

fn f_theta(folder: &Path, pack: Option<&PathBuf>) -> FThetaEntry {
    let config = files::read_regular(&folder.join(F_THETA_CONFIG), CONFIG_CAP).unwrap_or_default();
    let config: Value = serde_json::from_slice(&config).unwrap_or_default();
    let stated = |key: &str| config.get(key).and_then(Value::as_u64);
    FThetaEntry {
        folder: folder.to_owned(),
        rank: stated("rank"),
        layers: stated("drafter_num_layers").zip(stated("verifier_num_layers")).map(<[u64; 2]>::from),
        pack: pack.cloned(),
    }
}

fn entry(folder: &Path) -> PackEntry {
    let folder_name =
        || folder.file_name().map_or_else(|| "pack".into(), |name| name.to_string_lossy().into_owned());
    match Pack::open(folder) {
        Ok(pack) => PackEntry {
            folder: folder.to_owned(),
            name: pack.manifest.name,
            demo: pack.manifest.demo,
            problem: None,
        },
        Err(problem) => PackEntry {
            folder: folder.to_owned(),
            name: folder_name(),
            demo: false,
            problem: Some(problem.to_string()),
        },
    }
}

/// Settings that a run form starts from: every arm with the controls of S5, or those that do without f_θ where the pack has
/// none; the two rungs that the demo pack was trained for, 20 samples; raw prompts where there is no chat template.
pub fn default_spec(pack: &Path) -> RunSpec {
    let opened = Pack::open(pack).ok();
    let f_theta = opened.as_ref().is_none_or(|pack| pack.manifest.f_theta.is_some());
    let chat = opened.as_ref().is_none_or(|pack| has_template(&pack.verifier()));
    RunSpec {
        pack: pack.to_owned(),
        backend: Backend::default(),
        device: Backend::default().device(),
        arms: match f_theta {
            true => vec![
                Arm::Oracle,
                Arm::SinkWindow,
                Arm::Restored(Restore::S5),
                Arm::Restored(Restore::FTheta),
                Arm::Restored(Restore::Identity),
                Arm::NoRestoration(Restore::S5),
                Arm::Random(Restore::S5),
            ],
            false => vec![Arm::Oracle, Arm::SinkWindow, Arm::Restored(Restore::SameCheckpoint)],
        },
        decode: Decode::Incremental,
        ladder: vec![Rung(20), Rung(70)],
        n_samples: 20,
        seed: 42,
        sink: 4,
        window: 64,
        max_new_tokens: 24,
        prefill_chunk: RunSpec::PREFILL_CHUNK,
        prompt: if chat { PromptVariant::Legacy } else { PromptVariant::Raw },
    }
}

/// Whether a verifier's folder has a chat template: in a file of its own, or in the tokenizer's configuration.
fn has_template(verifier: &Path) -> bool {
    let config = files::read_regular(&verifier.join("tokenizer_config.json"), CONFIG_CAP).unwrap_or_default();
    let config: Value = serde_json::from_slice(&config).unwrap_or_default();
    verifier.join("chat_template.jinja").exists() || config.get("chat_template").is_some_and(Value::is_string)
}
