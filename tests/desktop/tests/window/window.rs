//! Starting the app and reading what it shows. Every wait is for a condition.

use crate::workspace::root;
use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use sysinfo::{Pid, Process, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};
use tempfile::TempDir;

/// Longest wait for anything that a run of two samples does, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks at a condition.
const LOOK: Duration = Duration::from_millis(50);

/// Appearance of the desktop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// Light.
    Light,
    /// Dark.
    Dark,
}

/// A program that ends with its owner.
pub struct Owned(pub Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The open window.
pub struct Window {
    client: Client,
    driver: Owned,
    display: String,
    _screen: Owned,
    home: TempDir,
}

/// Address of a session bus that is not there.
const NO_BUS: &str = "unix:path=/nonexistent";

/// `target/<profile>/deps/window-… → target/<profile>/name`
pub fn program(name: &str, package: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join(name);
    assert!(program.is_file(), "{} is missing; build it first: cargo build -p {package}", program.display());
    program
}

/// An X server on a display number of its own choosing.
fn screen() -> (Owned, String) {
    let mut server = Command::new("Xvfb")
        .args(["-displayfd", "1", "-screen", "0", "1280x900x24", "-nolisten", "tcp"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("Xvfb is missing: apt-get install xvfb");
    let mut number = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut number).unwrap();
    (Owned(server), format!(":{}", number.trim()))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Window {
    /// Opens the app on a workspace. `save` answers the save dialog.
    pub async fn open(workspace: &Path, save: &Path, theme: Theme) -> Self {
        Self::open_at(tempfile::tempdir().unwrap(), workspace, save, theme).await
    }

    /// The same with a home that an earlier window has left.
    pub async fn open_at(home: TempDir, workspace: &Path, save: &Path, theme: Theme) -> Self {
        Self::open_on(NO_BUS, home, workspace, save, theme).await
    }

    /// The same on a session bus, where it finds other windows.
    pub async fn open_on(bus: &str, home: TempDir, workspace: &Path, save: &Path, theme: Theme) -> Self {
        let app = program("kakeya-gate-app", "kakeya-gate-app");
        program("kakeya-gate", "cli");
        let (screen, display) = screen();
        let port = free_port();
        let driver = Command::new("WebKitWebDriver")
            .args([format!("--port={port}"), "--host=127.0.0.1".to_owned()])
            .env("DISPLAY", &display)
            .env("TAURI_WEBVIEW_AUTOMATION", "true")
            .env("GTK_THEME", if theme == Theme::Dark { "Adwaita:dark" } else { "Adwaita" })
            .env("KAKEYA_GATE_TEST_SAVE_PATH", save)
            // Windows of several tests are no second instances of each other.
            .env("DBUS_SESSION_BUS_ADDRESS", bus)
            .env_remove("KAKEYA_GATE_DATA")
            .env("XDG_DATA_HOME", home.path().join("data"))
            .env("XDG_CONFIG_HOME", home.path().join("config"))
            .env("XDG_CACHE_HOME", home.path().join("cache"))
            .spawn()
            .expect("WebKitWebDriver is missing: apt-get install webkit2gtk-driver");
        let driver = Owned(driver);
        let arguments = ["--workspace", workspace.to_str().unwrap()];
        let client = connect(port, &app, &arguments).await;
        Self { client, driver, display, _screen: screen, home }
    }

    /// Waits for an element.
    pub async fn find(&self, css: &str) -> Element {
        let found = self.client.wait().at_most(PATIENCE).for_element(Locator::Css(css)).await;
        match found {
            Ok(element) => element,
            Err(error) => panic!("{css}: {error}\n--- the window shows:\n{}", self.text().await),
        }
    }

    /// Everything that can be read in the window.
    pub async fn text(&self) -> String {
        let body = self.client.find(Locator::Css("body")).await.unwrap();
        body.text().await.unwrap()
    }

    /// Text of an element, once it is there.
    pub async fn text_of(&self, css: &str) -> String {
        self.find(css).await.text().await.unwrap()
    }

    /// How many elements there are now.
    pub async fn count(&self, css: &str) -> usize {
        self.client.find_all(Locator::Css(css)).await.unwrap().len()
    }

    /// Clicks an element, once it is there.
    pub async fn click(&self, css: &str) {
        self.find(css).await.click().await.unwrap();
    }

    /// Puts text into a field in place of what it holds.
    pub async fn fill(&self, css: &str, text: &str) {
        let field = self.find(css).await;
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// Goes to a place by its entry in the navigation.
    pub async fn go(&self, place: &str) {
        self.click(&format!("[data-go={place}]")).await;
        self.find(&format!("main[data-place={place}]")).await;
    }

    /// Presses keys in the document.
    pub async fn press(&self, keys: &str) {
        self.find("body").await.send_keys(keys).await.unwrap();
    }

    /// The value of a JavaScript expression.
    pub async fn eval(&self, expression: &str) -> Value {
        self.client.execute(&format!("return {expression}"), vec![]).await.unwrap()
    }

    /// The X server that it is shown on, as `DISPLAY` names it.
    pub fn display(&self) -> &str {
        &self.display
    }

    /// Waits until a JavaScript expression holds.
    pub async fn wait_for(&self, expression: &str) {
        let began = Instant::now();
        while self.eval(expression).await != Value::Bool(true) {
            assert!(
                began.elapsed() < PATIENCE,
                "{expression} never held; the window shows:\n{}",
                self.text().await
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Saves what the window shows as `test-output/desktop/<name>.png`, after the last change has been painted.
    pub async fn screenshot(&self, name: &str) {
        // WebKitGTK's snapshot waits for the next paint, and a page at rest never paints: keep it painting meanwhile.
        let paint = "const style = document.documentElement.style;
            window.painting = setInterval(() => (style.opacity = style.opacity === '1' ? '0.9999' : '1'), 20);
            const done = arguments[0];
            requestAnimationFrame(() => requestAnimationFrame(() => done(true)));";
        self.client.execute_async(paint, vec![]).await.unwrap();
        let folder = root().join("test-output/desktop");
        std::fs::create_dir_all(&folder).unwrap();
        let picture = self.client.screenshot().await.unwrap();
        let rest = "clearInterval(window.painting); document.documentElement.style.opacity = ''";
        self.client.execute(rest, vec![]).await.unwrap();
        std::fs::File::create(folder.join(format!("{name}.png")))
            .and_then(|mut file| std::io::Write::write_all(&mut file, &picture))
            .unwrap();
    }

    /// Kills every engine process of this window, and no other's: one may be looking at a pack beside the one that runs.
    pub fn kill_engine(&self) {
        self.kill(|process| process.cmd().get(1).is_some_and(|word| word == "engine"));
    }

    /// Ends the app as a crash would; gives the home that it leaves.
    pub fn kill_app(self) -> TempDir {
        self.kill(is_app);
        self.home
    }

    fn kill(&self, is_meant: impl Fn(&Process) -> bool) {
        let system = processes();
        let killed = self.ours(&system).filter(|process| is_meant(process) && process.kill()).count();
        assert!(killed > 0, "no such process is running");
    }

    /// The driver and all that it has started, directly or not.
    fn ours<'s>(&self, system: &'s System) -> impl Iterator<Item = &'s Process> {
        let driver = Pid::from_u32(self.driver.0.id());
        let parent = |process: &Process| process.parent().and_then(|pid| system.process(pid));
        let is_ours = move |process: &&Process| {
            std::iter::successors(Some(*process), |process| parent(process))
                .any(|process| process.pid() == driver)
        };
        system.processes().values().filter(|process| process.thread_kind().is_none()).filter(is_ours)
    }

    /// Closes the window.
    pub async fn close(self) {
        self.client.clone().close().await.unwrap();
    }
}

#[allow(dead_code, reason = "what `examples/app_speed.rs` measures with")]
impl Window {
    /// What a script hands to its last argument.
    pub async fn eval_later(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.client.execute_async(script, arguments).await.unwrap()
    }

    /// The app's process.
    pub fn app(&self) -> u32 {
        let system = processes();
        let app = self.ours(&system).find(|process| is_app(process));
        app.expect("the app is not running").pid().as_u32()
    }

    /// Every process of the app, the web view's included.
    pub fn processes(&self) -> Vec<u32> {
        let system = processes();
        let driver = self.driver.0.id();
        self.ours(&system).map(|process| process.pid().as_u32()).filter(|pid| *pid != driver).collect()
    }
}

fn processes() -> System {
    let mut system = System::new().unwrap();
    let what = ProcessRefreshKind::nothing().with_cmd(UpdateKind::Always);
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, what);
    system
}

fn is_app(process: &Process) -> bool {
    process.cmd().first().is_some_and(|word| Path::new(word).ends_with("kakeya-gate-app"))
}

async fn connect(port: u16, app: &Path, arguments: &[&str]) -> Client {
    let capabilities = json!({ "webkitgtk:browserOptions": { "binary": app, "args": arguments } });
    let started = Instant::now();
    loop {
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities.as_object().unwrap().clone());
        match builder.connect(&format!("http://127.0.0.1:{port}")).await {
            Ok(client) => return client,
            Err(error) if started.elapsed() > PATIENCE => panic!("no session with the window: {error}"),
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}
