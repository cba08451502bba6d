//! Drafter and f_θ: complete, and made for each other and for this verifier?

use crate::check::{Finding, Found, Group};
use crate::verifier::{damaged, found, incomplete, safetensors};
use crate::{Place, Row, json, name, size, word};
use protocol::{DrafterEmbeddingScale, Look};
use serde_json::Value;
use std::path::{Path, PathBuf};

pub(crate) const DRAFTER_ROWS: &[Row] = &[
    Row {
        id: "drafter-weights",
        group: Group::Drafter,
        title: "Drafter weights complete",
        why: "The drafter runs over the evicted tokens; f_θ projects its K/V.",
        look: drafter_weights,
    },
    Row {
        id: "drafter-geometry",
        group: Group::Drafter,
        title: "Drafter configuration",
        why: "Its tensors must be those that its configuration describes.",
        look: drafter_geometry,
    },
];

pub(crate) const F_THETA_ROWS: &[Row] = &[
    Row {
        id: "f-theta-weights",
        group: Group::FTheta,
        title: "f_θ weights complete",
        why: "An untrained or pointer f_θ restores noise.",
        look: f_theta_weights,
    },
    Row {
        id: "f-theta-config",
        group: Group::FTheta,
        title: "f_θ configuration",
        why: "Its tensors must be those that its configuration describes.",
        look: f_theta_config,
    },
    Row {
        id: "f-theta-dimensions",
        group: Group::FTheta,
        title: "Dimensions agree",
        why: "f_θ must produce each layer's K/V heads and take the drafter's.",
        look: dimensions,
    },
    Row {
        id: "f-theta-origin",
        group: Group::FTheta,
        title: "Trained on this drafter",
        why: "f_θ that was trained on another drafter has the right dimensions and restores something else.",
        look: origin,
    },
    Row {
        id: "f-theta-scale",
        group: Group::FTheta,
        title: "Trained with this embedding scale",
        why: "The implementations feed the drafter embeddings of different scale; f_θ only works with the one that it was trained with.",
        look: scale,
    },
];

/// What the reference's training feeds its drafter: the scaled embedding, scaled by √hidden once more.
const REFERENCE_SCALE: DrafterEmbeddingScale = DrafterEmbeddingScale::Hidden;

fn part(folder: Option<PathBuf>, name: &str) -> Result<PathBuf, Finding> {
    folder.ok_or_else(|| Finding::skipped(format!("the pack has no {name}")))
}

fn drafter_folder(place: &Place<'_>) -> Result<PathBuf, Finding> {
    part(place.pack()?.drafter(), "drafter")
}

fn f_theta_folder(place: &Place<'_>) -> Result<PathBuf, Finding> {
    part(place.pack()?.f_theta(), "f_θ")
}

fn looked_at<T>(look: &Option<Look<T>>) -> Result<(&T, f64), Finding> {
    let look = look.as_ref().ok_or_else(|| Finding::skipped("a part before it cannot be used"))?;
    Ok((found(look)?, look.seconds))
}

fn drafter_weights(place: &Place<'_>) -> Found {
    safetensors(&drafter_folder(place)?, "model")
}

fn drafter_geometry(place: &Place<'_>) -> Found {
    drafter_folder(place)?;
    drafter_weights(place).map_err(incomplete)?;
    let (facts, seconds) = looked_at(&place.inspection()?.drafter)?;
    let measured =
        format!("{} layers · K/V heads × dimension {} × {}", facts.layers, facts.kv_heads, facts.head_dim);
    Ok(Finding::pass(measured).took(seconds))
}

fn f_theta_weights(place: &Place<'_>) -> Found {
    let folder = f_theta_folder(place)?;
    let archive = folder.join("f_theta_weights.pt");
    let there = |name: &str| folder.join(name).symlink_metadata().is_ok();
    if there("f_theta_weights.safetensors") || there("f_theta_weights.safetensors.index.json") {
        return safetensors(&folder, "f_theta_weights");
    }
    if archive.symlink_metadata().is_err() {
        let measured = format!("neither f_theta_weights.safetensors nor .pt in {}", name(&folder));
        return Err(Finding::fail(measured, "train f_θ on the GPU machine and copy its folder here"));
    }
    let bytes = files::weight_bytes(&archive).map_err(|e| damaged(&e))?;
    Ok(Finding::pass(format!("PyTorch archive, {}", size(bytes))))
}

fn f_theta_config(place: &Place<'_>) -> Found {
    f_theta_folder(place)?;
    f_theta_weights(place).map_err(incomplete)?;
    let (facts, seconds) = looked_at(&place.inspection()?.f_theta)?;
    Ok(Finding::pass(format!("rank {}", facts.rank)).took(seconds))
}

