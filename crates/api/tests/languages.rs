//! The desk answers in the reader's language; what programs read is English whoever asks.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use api::{Call, Content, Desk, ErrorReport, Export, Language, ReportFormat};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn paths() -> Vec<PathBuf> {
    vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/kinds")]
}

fn asked(call: Call, language: Language) -> Value {
    let answer = Desk::new(None).answer(call, language, &|_| true).unwrap();
    serde_json::from_str(&answer).unwrap()
}

fn has_chinese(text: &str) -> bool {
    text.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c))
}

fn is_chinese(value: &Value) -> bool {
    has_chinese(value.as_str().unwrap())
}

#[test]
fn the_gate_is_told_in_the_readers_language() {
    let told = |language| asked(Call::Gate { paths: paths() }, language);
    let [english, chinese] = Language::ALL.map(told);
    assert!(!is_chinese(&english["headline"]) && is_chinese(&chinese["headline"]));
    for (english, chinese) in
        english["cells"].as_array().unwrap().iter().zip(chinese["cells"].as_array().unwrap())
    {
        for words in ["title", "why"] {
            assert!(!is_chinese(&english[words]) && is_chinese(&chinese[words]), "{chinese}");
        }
        assert_eq!(english["verdict"], chinese["verdict"]);
    }
}

/// One told in English, and the same in Chinese: what happened and what to do are Chinese, the program's own words stay.
fn is_told_beside_its_own_words([english, chinese]: [&ErrorReport; 2]) {
    assert_eq!(english.detail, "");
    assert_eq!((chinese.code, &chinese.detail), (english.code, &english.message));
    for (english, chinese) in [(&english.message, &chinese.message), (&english.hint, &chinese.hint)] {
        assert!(!has_chinese(english) && has_chinese(chinese), "{chinese}");
    }
}

#[test]
fn a_refusal_is_told_in_the_readers_language() {
    let call = Call::OpenWorkspace { folder: "no/such".into() };
    let told = |language| Desk::new(None).answer(call.clone(), language, &|_| true).unwrap_err();
    is_told_beside_its_own_words(Language::ALL.map(told).each_ref());
}

#[test]
fn so_are_files_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    files::write_atomic(&folder.path().join("broken.json"), b"[").unwrap();
    let told = |language| {
        let list = asked(Call::ListEvidence { paths: vec![folder.path().to_owned()] }, language);
        serde_json::from_value(list["problems"][0].clone()).unwrap()
    };
    is_told_beside_its_own_words(Language::ALL.map(told).each_ref());
}

#[test]
fn a_report_for_programs_is_english() {
    let told = |format, language| {
        let request = Export { paths: paths(), ..Export::default() };
        let rendered = asked(Call::Report { request, format }, language);
        match serde_json::from_value(rendered["content"].clone()).unwrap() {
            Content::Text(text) => Value::String(text),
            Content::Base64(_) => panic!("these formats are text"),
        }
    };
    for format in [ReportFormat::Json, ReportFormat::Junit] {
        assert!(!is_chinese(&told(format, Language::Zh)), "{format:?}");
    }
    for format in [ReportFormat::Html, ReportFormat::Markdown] {
        assert!(
            is_chinese(&told(format, Language::Zh)) && !is_chinese(&told(format, Language::En)),
            "{format:?}"
        );
    }
}
