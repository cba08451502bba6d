//! Headers of weight files: read and checked against the file's size, without the numbers behind them.

use crate::{FileError, read_regular, require_regular};
use bytes::Bytes;
use memmap2::MmapOptions;
use safetensors::tensor::Metadata;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
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

/// The bytes `range` of a weight file, mapped into memory until the last copy of them is dropped. A part that the file does
/// not have is an error.
///
/// A file that somebody else cuts short or overwrites meanwhile changes under its reader, and reading beyond its new end
/// ends the process (SIGBUS). Whoever maps is therefore the engine, a process of its own: its host tells of an engine that
/// was lost. Copying a pack anew replaces files as a rule, which leaves what is mapped alone.
pub fn map_weights(path: &Path, range: Range<u64>) -> Result<Bytes, WeightsError> {
    let unreadable = |e| WeightsError::unreadable(path, &e);
    let file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    if range.start > range.end || range.end > bytes {
        let reason = format!("has {bytes} bytes, of which {}..{} are to be read", range.start, range.end);
        return Err(WeightsError::new(path, reason, AGAIN));
    }
    if range.is_empty() {
        return Ok(Bytes::new());
    }
    let mut part = MmapOptions::new();
    // All pages at once: a tensor is read from end to end.
    part.offset(range.start).len((range.end - range.start) as usize).populate();
    // SAFETY: the bytes must stay as they are while they are borrowed. Nothing here writes to the file, and no system can
    // promise it for other programs: what then happens is said above. The numbers that are read have no invalid values.
    #[allow(unsafe_code)]
    let mapped = unsafe { part.map(&file) };
    Ok(Bytes::from_owner(mapped.map_err(unreadable)?))
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
    fn any_range_of_a_file_is_mapped_and_outlives_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        let content: Vec<u8> = (0..20_000_u32).map(|i| i as u8).collect();
        write_atomic(&path, &content).unwrap();
        let parts = [0..20_000, 1..2, 4095..12_289, 19_999..20_000, 7..7, 20_000..20_000];
        let mapped: Vec<Bytes> = parts.iter().map(|part| map_weights(&path, part.clone()).unwrap()).collect();
        write_atomic(&path, &[0xff; 20_000]).unwrap();
        std::fs::remove_file(&path).unwrap();
        for (part, mapped) in parts.into_iter().zip(mapped) {
            assert!(mapped == content[part.start as usize..part.end as usize], "{part:?}");
        }
    }

    #[test]
    fn what_a_file_does_not_have_is_not_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        write_atomic(&path, &[1; 10]).unwrap();
        let reason = |range| map_weights(&path, range).unwrap_err().reason;
        assert_eq!(reason(3..11), "has 10 bytes, of which 3..11 are to be read");
        #[expect(clippy::reversed_empty_ranges, reason = "a header may claim it")]
        let reversed = 9..3;
        assert_eq!(reason(reversed), "has 10 bytes, of which 9..3 are to be read");
        std::fs::remove_file(&path).unwrap();
        assert!(reason(0..1).starts_with("cannot be read: "));
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
