//! From prompts to token ids and back: tokenizer, chat template, stop tokens.

use crate::Error;
use crate::config::Config;
use crate::gguf::Gguf;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const CAP: u64 = 16 << 20;

/// The verifier's tokenizer with its chat template.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    template: Option<String>,
    /// `tokenizer_config.json`: special tokens that templates name.
    settings: Value,
    /// Token ids that end an answer.
    pub stop_tokens: Vec<u32>,
    /// Files that were read.
    pub files: Vec<PathBuf>,
}

impl Tokenizer {
    /// Loads `tokenizer.json`, the template and the stop tokens of a verifier folder. In a folder with a GGUF file that
    /// file says what is not beside it.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        let gguf = Gguf::find(folder)?;
        let path = folder.join("tokenizer.json");
        let (inner, path) = match &gguf {
            Some(gguf) if !path.exists() => (gguf.tokenizer()?, gguf.path().to_owned()),
            _ => (read(&path)?, path),
        };
        let mut files = vec![path];
        let optional = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
        let mut settings = json!({});
        if let Some(path) = optional("tokenizer_config.json") {
            settings = Config::read(path.clone())?.value;
            files.push(path);
        }
        let template = match optional("chat_template.jinja") {
            Some(path) => {
                let text = String::from_utf8_lossy(&files::read_capped(&path, CAP)?).into_owned();
                files.push(path);
                Some(text)
            }
            None => settings.get("chat_template").and_then(Value::as_str).map(str::to_owned),
        };
        let generation = optional("generation_config.json");
        files.extend(generation.clone());
        let stop_tokens = match &gguf {
            Some(gguf) if generation.is_none() => gguf.stop_tokens()?,
            _ => stop_tokens(generation, folder)?,
        };
        Ok(Self { inner, template, settings, stop_tokens, files })
    }

    /// Ids of a text with the tokenizer's own special tokens (BOS).
    pub fn encode_raw(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.encode(text, true)
    }

    /// Ids of `text` alone, nothing added.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.encode(text, false)
    }

    /// Ids of `text` as one user turn, up to where the model is to answer.
    pub fn encode_chat(&self, text: &str) -> Result<Vec<u32>, Error> {
        let template = self.template.as_ref().ok_or_else(|| {
            self.wrong(
                "there is no chat template; use a raw prompt variant, or add chat_template.jinja".into(),
            )
        })?;
        let rendered =
            self.render(template, text).map_err(|e| self.wrong(format!("chat template: {e:#}")))?;
        self.encode(&rendered, false)
    }

    /// The text of `ids`, special tokens left out.
    pub fn decode(&self, ids: &[u32]) -> Result<String, Error> {
        self.inner.decode(ids, true).map_err(|e| self.wrong(e.to_string()))
    }

    fn render(&self, template: &str, text: &str) -> Result<String, minijinja::Error> {
        let mut environment = minijinja::Environment::new();
        // As transformers renders templates.
        environment.set_syntax(
            minijinja::syntax::SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?,
        );
        environment.add_function("raise_exception", |message: String| -> Result<String, minijinja::Error> {
            Err(minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, message))
        });
        let token = |name: &str| match self.settings.get(name) {
            Some(Value::String(token)) => token.clone(),
            Some(Value::Object(token)) => {
                token.get("content").and_then(Value::as_str).unwrap_or_default().to_owned()
            }
            _ => String::new(),
        };
        let context = minijinja::context! {
            messages => vec![minijinja::context! { role => "user", content => text }],
            add_generation_prompt => true,
            bos_token => token("bos_token"),
            eos_token => token("eos_token"),
            pad_token => token("pad_token"),
        };
        environment.render_str(template, context)
    }

    fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, Error> {
        let encoding = self.inner.encode_fast(text, special).map_err(|e| self.wrong(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    fn wrong(&self, reason: String) -> Error {
        Error::Tokenizer { path: self.files[0].clone(), reason }
    }
}

fn read(path: &Path) -> Result<tokenizers::Tokenizer, Error> {
    let bytes = files::read_capped(path, CAP * 16)?;
    tokenizers::Tokenizer::from_bytes(bytes)
        .map_err(|e| Error::Tokenizer { path: path.to_owned(), reason: e.to_string() })
}

/// `eos_token_id` of `generation_config.json`, else of `config.json`: a number or a list.
fn stop_tokens(generation: Option<PathBuf>, folder: &Path) -> Result<Vec<u32>, Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Ids {
        One(u32),
        Many(Vec<u32>),
    }
    for path in generation.into_iter().chain([folder.join("config.json")]) {
        let config = Config::read(path)?;
        let nested = config.section("text_config");
        for part in [Some(config), nested].into_iter().flatten() {
            match part.optional("eos_token_id")? {
                Some(Ids::One(id)) => return Ok(vec![id]),
                Some(Ids::Many(ids)) => return Ok(ids),
                None => {}
            }
        }
    }
    Ok(Vec::new())
}
