//! Drafter and f_θ: complete, and made for each other and for this verifier?

use crate::check::{Finding, Found, Group};
use crate::verifier::{damaged, found, incomplete, safetensors};
use crate::{Place, Row, json, name, size, word};
use evidence::{Text, text};
use protocol::{DrafterEmbeddingScale, Look};
use serde_json::Value;
use std::path::{Path, PathBuf};

pub(crate) const DRAFTER_ROWS: &[Row] = &[
    Row {
        id: "drafter-weights",
        group: Group::Drafter,
        title: Text::fixed("Drafter weights complete", "草稿模型权重完整"),
        why: Text::fixed(
            "The drafter runs over the evicted tokens; f_θ projects its K/V.",
            "草稿模型处理被逐出的词元；f_θ 投影它的 K/V。",
        ),
        look: drafter_weights,
    },
    Row {
        id: "drafter-geometry",
        group: Group::Drafter,
        title: Text::fixed("Drafter configuration", "草稿模型配置"),
        why: Text::fixed(
            "Its tensors must be those that its configuration describes.",
            "其张量必须是其配置所描述的那些。",
        ),
        look: drafter_geometry,
    },
];

pub(crate) const F_THETA_ROWS: &[Row] = &[
    Row {
        id: "f-theta-weights",
        group: Group::FTheta,
        title: Text::fixed("f_θ weights complete", "f_θ 权重完整"),
        why: Text::fixed(
            "An untrained or pointer f_θ restores noise.",
            "未经训练或只是指针文件的 f_θ 恢复的是噪声。",
        ),
        look: f_theta_weights,
    },
    Row {
        id: "f-theta-config",
        group: Group::FTheta,
        title: Text::fixed("f_θ configuration", "f_θ 配置"),
        why: Text::fixed(
            "Its tensors must be those that its configuration describes.",
            "其张量必须是其配置所描述的那些。",
        ),
        look: f_theta_config,
    },
    Row {
        id: "f-theta-dimensions",
        group: Group::FTheta,
        title: Text::fixed("Dimensions agree", "维度一致"),
        why: Text::fixed(
            "f_θ must produce each layer's K/V heads and take the drafter's.",
            "f_θ 必须产生每层的 K/V 头，并接受草稿模型的 K/V 头。",
        ),
        look: dimensions,
    },
    Row {
        id: "f-theta-origin",
        group: Group::FTheta,
        title: Text::fixed("Trained on this drafter", "用此草稿模型训练"),
        why: Text::fixed(
            "f_θ that was trained on another drafter has the right dimensions and restores something else.",
            "用另一个草稿模型训练的 f_θ 维度正确，恢复的却是别的内容。",
        ),
        look: origin,
    },
    Row {
        id: "f-theta-scale",
        group: Group::FTheta,
        title: Text::fixed("Trained with this embedding scale", "用此嵌入缩放训练"),
        why: Text::fixed(
            "The implementations feed the drafter embeddings of different scale; f_θ only works with the one that it was trained with.",
            "各实现给草稿模型的嵌入缩放不同；f_θ 只适用于训练时所用的那一种。",
        ),
        look: scale,
    },
];

/// What the reference's training feeds its drafter: the scaled embedding, scaled by √hidden once more.
const REFERENCE_SCALE: DrafterEmbeddingScale = DrafterEmbeddingScale::Hidden;

fn part(folder: Option<PathBuf>, name: &Text) -> Result<PathBuf, Finding> {
    folder.ok_or_else(|| {
        Finding::skipped(text!(language => "the pack has no {}", "模型包没有{}", name.said(language)))
    })
}

fn drafter_folder(place: &Place<'_>) -> Result<PathBuf, Finding> {
    part(place.pack()?.drafter(), &text!("drafter", "草稿模型"))
}

fn f_theta_folder(place: &Place<'_>) -> Result<PathBuf, Finding> {
    part(place.pack()?.f_theta(), &text!("f_θ", " f_θ"))
}

fn looked_at<T>(look: &Option<Look<T>>) -> Result<(&T, f64), Finding> {
    let look = look
        .as_ref()
        .ok_or_else(|| Finding::skipped(text!("a part before it cannot be used", "它之前的部分无法使用")))?;
    Ok((found(look)?, look.seconds))
}

fn drafter_weights(place: &Place<'_>) -> Found {
    safetensors(&drafter_folder(place)?, "model")
}

