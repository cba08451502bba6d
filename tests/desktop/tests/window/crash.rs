//! The engine is a process of its own: its death ends a run, never the window.

use crate::window::{Theme, Window};
use crate::workspace;

#[tokio::test]
async fn a_killed_engine_is_told_and_the_run_goes_on() {
    let workspace = workspace::with_demo_pack();
    let folder = workspace.path();
    let window = Window::open(folder, &folder.join("unused.html"), Theme::Light).await;
    window.go("run").await;
    window.fill("input[name=ladder]", "70").await;
    window.fill("input[name=n_samples]", "8").await;
    window.click("#start:not(:disabled)").await;
    window.find(".cell.hit").await;

    window.kill_engine();
    window.find("h1[data-run=finished]").await;
    let told = window.text_of("[role=log]").await;
    assert!(told.contains("signal: 9") && told.contains("started again"), "{told}");
    assert_eq!(workspace::evidence(folder).len(), 1);
    window.screenshot("light-2-run-engine-lost").await;
    window.close().await;
}

#[tokio::test]
async fn a_killed_app_asks_whether_to_continue() {
    let workspace = workspace::with_demo_pack();
    let folder = workspace.path();
    let unused = folder.join("unused.html");
    let window = Window::open(folder, &unused, Theme::Light).await;
    window.go("run").await;
    window.fill("input[name=ladder]", "70").await;
    window.fill("input[name=n_samples]", "8").await;
    window.click("#start:not(:disabled)").await;
    window.find(".cell.hit").await;
    let home = window.kill_app();
    assert_eq!(workspace::evidence(folder).len(), 0, "no half-written evidence");

    let window = Window::open_at(home, folder, &unused, Theme::Light).await;
    window.find("[data-unfinished]").await;
    window.screenshot("light-2-run-continue").await;
    window.click("[data-continue]").await;
    window.find("h1[data-run=finished]").await;
    let told = window.text_of("[role=log]").await;
    assert!(told.contains("in the journal already"), "{told}");
    assert_eq!(workspace::evidence(folder).len(), 1);
    assert_eq!(window.count("[data-unfinished]").await, 0);
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
    window.click("#cancel").await;
    window.find("h1[data-run=cancelled]").await;
    assert_eq!(workspace::evidence(folder).len(), 0, "no half-written evidence");
    window.find("#start:not(:disabled)").await;
    window.close().await;
}
