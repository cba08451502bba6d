//! Are the verifier's files complete, and does the engine understand them?

use crate::check::{Finding, Found, Group};
use crate::{Place, Row, fix, name, size};
use files::{ShardIndex, WeightsError};
use protocol::{LayerKind, Look};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "verifier-config",
        group: Group::Verifier,
        title: "Configuration",
        why: "The engine must know the architecture; the libraries' defaults differ, so what matters must be stated.",
        look: config,
    },
    Row {
        id: "verifier-weights",
        group: Group::Verifier,
        title: "Weights complete",
        why: "A missing shard or a pointer file fails after minutes of loading, or worse, does not fail.",
        look: weights,
    },
    Row {
        id: "verifier-tensors",
        group: Group::Verifier,
        title: "Tensors as configured",
        why: "Every tensor must be there, with the dimensions and types that the configuration asks for.",
        look: tensors,
    },
];

/// What a look of the engine found; an error is the row.
pub(crate) fn found<T>(look: &Look<T>) -> Result<&T, Finding> {
    look.found.as_ref().map_err(|report| Finding::from(report).took(look.seconds))
}

fn config(place: &Place<'_>) -> Found {
    let look = &place.inspection()?.verifier;
    let facts = found(look)?;
    let full = facts.layers.iter().filter(|kind| **kind == LayerKind::Full).count();
    let experts = facts.experts.map_or_else(String::new, |experts| format!(" · {experts} experts"));
    let (model, layers, window) = (&facts.model, facts.layers.len(), facts.window);
    let measured = format!("{model} · {layers} layers, {full} full · window {window}{experts}");
    Ok(Finding::pass(measured).took(look.seconds))
}

fn weights(place: &Place<'_>) -> Found {
    let folder = place.pack()?.verifier();
    match gguf(&folder) {
        Some(path) => {
            let bytes = files::weight_bytes(&path).map_err(|e| damaged(&e))?;
            Ok(Finding::pass(format!("{}, {}", name(&path), size(bytes))))
        }
        None => safetensors(&folder, "model"),
    }
}

/// The GGUF file of a folder that has no `config.json`.
pub(crate) fn gguf(folder: &Path) -> Option<PathBuf> {
    if folder.join("config.json").exists() {
        return None;
    }
    let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|ending| ending == "gguf")).min()
}

/// A weight file that is none, with the command that fetches it if it is a pointer.
pub(crate) fn damaged(error: &WeightsError) -> Finding {
    let finding = Finding::fail(format!("{} {}", name(&error.path), error.reason), error.hint);
    match fix::pull_command(&error.path).filter(|_| error.pointer) {
        Some(command) if fix::has_git_lfs() => finding.command(command).fixable(),
        Some(command) => finding.command(command),
        None => finding,
    }
}

/// `STEM.safetensors` of a folder, or the shards that its index lists. Headers against sizes, and against the index where
/// there is one.
pub(crate) fn safetensors(folder: &Path, stem: &str) -> Found {
    let single = format!("{stem}.safetensors");
    let index = folder.join(format!("{single}.index.json"));
    let index = match index.symlink_metadata() {
        Ok(_) => Some(ShardIndex::read(&index).map_err(|e| damaged(&e))?),
        Err(_) => None,
    };
    let names = match &index {
        Some(index) if folder.join(&single).symlink_metadata().is_err() => {
            index.shards().into_iter().map(str::to_owned).collect()
        }
        _ => vec![single],
    };
    let absent: Vec<&String> =
        names.iter().filter(|name| folder.join(name).symlink_metadata().is_err()).collect();
    if let Some(first) = absent.first() {
        let measured = match absent.len() {
            1 => format!("{first} is missing"),
            count => format!("{first} and {} more are missing", count - 1),
        };
        return Err(Finding::fail(
            measured,
            "download or copy the weights; every shard of the index is needed",
        ));
    }
    let (mut bytes, mut held) = (0, BTreeMap::new());
    for name in &names {
        let header = files::safetensors_header(&folder.join(name)).map_err(|e| damaged(&e))?;
        bytes += header.bytes;
        held.extend(header.tensors.offset_keys().into_iter().map(|tensor| (tensor, name.clone())));
    }
    if let Some(index) = &index {
        compare(&index.tensors, &held)?;
    }
    let indexed = if index.is_some() { ", as the index lists them" } else { "" };
    let (files, tensors) = (names.len(), held.len());
    let plural = if files == 1 { "file" } else { "files" };
    Ok(Finding::pass(format!("{files} {plural}, {}, {tensors} tensors{indexed}", size(bytes))))
}

fn compare(listed: &BTreeMap<String, String>, held: &BTreeMap<String, String>) -> Result<(), Finding> {
    let (listed, held): (BTreeSet<_>, BTreeSet<_>) = (listed.iter().collect(), held.iter().collect());
    let Some((tensor, shard)) = listed.symmetric_difference(&held).next() else { return Ok(()) };
    let side = match listed.contains(&(*tensor, *shard)) {
        true => "the index lists, the headers lack",
        false => "the headers hold, the index lacks",
    };
    Err(Finding::fail(format!("{side} {tensor} in {shard}"), "copy every shard and the index again"))
}

/// What is not there is told once, by the row that looks at files.
pub(crate) fn incomplete(_: Finding) -> Finding {
    Finding::skipped("the weights are not complete")
}

fn tensors(place: &Place<'_>) -> Found {
    let inspection = place.inspection()?;
    found(&inspection.verifier).map_err(|_| Finding::skipped("the configuration cannot be used"))?;
    weights(place).map_err(incomplete)?;
    let look = &inspection.tensors;
    let facts = found(look)?;
    let mut shapes: Vec<String> =
        facts.layers.iter().map(|layer| format!("{} × {}", layer.kv_heads, layer.head_dim)).collect();
    shapes.sort();
    shapes.dedup();
    let measured = format!("{} · K/V heads × dimension {}", facts.types, shapes.join(" and "));
    Ok(Finding::pass(measured).took(look.seconds))
}
