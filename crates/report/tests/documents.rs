//! Reports of evidence: snapshots of two small files, hostile text, and the reference's corpus.
#![expect(clippy::unwrap_used, reason = "a test whose report cannot be made has failed")]
#![expect(clippy::disallowed_methods, reason = "the rendered pages are test output, not user data")]

use evidence::{Audit, File, Language, Policy};
use report::{Block, GateDocument, SignOff};
use std::path::{Path, PathBuf};

fn read(path: &Path) -> File {
    evidence::read(&path.into()).unwrap_or_else(|error| panic!("{error}"))
}

fn fixtures() -> Vec<File> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    ["demo_ctx20.json", "no_oracle_ctx70.json"].map(|name| read(&folder.join(name))).to_vec()
}

fn sign_off() -> SignOff {
    SignOff {
        reviewer: "R. Viewer".into(),
        notes: "First look.\nRun 59 samples next.".into(),
        generated_at: "2026-01-02 03:10 UTC".into(),
        program_version: "0.1.0".into(),
        language: Language::En,
    }
}

fn chinese() -> SignOff {
    SignOff { language: Language::Zh, ..sign_off() }
}

fn document(audits: &[Audit], sign_off: SignOff) -> GateDocument {
    let pairs = audits.windows(2).map(|pair| evidence::compare(&pair[0], &pair[1]));
    let comparisons: Vec<_> = pairs.collect();
    GateDocument::new(audits, &comparisons, &evidence::gate(audits, &Policy::built_in()), sign_off).unwrap()
}

/// The page without its charts and style, which have tests of their own.
fn words(html: &str) -> String {
    let mut out = html.to_owned();
    for (open, close) in [("<svg", "</svg>"), ("<style", "</style>")] {
        while let Some((start, end)) = out.find(open).zip(out.find(close)) {
            out.replace_range(start..end + close.len(), "");
        }
    }
    out.replace("<tr>", "\n<tr>").replace("<section", "\n\n<section").replace("<h3>", "\n<h3>")
}

#[test]
fn html_report() {
    let html = report::html(&document(&evidence::audit(&fixtures()), sign_off()));
    assert_eq!(html.matches("<svg").count(), 10, "five charts, each on either ground");
    insta::assert_snapshot!(words(&html));
}

#[test]
fn markdown_report() {
    insta::assert_snapshot!(report::markdown(&document(&evidence::audit(&fixtures()), sign_off())));
}

#[test]
fn html_report_in_chinese() {
    let html = report::html(&document(&evidence::audit(&fixtures()), chinese()));
    assert!(html.contains("<html lang=\"zh-Hans\">"));
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-zh.html"), &html).unwrap();
    insta::assert_snapshot!(words(&html));
}

#[test]
fn markdown_report_in_chinese() {
    insta::assert_snapshot!(report::markdown(&document(&evidence::audit(&fixtures()), chinese())));
}

/// Headings, heads of columns, captions and charts: nothing that the report says by itself stays English.
#[test]
fn every_word_of_the_report_itself_is_chinese() {
    let audits = evidence::audit(&fixtures());
    let both = [sign_off(), chinese()].map(|sign_off| document(&audits, sign_off));
    let says = |document: &GateDocument| -> Vec<String> {
        let mut said = Vec::new();
        for section in &document.sections {
            said.push(section.title.clone());
            for block in &section.blocks {
                match block {
                    Block::Heading(chip, _) => said.push(chip.word.clone()),
                    Block::Text(text) => said.push(text.clone()),
                    Block::Table(table) => {
                        said.extend([table.caption.clone()].into_iter().chain(table.columns.clone()))
                    }
                    Block::Chart(chart) => said.push(chart.title.clone()),
                }
            }
        }
        said
    };
    let [english, chinese] = both.each_ref().map(says);
    assert_eq!(english.len(), chinese.len());
    // Names and units that are the same in both.
    let same = |words: &str| words == "SHA-256" || words.ends_with(" %") || words == "95 %, Tango";
    for (english, chinese) in english.iter().zip(&chinese).filter(|(english, _)| !same(english)) {
        let is_chinese = chinese.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
        assert!(is_chinese && english != chinese, "{english:?} is {chinese:?} in Chinese");
    }
}

#[test]
fn junit_report() {
    let gate = evidence::gate(&evidence::audit(&fixtures()), &Policy::built_in());
    insta::assert_snapshot!(report::junit(&gate, &sign_off()).unwrap());
}

#[test]
fn pdf_report() {
    let document = document(&evidence::audit(&fixtures()), sign_off());
    let pdf = report::pdf(&document).unwrap();
    assert!(pdf.starts_with(b"%PDF-1."), "{:?}", &pdf[..8]);
    let holds = |needle: &[u8]| pdf.windows(needle.len()).any(|window| window == needle);
    assert!(holds(b"/FontFile"), "fonts are embedded");
    assert!(!holds(b"/Subtype /Image") && !holds(b"/Subtype/Image"), "charts are vectors");
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.pdf"), &pdf).unwrap();
}

