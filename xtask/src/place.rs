//! Where things are.

use crate::error::Error;
use std::path::{Path, PathBuf};

/// The repository: the one that cargo runs this program for. Checkouts that share a target folder share the program too, so
/// where it was built says little.
pub(crate) fn root() -> PathBuf {
    let built = || env!("CARGO_MANIFEST_DIR").into();
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(built);
    let xtask = Path::new(&xtask);
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// Tools that outlive a checkout: `KAKEYA_GATE_CACHE`, else the user's cache folder.
pub(crate) fn cache() -> PathBuf {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("KAKEYA_GATE_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("kakeya-gate")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/kakeya-gate")))
        .unwrap_or_else(|| root().join("target"))
}

/// A program of this workspace. It lies beside this one, since both were built into the same folder.
pub(crate) fn built(name: &str) -> Result<PathBuf, Error> {
    Ok(running()?.with_file_name(format!("{name}{}", std::env::consts::EXE_SUFFIX)))
}

/// The same of the release profile.
pub(crate) fn released(name: &str) -> Result<PathBuf, Error> {
    let folder = running()?.parent().and_then(Path::parent).map(|target| target.join("release"));
    Ok(folder.unwrap_or_default().join(format!("{name}{}", std::env::consts::EXE_SUFFIX)))
}

fn running() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|source| Error::File { path: "this program".into(), source })
}
