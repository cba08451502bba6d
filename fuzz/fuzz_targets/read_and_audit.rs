//! Any bytes: an error or an audit, a gate and a comparison, never a panic.
#![no_main]

use evidence::{File, Place, Policy};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = File::parse(Place::from(Path::new("any.json")), bytes) else { return };
    let audits = evidence::audit(&[file]);
    evidence::gate(&audits, &Policy::built_in());
    evidence::compare(&audits[0], &audits[0]);
});
