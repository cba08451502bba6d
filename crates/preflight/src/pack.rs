//! Is the manifest usable, and are the files those that it names?

use crate::check::{Finding, Found, Group};
use crate::digests::{self, Stated};
use crate::{Place, Row, name, size, word};

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "pack-manifest",
        group: Group::Pack,
        title: "Manifest",
        why: "pack.json says which verifier, drafter and f_θ belong together.",
        look: manifest,
    },
    Row {
        id: "pack-conventions",
        group: Group::Pack,
        title: "Conventions stated",
        why: "The two reference implementations feed the drafter differently; f_θ only works with the one it was trained on.",
        look: conventions,
    },
    Row {
        id: "pack-digests",
        group: Group::Pack,
        title: "Digests",
        why: "A changed byte is another model; evidence names the digests of what ran.",
        look: look_at_digests,
    },
];

fn manifest(place: &Place<'_>) -> Found {
    let folder = &place.subject.pack;
    if folder.to_str().is_none() {
        let measured = format!("the name of {} is no UTF-8", folder.display());
        return Err(Finding::fail(measured, "rename the folder: evidence could not name it"));
    }
    match &place.pack {
        Ok(pack) => {
            let name = &pack.manifest.name;
            Ok(Finding::pass(if pack.manifest.demo { format!("{name} (demo)") } else { name.clone() }))
        }
        Err(problem) => {
            Err(Finding::fail(problem.to_string(), "correct pack.json, or choose another folder"))
        }
    }
}

fn conventions(place: &Place<'_>) -> Found {
    let manifest = &place.pack()?.manifest;
    let (Some(scale), Some(rule)) = (manifest.drafter_embedding_scale, manifest.value_rule) else {
        return Err(Finding::skipped("the pack has no f_θ"));
    };
    let (scale, rule) = (word(&scale), word(&rule));
    Ok(Finding::pass(format!("drafter embedding × {scale}, V on K=V layers {rule}")))
}

fn look_at_digests(place: &Place<'_>) -> Found {
    let pack = place.pack()?;
    let wanted = &pack.manifest.sha256;
    if wanted.is_empty() {
        let hint = "add \"sha256\" to pack.json: file → digest";
        return Err(Finding::warn("pack.json states no digests", hint));
    }
    let digests = Stated::of(pack, &place.subject.digest_cache)
        .map_err(|e| Finding::fail(e.to_string(), "copy the pack again"))?;
    let unknown = digests.unknown_bytes();
    if unknown > digests::AT_ONCE {
        let (all, left) = (size(digests.bytes()), size(unknown));
        return Err(Finding::skipped(format!(
            "{} files, {all}: {left} of them not hashed yet",
            wanted.len()
        )));
    }
    let bytes = digests.bytes();
    let found =
        digests.finish(&mut |_| true).map_err(|e| Finding::fail(e.to_string(), "copy the pack again"))?;
    for (file, got) in found.into_iter().flatten() {
        let want = &wanted[&file];
        if !want.eq_ignore_ascii_case(&got) {
            let measured =
                format!("{} has {}…, pack.json states {}…", file.display(), head(&got), head(want));
            let hint = format!("copy {} again, or state the new digest if the change is meant", name(&file));
            return Err(Finding::fail(measured, hint));
        }
    }
    Ok(Finding::pass(format!("{} files, {}, all as stated", wanted.len(), size(bytes))))
}

fn head(digest: &str) -> String {
    digest.chars().take(12).collect()
}
