//! Are the verifier's files complete, and does the engine understand them?

use crate::check::{Finding, Found, Group};
use crate::{Place, Row, fix, name, size};
use evidence::{Text, text};
use files::{ShardIndex, WeightsError};
use protocol::{LayerKind, Look};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "verifier-config",
        group: Group::Verifier,
        title: Text::fixed("Configuration", "配置"),
        why: Text::fixed(
            "The engine must know the architecture; the libraries' defaults differ, so what matters must be stated.",
            "引擎必须认识该架构；各库的默认值不同，因此要紧的都必须写明。",
        ),
        look: config,
    },
    Row {
        id: "verifier-weights",
        group: Group::Verifier,
        title: Text::fixed("Weights complete", "权重完整"),
        why: Text::fixed(
            "A missing shard or a pointer file fails after minutes of loading, or worse, does not fail.",
            "缺少分片或只有指针文件，会在加载数分钟后失败，更糟的是不失败。",
        ),
        look: weights,
    },
    Row {
        id: "verifier-tensors",
        group: Group::Verifier,
        title: Text::fixed("Tensors as configured", "张量与配置相符"),
        why: Text::fixed(
            "Every tensor must be there, with the dimensions and types that the configuration asks for.",
            "每个张量都必须存在，且维度和类型符合配置的要求。",
        ),
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
    let experts = facts
        .experts
        .map_or_else(Text::default, |experts| text!(" · {experts} experts", " · {experts} 个专家"));
    let (model, layers, window) = (&facts.model, facts.layers.len(), facts.window);
    let measured = text!(
        language => "{model} · {layers} layers, {full} full · window {window}{}",
        "{model} · {layers} 层，其中全注意力 {full} 层 · 窗口 {window}{}",
        experts.said(language)
    );
    Ok(Finding::pass(measured).took(look.seconds))
}

fn weights(place: &Place<'_>) -> Found {
    let folder = place.pack()?.verifier();
    match gguf(&folder) {
        Some(path) => {
            let bytes = files::weight_bytes(&path).map_err(|e| damaged(&e))?;
            Ok(Finding::pass(text!("{}, {}", "{}，{}", name(&path), size(bytes))))
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
    let finding =
        Finding::fail(Text::same(format!("{} {}", name(&error.path), error.reason)), Text::same(error.hint));
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
            1 => text!("{first} is missing", "缺少 {first}"),
            count => text!("{first} and {} more are missing", "缺少 {first} 和另外 {} 个", count - 1),
        };
        return Err(Finding::fail(
            measured,
            text!(
                "download or copy the weights; every shard of the index is needed",
                "下载或复制权重；索引中的每个分片都需要"
            ),
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
    let (files, tensors, bytes) = (names.len(), held.len(), size(bytes));
    let plural = if files == 1 { text!("file", "个文件") } else { text!("files", "个文件") };
    let mut measured = text!(
        language => "{files} {}, {bytes}, {tensors} tensors",
        "{files} {}，{bytes}，{tensors} 个张量",
        plural.said(language)
    );
    if index.is_some() {
        measured.push(&text!(", as the index lists them", "，与索引所列一致"));
    }
    Ok(Finding::pass(measured))
}

fn compare(listed: &BTreeMap<String, String>, held: &BTreeMap<String, String>) -> Result<(), Finding> {
    let (listed, held): (BTreeSet<_>, BTreeSet<_>) = (listed.iter().collect(), held.iter().collect());
    let Some((tensor, shard)) = listed.symmetric_difference(&held).next() else { return Ok(()) };
    let measured = match listed.contains(&(*tensor, *shard)) {
        true => text!(
            "the index lists, the headers lack {tensor} in {shard}",
            "索引列有而文件头中没有：{shard} 中的 {tensor}"
        ),
        false => text!(
            "the headers hold, the index lacks {tensor} in {shard}",
            "文件头中有而索引没有：{shard} 中的 {tensor}"
        ),
    };
    Err(Finding::fail(measured, text!("copy every shard and the index again", "重新复制每个分片和索引")))
}

/// What is not there is told once, by the row that looks at files.
pub(crate) fn incomplete(_: Finding) -> Finding {
    Finding::skipped(text!("the weights are not complete", "权重不完整"))
}

fn tensors(place: &Place<'_>) -> Found {
    let inspection = place.inspection()?;
    found(&inspection.verifier)
        .map_err(|_| Finding::skipped(text!("the configuration cannot be used", "配置无法使用")))?;
    weights(place).map_err(incomplete)?;
    let look = &inspection.tensors;
    let facts = found(look)?;
    let mut shapes: Vec<String> =
        facts.layers.iter().map(|layer| format!("{} × {}", layer.kv_heads, layer.head_dim)).collect();
    shapes.sort();
    shapes.dedup();
    let measured =
        text!("{} · K/V heads × dimension {}", "{} · K/V 头数 × 维度 {}", facts.types, shapes.join(" and "));
    Ok(Finding::pass(measured).took(look.seconds))
}
