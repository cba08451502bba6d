//! Is the manifest usable, and are the files those that it names?

use crate::check::{Check, Finding, Group, Row};
use protocol::{Pack, PackError};

/// Packs above this are not hashed in a preflight that must take seconds.
const DIGEST_CAP: u64 = 256 << 20;

pub(crate) fn manifest(opened: &Result<Pack, PackError>) -> Check {
    const ROW: Row = Row {
        id: "pack-manifest",
        group: Group::Pack,
        title: "Manifest",
        why: "pack.json says which verifier, drafter and f_θ belong together.",
    };
    ROW.look(|| match opened {
        Ok(pack) => {
            let name = &pack.manifest.name;
            Ok(Finding::pass(if pack.manifest.demo { format!("{name} (demo)") } else { name.clone() }))
        }
        Err(problem) => {
            Err(Finding::fail(problem.to_string(), "correct pack.json, or choose another folder"))
        }
    })
}

pub(crate) fn digests(pack: &Pack) -> Check {
    const ROW: Row = Row {
        id: "pack-digests",
        group: Group::Pack,
        title: "Digests",
        why: "A changed byte is another model; evidence names the digests of what ran.",
    };
    ROW.look(|| {
        let wanted = &pack.manifest.sha256;
        if wanted.is_empty() {
            return Err(Finding::warn(
                "pack.json states no digests",
                "add \"sha256\" to pack.json: file → digest",
            ));
        }
        let sizes = wanted.keys().filter_map(|file| pack.folder.join(file).metadata().ok());
        let bytes: u64 = sizes.map(|meta| meta.len()).sum();
        if bytes > DIGEST_CAP {
            let measured =
                format!("{} files, {:.1} GB: too much to hash here", wanted.len(), bytes as f64 / 1e9);
            return Err(Finding::skipped(measured));
        }
        for (file, want) in wanted {
            let got = files::sha256_file(&pack.folder.join(file))
                .map_err(|e| Finding::fail(e.to_string(), "copy the pack again"))?;
            if got != *want {
                let measured =
                    format!("{} has {}…, pack.json states {}…", file.display(), head(&got), head(want));
                return Err(Finding::fail(measured, "copy the file again, or state the new digest"));
            }
        }
        Ok(Finding::pass(format!("{} files, {:.2} MB, all as stated", wanted.len(), bytes as f64 / 1e6)))
    })
}

fn head(digest: &str) -> String {
    digest.chars().take(12).collect()
}

pub(crate) fn conventions(pack: &Pack) -> Check {
    const ROW: Row = Row {
        id: "pack-conventions",
        group: Group::Pack,
        title: "Conventions stated",
        why: "The two reference implementations feed the drafter differently; f_θ only works with the one it was trained on.",
    };
    ROW.look(|| {
        let manifest = &pack.manifest;
        let (Some(scale), Some(rule)) = (manifest.drafter_embedding_scale, manifest.value_rule) else {
            return Err(Finding::skipped("the pack has no f_θ"));
        };
        let word = |value: serde_json::Result<serde_json::Value>| {
            value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
        };
        let (scale, rule) = (word(serde_json::to_value(scale)), word(serde_json::to_value(rule)));
        Ok(Finding::pass(format!("drafter embedding × {scale}, V on K=V layers {rule}")))
    })
}
