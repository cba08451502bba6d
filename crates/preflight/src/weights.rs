//! Weight files by their headers.

use crate::check::Finding;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A Git-LFS pointer begins so; it stands where a file of many megabytes should be.
const POINTER: &[u8] = b"version https://git-lfs";
const LFS_HINT: &str = "run `git lfs install` and `git lfs pull` in the checkout";
const COPY_HINT: &str = "copy the file again; compare its size with the original";
const JSON_CAP: u64 = 64 << 20;
/// Longest header that the format allows.
const HEADER_CAP: u64 = 100_000_000;

/// What the headers of a folder's weights say.
pub(crate) struct Summary {
    pub files: usize,
    pub bytes: u64,
    pub tensors: BTreeSet<String>,
}

/// Reads the headers of every `*.safetensors` of a folder and checks them against file sizes and the index.
pub(crate) fn safetensors(folder: &Path) -> Result<Summary, Finding> {
    let mut shards: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(|e| {
            Finding::fail(format!("cannot read {}: {e}", folder.display()), "check the folder's permissions")
        })?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"))
        .collect();
    shards.sort();
    if shards.is_empty() {
        let missing = format!("no *.safetensors in {}", folder.display());
        return Err(Finding::fail(missing, "download or copy the weights"));
    }
    let mut summary = Summary { files: shards.len(), bytes: 0, tensors: BTreeSet::new() };
    let mut by_shard = BTreeMap::new();
    for shard in &shards {
        let (bytes, tensors) = header(shard)?;
        summary.bytes += bytes;
        summary.tensors.extend(tensors.iter().cloned());
        let name = shard.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        by_shard.insert(name, tensors);
    }
    index(folder, &by_shard)?;
    Ok(summary)
}

/// Size of a file and the names in its header.
fn header(path: &Path) -> Result<(u64, Vec<String>), Finding> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let broken = |reason: String, hint: &str| Finding::fail(format!("{name}: {reason}"), hint);
    let unreadable =
        |e: std::io::Error| broken(format!("cannot be read: {e}"), "check the file's permissions");
    let mut file = File::open(path).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    let mut start = Vec::new();
    file.by_ref().take(8).read_to_end(&mut start).map_err(unreadable)?;
    if POINTER.starts_with(&start) && start.len() == 8 {
        return Err(broken(format!("is a Git-LFS pointer of {size} bytes, not the weights"), LFS_HINT));
    }
    let Ok(length) = <[u8; 8]>::try_from(start.as_slice()) else {
        return Err(broken(format!("has {size} bytes, a header alone needs more"), COPY_HINT));
    };
    let length = u64::from_le_bytes(length);
    if length > HEADER_CAP || length + 8 > size {
        return Err(broken(format!("has {size} bytes, its header claims {length}"), COPY_HINT));
    }
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(unreadable)?;
    let tensors: BTreeMap<String, Value> = serde_json::from_slice(&bytes)
        .map_err(|e| broken(format!("has an unusable header: {e}"), COPY_HINT))?;
    let ends =
        tensors.values().filter_map(|tensor| tensor.pointer("/data_offsets/1").and_then(Value::as_u64));
    let expected = ends.max().unwrap_or(0).saturating_add(8 + length);
    if expected != size {
        return Err(broken(format!("has {size} bytes, its header describes {expected}"), COPY_HINT));
    }
    Ok((size, tensors.into_keys().filter(|name| name != "__metadata__").collect()))
}

/// `model.safetensors.index.json`, where there is one, must name just the tensors that the headers hold.
fn index(folder: &Path, by_shard: &BTreeMap<String, Vec<String>>) -> Result<(), Finding> {
    let path = folder.join("model.safetensors.index.json");
    if !path.exists() {
        return Ok(());
    }
    let index = json(&path)?;
    let map = index.get("weight_map").and_then(Value::as_object);
    let listed: BTreeSet<(&str, &str)> = map
        .into_iter()
        .flatten()
        .filter_map(|(tensor, shard)| Some((tensor.as_str(), shard.as_str()?)))
        .collect();
    let held: BTreeSet<(&str, &str)> = by_shard
        .iter()
        .flat_map(|(shard, tensors)| tensors.iter().map(|tensor| (tensor.as_str(), shard.as_str())))
        .collect();
    if let Some((tensor, shard)) = listed.symmetric_difference(&held).next() {
        let side = if listed.contains(&(*tensor, *shard)) {
            "the index lists, the headers lack"
        } else {
            "the headers hold, the index lacks"
        };
        return Err(Finding::fail(
            format!("{side} {tensor} in {shard}"),
            "copy every shard and the index again",
        ));
    }
    Ok(())
}

/// Weights of f_θ: safetensors, or a `.pt` archive (a zip; looked at by its first bytes only).
pub(crate) fn f_theta(folder: &Path) -> Result<String, Finding> {
    if folder.join("f_theta_weights.safetensors").exists() {
        let (bytes, tensors) = header(&folder.join("f_theta_weights.safetensors"))?;
        return Ok(format!("{} tensors, {:.2} MB", tensors.len(), bytes as f64 / 1e6));
    }
    let path = folder.join("f_theta_weights.pt");
    let mut file = File::open(&path).map_err(|_| {
        let missing = format!("neither f_theta_weights.safetensors nor .pt in {}", folder.display());
        Finding::fail(missing, "train f_θ on the GPU machine and copy its folder here")
    })?;
    let mut start = Vec::new();
    let bytes = file.metadata().map(|meta| meta.len()).unwrap_or(0);
    let read = file.by_ref().take(POINTER.len() as u64).read_to_end(&mut start);
    if read.is_ok() && start == POINTER {
        return Err(Finding::fail(
            format!("f_theta_weights.pt is a Git-LFS pointer of {bytes} bytes"),
            LFS_HINT,
        ));
    }
    if !start.starts_with(b"PK") {
        return Err(Finding::fail(format!("f_theta_weights.pt ({bytes} bytes) is no archive"), COPY_HINT));
    }
    Ok(format!("archive of {:.2} MB", bytes as f64 / 1e6))
}

/// A JSON file that must be there and be valid.
pub(crate) fn json(path: &Path) -> Result<Value, Finding> {
    let bytes = files::read_capped(path, JSON_CAP)
        .map_err(|e| Finding::fail(e.to_string(), "download or copy the file"))?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Finding::fail(format!("{} is not JSON: {e}", path.display()), "copy the file again"))
}
