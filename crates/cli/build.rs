//! Tells the program which commit it was built from.

use std::process::Command;

fn main() {
    for file in ["HEAD", "index", "logs/HEAD"] {
        println!("cargo:rerun-if-changed=../../.git/{file}");
    }
    println!("cargo:rerun-if-changed=src");
    if let Some(commit) = git(&["rev-parse", "HEAD"]) {
        println!("cargo:rustc-env=KAKEYA_GATE_COMMIT={commit}");
    }
    let dirty =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|changes| !changes.is_empty());
    println!("cargo:rustc-env=KAKEYA_GATE_DIRTY={dirty}");
}

/// Output of a git command, or None where there is no git or no checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
