//! What only macOS compiles, checked on a machine that is none.

use crate::error::Error;
use crate::mlx;
use crate::place;
use crate::process::{ask, command, run};

const TARGET: &str = "aarch64-apple-darwin";

/// Lints the whole workspace for a Mac: types, not linking. Where the sources of the standard library cannot be had the
/// step passes and says so.
pub(crate) fn check() -> Result<(), Error> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("macOS not checked: on a Mac every build does, and elsewhere MLX is not set up");
        return Ok(());
    }
    mlx::set_up()?;
    let script = place::root().join("scripts/macos/rust-src.sh");
    let library = match ask(command("bash", &[]).arg(script).arg(place::cache().join("rust-src")))? {
        Ok(library) => library,
        Err(said) => {
            let reason = said.lines().last().unwrap_or("the sources of the standard library cannot be had");
            println!("macOS not checked: {reason}");
            return Ok(());
        }
    };
    let mut cargo = command("cargo", &["clippy", "--workspace", "-Zbuild-std", "--target", TARGET]);
    // C for a Mac is not compiled here: nothing is linked, so empty objects do.
    for compiler in ["CC", "CXX", "AR"] {
        cargo.env(format!("{compiler}_aarch64_apple_darwin"), "/bin/true");
    }
    cargo
        .args(["--", "--deny", "warnings"])
        .env("CARGO_TARGET_DIR", place::cache().join("mac-check"))
        // The sources are those of this very release, so that its features are no surprise.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("__CARGO_TESTS_ONLY_SRC_ROOT", library);
    run(&mut cargo)
}
