//! The window from one start to the next, and one window for all starts.

use crate::window::{Theme, Window, program};
use crate::workspace;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A session bus of its own; ends with its owner.
struct Bus {
    daemon: Child,
    address: String,
}

impl Bus {
    fn start() -> Self {
        let mut daemon = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--print-address"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("dbus-daemon is missing: apt-get install dbus");
        let mut address = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { daemon, address: address.trim().to_owned() }
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

#[tokio::test]
async fn a_second_start_opens_its_workspace_in_the_window_that_is_there() {
    let (first, second) = (workspace::with_demo_pack(), workspace::with_demo_pack());
    let bus = Bus::start();
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let window = Window::open_on(&bus.address, home, first.path(), Path::new("unused"), Theme::Light).await;
    let named = |folder: &Path| format!("nav [title={:?}]", folder.canonicalize().unwrap());
    window.find(&named(first.path())).await;
    let again = Command::new(program("kakeya-gate-app", "kakeya-gate-app"))
        .args(["--workspace", second.path().to_str().unwrap()])
        .env("DISPLAY", window.display())
        .env("DBUS_SESSION_BUS_ADDRESS", &bus.address)
        // Were it no second instance after all, it would open on nobody's data.
        .envs(["XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"].map(|name| (name, elsewhere.path())))
        .status()
        .unwrap();
    assert!(again.success(), "{again}");
    window.find(&named(second.path())).await;
    window.close().await;
}

/// A WebDriver ends an app without its window being closed, so what an earlier window would have left is written here.
#[tokio::test]
async fn a_window_has_the_size_that_it_was_left_with() {
    let (workspace, home) = (workspace::with_demo_pack(), tempfile::tempdir().unwrap());
    let left = r#"{"main":{"width":1010,"height":700,"x":20,"y":30,"prev_x":20,"prev_y":30,"maximized":false,"visible":true,"decorated":true,"fullscreen":false}}"#;
    let state = home.path().join("config/dev.kakeya.gate/.window-state.json");
    files::write_atomic(&state, left.as_bytes()).unwrap();
    let window = Window::open_at(home, workspace.path(), Path::new("unused"), Theme::Light).await;
    window.wait_for("outerWidth === 1010 && outerHeight === 700").await;
    window.close().await;
}
