//! Counting tests from what the test programs print.

/// How many tests passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
}

/// How the closing lines of `cargo nextest`, `cargo test` and vitest begin. vitest's line for files is not one of them.
const CLOSING: [&str; 3] = ["Summary [", "test result: ", "Tests  "];

impl Tally {
    /// Counts in a line of output, if it is a closing line.
    pub(crate) fn read(&mut self, line: &str) {
        let line = without_colours(line);
        if CLOSING.iter().any(|opening| line.trim_start().starts_with(opening)) {
            self.passed += number_before(&line, "passed");
            self.failed += number_before(&line, "failed");
        }
    }

    /// Counts in another tally.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

fn number_before(line: &str, word: &str) -> usize {
    let words: Vec<&str> = line.split([' ', ',', ';', '\r', '\n']).filter(|word| !word.is_empty()).collect();
    words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// The text without terminal escapes of the form `ESC [ … m`.
fn without_colours(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[&str]) -> (usize, usize) {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.read(line));
        (tally.passed, tally.failed)
    }

    #[test]
    fn closing_lines_of_each_program_are_counted() {
        // As printed by nextest 0.9.143, cargo 1.95 and vitest 4.1.
        assert_eq!(
            told(&["     Summary [   5.216s] 131 tests run: 131 passed (1 slow), 2 skipped\n"]),
            (131, 0)
        );
        assert_eq!(told(&["     Summary [   0.3s] 7/9 tests run: 5 passed, 2 failed, 0 skipped"]), (5, 2));
        assert_eq!(
            told(&["test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out"]),
            (3, 0)
        );
        assert_eq!(told(&[" Test Files  2 passed (2)", "      Tests  1 failed | 11 passed (12)"]), (11, 1));
        assert_eq!(
            told(&["\u{1b}[2m      Tests \u{1b}[22m \u{1b}[1m\u{1b}[32m4 passed\u{1b}[39m (4)"]),
            (4, 0)
        );
    }

    #[test]
    fn other_lines_are_not() {
        assert_eq!(told(&["        PASS [   0.004s] niah ladder::rungs", "12 passed the river", ""]), (0, 0));
    }
}
