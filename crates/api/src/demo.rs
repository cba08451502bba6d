//! The demo workspace: the demo pack with evidence of it, so that every place has content before anybody has run anything.

use crate::{ErrorCode, ErrorReport};
use rust_embed::RustEmbed;
use std::path::{Path, PathBuf};

/// Its folder in the data folder.
const FOLDER: &str = "demo-workspace";

/// The pack, as the repository has it.
#[derive(RustEmbed)]
#[folder = "../../assets/demo-pack"]
struct Pack;

/// Runs of it: `assets/demo-evidence/README.md` says on what they were measured.
#[derive(RustEmbed)]
#[folder = "../../assets/demo-evidence"]
struct Evidence;

/// Lays out what the demo workspace lacks, and gives its folder. What lies there already stays: it may have been worked on.
pub fn demo_workspace(data: &Path) -> Result<PathBuf, ErrorReport> {
    let folder = data.join(FOLDER);
    lay_out::<Pack>(&folder.join("demo-pack"))?;
    lay_out::<Evidence>(&folder.join("evidence"))?;
    Ok(folder)
}

fn lay_out<Files: RustEmbed>(folder: &Path) -> Result<(), ErrorReport> {
    for name in Files::iter() {
        let path = folder.join(name.as_ref());
        let Some(file) = Files::get(&name).filter(|_| !path.exists()) else { continue };
        files::write_atomic(&path, &file.data).map_err(|e| {
            ErrorReport::new(
                ErrorCode::Demo,
                e,
                "make the data folder writable, or name another in KAKEYA_GATE_DATA",
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_content_and_what_was_changed_stays() {
        let data = tempfile::tempdir().unwrap();
        let folder = demo_workspace(data.path()).unwrap();
        let workspace = crate::open_workspace(&folder).unwrap();
        assert_eq!(workspace.packs.len(), 1);
        assert!(workspace.packs[0].demo && workspace.packs[0].problem.is_none());
        assert_eq!(workspace.f_thetas.len(), 1);
        let report = crate::gate(&workspace.evidence, None).unwrap();
        assert!(report.ignored.is_empty() && report.cells.len() > 4, "{report:?}");
        let audits = crate::load(&workspace.evidence).unwrap();
        assert!(audits.iter().all(|audit| audit.is_demo()));
        let changed = folder.join("demo-pack/pack.json");
        files::write_atomic(&changed, b"{}").unwrap();
        demo_workspace(data.path()).unwrap();
        assert_eq!(std::fs::read(&changed).unwrap(), b"{}");
    }
}
