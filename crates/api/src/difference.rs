//! What two texts have in common.

use serde::Serialize;
use similar::{Algorithm, ChangeTag, TextDiff};
use std::time::Duration;
use ts_rs::TS;

/// Long texts without anything in common are not worth more; the rest is then told as replaced.
const PATIENCE: Duration = Duration::from_millis(500);

/// What became of a stretch of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
#[serde(rename_all = "kebab-case")]
#[ts(rename = "DiffChange")]
pub enum Change {
    /// In both texts.
    Same,
    /// In the old text only.
    Removed,
    /// In the new text only.
    Added,
}

/// A stretch of text and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct DiffPart {
    /// What became of it.
    pub change: Change,
    /// The text.
    pub text: String,
}

/// How `old` became `new`, word by word. Parts that are not added make up `old`, those that are not removed `new`.
pub fn diff(old: &str, new: &str) -> Vec<DiffPart> {
    let diff =
        TextDiff::configure().algorithm(Algorithm::Patience).timeout(PATIENCE).diff_unicode_words(old, new);
    let mut parts: Vec<DiffPart> = Vec::new();
    for stretch in diff.iter_all_changes() {
        let change = match stretch.tag() {
            ChangeTag::Equal => Change::Same,
            ChangeTag::Delete => Change::Removed,
            ChangeTag::Insert => Change::Added,
        };
        match parts.last_mut().filter(|last| last.change == change) {
            Some(last) => last.text.push_str(stretch.value()),
            None => parts.push(DiffPart { change, text: stretch.value().to_owned() }),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(parts: &[DiffPart], without: Change) -> String {
        parts.iter().filter(|part| part.change != without).map(|part| part.text.as_str()).collect()
    }

    #[test]
    fn both_texts_are_in_the_parts() {
        for (old, new) in [
            ("BETA-1409", "BETA-1409thought The secret"),
            ("密码是 BETA-1409。", "密码 BETA-1409"),
            ("", "a"),
            ("same text", "same text"),
            ("👩‍👩‍👧 a\u{301}", "👩‍👩‍👧 b"),
        ] {
            let parts = diff(old, new);
            assert_eq!(
                (joined(&parts, Change::Added), joined(&parts, Change::Removed)),
                (old.into(), new.into())
            );
        }
        assert_eq!(diff("same text", "same text").len(), 1);
        assert_eq!(diff("", ""), []);
    }
}
