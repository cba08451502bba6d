//! The real window, driven through WebKitWebDriver under a private X server, with the real engine behind it.
//!
//! Nothing is built here: the programs lie beside the test, in `target/<profile>/`. Linux only, because no dependable
//! WebDriver exists for the web view of macOS.

#![cfg_attr(
    target_os = "linux",
    expect(clippy::unwrap_used, clippy::expect_used, reason = "a test ends where the unexpected happens")
)]

#[cfg(target_os = "linux")]
mod again;
#[cfg(target_os = "linux")]
mod crash;
#[cfg(target_os = "linux")]
mod drop;
#[cfg(target_os = "linux")]
mod hostile;
#[cfg(target_os = "linux")]
mod main_job;
#[cfg(target_os = "linux")]
mod preflight;
#[cfg(target_os = "linux")]
mod window;
#[cfg(target_os = "linux")]
mod workspace;

#[cfg(not(target_os = "linux"))]
#[test]
fn skipped() {
    eprintln!("skipped: the window is tested on Linux, where its web view has a WebDriver");
}
