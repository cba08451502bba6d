//! What the machine must have.

use crate::error::Error;
use crate::mlx;
use crate::place;
use crate::process::{ask, command, installed, run};
use std::path::Path;
use std::time::SystemTime;

/// Debian and Ubuntu packages that building the window needs.
const TO_BUILD: [&str; 3] = ["build-essential", "pkg-config", "libwebkit2gtk-4.1-dev"];
/// Packages that the tests need besides: a display, a session bus, a driver for the web view, a pointer, a browser, `pgrep`, fonts for screenshots; the servers that
/// runs elsewhere are tested with, and clocks that are wrong.
const TO_TEST: [&str; 12] = [
    "xvfb",
    "dbus",
    "webkit2gtk-driver",
    "xdotool",
    "chromium",
    "procps",
    "fonts-dejavu-core",
    "fonts-noto-cjk",
    "openssh-server",
    "nats-server",
    "openssl",
    "faketime",
];
/// Oldest Node that the front end's tools run on.
const NODE: u32 = 20;

/// Installs what is missing, or says exactly what it is.
pub(crate) fn everything(tests: bool) -> Result<(), Error> {
    system(tests)?;
    node()?;
    front_end()?;
    // Elsewhere MLX is built only when asked for.
    if cfg!(target_os = "macos") { mlx::set_up() } else { Ok(()) }
}

/// Libraries and tools of the operating system.
fn system(tests: bool) -> Result<(), Error> {
    match std::env::consts::OS {
        "linux" => debian(tests),
        "macos" => xcode(),
        other => Err(Error::Machine {
            missing: format!("{other} is not supported"),
            hint: "use macOS 13 or newer, or a Linux with WebKitGTK 4.1".into(),
        }),
    }
}

fn debian(tests: bool) -> Result<(), Error> {
    let wanted = TO_BUILD.iter().chain(TO_TEST.iter().filter(|_| tests));
    if !installed("dpkg-query") || !installed("apt-get") {
        return other_linux(&wanted.copied().collect::<Vec<_>>());
    }
    let mut missing = Vec::new();
    for package in wanted {
        let status = ask(&mut command("dpkg-query", &["-W", "-f=${db:Status-Status}", package]))?;
        if status.as_deref() != Ok("installed") {
            missing.push(*package);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("missing packages: {}", missing.join(" "));
    apt_get(&["update", "-qq"])?;
    apt_get(&[&["install", "-y", "--no-install-recommends"], missing.as_slice()].concat())
}

fn apt_get(arguments: &[&str]) -> Result<(), Error> {
    let root = ask(&mut command("id", &["-u"]))?.as_deref() == Ok("0");
    let words = [&["DEBIAN_FRONTEND=noninteractive", "apt-get"], arguments].concat();
    run(&mut if root { command("env", &words) } else { command("sudo", &words) })
}

/// Distributions that name their packages differently: the build goes ahead where pkg-config finds the library.
fn other_linux(packages: &[&str]) -> Result<(), Error> {
    if installed("pkg-config") && ask(&mut command("pkg-config", &["--exists", "webkit2gtk-4.1"]))?.is_ok() {
        return Ok(());
    }
    Err(Error::Machine {
        missing: "this machine has no apt-get, and pkg-config finds no webkit2gtk-4.1".into(),
        hint: format!("install what Debian calls: {}", packages.join(" ")),
    })
}

fn xcode() -> Result<(), Error> {
    ask(&mut command("xcode-select", &["-p"]))?.map(drop).map_err(|_| Error::Machine {
        missing: "the command line tools of Xcode are missing".into(),
        hint: "run: xcode-select --install".into(),
    })
}

fn node() -> Result<(), Error> {
    let hint = || format!("install Node {NODE} or newer: https://nodejs.org, or `nvm install {NODE}`");
    if !installed("node") || !installed("npm") {
        return Err(Error::Machine { missing: "node and npm are not in PATH".into(), hint: hint() });
    }
    let version = ask(&mut command("node", &["--version"]))?.unwrap_or_default();
    match major(&version) {
        Some(major) if major >= NODE => Ok(()),
        _ => Err(Error::Machine { missing: format!("node is {version}"), hint: hint() }),
    }
}

fn major(version: &str) -> Option<u32> {
    version.trim().trim_start_matches('v').split('.').next()?.parse().ok()
}

/// The front end's packages, exactly as locked, unless they are there already.
fn front_end() -> Result<(), Error> {
    let ui = place::root().join("ui");
    // npm writes the inner file when it has finished.
    let fresh = match (
        changed(&ui.join("node_modules/.package-lock.json")),
        changed(&ui.join("package-lock.json")),
    ) {
        (Some(installed), Some(locked)) => installed >= locked,
        _ => false,
    };
    if fresh {
        Ok(())
    } else {
        run(&mut command("npm", &["--prefix", "ui", "ci", "--no-audit", "--no-fund"]))
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn node_versions() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("18"), Some(18));
        assert_eq!(major(""), None);
    }
}
