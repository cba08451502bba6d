//! Whatever stands in a file: an audit, never a panic.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evidence::File;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;

fn fixture(name: &str) -> File {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/evidence");
    evidence::read(&folder.join(name).as_path().into()).unwrap()
}

/// Pointers of every value in a document.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| pointers(value, &format!("{at}/{key}"), found))
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| pointers(value, &format!("{at}/{i}"), found))
        }
        _ => {}
    }
}

fn hostile() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!(u64::MAX)),
        Just(json!(i64::MIN)),
        Just(json!(-1)),
        Just(json!(0)),
        Just(json!(1e308)),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
        Just(json!("x".repeat(300))),
        ".{0,20}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        proptest::collection::vec(any::<u32>(), 0..4).prop_map(Value::from),
    ]
}

fn survives(edits: &[(usize, Value)], mac: bool) {
    let mut file = fixture("demo_ctx20_s5.json");
    if mac {
        file.value["kind"] = json!("k3_integrated_niah_acceptance_mac");
        file.value["provenance"] = Value::Null;
        file.value["throughput"] = json!({
            "k3_cross_model": { "tokens": 16, "wall_seconds": 1.0, "tokens_per_second": 16.0,
                "stage_timings": file.value["stage_timings"]["k3_cross_model"] },
            "oracle_native_ar": { "tokens": 16, "wall_seconds": 1.0, "tokens_per_second": 16.0,
                "stage_timings": file.value["stage_timings"]["oracle"] },
            "cross_model_speedup_vs_oracle_ar": 1.0,
            "decode_only": { "speedup": 1.0 },
        });
        file.value["memory"]["s5"] = json!({ "seq_len": 300, "total_resident_bytes": 1, "per_layer": [
            { "layer_type": "sliding_attention", "n_kv_heads": 2, "head_dim": 32, "resident_bytes": 1, "exact": false }] });
    }
    for (at, value) in edits {
        let mut places = Vec::new();
        pointers(&file.value, "", &mut places);
        *file.value.pointer_mut(&places[at % places.len()]).unwrap() = value.clone();
    }
    let whole = fixture("demo_ctx20_s5_again.json");
    let audits = evidence::audit(&[file, whole]);
    assert_eq!(audits.len(), 2);
    let comparison = evidence::compare(&audits[0], &audits[1]);
    assert_eq!(comparison.axes.len(), 4);
    evidence::gate(&audits, &evidence::Policy::built_in());
}

proptest! {
    #[test]
    fn edited_files_never_panic(edits in proptest::collection::vec((any::<usize>(), hostile()), 1..4), mac: bool) {
        survives(&edits, mac);
    }
}
