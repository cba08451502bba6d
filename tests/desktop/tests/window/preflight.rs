//! A pack with a fault that can be fixed: shown, fixed, taken back; and a run in spite of it.

use crate::window::{Theme, Window};
use crate::workspace;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const ROW: &str = "[data-check=tokenizer-special-tokens]";

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    let text = serde_json::to_string_pretty(&value).unwrap() + "\n";
    fs::File::create(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .unwrap();
}

/// The demo pack as some converters would have written it.
fn converted(workspace: &Path) {
    let pack = workspace.join("demo-pack");
    edit(&pack.join("verifier/tokenizer_config.json"), |config| {
        config["extra_special_tokens"] = json!(["<|turn>", "<turn|>"]);
    });
    // The files are as the manifest states them: it is the author's converter that wrote the list.
    let digest = files::sha256_file(&pack.join("verifier/tokenizer_config.json")).unwrap();
    edit(&pack.join("pack.json"), |manifest| {
        manifest["sha256"]["verifier/tokenizer_config.json"] = json!(digest);
    });
}

#[tokio::test]
async fn a_fault_is_shown_fixed_and_taken_back() {
    let workspace = workspace::with_demo_pack();
    let folder = workspace.path();
    converted(folder);
    let config = folder.join("demo-pack/verifier/tokenizer_config.json");
    let before = fs::read(&config).unwrap();
    let window = Window::open(folder, &folder.join("unused.html"), Theme::Light).await;
    window.find(&format!("{ROW}[data-status=fail]")).await;
    window.click(&format!("{ROW} [data-fix]")).await;
    let shown = window.text_of(&format!("{ROW} [data-change]")).await;
    assert!(shown.contains("+  \"extra_special_tokens\": {"), "{shown}");
    assert_eq!(fs::read(&config).unwrap(), before, "showing changes nothing");
    show(&window, ROW).await;
    window.screenshot("light-1-preflight-fix").await;

    window.click(&format!("{ROW} [data-apply]")).await;
    window.find(&format!("{ROW}[data-status=pass] [data-undo]:not(:disabled)")).await;
    assert_ne!(fs::read(&config).unwrap(), before);
    show(&window, ROW).await;
    window.screenshot("light-1-preflight-fixed").await;
    window.click(&format!("{ROW} [data-undo]")).await;
    window.find(&format!("{ROW}[data-status=fail] [data-fix]:not(:disabled)")).await;
    assert_eq!(fs::read(&config).unwrap(), before, "all is as it was");

    window.click("[data-check=spec-samples] .act button").await;
    window.find("[data-check=spec-samples][data-status=pass]").await;
    show(&window, "[data-check=spec-samples]").await;
    window.screenshot("light-1-preflight-run").await;
    window.close().await;
    in_the_dark(folder).await;
}

async fn in_the_dark(folder: &Path) {
    let window = Window::open(folder, &folder.join("unused.html"), Theme::Dark).await;
    window.find(&format!("{ROW}[data-status=fail]")).await;
    window.screenshot("dark-1-preflight-fault").await;
    window.click(".failing .link").await;
    window.click(&format!("{ROW} [data-fix]")).await;
    window.find(&format!("{ROW} [data-change]")).await;
    show(&window, ROW).await;
    window.screenshot("dark-1-preflight-fix").await;
    window.go("run").await;
    window.click("#start:not(:disabled)").await;
    window.find("[data-blocked]").await;
    show(&window, "[data-blocked]").await;
    window.screenshot("dark-2-run-blocked").await;
    window.close().await;
}

#[tokio::test]
async fn a_failing_check_blocks_a_run_until_it_is_overridden() {
    let workspace = workspace::with_demo_pack();
    let folder = workspace.path();
    converted(folder);
    let window = Window::open(folder, &folder.join("unused.html"), Theme::Light).await;
    window.go("run").await;
    window.fill("input[name=ladder]", "20").await;
    window.fill("input[name=n_samples]", "1").await;
    window.click("#start:not(:disabled)").await;
    let told = window.text_of("[data-blocked]").await;
    assert!(told.contains("1 failing check blocks this run") && told.contains("Special tokens"), "{told}");
    assert_eq!(workspace::evidence(folder).len(), 0);
    show(&window, "[data-blocked]").await;
    window.screenshot("light-2-run-blocked").await;
    window.click("#override").await;
    window.find("h1[data-run=finished]").await;
    let evidence = workspace::evidence(folder);
    let evidence: Value = serde_json::from_slice(&fs::read(&evidence[0]).unwrap()).unwrap();
    let overridden = evidence["provenance"]["overridden_checks"].as_array().unwrap();
    assert_eq!(overridden.len(), 1, "{overridden:?}");
    assert_eq!(overridden[0]["id"], "tokenizer-special-tokens");
    window.click("[data-evidence-written] button").await;
    window.find("[data-findings]").await;
    assert!(window.text().await.contains("started in spite of"), "the file's view names it");
    window.close().await;
}

/// Digests of files that are too large for a checklist of seconds come in the background.
#[tokio::test]
async fn large_files_are_hashed_in_the_background() {
    let workspace = workspace::with_demo_pack();
    let folder = workspace.path();
    fs::File::create(folder.join("demo-pack/large.bin")).unwrap().set_len(2 << 30).unwrap();
    edit(&folder.join("demo-pack/pack.json"), |manifest| {
        // SHA-256 of 2 GiB of zero bytes.
        manifest["sha256"]["large.bin"] =
            json!("a7c744c13cc101ed66c29f672f92455547889cc586ce6d44fe76ae824958ea51");
    });
    let window = Window::open(folder, &folder.join("unused.html"), Theme::Light).await;
    window.find("[data-check=pack-digests] progress").await;
    show(&window, "[data-check=pack-digests]").await;
    window.screenshot("light-1-preflight-hashing").await;
    window.find("[data-check=pack-digests][data-status=pass]").await;
    window.close().await;
}

/// Scrolls an element to where it can be seen whole.
async fn show(window: &Window, css: &str) {
    window.eval(&format!("document.querySelector('{css}').scrollIntoView({{ block: 'center' }})")).await;
}
