//! How fast the window is: start, list, places, memory. `cargo xtask bench app` builds the release programs and runs it.
//!
//! `app_speed FOLDER [TIMES]`: the folder is opened as a workspace; each figure is the median of so many starts.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a measurement that fails says why and ends")]

#[path = "../tests/window/window.rs"]
#[expect(dead_code, reason = "tests need more of it")]
mod window;

/// Where `window` finds the repository.
mod workspace {
    use std::path::{Path, PathBuf};

    pub fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }
}

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use window::{Theme, Window};

/// Places are gone round so often.
const ROUNDS: usize = 5;

/// The places, in the order in which they are gone round.
const PLACES: [&str; 5] = ["run", "evidence", "compare", "gate", "preflight"];

/// Milliseconds from one click to the second frame after it, place after place.
const SWITCH: &str = "
    const [rounds, places, done] = arguments;
    const frame = () => new Promise(requestAnimationFrame);
    (async () => {
      const taken = [];
      for (let i = 0; i < rounds * places.length; i++) {
        const began = performance.now();
        document.querySelector(`[data-go=${places[i % places.length]}]`).click();
        await frame();
        await frame();
        taken.push(performance.now() - began);
      }
      done(taken);
    })();";

struct Figures {
    /// Milliseconds from the start of the process until the page has looked through the workspace.
    ready: f64,
    /// Milliseconds from opening the workspace until its evidence is listed.
    listed: f64,
    /// Milliseconds of each change of place, place after place.
    switches: Vec<f64>,
    /// Proportional set size of every process of the window, bytes.
    pss: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = Path::new(arguments.first().expect("name the folder to open"));
    let times: usize = arguments.get(1).map_or(5, |times| times.parse().expect("how often"));
    let mut all = Vec::new();
    for _ in 0..times {
        all.push(measure(folder).await);
    }
    let of = |figure: fn(&Figures) -> f64| median(all.iter().map(figure).collect());
    println!("start to interactive: {:.0} ms (wanted: under 1000)", of(|figures| figures.ready));
    println!("evidence listed after opening: {:.0} ms (wanted: under 300)", of(|figures| figures.listed));
    println!("switching places (wanted: under 100):");
    for (at, place) in PLACES.iter().enumerate() {
        let of_place =
            |figures: &Figures| figures.switches.iter().skip(at).step_by(PLACES.len()).copied().collect();
        let switches: Vec<f64> = all.iter().flat_map::<Vec<f64>, _>(of_place).collect();
        let slowest = switches.iter().copied().fold(0.0, f64::max);
        println!(
            "  to {place}: median {:.0} ms, slowest {slowest:.0} ms of {}",
            median(switches.clone()),
            switches.len()
        );
    }
    let mib = of(|figures| figures.pss as f64) / f64::from(1 << 20);
    println!("memory of all its processes (PSS): {mib:.0} MiB (wanted: under 286 MiB = 300 MB)");
}

async fn measure(folder: &Path) -> Figures {
    let window = Window::open(folder, Path::new("unused"), Theme::Light).await;
    window.go("evidence").await;
    window.find("[data-file], .empty").await;
    let mark = |name: &str| format!("performance.getEntriesByName('{name}')[0].startTime");
    let at = |value: serde_json::Value| value.as_f64().expect("the page has no such mark");
    let began = at(window.eval(&format!("performance.timeOrigin + {}", mark("ready"))).await);
    let ready = began - started(window.app());
    let listed = at(window.eval(&format!("{} - {}", mark("listed"), mark("opening"))).await);
    let switches = window.eval_later(SWITCH, vec![ROUNDS.into(), PLACES.as_slice().into()]).await;
    let switches = switches.as_array().unwrap().iter().map(|value| at(value.clone())).collect();
    let figures = Figures { ready, listed, switches, pss: window.processes().into_iter().map(pss).sum() };
    window.close().await;
    figures
}

/// When a process was started, milliseconds since the epoch.
fn started(pid: u32) -> f64 {
    let text = |path: &str| std::fs::read_to_string(path).unwrap();
    let stat = text(&format!("/proc/{pid}/stat"));
    let after_name = stat.rsplit(')').next().unwrap();
    // The 22nd field counts hundredths of a second since the machine started; the name is the second.
    let ticks: f64 = after_name.split_whitespace().nth(19).unwrap().parse().unwrap();
    let uptime: f64 = text("/proc/uptime").split_whitespace().next().unwrap().parse().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    1e3 * (now - uptime + ticks / 100.0)
}

fn pss(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
