//! Finding and reading evidence files.

use files::FileError;
use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// Larger files are refused: no evidence comes near it, and a hostile one must not fill the memory.
pub const CAP: u64 = 64 << 20;
/// Folders that never hold evidence.
/// Folders that nobody looks into for evidence.
pub const SKIPPED_FOLDERS: [&str; 3] = ["node_modules", ".git", "target"];
/// Links in circles end here.
const MAX_DEPTH: usize = 32;

/// Where an evidence file lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The scanned folder that it was found in; None for a file that was named on its own.
    pub root: Option<PathBuf>,
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        Self { path: path.to_owned(), root: None }
    }
}

impl Place {
    /// Whether a folder that the file names lies below the scanned root; for a file named on its own, below any folder
    /// that holds it. A path that leads out of the root never does.
    pub(crate) fn holds_folder(&self, named: &Path) -> bool {
        let inside = named.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let below = |root: &Path| root.join(named).is_dir();
        inside && self.root.as_deref().map_or_else(|| self.path.ancestors().skip(1).any(below), below)
    }
}

/// One evidence file, as it lies on the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Where it was read from.
    pub place: Place,
    /// Its file name.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256, 64 hexadecimal digits.
    pub sha256: String,
    /// The document. NaN and ±Infinity, which Python writes, are null here.
    pub value: Value,
}

/// A file that is no evidence.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Nothing in it.
    #[error("{path} is empty (0 bytes)", path = .0.display())]
    Empty(PathBuf),
    /// Not JSON.
    #[error("{path} is not JSON: {reason}", path = path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// What the parser says, with line and column.
        reason: String,
    },
    /// JSON, but no document with named fields.
    #[error("{path} holds {found}; evidence is an object with named fields", path = path.display())]
    NotEvidence {
        /// The file.
        path: PathBuf,
        /// What it holds instead.
        found: &'static str,
    },
}

impl ReadError {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(problem) => problem.path(),
            Self::Empty(path) | Self::NotJson { path, .. } | Self::NotEvidence { path, .. } => path,
        }
    }
}

/// Every `*.json` below the given files and folders, sorted, each once. Files that are named are taken as they are.
pub fn find(paths: &[PathBuf]) -> Vec<Place> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            walk(path, path, MAX_DEPTH, &mut found)
        } else {
            found.push(path.as_path().into())
        }
    }
    found.sort();
    found.dedup_by(|a, b| a.path == b.path);
    found
}

fn walk(root: &Path, folder: &Path, depth: usize, found: &mut Vec<Place>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            if depth > 0 && !SKIPPED_FOLDERS.iter().any(|skipped| name == *skipped) {
                walk(root, &path, depth - 1, found);
            }
        } else if path.extension().is_some_and(|ending| ending == "json") {
            let path = path.strip_prefix(".").map(Path::to_owned).unwrap_or(path);
            found.push(Place { path, root: Some(root.to_owned()) });
        }
    }
}

/// Reads one file of at most 64 MiB.
pub fn read(place: &Place) -> Result<File, ReadError> {
    let bytes = files::read_capped(&place.path, CAP)?;
    File::parse(place.clone(), &bytes)
}

impl File {
    /// An evidence file from its bytes.
    pub fn parse(place: Place, bytes: &[u8]) -> Result<Self, ReadError> {
        let path = || place.path.clone();
        if bytes.is_empty() {
            return Err(ReadError::Empty(path()));
        }
        let value = parse(bytes).map_err(|reason| ReadError::NotJson { path: path(), reason })?;
        if !value.is_object() {
            return Err(ReadError::NotEvidence { path: path(), found: kind_of(&value) });
        }
        let name =
            place.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok(Self { name, bytes: bytes.len() as u64, sha256: files::sha256(bytes), value, place })
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// JSON as Python writes it: an optional byte-order mark, and NaN, Infinity, -Infinity as bare words.
fn parse(bytes: &[u8]) -> Result<Value, String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    serde_json::from_slice(bytes).or_else(|error| {
        let tamed = without_bare_words(bytes).ok_or_else(|| error.to_string())?;
        serde_json::from_slice(&tamed).map_err(|_| error.to_string())
    })
}

/// The same bytes with NaN and ±Infinity outside strings replaced by null; None if there are none.
fn without_bare_words(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    let (mut in_string, mut at, mut changed) = (false, 0, false);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let word =
            [b"-Infinity".as_slice(), b"Infinity", b"NaN"].into_iter().find(|word| rest.starts_with(word));
        match word.filter(|_| !in_string) {
            Some(word) => {
                out.extend_from_slice(b"null");
                at += word.len();
                changed = true;
            }
            None if in_string && rest[0] == b'\\' => {
                out.extend_from_slice(&rest[..rest.len().min(2)]);
                at += 2;
            }
            None => {
                in_string ^= rest[0] == b'"';
                out.push(rest[0]);
                at += 1;
            }
        }
    }
    changed.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn python_json_is_read() {
        let text = b"\xef\xbb\xbf{\"a\": NaN, \"b\": [-Infinity, Infinity], \"c\": \"NaN \\\" Infinity\"}";
        assert_eq!(parse(text).unwrap(), json!({"a": null, "b": [null, null], "c": "NaN \" Infinity"}));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn bare_words_only_change_outside_strings(text in ".{0,60}") {
            let line = serde_json::to_vec(&json!({ "text": text, "x": 1 })).unwrap();
            prop_assert!(without_bare_words(&line).is_none());
        }
    }
}
