//! Is the manifest usable, and are the files those that it names?

use crate::check::{Finding, Found, Group};
use crate::digests::{self, Stated};
use crate::{Place, Row, name, size, word};
use evidence::{Text, text};

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "pack-manifest",
        group: Group::Pack,
        title: Text::fixed("Manifest", "清单"),
        why: Text::fixed(
            "pack.json says which verifier, drafter and f_θ belong together.",
            "pack.json 说明哪个验证模型、草稿模型和 f_θ 配成一套。",
        ),
        look: manifest,
    },
    Row {
        id: "pack-conventions",
        group: Group::Pack,
        title: Text::fixed("Conventions stated", "约定已声明"),
        why: Text::fixed(
            "The two reference implementations feed the drafter differently; f_θ only works with the one it was trained on.",
            "两个参考实现给草稿模型的输入不同；f_θ 只适用于训练时所用的那一种。",
        ),
        look: conventions,
    },
    Row {
        id: "pack-digests",
        group: Group::Pack,
        title: Text::fixed("Digests", "摘要"),
        why: Text::fixed(
            "A changed byte is another model; evidence names the digests of what ran.",
            "改动一个字节就是另一个模型；证据要注明所运行内容的摘要。",
        ),
        look: look_at_digests,
    },
];

fn manifest(place: &Place<'_>) -> Found {
    let folder = &place.subject.pack;
    if folder.to_str().is_none() {
        let measured = text!("the name of {} is no UTF-8", "{} 的名称不是 UTF-8", folder.display());
        return Err(Finding::fail(
            measured,
            text!(
                "rename the folder: evidence could not name it",
                "重命名该文件夹：否则证据无法写出它的名称"
            ),
        ));
    }
    match &place.pack {
        Ok(pack) => {
            let name = &pack.manifest.name;
            Ok(Finding::pass(if pack.manifest.demo {
                text!("{name} (demo)", "{name}（演示包）")
            } else {
                Text::same(name)
            }))
        }
        Err(problem) => Err(Finding::fail(
            Text::same(problem),
            text!("correct pack.json, or choose another folder", "修正 pack.json，或选择另一个文件夹"),
        )),
    }
}

fn conventions(place: &Place<'_>) -> Found {
    let manifest = &place.pack()?.manifest;
    let (Some(scale), Some(rule)) = (manifest.drafter_embedding_scale, manifest.value_rule) else {
        return Err(Finding::skipped(text!("the pack has no f_θ", "模型包没有 f_θ")));
    };
    let (scale, rule) = (word(&scale), word(&rule));
    Ok(Finding::pass(text!(
        "drafter embedding × {scale}, V on K=V layers {rule}",
        "草稿模型嵌入 × {scale}，K=V 层的 V 为 {rule}"
    )))
}

fn look_at_digests(place: &Place<'_>) -> Found {
    let pack = place.pack()?;
    let wanted = &pack.manifest.sha256;
    if wanted.is_empty() {
        let hint = text!(
            "add \"sha256\" to pack.json: file → digest",
            "在 pack.json 中加入 \"sha256\"：文件 → 摘要"
        );
        return Err(Finding::warn(text!("pack.json states no digests", "pack.json 没有给出摘要"), hint));
    }
    let digests = Stated::of(pack, &place.subject.digest_cache)
        .map_err(|e| Finding::fail(Text::same(e), text!("copy the pack again", "重新复制模型包")))?;
    let unknown = digests.unknown_bytes();
    if unknown > digests::AT_ONCE {
        let (all, left) = (size(digests.bytes()), size(unknown));
        return Err(Finding::skipped(text!(
            "{} files, {all}: {left} of them not hashed yet",
            "{} 个文件，{all}：其中 {left} 尚未计算摘要",
            wanted.len()
        )));
    }
    let bytes = digests.bytes();
    let found = digests
        .finish(&mut |_| true)
        .map_err(|e| Finding::fail(Text::same(e), text!("copy the pack again", "重新复制模型包")))?;
    for (file, got) in found.into_iter().flatten() {
        let want = &wanted[&file];
        if !want.eq_ignore_ascii_case(&got) {
            let measured = text!(
                "{} has {}…, pack.json states {}…",
                "{} 为 {}…，pack.json 给出的是 {}…",
                file.display(),
                head(&got),
                head(want)
            );
            let hint = text!(
                "copy {} again, or state the new digest if the change is meant",
                "重新复制 {}；若是有意更改，则写入新的摘要",
                name(&file)
            );
            return Err(Finding::fail(measured, hint));
        }
    }
    Ok(Finding::pass(text!(
        "{} files, {}, all as stated",
        "{} 个文件，{}，全部相符",
        wanted.len(),
        size(bytes)
    )))
}

fn head(digest: &str) -> String {
    digest.chars().take(12).collect()
}
