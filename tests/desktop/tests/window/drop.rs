//! Files dragged into the window from another program, with the pointer, as the desktop does it.

use crate::window::{Owned, Theme, Window, program};
use crate::workspace;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Where the other program's window is, and where its middle is; in pixels.
const AT: [&str; 2] = ["1100", "800"];
const MIDDLE: (u32, u32) = (1130, 830);

/// A pointer that holds a file.
struct Dragging<'a> {
    window: &'a Window,
    source: Owned,
}

impl<'a> Dragging<'a> {
    fn begin(window: &'a Window, file: &Path) -> Self {
        let mut source = Command::new(program("examples/drag_source", "desktop-tests"))
            .args(AT)
            .arg(file)
            .env("DISPLAY", window.display())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(source.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "ready");
        let dragging = Self { window, source: Owned(source) };
        dragging.to(MIDDLE);
        dragging.pointer(&["mousedown", "1"]);
        dragging
    }

    fn pointer(&self, arguments: &[&str]) {
        let status = Command::new("xdotool").args(arguments).env("DISPLAY", self.window.display()).status();
        assert!(status.expect("xdotool is missing: apt-get install xdotool").success());
    }

    fn to(&self, (x, y): (u32, u32)) {
        self.pointer(&["mousemove", &x.to_string(), &y.to_string()]);
    }

    /// Over the window's middle, by steps as a hand makes them, until the page says what it would take.
    async fn over(&self) {
        for step in 1..=20 {
            self.to((MIDDLE.0 - 25 * step, MIDDLE.1 - 20 * step));
        }
        self.window.find(".drop").await;
    }

    /// Lets go; the other program has seen the end of it then.
    fn drop_here(mut self) {
        self.pointer(&["mouseup", "1"]);
        assert!(self.source.0.wait().unwrap().success());
    }
}

#[tokio::test]
async fn evidence_dropped_from_another_program_is_listed_and_what_is_none_is_told() {
    let (workspace, elsewhere) = (workspace::with_demo_pack(), tempfile::tempdir().unwrap());
    let evidence = elsewhere.path().join("from the Mac 中文 100%.json");
    fs::copy(workspace::root().join("tests/fixtures/evidence/demo_ctx20_s5.json"), &evidence).unwrap();
    let none = elsewhere.path().join("cut-off.json");
    files::write_atomic(&none, b"{").unwrap();

    let window = Window::open(workspace.path(), Path::new("unused"), Theme::Light).await;
    window.find("[data-preflight=done]").await;
    let dragging = Dragging::begin(&window, &evidence);
    dragging.over().await;
    window.screenshot("light-3-evidence-drop").await;
    dragging.drop_here();
    window.find("main[data-place=evidence]").await;
    window.find("tr[data-file='from the Mac 中文 100%.json']").await;
    assert_eq!(window.count("tr[data-file]").await, 1);
    assert_eq!(window.count(".drop").await, 0);

    let dragging = Dragging::begin(&window, &none);
    dragging.over().await;
    dragging.drop_here();
    window.wait_for("document.body.innerText.includes('cut-off.json')").await;
    assert_eq!(window.count("tr[data-file]").await, 1, "{}", window.text().await);
    window.screenshot("light-3-evidence-dropped").await;
    window.close().await;
}
