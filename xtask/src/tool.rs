//! Programs that the tasks use and that cargo builds where they are not installed.

use crate::error::Error;
use crate::place;
use crate::process::{command, installed, run};
use std::ffi::OsString;

/// A program on the package registry.
pub(crate) struct Tool {
    /// The program.
    pub(crate) program: &'static str,
    /// Its package.
    pub(crate) package: &'static str,
    /// The release that is built.
    pub(crate) version: &'static str,
    /// Further words for `cargo install`.
    pub(crate) settings: &'static [&'static str],
}

impl Tool {
    /// The installed program, else one in the cache folder, which is built there the first time.
    pub(crate) fn path(&self) -> Result<OsString, Error> {
        if installed(self.program) {
            return Ok(self.program.into());
        }
        let tools = place::cache().join("tools");
        let program = tools.join("bin").join(self.program);
        if !program.is_file() {
            // Unoptimised: it builds in half the time and still does its work in seconds.
            let release =
                ["install", self.package, "--version", self.version, "--locked", "--debug", "--root"];
            run(command("cargo", &release).arg(&tools).args(self.settings))?;
        }
        Ok(program.into())
    }
}