fn drafter_geometry(place: &Place<'_>) -> Found {
    drafter_folder(place)?;
    drafter_weights(place).map_err(incomplete)?;
    let (facts, seconds) = looked_at(&place.inspection()?.drafter)?;
    let measured = text!(
        "{} layers · K/V heads × dimension {} × {}",
        "{} 层 · K/V 头数 × 维度 {} × {}",
        facts.layers,
        facts.kv_heads,
        facts.head_dim
    );
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
        let measured = text!(
            "neither f_theta_weights.safetensors nor .pt in {}",
            "{} 中既没有 f_theta_weights.safetensors 也没有 .pt",
            name(&folder)
        );
        return Err(Finding::fail(
            measured,
            text!(
                "train f_θ on the GPU machine and copy its folder here",
                "在 GPU 机器上训练 f_θ，并把其文件夹复制到这里"
            ),
        ));
    }
    let bytes = files::weight_bytes(&archive).map_err(|e| damaged(&e))?;
    Ok(Finding::pass(text!("PyTorch archive, {}", "PyTorch 归档，{}", size(bytes))))
}

fn f_theta_config(place: &Place<'_>) -> Found {
    f_theta_folder(place)?;
    f_theta_weights(place).map_err(incomplete)?;
    let (facts, seconds) = looked_at(&place.inspection()?.f_theta)?;
    Ok(Finding::pass(text!("rank {}", "秩 {}", facts.rank)).took(seconds))
}

fn dimensions(place: &Place<'_>) -> Found {
    f_theta_folder(place)?;
    let inspection = place.inspection()?;
    let (_, seconds) = looked_at(&inspection.dimensions)?;
    let layers = found(&inspection.tensors)?.layers.len();
    Ok(Finding::pass(text!(
        "{layers} layers as the verifier has them, and the drafter",
        "{layers} 层，与验证模型和草稿模型的一致"
    ))
    .took(seconds))
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
            return Ok(Finding::pass(text!(
                "pack.json binds both by their digests; there is no training report",
                "pack.json 以摘要绑定两者；没有训练报告"
            )));
        }
        let hint = text!(
            "copy f_θ's training report beside it, or state the digests of both in pack.json",
            "把 f_θ 的训练报告复制到它旁边，或在 pack.json 中给出两者的摘要"
        );
        return Err(Finding::warn(
            text!(
                "nothing says which drafter f_θ was trained on",
                "没有任何说明指出 f_θ 是用哪个草稿模型训练的"
            ),
            hint,
        ));
    };
    let Some(trained) = report.pointer("/config/drafter_id").and_then(Value::as_str) else {
        return Err(Finding::warn(
            text!("the training report names no drafter", "训练报告没有注明草稿模型"),
            text!("ask who trained this f_θ", "询问这个 f_θ 的训练者"),
        ));
    };
    let names = [name(&drafter), drafter_name(&drafter).unwrap_or_default()];
    let trained = name(Path::new(trained));
    if names.contains(&trained) {
        return Ok(Finding::pass(text!("trained on {trained}", "用 {trained} 训练")));
    }
    let measured =
        text!("trained on {trained}, the drafter is {}", "用 {trained} 训练，而草稿模型是 {}", names[0]);
    Err(Finding::warn(
        measured,
        text!(
            "use the drafter that f_θ was trained on, or name its folder so if it is the same",
            "使用训练 f_θ 所用的草稿模型；若是同一个，则把其文件夹改成该名称"
        ),
    ))
}

/// The scale that the pack states against what its files record.
fn scale(place: &Place<'_>) -> Found {
    let (f_theta, drafter) = (f_theta_folder(place)?, drafter_folder(place)?);
    let stated = place.pack()?.manifest.drafter_embedding_scale;
    let stated = stated
        .ok_or_else(|| Finding::skipped(text!("pack.json states no scale", "pack.json 没有给出缩放")))?;
    let recorded = match training_report(&f_theta) {
        Some(_) => {
            Some((REFERENCE_SCALE, text!("the training report is the reference's", "训练报告来自参考实现")))
        }
        None => recorded_scale(&drafter)
            .map(|scale| (scale, text!("the drafter's configuration records it", "草稿模型的配置中有记录"))),
    };
    let Some((recorded, source)) = recorded else {
        let measured = text!(
            "pack.json states × {}; nothing else records it",
            "pack.json 给出 × {}；别处没有记录",
            word(&stated)
        );
        return Err(Finding::skipped(measured));
    };
    if recorded == stated {
        return Ok(Finding::pass(text!(
            language => "× {}: {}",
            "× {}：{}",
            word(&stated),
            source.said(language)
        )));
    }
    let measured = text!(
        language => "pack.json states × {}, but × {}: {}",
        "pack.json 给出 × {}，实为 × {}：{}",
        word(&stated),
        word(&recorded),
        source.said(language)
    );
    Err(Finding::fail(
        measured,
        text!("correct drafter_embedding_scale in pack.json", "修正 pack.json 中的 drafter_embedding_scale"),
    ))
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
