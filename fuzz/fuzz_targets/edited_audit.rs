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
    Absent,
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
}

impl Any {
    fn value(self, document: &Value) -> Option<Value> {
        Some(match self {
            Self::Absent => return None,
            Self::Null => Value::Null,
            Self::Flag(flag) => flag.into(),
            Self::Whole(number) => number.into(),
            Self::Large(number) => number.into(),
            Self::Small(number) => number.into(),
            Self::Real(number) => Number::from_f64(number).map_or(Value::Null, Value::Number),
            Self::Text(text) => text.into(),
            Self::List(items) => items.into_iter().filter_map(|item| item.value(document)).collect(),
            Self::Fields(fields) => {
                let field = |(key, any): (String, Self)| Some((key, any.value(document)?));
                Value::Object(fields.into_iter().filter_map(field).collect())
            }
            Self::Elsewhere(place) => document.pointer(&pointer(document, place)).cloned()?,
        })
    }
}

fn pointer(document: &Value, place: u16) -> String {
    let mut pointers = Vec::new();
    collect(document, String::new(), &mut pointers);
    pointers.swap_remove(usize::from(place) % pointers.len())
}

fn collect(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                collect(value, format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                collect(item, format!("{at}/{i}"), found);
            }
        }
        _ => {}
    }
    found.push(at);
}

fn edit(document: &mut Value, edit: Edit) {
    let pointer = pointer(document, edit.place);
    match edit.value.value(document) {
        Some(value) => {
            if let Some(slot) = document.pointer_mut(&pointer) {
                *slot = value;
            }
        }
        None => {
            let Some((parent, key)) = pointer.rsplit_once('/') else { return };
            if let Some(Value::Object(fields)) = document.pointer_mut(parent) {
                fields.shift_remove(key);
            }
        }
    }
}

fuzz_target!(|case: Case| {
    let whole = WHOLE[case.file % WHOLE.len()].clone();
    let mut edited = File { place: Place::from(Path::new("edited.json")), ..whole.clone() };
    case.edits.into_iter().for_each(|change| edit(&mut edited.value, change));
    let audits = evidence::audit(&[whole, edited]);
    evidence::gate(&audits, &Policy::built_in());
    evidence::compare(&audits[0], &audits[1]);
});
