//! The engine is a process of its own: its death ends a run, never the window.

use crate::window::{Theme, Window};
use crate::workspace;

#[tokio::test]
async fn a_killed_engine_is_told_and_the_next_run_works() {
    let workspace = workspace::with_demo_pack();
    let folder = workspace.path();
    let window = Window::open(folder, &folder.join("unused.html"), Theme::Light).await;
    window.go("run").await;
    window.fill("input[name=ladder]", "70").await;
    window.fill("input[name=n_samples]", "200").await;
    window.click("#start:not(:disabled)").await;
    window.find(".cell.hit").await;

    window.kill_engine();
    window.find("h1[data-run=failed]").await;
    let told = window.text_of("[role=alert]").await;
    assert!(told.contains("engine") && told.contains("signal"), "{told}");
    assert_eq!(workspace::evidence(folder).len(), 0, "no half-written evidence");
    window.screenshot("light-2-run-engine-lost").await;

    window.fill("input[name=ladder]", "20").await;
    window.fill("input[name=n_samples]", "1").await;
    window.click("#start:not(:disabled)").await;
    window.find("h1[data-run=finished]").await;
    assert_eq!(workspace::evidence(folder).len(), 1);
    window.close().await;
}

#[tokio::test]
async fn a_run_can_be_cancelled() {
    let workspace = workspace::with_demo_pack();
    let folder = workspace.path();
    let window = Window::open(folder, &folder.join("unused.html"), Theme::Light).await;
    window.go("run").await;
    window.fill("input[name=n_samples]", "200").await;
    window.click("#start:not(:disabled)").await;
    window.find(".cell.hit").await;
    window.click("progress").await;
    window.click(".bar button").await;
    window.find("h1[data-run=cancelled]").await;
    assert_eq!(workspace::evidence(folder).len(), 0, "no half-written evidence");
    window.find("#start:not(:disabled)").await;
    window.close().await;
}
