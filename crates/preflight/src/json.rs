//! JSON files: read whole, changed in one place only.

use crate::check::Finding;
use evidence::{Text, text};
use serde_json::Value;
use std::ops::Range;
use std::path::Path;

const CAP: u64 = 64 << 20;

/// A JSON file that must be there and be valid.
pub(crate) fn read(path: &Path) -> Result<Value, Finding> {
    let bytes = files::read_regular(path, CAP)
        .map_err(|e| Finding::fail(Text::same(e), text!("download or copy the file", "下载或复制该文件")))?;
    serde_json::from_slice(&bytes).map_err(|e| {
        Finding::fail(
            text!("{} is not JSON: {e}", "{} 不是 JSON：{e}", path.display()),
            text!("copy the file again", "重新复制该文件"),
        )
    })
}

/// Where the value of `key` stands in the text of an object, which must be valid JSON. None without the key, or with two
/// of it.
pub(crate) fn value_range(text: &str, key: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let (mut depth, mut at, mut found) = (0, 0, Vec::new());
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b'"' => {
                let end = string_end(bytes, at);
                let colon = after_spaces(bytes, end);
                let is_key = depth == 1 && bytes.get(colon) == Some(&b':');
                if is_key && serde_json::from_str::<String>(text.get(at..end)?).ok()? == key {
                    let start = after_spaces(bytes, colon + 1);
                    found.push(start..value_end(bytes, start));
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    (found.len() == 1).then(|| found.remove(0))
}

fn after_spaces(bytes: &[u8], from: usize) -> usize {
    let space = |byte: &&u8| byte.is_ascii_whitespace();
    from + bytes.get(from..).unwrap_or_default().iter().take_while(space).count()
}

/// The end of the string that begins at `start`, its quotes included.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn value_end(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at = string_end(bytes, at);
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' if depth == 0 => break,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            byte if depth == 0 && byte.is_ascii_whitespace() => break,
            _ => {}
        }
        at += 1;
    }
    at
}

/// `value` as text for the place `at`: over lines where the object around it is.
pub(crate) fn pretty_at(text: &str, at: usize, value: &Value) -> String {
    let line = text[..at].rfind('\n').map(|newline| &text[newline + 1..at]);
    let Some(line) = line else { return value.to_string() };
    let indent: String = line.chars().take_while(|c| matches!(c, ' ' | '\t')).collect();
    let pretty = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    pretty.replace('\n', &format!("\n{indent}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_found_and_nothing_like_it() {
        let found = |text: &str| value_range(text, "a").map(|range| text[range].to_owned());
        for (text, value) in [
            (r#"{"a": [1, {"a": 2}], "b": 3}"#, r#"[1, {"a": 2}]"#),
            (r#"{"b": {"a": 1}, "a" : "x\"}" }"#, r#""x\"}""#),
            ("{\"b\": \"a\",\n \"\\u0061\": -1.5e3\n}", "-1.5e3"),
            (r#"{"a":{}}"#, "{}"),
        ] {
            assert_eq!(found(text).as_deref(), Some(value), "{text}");
        }
        assert_eq!(found(r#"{"b": {"a": 1}}"#), None);
        assert_eq!(found(r#"{"a": 1, "a": 2}"#), None);
        assert_eq!(found(r#"["a"]"#), None);
    }

    #[test]
    fn a_value_looks_like_its_surroundings() {
        let value = json!({ "x": "y" });
        assert_eq!(pretty_at("{\"a\": 1}", 6, &value), r#"{"x":"y"}"#);
        assert_eq!(pretty_at("{\n  \"a\": 1\n}", 9, &value), "{\n    \"x\": \"y\"\n  }");
    }
}
