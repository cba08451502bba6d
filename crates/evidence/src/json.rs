//! Short ways into a document. Absent, null and of the wrong type are all None: a check without its input is skipped.

use serde_json::Value;

/// Access by JSON pointer.
pub(crate) trait At {
    /// The value at a pointer, unless it is null.
    fn at(&self, pointer: &str) -> Option<&Value>;

    fn number(&self, pointer: &str) -> Option<f64> {
        self.at(pointer)?.as_f64()
    }
    fn whole(&self, pointer: &str) -> Option<u64> {
        whole(self.at(pointer)?)
    }
    fn text(&self, pointer: &str) -> Option<&str> {
        self.at(pointer)?.as_str()
    }
    fn flag(&self, pointer: &str) -> Option<bool> {
        self.at(pointer)?.as_bool()
    }
    fn list(&self, pointer: &str) -> Option<&[Value]> {
        self.at(pointer)?.as_array().map(Vec::as_slice)
    }
    /// Whether the flag is true; absent counts as off.
    fn is_on(&self, pointer: &str) -> bool {
        self.flag(pointer) == Some(true)
    }
    /// Every number of a list, or None if the list is absent or holds anything else.
    fn numbers(&self, pointer: &str) -> Option<Vec<f64>> {
        self.list(pointer)?.iter().map(Value::as_f64).collect()
    }
}

impl At for Value {
    fn at(&self, pointer: &str) -> Option<&Value> {
        self.pointer(pointer).filter(|value| !value.is_null())
    }
}

/// Beyond this a float no longer holds every whole number.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A whole number; 24.0 is one, as 24 is (RULES §0).
pub(crate) fn integer(value: &Value) -> Option<i64> {
    let exact = |number: &f64| number.fract() == 0.0 && number.abs() <= EXACT;
    value.as_i64().or_else(|| value.as_f64().filter(exact).map(|number| number as i64))
}

/// A whole number of at least 0.
pub(crate) fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| u64::try_from(integer(value)?).ok())
}

/// `|a − b| ≤ max(1e-9, 1e-9·max(|a|, |b|))` (RULES §0).
pub(crate) fn eq(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9_f64.max(1e-9 * a.abs().max(b.abs()))
}

/// The same with relative 1e-6.
pub(crate) fn eq6(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9_f64.max(1e-6 * a.abs().max(b.abs()))
}

/// Correctly rounded to `places` decimals, ties to even on the exact binary value: Rust's formatting does just that.
pub(crate) fn round(value: f64, places: usize) -> f64 {
    if !value.is_finite() {
        return value;
    }
    let rounded: f64 = format!("{value:.places$}").parse().unwrap_or(value);
    if rounded == 0.0 { 0.0 } else { rounded }
}

/// Median; an even count gives the mean of the two middle values. None when empty.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Largest over smallest of the positive values; needs two of them.
pub(crate) fn spread(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let positive: Vec<f64> = values.into_iter().filter(|value| *value > 0.0).collect();
    let low = positive.iter().copied().reduce(f64::min)?;
    let high = positive.iter().copied().reduce(f64::max)?;
    (positive.len() >= 2).then_some(high / low)
}
