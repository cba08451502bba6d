//! Files are hostile: bad ones are named without hiding the others, and text in them is text.

use crate::window::{Theme, Window};
use crate::workspace;
use serde_json::json;
use std::fs;

#[tokio::test]
async fn bad_files_are_named_and_markup_in_a_text_stays_text() {
    let workspace = workspace::with_demo_pack();
    let folder = workspace.path();
    let evil = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>中文";
    let arm = json!({ "samples_total": 1, "samples_correct": 0, "recall": 0.0, "per_sample_decoded": [evil],
        "per_sample_correct": [false] });
    let file = json!({ "kind": "k3_integrated_niah_acceptance", "schema_version": 2,
        "config": { "n_samples": 1, "seed": 42, "haystack_min_lines": 10, "haystack_max_lines": 12,
            "verifier_id": evil },
        "results": { "k3_cross_model": arm.clone(), "oracle": arm }, "gate": { evil: evil } });
    for (name, content) in
        [("evil.json", file.to_string()), ("empty.json", String::new()), ("list.json", "[1]".into())]
    {
        fs::File::create(folder.join(name))
            .and_then(|mut f| std::io::Write::write_all(&mut f, content.as_bytes()))
            .unwrap();
    }

    let window = Window::open(folder, &folder.join("unused.html"), Theme::Light).await;
    let title = window.eval("document.title").await;
    window.go("evidence").await;
    window.find("tr[data-file='evil.json']").await;
    let text = window.text().await;
    assert!(text.contains("empty.json is empty") && text.contains("list.json holds a list"), "{text}");
    window.screenshot("light-3-evidence-bad-files").await;
    window.click("tr[data-file='evil.json'] button.name").await;
    window.find("[data-findings]").await;
    assert!(window.text().await.contains("<img src=x"), "the text is shown as it is");
    assert_eq!(window.count("main img, main script").await, 0);
    assert_eq!(window.eval("document.title").await, title);
    window.screenshot("light-3-evidence-hostile").await;
    window.close().await;
}
