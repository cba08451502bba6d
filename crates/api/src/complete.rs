//! Completion of paths, where no native dialog can be opened.

use serde::Serialize;
use std::path::{Path, PathBuf};
use ts_rs::TS;

/// Most entries that are offered.
const MOST: usize = 200;

/// A folder or file that a typed path may mean.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, TS)]
pub struct Entry {
    /// Whether it is a file; folders come first.
    pub file: bool,
    /// Its path.
    pub path: PathBuf,
}

/// Folders, and evidence files, whose path begins as the text does: what is in a folder when the text ends in a separator.
/// Nothing typed means the user's own folder. A folder that cannot be read offers nothing.
pub fn complete(text: &str) -> Vec<Entry> {
    let home = || dirs::home_dir().unwrap_or_else(|| PathBuf::from("/"));
    let (folder, start) = match text.rfind(std::path::is_separator) {
        Some(end) => (PathBuf::from(&text[..=end]), text[end + 1..].to_lowercase()),
        None => (home(), text.to_lowercase()),
    };
    let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
    let mut found: Vec<Entry> =
        entries.flatten().filter_map(|entry| offered(&entry.path(), &start)).collect();
    found.sort();
    found.truncate(MOST);
    found
}

/// Hidden entries are offered only to those who ask for them.
fn offered(path: &Path, start: &str) -> Option<Entry> {
    let name = path.file_name()?.to_str()?.to_lowercase();
    let wanted = name.starts_with(start) && (!name.starts_with('.') || start.starts_with('.'));
    let file = path.is_file();
    let known = !file || path.extension().is_some_and(|ending| ending == "json");
    (wanted && known).then(|| Entry { file, path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_first_then_evidence_and_nothing_hidden() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["beta", "Alpha", ".hidden"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        for name in ["a.json", "a.txt", "b.json"] {
            files::write_atomic(&folder.path().join(name), b"{}").unwrap();
        }
        let names = |typed: &str| -> Vec<String> {
            let entries = complete(&format!("{}/{typed}", folder.path().display()));
            let name = |entry: &Entry| entry.path.file_name().unwrap().to_string_lossy().into_owned();
            entries.iter().map(name).collect()
        };
        assert_eq!(names(""), ["Alpha", "beta", "a.json", "b.json"]);
        assert_eq!(names("a"), ["Alpha", "a.json"]);
        assert_eq!(names(".h"), [".hidden"]);
        assert_eq!(names("none/x"), [""; 0]);
    }
}
