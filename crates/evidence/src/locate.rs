//! Where in a JSON text a pointer points to: code hosts show findings by line.

use crate::audit::Audit;
use crate::read::CAP;

/// A place in a text, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Character of the line.
    pub column: usize,
}

impl Audit {
    /// Where each finding points to, in the order of the findings; None when the file is no longer the one that was audited.
    pub fn positions(&self) -> Option<Vec<Position>> {
        let bytes = files::read_capped(&self.path, CAP).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let findings = self.findings.iter().map(|finding| locate(&text, &finding.pointer));
        (files::sha256(&bytes) == self.sha256).then(|| findings.collect())
    }
}

/// Where the pointed value begins; of a pointer into what is absent, the last value on the way that is there. `text` is
/// JSON as Python writes it. On anything else the answer is some place in it, never a panic.
pub fn locate(text: &str, pointer: &str) -> Position {
    let mut scan = Scan { bytes: text.as_bytes(), at: 0 };
    scan.space();
    let mut found = scan.at;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        scan.at = found;
        match scan.child(&token) {
            Some(child) => found = child,
            None => break,
        }
    }
    position(text, found)
}

fn position(text: &str, at: usize) -> Position {
    let before = text.get(..at).unwrap_or(text).trim_start_matches('\u{feff}');
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let column = 1 + before[line_start..].chars().count();
    Position { line: 1 + before.matches('\n').count(), column }
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn next(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Skips blanks, separators and a byte-order mark.
    fn space(&mut self) {
        let blank = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b':' | 0xef | 0xbb | 0xbf);
        while self.next().is_some_and(blank) {
            self.at += 1;
        }
    }

    /// The child of the value that begins here. Of keys that stand twice the last one counts, as it does for the parser.
    fn child(&mut self, token: &str) -> Option<usize> {
        let list = self.next()? == b'[';
        if !list && self.next()? != b'{' {
            return None;
        }
        self.at += 1;
        let (mut index, mut found) = (0_usize, None);
        loop {
            self.space();
            if matches!(self.next(), None | Some(b']' | b'}')) {
                return found;
            }
            let named = if list { token == index.to_string() } else { self.key()? == token };
            self.space();
            if named {
                found = Some(self.at);
                if list {
                    return found;
                }
            }
            self.skip();
            index += 1;
        }
    }

    fn key(&mut self) -> Option<String> {
        let start = self.at;
        self.skip();
        serde_json::from_slice(&self.bytes[start..self.at]).ok()
    }

    /// Skips one value, at least one byte of it.
    fn skip(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.next() {
            match byte {
                b'"' => self.string(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                _ => self.word(),
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.next() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        self.at = self.at.min(self.bytes.len());
    }

    /// A number or a bare word, and inside of containers whatever stands between two values.
    fn word(&mut self) {
        self.at += 1;
        while self.next().is_some_and(|byte| !matches!(byte, b'"' | b'{' | b'[' | b'}' | b']' | b',')) {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str, pointer: &str) -> (usize, usize) {
        let found = locate(text, pointer);
        (found.line, found.column)
    }

    #[test]
    fn every_kind_of_value_is_found() {
        let text = "\u{feff}{\n  \"a\": NaN, \"é\\u0041\": [1, {\"b/c\": \"}\\\"\"},\n    -Infinity],\n  \"a~\": {}}";
        assert_eq!(at(text, ""), (1, 1));
        assert_eq!(at(text, "/a"), (2, 8));
        assert_eq!(at(text, "/éA"), (2, 24));
        assert_eq!(at(text, "/éA/1/b~1c"), (2, 36));
        assert_eq!(at(text, "/éA/2"), (3, 5));
        assert_eq!(at(text, "/a~0"), (4, 9));
    }

    #[test]
    fn what_is_absent_is_where_it_would_be() {
        let text = "{\"a\": [1], \"b\": 2}";
        assert_eq!(at(text, "/a/7"), (1, 7));
        assert_eq!(at(text, "/none/7"), (1, 1));
        assert_eq!(at(text, "/b/7"), (1, 17));
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        assert_eq!(at("{\"a\": 1, \"a\": 2}", "/a"), (1, 15));
    }

    proptest! {
        #[test]
        fn hostile_texts_never_panic(text in "[\\[\\]{}\":,\\\\0-9a-zé \n]{0,80}", pointer in "(/[a-z0-9~]{0,3}){0,4}") {
            locate(&text, &pointer);
        }
    }
}
