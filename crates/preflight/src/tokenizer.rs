//! Does the tokenizer say what the model expects?

use crate::check::{Finding, Found, Group};
use crate::verifier::{found, gguf};
use crate::{Place, Row, fix, json};
use protocol::{Inspection, PromptFacts, TokenizerFacts};
use serde_json::Value;

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "tokenizer-files",
        group: Group::Tokenizer,
        title: "Tokenizer loads",
        why: "Without the model's own tokenizer every token is another one.",
        look: loads,
    },
    Row {
        id: fix::SPECIAL_TOKENS,
        group: Group::Tokenizer,
        title: "Special tokens",
        why: "Loaders expect extra_special_tokens to be an object; some converters write a list.",
        look: special_tokens,
    },
    Row {
        id: "tokenizer-ids",
        group: Group::Tokenizer,
        title: "Ids match the configuration",
        why: "If begin and end of text have other ids than the model knows, answers never end.",
        look: ids,
    },
    Row {
        id: "tokenizer-template",
        group: Group::Tokenizer,
        title: "Chat template",
        why: "Without the model's own template the prompt is another prompt.",
        look: template,
    },
    Row {
        id: "tokenizer-prompt",
        group: Group::Tokenizer,
        title: "Needle prompt",
        why: "The first prompt of each rung, encoded and decoded again, must be itself.",
        look: prompt,
    },
];

fn facts(inspection: &Inspection) -> Result<&TokenizerFacts, Finding> {
    found(&inspection.tokenizer).map_err(|_| Finding::skipped("the tokenizer cannot be loaded"))
}

fn loads(place: &Place<'_>) -> Found {
    let look = &place.inspection()?.tokenizer;
    let facts = found(look)?;
    let measured = format!("{} tokens", facts.tokens);
    if facts.stop_tokens.is_empty() {
        let hint = "state eos_token_id in generation_config.json or config.json";
        return Err(Finding::warn(format!("{measured}; none ends an answer"), hint).took(look.seconds));
    }
    Ok(Finding::pass(format!("{measured}, answers end at {:?}", facts.stop_tokens)).took(look.seconds))
}

fn special_tokens(place: &Place<'_>) -> Found {
    let folder = place.pack()?.verifier();
    let path = folder.join("tokenizer_config.json");
    if gguf(&folder).is_some() && !path.exists() {
        return Ok(Finding::pass("the GGUF file holds them"));
    }
    let config = json::read(&path)?;
    match config.get("extra_special_tokens") {
        None | Some(Value::Null) => Ok(Finding::pass("no extra_special_tokens")),
        Some(Value::Object(tokens)) => {
            Ok(Finding::pass(format!("{} extra special tokens, an object", tokens.len())))
        }
        Some(found) => Err(wrong_tokens(found)),
    }
}

fn wrong_tokens(found: &Value) -> Finding {
    match fix::tokens_by_name(found) {
        Ok(_) => {
            let len = found.as_array().map_or(0, Vec::len);
            let measured = format!("extra_special_tokens is a list of {len}; loaders expect an object");
            Finding::fail(measured, "turn the list into an object; a backup is kept beside the file")
                .fixable()
        }
        Err(found) => {
            let hint =
                "make it an object (name → token) in tokenizer_config.json, as the model's author has it";
            Finding::fail(format!("extra_special_tokens is {found}; loaders expect an object"), hint)
        }
    }
}

fn ids(place: &Place<'_>) -> Found {
    let inspection = place.inspection()?;
    facts(inspection)?;
    let look = inspection.special_tokens.as_ref().ok_or_else(|| Finding::skipped("not looked at"))?;
    let measured = match found(look)? {
        0 => "nothing to compare: no file beside the GGUF file states them".to_owned(),
        count => format!("{count} ids as configured"),
    };
    Ok(Finding::pass(measured).took(look.seconds))
}

/// Whether the run that is meant wraps its prompts in the template; a pack alone is not judged by it.
fn needs_template(place: &Place<'_>) -> bool {
    place.subject.run.as_ref().is_some_and(|run| run.spec.prompt.is_chat())
}

fn template(place: &Place<'_>) -> Found {
    let facts = facts(place.inspection()?)?;
    let hint = "add chat_template.jinja from the model's author, or run with a raw prompt";
    match &facts.template {
        Some(file) => Ok(Finding::pass(file)),
        None if needs_template(place) => {
            Err(Finding::fail("no chat template; the run's prompts need one", hint))
        }
        None => Err(Finding::warn("no chat template: raw prompts only", hint)),
    }
}

/// The first prompt of each rung, as the engine encoded it.
pub(crate) fn prompts<'a>(place: &'a Place<'_>) -> Result<(&'a [PromptFacts], f64), Finding> {
    let inspection = place.inspection()?;
    facts(inspection)?;
    let look = inspection.prompts.as_ref().ok_or_else(|| Finding::skipped("not looked at"))?;
    Ok((found(look)?, look.seconds))
}

fn prompt(place: &Place<'_>) -> Found {
    let (prompts, seconds) = prompts(place)?;
    let each = |prompt: &PromptFacts| format!("rung {}: {} tokens", prompt.rung.0, prompt.tokens);
    let measured: Vec<String> = prompts.iter().map(each).collect();
    Ok(Finding::pass(format!("{}, decoded whole", measured.join(", "))).took(seconds))
}
