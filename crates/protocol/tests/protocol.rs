//! Messages survive a round trip; packs and specifications say what is wrong with them.
#![expect(clippy::disallowed_methods, reason = "sets up fixtures")]

use niah::{PromptVariant, Rung};
use proptest::prelude::*;
use protocol::{
    Arm, Backend, Decode, Device, ErrorCode, ErrorReport, Event, Pack, Request, RunSpec, Stage, Trial,
};
use std::fs;

fn spec() -> RunSpec {
    RunSpec {
        pack: "pack".into(),
        backend: Backend::Candle,
        device: Device::Cpu,
        arms: Arm::ALL.to_vec(),
        decode: Decode::Incremental,
        ladder: vec![Rung(20), Rung(70)],
        n_samples: 20,
        seed: 42,
        sink: 4,
        window: 64,
        max_new_tokens: 24,
        prefill_chunk: 512,
        prompt: PromptVariant::Legacy,
    }
}

#[test]
fn arms_are_words() {
    let words: Vec<String> = Arm::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(words[..3], ["oracle", "sink-window", "restored:s5"]);
    assert_eq!(words[5..7], ["restored:same-checkpoint", "no-restoration:s5"]);
    assert_eq!(serde_json::to_string(&Arm::ALL).unwrap(), serde_json::to_string(&words).unwrap());
    for word in &words {
        assert_eq!(&word.parse::<Arm>().unwrap().to_string(), word);
    }
    assert_eq!("restored:mix:0.50".parse::<Arm>().unwrap().to_string(), "restored:mix:0.5");
    let said = [
        "restored",
        "restored:s6",
        "restored:mix:1.5",
        "restored:mix:0.0001",
        "restored:mix:x",
        "random:identity",
    ]
    .map(|word| word.parse::<Arm>().unwrap_err().to_string());
    insta::assert_snapshot!(said.join("\n"), @r#"
    "restored" is no arm: use oracle, sink-window, restored:MODE, no-restoration:MODE or random:MODE, where MODE is s5, f-theta, identity, same-checkpoint or mix:A
    "s6" is no way to restore: use s5, f-theta, identity, same-checkpoint or mix:A
    "1.5" is no weight of a mixture: use 0 to 1 with at most three decimals
    "0.0001" is no weight of a mixture: use 0 to 1 with at most three decimals
    "x" is no weight of a mixture: use 0 to 1 with at most three decimals
    identity has no control, because f_θ fills no layer alone there: use s5 or f-theta
    "#);
}

#[test]
fn a_mixture_or_a_control_is_never_the_system_under_test() {
    let tested = |words: &[&str]| {
        let arms = words.iter().map(|word| word.parse().unwrap()).collect();
        RunSpec { arms, ..spec() }.system_under_test().map(|arm| arm.to_string())
    };
    assert_eq!(tested(&["oracle", "random:s5", "no-restoration:s5", "restored:mix:0"]), None);
    assert_eq!(tested(&["restored:mix:0", "restored:identity"]).as_deref(), Some("restored:identity"));
}

#[test]
fn a_message_is_one_tagged_line() {
    let trial = Request::Trial(Trial {
        id: "70/3/oracle".into(),
        arm: Arm::Oracle,
        prompt: "two\nlines".into(),
        variant: PromptVariant::Legacy,
        decode: Decode::Reforward,
        sink: 4,
        window: 64,
        max_new_tokens: 24,
        prefill_chunk: 512,
        seed: 42,
        sample: 3,
        fidelity: true,
        answer: None,
    });
    let line = serde_json::to_string(&trial).unwrap();
    assert!(
        !line.contains('\n') && line.starts_with(r#"{"type":"trial","id":"70/3/oracle","arm":"oracle""#),
        "{line}"
    );
    assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), trial);
    let failed = Event::Failed(ErrorReport::new(ErrorCode::PackNotFound, "m", "h"));
    let line = serde_json::to_string(&failed).unwrap();
    assert_eq!(line, r#"{"type":"failed","code":"pack-not-found","message":"m","hint":"h"}"#);
    assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), failed);
}

#[test]
fn a_code_reads_as_it_is_written() {
    for code in ErrorCode::ALL {
        let word = serde_json::to_string(code).unwrap();
        assert_eq!(word, format!("\"{code}\""));
        assert_eq!(serde_json::from_str::<ErrorCode>(&word).unwrap(), *code);
    }
}

#[test]
fn a_specification_says_what_is_wrong() {
    let said = |change: fn(&mut RunSpec)| {
        let mut spec = spec();
        change(&mut spec);
        spec.check().unwrap_err().to_string()
    };
    let all = [
        said(|spec| spec.arms.clear()),
        said(|spec| spec.ladder.clear()),
        said(|spec| spec.max_new_tokens = 0),
        said(|spec| spec.n_samples = 0),
        said(|spec| spec.ladder.push(Rung(20))),
        said(|spec| spec.arms.push(Arm::Oracle)),
        said(|spec| spec.window = usize::MAX),
    ];
    insta::assert_snapshot!(all.join("\n"), @r"
    arms is empty: name at least one arm, for example oracle,restored
    ladder is empty: name at least one rung, for example 20,70
    max_new_tokens is empty: a code needs 6 to 8 tokens; the ladder's standard is 24
    rung 20: n_samples = 0: ask for at least one sample
    ladder names 20 twice
    arms names oracle twice
    window = 18446744073709551615 is above the limit of 16777216
    ");
    assert_eq!(spec().trials(), 10 * 20 * 2);
}

#[test]
fn a_pack_says_where_it_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pack.json");
    let said = |text: &str| {
        fs::write(&path, text).unwrap();
        let error = Pack::open(folder.path()).and_then(|pack| pack.require_parts()).unwrap_err();
        error.to_string().replace(folder.path().to_str().unwrap(), "PACK")
    };
    let all = [
        said(""),
        said(r#"{"format": 1, "name": "a", "verifier": 7}"#),
        said(r#"{"format": 1, "name": "a", "verifier": "v", "drafters": "d"}"#),
        said(r#"{"format": 2, "name": "a", "verifier": "v"}"#),
        said(
            r#"{"format": 1, "name": "a", "verifier": "v", "drafter": "d", "f_theta": "f", "value_rule": "projected"}"#,
        ),
        said(r#"{"format": 1, "name": "a", "verifier": "v"}"#),
    ];
    insta::assert_snapshot!(all.join("\n"));
    fs::remove_file(&path).unwrap();
    let error = Pack::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("pack.json") && error.contains("a model pack needs a pack.json"), "{error}");
    let error = Pack::open(&folder.path().join("none")).unwrap_err().to_string();
    assert!(error.ends_with("none is no folder"), "{error}");
}

proptest! {
    #[test]
    fn hostile_lines_are_errors_never_panics(line in ".{0,200}") {
        let _ = serde_json::from_str::<Request>(&line);
        let _ = serde_json::from_str::<Event>(&line);
    }

    #[test]
    fn a_code_of_another_version_is_no_error(word in "[a-z-]{0,30}") {
        let code: ErrorCode = serde_json::from_value(word.as_str().into()).unwrap();
        prop_assert!(code == ErrorCode::Unknown || code.to_string() == word);
    }

    #[test]
    fn progress_round_trips(id in ".{0,40}", tokens: usize) {
        let event = Event::Progress { id, stage: Stage::Decode, tokens };
        let line = serde_json::to_string(&event).unwrap();
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }
}