/// Where a font has the letters the pages hold one of them; elsewhere there are no pages, and it is said why.
#[test]
fn pdf_report_in_chinese() {
    match report::pdf(&document(&evidence::audit(&fixtures()), chinese())) {
        Ok(pdf) => {
            let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-zh.pdf");
            std::fs::write(out, &pdf).unwrap();
            let holds = |needle: &[u8]| pdf.windows(needle.len()).any(|window| window == needle);
            assert!(holds(b"/Lang (zh") || holds(b"/Lang(zh"), "screen readers are told the language");
        }
        Err(problem) => assert!(matches!(problem, report::ReportError::NoChineseFont), "{problem}"),
    }
}

#[test]
fn nothing_given_is_a_report_too() {
    let document = document(&[], SignOff::default());
    let html = report::html(&document);
    assert!(html.contains("Nothing to draw") && html.contains("nobody signed yet"));
    assert!(report::markdown(&document).contains("no gate can be decided"));
}

const ATTACK: &str =
    "x</td></table><script>alert(1)</script><img src=x onerror=alert(2)>\u{202e}|`@octocat` \u{1}\n# h";

fn poison(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) if !text.starts_with("k3_") && text.len() != 3 => *text += ATTACK,
        serde_json::Value::Array(list) => list.iter_mut().for_each(poison),
        serde_json::Value::Object(fields) => fields.iter_mut().for_each(|(_, value)| poison(value)),
        _ => {}
    }
}

#[test]
fn hostile_text_is_shown_as_text() {
    let mut files = fixtures();
    for file in &mut files {
        let oracle = file.value["results"]["k3_cross_model"].clone();
        file.value["results"][ATTACK] = oracle;
        poison(&mut file.value);
        file.name = format!("{ATTACK}.json");
        file.place.path = PathBuf::from("folder").join(&file.sha256).join("evidence.json");
    }
    let attacker = SignOff {
        reviewer: ATTACK.into(),
        notes: ATTACK.into(),
        generated_at: ATTACK.into(),
        program_version: ATTACK.into(),
        language: Language::En,
    };
    let document = document(&evidence::audit(&files), attacker);
    let html = report::html(&document);
    assert!(html.contains("&lt;script&gt;"));
    for forbidden in ["<script", "<img", "\u{202e}", "\u{1}"] {
        assert!(!html.contains(forbidden), "{forbidden:?} got through");
    }
    assert!(report::pdf(&document).is_ok(), "it is set, whatever it says");
    let gate = evidence::gate(&evidence::audit(&files), &Policy::built_in());
    let junit = report::junit(&gate, &document.sign_off).unwrap();
    assert!(roxmltree::Document::parse(&junit).is_ok() && !junit.contains("<script"));
    let markdown = report::markdown(&document);
    for forbidden in ["<script", "<img", "@octocat", "\u{202e}", "\n# h"] {
        assert!(!markdown.contains(forbidden), "{forbidden:?} got through");
    }
}

#[test]
fn every_figure_of_the_gates_is_in_both() {
    let audits = evidence::audit(&fixtures());
    let document = document(&audits, sign_off());
    let (html, markdown) = (report::html(&document), report::markdown(&document));
    for cell in evidence::gate(&audits, &Policy::built_in()).cells {
        assert!(
            html.contains(cell.figures.en()) && markdown.contains(cell.figures.en()),
            "{:?}",
            cell.figures
        );
        assert!(html.contains(cell.verdict.label().en()) && markdown.contains(cell.verdict.label().en()));
    }
    for audit in audits {
        assert!(html.contains(&audit.sha256) && markdown.contains(&audit.sha256));
    }
}

fn reference() -> Option<PathBuf> {
    let root = std::env::var_os("KAKEYA_GATE_REFERENCE").map(PathBuf::from);
    if root.is_none() {
        eprintln!("skipped: KAKEYA_GATE_REFERENCE is unset");
    }
    root
}

fn render(name: &str, folder: PathBuf) -> (String, String) {
    let files: Vec<File> =
        evidence::find(&[folder]).iter().filter_map(|path| evidence::read(path).ok()).collect();
    let audits = evidence::audit(&files);
    let document = document(&audits, sign_off());
    let (html, markdown) = (report::html(&document), report::markdown(&document));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(out.join(format!("{name}.html")), &html).unwrap();
    std::fs::write(out.join(format!("{name}.md")), &markdown).unwrap();
    assert!(!html.contains("<script") && !html.contains("src="));
    assert!(markdown.chars().count() <= 65_536);
    (html, markdown)
}

#[test]
fn reference_runs_of_the_demo_pack() {
    let Some(root) = reference() else { return };
    let (html, markdown) = render("report-demo-checks", root.join("demo-pack-checks/evidence"));
    assert!(html.len() < 300_000, "{} bytes", html.len());
    assert!(html.contains("20/20 vs 20/20") && markdown.contains("20/20 vs 20/20"));
}

#[test]
fn the_whole_corpus_is_one_report() {
    let Some(root) = reference() else { return };
    let (html, markdown) = render("report-corpus", root.join("evidence/corpus"));
    assert!(html.contains("RESTORATION_NOT_EXECUTED") && markdown.contains("more in the HTML report"));
    assert!(markdown.contains("Reviewer: R. Viewer"), "however long the findings, the sign-off stays");
    assert!(!markdown.contains("Cut here"), "parts are shortened, none is lost");
}

#[test]
fn fixtures_as_pages() {
    render("report-fixtures", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"));
}
