//! The desk answers in the reader's language; what programs read is English whoever asks.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use api::{Call, Content, Desk, Export, Language, ReportFormat};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn paths() -> Vec<PathBuf> {
    vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/kinds")]
}

fn asked(call: Call, language: Language) -> Value {
    let answer = Desk::new(None).answer(call, language, &|_| true).unwrap();
    serde_json::from_str(&answer).unwrap()
}

fn is_chinese(value: &Value) -> bool {
    value.as_str().unwrap().chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c))
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
