//! Parts of a run, merged without a broker.

use crate::evidence::{files, read, timeless};
use crate::place::{Place, demo_pack, demo_run, write};
use std::path::PathBuf;

fn shard(place: &Place, part: &str, n: &str, more: &[&str]) -> PathBuf {
    let (pack, out) = (demo_pack(), format!("part-{}-{n}", part.replace('/', "-")));
    let mut arguments = demo_run(pack.to_str().unwrap(), n, &["--shard", part]);
    arguments.extend(more);
    let at = arguments.iter().position(|argument| *argument == "out").unwrap();
    arguments[at] = &out;
    place.succeed(&arguments);
    files(&place.path(&out)).remove(0)
}

#[test]
fn shards_make_the_evidence_of_the_whole_run() {
    let (place, whole, pack) = (Place::new(), Place::new(), demo_pack());
    let parts: Vec<PathBuf> =
        ["1/3", "2/3", "3/3"].iter().map(|part| shard(&place, part, "7", &[])).collect();
    assert_eq!(read(&parts[0])["kind"], "kakeya_gate_shard");
    let [a, b, c] = [0, 1, 2].map(|at: usize| parts[at].to_str().unwrap());
    place.succeed(&["merge", c, a, b, "-o", "merged.json"]);
    whole.succeed(&demo_run(pack.to_str().unwrap(), "7", &[]));
    assert_eq!(timeless(&place.path("merged.json")), timeless(&files(&whole.out())[0]));
    let audit = place.output(&["audit", a, "--format", "json"]);
    assert!(
        !String::from_utf8_lossy(&audit.stdout).contains("\"verdict\": \"pass\""),
        "a part is no evidence"
    );

    let gap = place.fail(&["merge", a, c, "-o", "gap.json"]);
    assert!(
        gap.contains("6 of 21 trials of rung 20 are in no shard") && gap.contains("belongs to shard 2/3"),
        "{gap}"
    );
    let overlap = place.fail(&["merge", a, b, c, b, "-o", "overlap.json"]);
    assert!(overlap.contains("is in") && overlap.contains("too"), "{overlap}");
    let other = shard(&place, "2/3", "8", &[]);
    let mixed = place.fail(&["merge", a, other.to_str().unwrap(), c, "-o", "mixed.json"]);
    assert!(mixed.contains("another specification (n_samples)"), "{mixed}");
    let number = shard(&place, "2/4", "7", &[]);
    let mixed = place.fail(&["merge", a, number.to_str().unwrap(), c, "-o", "mixed.json"]);
    assert!(mixed.contains("another number of shards"), "{mixed}");
    let no = place.fail(&["merge", a, "merged.json", "-o", "no.json"]);
    assert!(no.contains("it is no shard"), "{no}");
    for name in ["gap.json", "overlap.json", "mixed.json", "no.json"] {
        assert!(!place.path(name).exists(), "{name}");
    }
}

#[test]
fn a_part_is_continued_and_no_other() {
    let (place, pack) = (Place::new(), demo_pack());
    let with = |part: &'static str| demo_run(pack.to_str().unwrap(), "6", &["--shard", part, "--resume"]);
    place.succeed(&with("1/2"));
    // As if it had died before its end.
    let db = rusqlite::Connection::open(place.data().join("journal.sqlite")).unwrap();
    db.execute("update run set state = 'open'", []).unwrap();
    let (other, _) = place.succeed(&with("2/2"));
    assert_eq!(files(&place.out()).len(), 2, "{other}");
    let (same, _) = place.succeed(&with("1/2"));
    assert_ne!(same, other);
    assert_eq!(files(&place.out()).len(), 2, "the part has its file");
}

#[test]
fn an_edited_shard_is_refused() {
    let place = Place::new();
    let part = shard(&place, "1/1", "2", &[]);
    let text = std::fs::read_to_string(&part).unwrap();
    let seed = text.replace("\"seed\": 42", "\"seed\": 43");
    assert_ne!(seed, text);
    write(&part, seed);
    let said = place.fail(&["merge", part.to_str().unwrap(), "-o", "merged.json"]);
    assert!(said.contains("are in no shard"), "{said}");
}
