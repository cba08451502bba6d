//! Does the tokenizer say what the model expects?

use crate::check::{Finding, Found, Group};
use crate::verifier::{found, gguf};
use crate::{Place, Row, fix, json};
use evidence::{Text, text};
use protocol::{Inspection, PromptFacts, TokenizerFacts};
use serde_json::Value;

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "tokenizer-files",
        group: Group::Tokenizer,
        title: Text::fixed("Tokenizer loads", "分词器可加载"),
        why: Text::fixed(
            "Without the model's own tokenizer every token is another one.",
            "没有模型自己的分词器，每个词元都会变成别的。",
        ),
        look: loads,
    },
    Row {
        id: fix::SPECIAL_TOKENS,
        group: Group::Tokenizer,
        title: Text::fixed("Special tokens", "特殊词元"),
        why: Text::fixed(
            "Loaders expect extra_special_tokens to be an object; some converters write a list.",
            "加载器要求 extra_special_tokens 是对象；有些转换器写成了列表。",
        ),
        look: special_tokens,
    },
    Row {
        id: "tokenizer-ids",
        group: Group::Tokenizer,
        title: Text::fixed("Ids match the configuration", "编号与配置一致"),
        why: Text::fixed(
            "If begin and end of text have other ids than the model knows, answers never end.",
            "如果文本首尾的编号与模型所知的不同，回答就不会结束。",
        ),
        look: ids,
    },
    Row {
        id: "tokenizer-template",
        group: Group::Tokenizer,
        title: Text::fixed("Chat template", "聊天模板"),
        why: Text::fixed(
            "Without the model's own template the prompt is another prompt.",
            "没有模型自己的模板，提示词就是另一个提示词。",
        ),
        look: template,
    },
    Row {
        id: "tokenizer-prompt",
        group: Group::Tokenizer,
        title: Text::fixed("Needle prompt", "大海捞针提示词"),
        why: Text::fixed(
            "The first prompt of each rung, encoded and decoded again, must be itself.",
            "每个梯级的第一个提示词，编码再解码后必须与原文相同。",
        ),
        look: prompt,
    },
];

fn facts(inspection: &Inspection) -> Result<&TokenizerFacts, Finding> {
    found(&inspection.tokenizer)
        .map_err(|_| Finding::skipped(text!("the tokenizer cannot be loaded", "分词器无法加载")))
}

fn loads(place: &Place<'_>) -> Found {
    let look = &place.inspection()?.tokenizer;
    let facts = found(look)?;
    let measured = text!("{} tokens", "{} 个词元", facts.tokens);
    if facts.stop_tokens.is_empty() {
        let hint = text!(
            "state eos_token_id in generation_config.json or config.json",
            "在 generation_config.json 或 config.json 中给出 eos_token_id"
        );
        let endless =
            text!(language => "{}; none ends an answer", "{}；没有一个能结束回答", measured.said(language));
        return Err(Finding::warn(endless, hint).took(look.seconds));
    }
    let ended = text!(
        language => "{}, answers end at {:?}",
        "{}，回答止于 {:?}",
        measured.said(language),
        facts.stop_tokens
    );
    Ok(Finding::pass(ended).took(look.seconds))
}

fn special_tokens(place: &Place<'_>) -> Found {
    let folder = place.pack()?.verifier();
    let path = folder.join("tokenizer_config.json");
    if gguf(&folder).is_some() && !path.exists() {
        return Ok(Finding::pass(text!("the GGUF file holds them", "GGUF 文件中含有它们")));
    }
    let config = json::read(&path)?;
    match config.get("extra_special_tokens") {
        None | Some(Value::Null) => {
            Ok(Finding::pass(text!("no extra_special_tokens", "没有 extra_special_tokens")))
        }
        Some(Value::Object(tokens)) => Ok(Finding::pass(text!(
            "{} extra special tokens, an object",
            "{} 个额外特殊词元，是对象",
            tokens.len()
        ))),
        Some(found) => Err(wrong_tokens(found)),
    }
}

fn wrong_tokens(found: &Value) -> Finding {
    match fix::tokens_by_name(found) {
        Ok(_) => {
            let len = found.as_array().map_or(0, Vec::len);
            let measured = text!(
                "extra_special_tokens is a list of {len}; loaders expect an object",
                "extra_special_tokens 是含 {len} 项的列表；加载器要求对象"
            );
            Finding::fail(
                measured,
                text!(
                    "turn the list into an object; a backup is kept beside the file",
                    "把列表转成对象；文件旁会保留备份"
                ),
            )
            .fixable()
        }
        Err(found) => {
            let hint = text!(
                "make it an object (name → token) in tokenizer_config.json, as the model's author has it",
                "在 tokenizer_config.json 中把它改成对象（名称 → 词元），与模型作者的一致"
            );
            Finding::fail(
                text!(
                    "extra_special_tokens is {found}; loaders expect an object",
                    "extra_special_tokens 是 {found}；加载器要求对象"
                ),
                hint,
            )
        }
    }
}

fn ids(place: &Place<'_>) -> Found {
    let inspection = place.inspection()?;
    facts(inspection)?;
    let look = inspection
        .special_tokens
        .as_ref()
        .ok_or_else(|| Finding::skipped(text!("not looked at", "没有查看")))?;
    let measured = match found(look)? {
        0 => text!(
            "nothing to compare: no file beside the GGUF file states them",
            "没有可比较的：GGUF 文件旁没有文件给出它们"
        ),
        count => text!("{count} ids as configured", "{count} 个编号与配置一致"),
    };
    Ok(Finding::pass(measured).took(look.seconds))
}

/// Whether the run that is meant wraps its prompts in the template; a pack alone is not judged by it.
fn needs_template(place: &Place<'_>) -> bool {
    place.subject.run.as_ref().is_some_and(|run| run.spec.prompt.is_chat())
}

fn template(place: &Place<'_>) -> Found {
    let facts = facts(place.inspection()?)?;
    let hint = text!(
        "add chat_template.jinja from the model's author, or run with a raw prompt",
        "加入模型作者的 chat_template.jinja，或用 raw 提示词运行"
    );
    match &facts.template {
        Some(file) => Ok(Finding::pass(Text::same(file))),
        None if needs_template(place) => Err(Finding::fail(
            text!("no chat template; the run's prompts need one", "没有聊天模板；这次运行的提示词需要它"),
            hint,
        )),
        None => Err(Finding::warn(
            text!("no chat template: raw prompts only", "没有聊天模板：只能用 raw 提示词"),
            hint,
        )),
    }
}

/// The first prompt of each rung, as the engine encoded it.
pub(crate) fn prompts<'a>(place: &'a Place<'_>) -> Result<(&'a [PromptFacts], f64), Finding> {
    let inspection = place.inspection()?;
    facts(inspection)?;
    let look =
        inspection.prompts.as_ref().ok_or_else(|| Finding::skipped(text!("not looked at", "没有查看")))?;
    Ok((found(look)?, look.seconds))
}

fn prompt(place: &Place<'_>) -> Found {
    let (prompts, seconds) = prompts(place)?;
    let each = |prompt: &PromptFacts| {
        text!("rung {}: {} tokens", "梯级 {}：{} 个词元", prompt.rung.0, prompt.tokens)
    };
    let rungs: Vec<Text> = prompts.iter().map(each).collect();
    let rungs = Text::join(&rungs, &text!(", ", "，"));
    let measured = text!(language => "{}, decoded whole", "{}，解码后完整", rungs.said(language));
    Ok(Finding::pass(measured).took(seconds))
}
