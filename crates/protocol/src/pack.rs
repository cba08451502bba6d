//! Model packs: a folder whose `pack.json` says where verifier, drafter and f_θ lie and how they belong together.

use files::FileError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Name of the manifest inside a pack folder.
const MANIFEST: &str = "pack.json";
const MANIFEST_CAP: u64 = 1 << 20;

/// What the drafter is fed when its K/V are captured for f_θ, as a factor on the verifier's raw embedding row.
/// The two reference implementations differ here; f_θ only works with the factor that it was trained with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrafterEmbeddingScale {
    /// × hidden: the scaled embedding, scaled by √hidden once more (reference on CUDA, and its training).
    Hidden,
    /// × √hidden: the verifier's scaled embedding.
    SqrtHidden,
    /// × 1: the raw row (reference on MLX).
    One,
}

/// V of an f_θ-restored layer that has no V projection of its own (`attention_k_eq_v`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueRule {
    /// f_θ's own V (reference on CUDA).
    Projected,
    /// The injected K (reference on MLX).
    InjectedKey,
}

/// `pack.json`. Paths are relative to the pack folder, or absolute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackManifest {
    /// Version of this file's layout; 1.
    pub format: u32,
    /// Name as reports show it.
    pub name: String,
    /// The demonstration pack: every report says so.
    #[serde(default)]
    pub demo: bool,
    /// Folder of the verifier: `config.json` with safetensors as Hugging Face or MLX store them, or one GGUF file.
    pub verifier: PathBuf,
    /// Folder of the drafter; absent where only arms without f_θ are run.
    #[serde(default)]
    pub drafter: Option<PathBuf>,
    /// Folder of f_θ.
    #[serde(default)]
    pub f_theta: Option<PathBuf>,
    /// Factor on the embeddings that feed the drafter.
    #[serde(default)]
    pub drafter_embedding_scale: Option<DrafterEmbeddingScale>,
    /// V on layers without a V projection.
    #[serde(default)]
    pub value_rule: Option<ValueRule>,
    /// Expected SHA-256 by file, relative to the pack folder: 64 hexadecimal digits.
    #[serde(default)]
    pub sha256: BTreeMap<PathBuf, String>,
}

/// A pack folder with its manifest read and its paths resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// The pack folder.
    pub folder: PathBuf,
    /// What `pack.json` says.
    pub manifest: PackManifest,
}

/// A pack that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// There is no such folder.
    #[error("{path} is no folder", path = .0.display())]
    NoFolder(PathBuf),
    /// The manifest is absent or unreadable.
    #[error("{0}; a model pack needs a pack.json")]
    Unreadable(#[from] FileError),
    /// The manifest is not what it should be.
    #[error("{path} at {pointer}: {reason}", path = path.display())]
    Malformed {
        /// The manifest.
        path: PathBuf,
        /// Where in it, as a path of keys.
        pointer: String,
        /// What is wrong.
        reason: String,
    },
    /// A folder that the manifest names does not exist.
    #[error("{manifest} names {part} = {path}, which is no folder", manifest = manifest.display(), path = path.display())]
    MissingPart {
        /// The manifest.
        manifest: PathBuf,
        /// verifier, drafter or f_theta.
        part: &'static str,
        /// The folder it names, resolved.
        path: PathBuf,
    },
}

impl Pack {
    /// Reads `folder/pack.json`. Does not look into the parts; see [`Pack::require_parts`].
    pub fn open(folder: &Path) -> Result<Self, PackError> {
        if !folder.is_dir() {
            return Err(PackError::NoFolder(folder.to_owned()));
        }
        let path = folder.join(MANIFEST);
        let bytes = files::read_regular(&path, MANIFEST_CAP)?;
        let malformed =
            |pointer: String, reason: String| PackError::Malformed { path: path.clone(), pointer, reason };
        let manifest: PackManifest =
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(&bytes))
                .map_err(|e| malformed(e.path().to_string(), e.inner().to_string()))?;
        if manifest.format != 1 {
            let reason = format!("format {} is unknown; this program reads format 1", manifest.format);
            return Err(malformed("format".into(), reason));
        }
        for (part, needs, present) in [
            ("drafter_embedding_scale", "f_theta", manifest.drafter_embedding_scale.is_some()),
            ("value_rule", "f_theta", manifest.value_rule.is_some()),
            ("drafter", "f_theta", manifest.drafter.is_some()),
        ] {
            if manifest.f_theta.is_some() && !present {
                return Err(malformed(part.into(), format!("must be stated when {needs} is")));
            }
        }
        Ok(Self { folder: folder.to_owned(), manifest })
    }

    /// Folder of the verifier.
    pub fn verifier(&self) -> PathBuf {
        self.folder.join(&self.manifest.verifier)
    }

    /// Folder of the drafter.
    pub fn drafter(&self) -> Option<PathBuf> {
        self.manifest.drafter.as_ref().map(|path| self.folder.join(path))
    }

    /// Folder of f_θ.
    pub fn f_theta(&self) -> Option<PathBuf> {
        self.manifest.f_theta.as_ref().map(|path| self.folder.join(path))
    }

    /// Checks that every folder the manifest names exists.
    pub fn require_parts(&self) -> Result<(), PackError> {
        let parts =
            [("verifier", Some(self.verifier())), ("drafter", self.drafter()), ("f_theta", self.f_theta())];
        for (part, path) in parts {
            if let Some(path) = path.filter(|path| !path.is_dir()) {
                return Err(PackError::MissingPart { manifest: self.folder.join(MANIFEST), part, path });
            }
        }
        Ok(())
    }
}
