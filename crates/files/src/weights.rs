//! Headers of weight files: read and checked against the file's size, without the numbers behind them.

use crate::{FileError, read_regular, require_regular};
use safetensors::tensor::Metadata;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Longest header that the safetensors format allows, bytes.
const HEADER_CAP: u64 = 100_000_000;
const INDEX_CAP: u64 = 100 << 20;
/// A Git LFS pointer begins so; it stands where the weights should be.
const POINTER: &[u8] = b"version https://git-lfs";
const AGAIN: &str = "the file is damaged or its download was cut short: download it again";
const PULL: &str = "run `git lfs pull` in the folder it came from, and copy the file again";

/// A weight file that holds no weights, or not all of them.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}", path = path.display())]
pub struct WeightsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
    /// What to do.
    pub hint: &'static str,
    /// It is a Git LFS pointer: the weights themselves were never fetched.
    pub pointer: bool,
}

impl WeightsError {
    fn new(path: &Path, reason: impl Into<String>, hint: &'static str) -> Self {
        Self { path: path.to_owned(), reason: reason.into(), hint, pointer: false }
    }

    fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::new(path, format!("cannot be read: {error}"), "check that the pack is complete and readable")
    }
}

/// What the header of a safetensors file says.
#[derive(Debug)]
pub struct Header {
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Where the numbers begin, bytes.
    pub start: u64,
    /// The tensors: types, dimensions, places after `start`.
    pub tensors: Metadata,
}

/// Size of a weight file in bytes. Empty files and Git LFS pointers are errors.
pub fn weight_bytes(path: &Path) -> Result<u64, WeightsError> {
    let unreadable = |e| WeightsError::unreadable(path, &e);
    let bytes = require_regular(path)
        .map_err(|e| WeightsError::new(path, reason_of(&e), "check that the pack is complete and readable"))?
        .len();
    let file = File::open(path).map_err(unreadable)?;
    let mut head = Vec::new();
    file.take(POINTER.len() as u64).read_to_end(&mut head).map_err(unreadable)?;
    if bytes == 0 {
        return Err(WeightsError::new(path, "is empty (0 bytes)", "download the file again"));
    }
    if head == POINTER {
        let reason = format!("is a Git LFS pointer ({bytes} bytes), not the weights themselves");
        return Err(WeightsError { pointer: true, ..WeightsError::new(path, reason, PULL) });
    }
    Ok(bytes)
}

/// Reads the header of a safetensors file and checks that the file ends where it says.
pub fn safetensors_header(path: &Path) -> Result<Header, WeightsError> {
    let bytes = weight_bytes(path)?;
    let broken = |reason: String| WeightsError::new(path, reason, AGAIN);
    let unreadable = |e| WeightsError::unreadable(path, &e);
    let mut file = File::open(path).map_err(unreadable)?;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|_| broken(format!("is only {bytes} bytes long")))?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_CAP || length > bytes - 8 {
        return Err(broken(format!("has {bytes} bytes, but its header alone claims {length}")));
    }
    let mut json = Vec::new();
    file.take(length).read_to_end(&mut json).map_err(unreadable)?;
    let tensors: Metadata = serde_json::from_slice(&json)
        .map_err(|e| broken(format!("has a header that is not safetensors: {e}")))?;
    let start = 8 + length;
    let expected = start.saturating_add(tensors.data_len() as u64);
    if expected != bytes {
        return Err(broken(format!("has {bytes} bytes where its header promises {expected}")));
    }
    Ok(Header { bytes, start, tensors })
}

/// An index of shards: which tensor lies in which file of its folder.
#[derive(Debug)]
pub struct ShardIndex {
    /// The index file.
    pub path: PathBuf,
    /// File name by tensor name.
    pub tensors: BTreeMap<String, String>,
}

impl ShardIndex {
    /// Reads an index. Names that lead out of its folder are errors.
    pub fn read(path: &Path) -> Result<Self, WeightsError> {
        #[derive(Deserialize)]
        struct Document {
            weight_map: BTreeMap<String, String>,
        }
        let broken = |reason: String| WeightsError::new(path, reason, "download the file again");
        let bytes = read_regular(path, INDEX_CAP).map_err(|e| broken(reason_of(&e)))?;
        let document: Document =
            serde_json::from_slice(&bytes).map_err(|e| broken(format!("is no index of shards: {e}")))?;
        let outside = |name: &&String| Path::new(name).file_name() != Some(name.as_str().as_ref());
        if let Some(name) = document.weight_map.values().find(outside) {
            return Err(broken(format!("names the shard {name:?}, which is no file name")));
        }
        Ok(Self { path: path.to_owned(), tensors: document.weight_map })
    }

    /// Names of the shards.
    pub fn shards(&self) -> BTreeSet<&str> {
        self.tensors.values().map(String::as_str).collect()
    }
}

fn reason_of(error: &FileError) -> String {
    match error {
        FileError::Io { source, .. } => format!("cannot be read: {source}"),
        FileError::TooLarge { bytes, cap, .. } => format!("is {bytes} bytes; at most {cap} are read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_atomic;

    fn told(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        write_atomic(&path, bytes).unwrap();
        match safetensors_header(&path) {
            Ok(header) => format!("{} bytes, numbers from {}", header.bytes, header.start),
            Err(error) => error.reason,
        }
    }

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told() {
        let good = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        assert_eq!(
            told(&file(good, 8)),
            format!("{} bytes, numbers from {}", good.len() + 16, good.len() + 8)
        );
        assert_eq!(
            told(&file(good, 7)),
            format!("has {} bytes where its header promises {}", good.len() + 15, good.len() + 16)
        );
        assert_eq!(told(b"abc"), "is only 3 bytes long");
        assert_eq!(told(b""), "is empty (0 bytes)");
        assert!(told(&[0xff; 64]).contains("its header alone claims 18446744073709551615"));
        assert!(told(&file("[]", 0)).contains("not safetensors"));
        let lying = r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#;
        assert!(told(&file(lying, 8)).contains("not safetensors"));
        assert!(told(b"version https://git-lfs.github.com/spec/v1\n").contains("pointer (43 bytes)"));
    }

    #[test]
    fn an_index_stays_in_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors.index.json");
        let read = |shard: &str| {
            let text = format!(r#"{{"weight_map":{{"a":{shard:?}}}}}"#);
            write_atomic(&path, text.as_bytes()).unwrap();
            ShardIndex::read(&path).map(|index| index.shards().len()).map_err(|e| e.reason)
        };
        assert_eq!(read("model-1.safetensors"), Ok(1));
        for outside in ["../model-1.safetensors", "/etc/passwd", "..", ""] {
            assert!(read(outside).is_err(), "{outside:?}");
        }
    }
}