fn dimensions(place: &Place<'_>) -> Found {
    f_theta_folder(place)?;
    let inspection = place.inspection()?;
    let (_, seconds) = looked_at(&inspection.dimensions)?;
    let layers = found(&inspection.tensors)?.layers.len();
    Ok(Finding::pass(format!("{layers} layers as the verifier has them, and the drafter")).took(seconds))
}

/// What f_θ's training report says, where it lies in f_θ's folder or beside it; else what the pack's own manifest binds.
fn origin(place: &Place<'_>) -> Found {
    let (f_theta, drafter) = (f_theta_folder(place)?, drafter_folder(place)?);
    let pack = place.pack()?;
    let Some(report) = training_report(&f_theta) else {
        let binds = |part: &Option<PathBuf>, stem: &str| {
            let part = part.as_deref().unwrap_or(Path::new(""));
            let stated = |file: &&PathBuf| file.starts_with(part) && name(file).starts_with(stem);
            pack.manifest.sha256.keys().any(|file| stated(&file))
        };
        if binds(&pack.manifest.drafter, "model") && binds(&pack.manifest.f_theta, "f_theta_weights") {
            return Ok(Finding::pass("pack.json binds both by their digests; there is no training report"));
        }
        let hint = "copy f_θ's training report beside it, or state the digests of both in pack.json";
        return Err(Finding::warn("nothing says which drafter f_θ was trained on", hint));
    };
    let Some(trained) = report.pointer("/config/drafter_id").and_then(Value::as_str) else {
        return Err(Finding::warn("the training report names no drafter", "ask who trained this f_θ"));
    };
    let names = [name(&drafter), drafter_name(&drafter).unwrap_or_default()];
    let trained = name(Path::new(trained));
    if names.contains(&trained) {
        return Ok(Finding::pass(format!("trained on {trained}")));
    }
    let measured = format!("trained on {trained}, the drafter is {}", names[0]);
    Err(Finding::warn(
        measured,
        "use the drafter that f_θ was trained on, or name its folder so if it is the same",
    ))
}

/// The scale that the pack states against what its files record.
fn scale(place: &Place<'_>) -> Found {
    let (f_theta, drafter) = (f_theta_folder(place)?, drafter_folder(place)?);
    let stated = place.pack()?.manifest.drafter_embedding_scale;
    let stated = stated.ok_or_else(|| Finding::skipped("pack.json states no scale"))?;
    let recorded = match training_report(&f_theta) {
        Some(_) => Some((REFERENCE_SCALE, "the training report is the reference's")),
        None => recorded_scale(&drafter).map(|scale| (scale, "the drafter's configuration records it")),
    };
    let Some((recorded, source)) = recorded else {
        let measured = format!("pack.json states × {}; nothing else records it", word(&stated));
        return Err(Finding::skipped(measured));
    };
    if recorded == stated {
        return Ok(Finding::pass(format!("× {}: {source}", word(&stated))));
    }
    let measured = format!("pack.json states × {}, but × {}: {source}", word(&stated), word(&recorded));
    Err(Finding::fail(measured, "correct drafter_embedding_scale in pack.json"))
}

/// `kakeya_capture_embed_scale` of a drafter's configuration ends with what the scale comes to.
fn recorded_scale(drafter: &Path) -> Option<DrafterEmbeddingScale> {
    let config = json::read(&drafter.join("config.json")).ok()?;
    let text = config.get("kakeya_capture_embed_scale")?.as_str()?;
    match text.rsplit("==").next()?.trim() {
        "raw_embedding * hidden_size" => Some(DrafterEmbeddingScale::Hidden),
        "raw_embedding * sqrt(hidden_size)" => Some(DrafterEmbeddingScale::SqrtHidden),
        "raw_embedding" => Some(DrafterEmbeddingScale::One),
        _ => None,
    }
}

/// The name that a checkpoint's configuration gives itself, without its organisation.
fn drafter_name(folder: &Path) -> Option<String> {
    let config = json::read(&folder.join("config.json")).ok()?;
    config.get("_name_or_path").and_then(Value::as_str).map(|path| name(Path::new(path)))
}

/// A file of the kind that training writes: in the folder, or beside it under its name.
fn training_report(folder: &Path) -> Option<Value> {
    let beside = folder.with_file_name(format!("{}.json", name(folder)));
    let inside = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        inside.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    let reports = files.into_iter().chain([beside]).filter_map(|path| json::read(&path).ok());
    reports.into_iter().find(|report| report.get("kind").and_then(Value::as_str) == Some("k3_f_theta_train"))
}
