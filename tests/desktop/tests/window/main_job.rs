//! The main job from end to end: preflight, run, evidence, compare, gate, export.

use crate::window::{Theme, Window};
use crate::workspace;
use std::fs;

const CONTROL: char = '\u{E009}';

#[tokio::test]
async fn the_main_job_once_and_its_places_in_both_themes() {
    let workspace = workspace::with_demo_pack();
    let folder = workspace.path();
    let out = tempfile::tempdir().unwrap();
    let report = out.path().join("gate.html");
    let window = Window::open(folder, &report, Theme::Light).await;

    preflight(&window).await;
    run(&window, "incremental").await;
    run(&window, "reforward").await;
    assert_eq!(workspace::evidence(folder).len(), 2, "one evidence file a run");
    evidence(&window).await;
    compare(&window).await;
    gate(&window).await;
    window.close().await;

    exported(&fs::read_to_string(&report).unwrap());
    every_place_in_the_dark(folder, &report).await;
}

/// Asked by the notification plugin as the page begins: an error of it may come before the page listens, or after.
const MAY_NOTIFY: &str = "
    const done = arguments[arguments.length - 1];
    window.__TAURI_INTERNALS__.invoke('plugin:notification|is_permission_granted').then(() => done('asked'), done);";

async fn preflight(window: &Window) {
    window.find("[data-preflight=done]").await;
    assert_eq!(window.eval_later(MAY_NOTIFY, vec![]).await, "asked");
    assert_eq!(window.count("[role=alert]").await, 0, "{}", window.text().await);
    assert_eq!(window.count("[data-status=fail]").await, 0, "{}", window.text().await);
    assert!(window.count("[data-check]").await >= 7, "{}", window.text().await);
    window.click("[data-check=host-system] .again").await;
    window.find("[data-check=host-system] .again:not(:disabled)").await;
    window.screenshot("light-1-preflight").await;
}

async fn run(window: &Window, decode: &str) {
    window.press(&format!("{CONTROL}2")).await;
    window.find("main[data-place=run]").await;
    window.fill("input[name=ladder]", "20").await;
    window.fill("input[name=n_samples]", "0").await;
    assert!(!window.text_of("form [role=alert]").await.is_empty(), "the program says what is wrong");
    window.fill("input[name=n_samples]", "2").await;
    window.click(&format!("select[name=decode] option[value={decode}]")).await;
    window.screenshot("light-2-run-form").await;
    window.click("#start:not(:disabled)").await;
    window.find(".cell.hit").await;
    window.screenshot("light-2-run-live").await;
    window.find("h1[data-run=finished]").await;
    assert_eq!(window.count("[data-rung='20'] .cell.hit, [data-rung='20'] .cell.miss").await, 14);
    assert!(window.text_of("tr[data-arm=oracle]").await.contains("2/2"));
    assert!(window.text_of("tr[data-arm=sink-window]").await.contains("0/2"));
    window.click("[data-rung='20'] .cell.hit").await;
    window.find(".answer mark").await;
    window.screenshot("light-2-run-finished").await;
}

async fn evidence(window: &Window) {
    window.click("[data-evidence-written] button").await;
    window.find("[data-findings]").await;
    assert!(window.text().await.contains("Restoration"), "counters are shown");
    window.screenshot("light-3-evidence-file").await;
    scroll_to(window, ".samples").await;
    window.screenshot("light-3-evidence-samples").await;
    window.go("evidence").await;
    window.click("#back").await;
    window.find("tr[data-file]").await;
    assert_eq!(window.count("tr[data-file]").await, 2);
    window.screenshot("light-3-evidence").await;
    window.fill("input[type=search]", "no such file").await;
    window.find("tbody td.dim[colspan]").await;
    assert_eq!(window.count("tr[data-file]").await, 0);
    window.fill("input[type=search]", "k3_integrated").await;
    window.find("tr[data-file]").await;
}

async fn compare(window: &Window) {
    window.go("compare").await;
    window.find("[data-comparison]").await;
    let drawn = "[...document.querySelectorAll('figure img')].filter((img) => img.complete && img.naturalWidth > 0).length === 4";
    window.wait_for(drawn).await;
    let text = window.text().await;
    assert!(text.contains("decode") && text.contains("reforward"), "what differs is named: {text}");
    window.screenshot("light-4-compare").await;
    scroll_to(window, "section:last-of-type").await;
    window.screenshot("light-4-compare-tables").await;
}

async fn gate(window: &Window) {
    window.go("gate").await;
    window.find("[data-cell=recall]").await;
    assert_eq!(window.find("h1[data-gate]").await.attr("data-gate").await.unwrap().unwrap(), "missing");
    window.fill("input[name=reviewer]", "Ada 审阅人").await;
    window.fill("textarea[name=notes]", "<b>read</b> & weighed").await;
    window.click("#export:not(:disabled)").await;
    window.find("[data-preview=html] iframe").await;
    window.screenshot("light-5-export").await;
    window.click("#save:not(:disabled)").await;
    window.find("[data-exported]").await;
    window.click("dialog .close").await;
    window.screenshot("light-5-gate").await;
}

/// What the release owner gets: complete in itself, both charts, the reviewer's words as text.
fn exported(html: &str) {
    assert!(html.contains("Ada 审阅人"));
    assert!(html.contains("&lt;b&gt;read&lt;/b&gt; &amp; weighed"), "notes are text, never markup");
    assert!(html.matches("<svg").count() >= 2, "both charts are inside");
    assert!(html.to_lowercase().contains("demo"), "the demo pack is named as such");
    assert!(html.contains("undecided"));
    let addresses = html.replace("http://www.w3.org/2000/svg", "the name of SVG, which nothing loads");
    assert!(
        !addresses.contains("http://") && !addresses.contains("https://"),
        "nothing is loaded from elsewhere"
    );
    assert!(!addresses.contains("src=\"//"), "nothing is loaded from elsewhere");
}

async fn every_place_in_the_dark(folder: &std::path::Path, report: &std::path::Path) {
    let window = Window::open(folder, report, Theme::Dark).await;
    window.find("[data-preflight=done]").await;
    assert_eq!(window.eval("matchMedia('(prefers-color-scheme: dark)').matches").await, true);
    window.screenshot("dark-1-preflight").await;
    for (place, ready, name) in [
        ("run", "#start:not(:disabled)", "dark-2-run"),
        ("evidence", "tr[data-file]", "dark-3-evidence"),
        ("compare", "[data-comparison]", "dark-4-compare"),
        ("gate", "[data-cell]", "dark-5-gate"),
    ] {
        window.go(place).await;
        window.find(ready).await;
        window.screenshot(name).await;
    }
    window.go("evidence").await;
    window.click("tr[data-file] button.name").await;
    window.find("[data-findings]").await;
    window.screenshot("dark-3-evidence-file").await;
    window.close().await;
}

async fn scroll_to(window: &Window, css: &str) {
    window.eval(&format!("document.querySelector('main {css}').scrollIntoView()")).await;
}
