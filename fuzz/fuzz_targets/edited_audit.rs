//! A file with any values in any places: an audit, a gate and a comparison with the unedited one, never a panic.
#![no_main]

use arbitrary::Arbitrary;
use evidence::{File, Place, Policy};
use libfuzzer_sys::fuzz_target;
use serde_json::{Number, Value};
use std::path::Path;
use std::sync::LazyLock;

/// Our own files, and a small one of each kind whose numbers follow from each other.
static WHOLE: LazyLock<Vec<File>> = LazyLock::new(|| {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
    evidence::find(&[fixtures.join("evidence"), fixtures.join("kinds")])
        .iter()
        .map(|place| evidence::read(place).unwrap())
        .collect()
});

#[derive(Arbitrary, Debug)]
struct Case {
    file: usize,
    edits: Vec<Edit>,
}

/// Puts a value at the place with that number, counted through the document.
#[derive(Arbitrary, Debug)]
struct Edit {
    place: u16,
    value: Any,
}

#[derive(Arbitrary, Debug)]
enum Any {
    Null,
    Flag(bool),
    Whole(i64),
    Large(u64),
    Small(u8),
    Real(f64),
    Text(String),
    List(Vec<Any>),
    Fields(Vec<(String, Any)>),
    /// What stands elsewhere in the document.
    Elsewhere(u16),
    /// What stands there, without one of its fields or items.
    Without(u8),
}

impl Any {
    fn value(self, document: &mut Value, here: u16) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Flag(flag) => flag.into(),
            Self::Whole(number) => number.into(),
            Self::Large(number) => number.into(),
            Self::Small(number) => number.into(),
            Self::Real(number) => Number::from_f64(number).map_or(Value::Null, Value::Number),
            Self::Text(text) => text.into(),
            Self::List(items) => items.into_iter().map(|item| item.value(document, here)).collect(),
            Self::Fields(fields) => {
                fields.into_iter().map(|(key, any)| (key, any.value(document, here))).collect()
            }
            Self::Elsewhere(place) => at(document, place).clone(),
            Self::Without(which) => without(at(document, here).clone(), which.into()),
        }
    }
}

fn without(mut value: Value, which: usize) -> Value {
    match &mut value {
        Value::Array(items) if !items.is_empty() => drop(items.remove(which % items.len())),
        Value::Object(fields) if !fields.is_empty() => {
            let nth = which % fields.len();
            let mut at = 0..;
            fields.retain(|_, _| at.next() != Some(nth));
        }
        _ => {}
    }
    value
}

/// The value at a place, counted through the document.
fn at(document: &mut Value, place: u16) -> &mut Value {
    let mut left = usize::from(place) % count(document);
    nth(document, &mut left).expect("there are as many")
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Array(items) => items.iter().map(count).sum(),
        _ => 0,
    }
}

fn nth<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Object(fields) => fields.values_mut().find_map(|below| nth(below, left)),
        Value::Array(items) => items.iter_mut().find_map(|below| nth(below, left)),
        _ => None,
    }
}

fuzz_target!(|case: Case| {
    let whole = WHOLE[case.file % WHOLE.len()].clone();
    let mut edited = File { place: Place::from(Path::new("edited.json")), ..whole.clone() };
    for Edit { place, value } in case.edits {
        let value = value.value(&mut edited.value, place);
        *at(&mut edited.value, place) = value;
    }
    let audits = evidence::audit(&[whole, edited]);
    evidence::gate(&audits, &Policy::built_in());
    evidence::compare(&audits[0], &audits[1]);
});
