//! From prompts to token ids and back: tokenizer, chat template, stop tokens.

use crate::Error;
use crate::config::Config;
use crate::gguf::Gguf;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const CAP: u64 = 16 << 20;
/// File of the chat template, where it has one of its own.
const TEMPLATE: &str = "chat_template.jinja";

/// The verifier's tokenizer with its chat template.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    template: Option<String>,
    template_place: Option<&'static str>,
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
        let (template, template_place) = match optional(TEMPLATE) {
            Some(path) => {
                let text = String::from_utf8_lossy(&files::read_regular(&path, CAP)?).into_owned();
                files.push(path);
                (Some(text), Some(TEMPLATE))
            }
            None => {
                let template = settings.get("chat_template").and_then(Value::as_str).map(str::to_owned);
                let place = template.is_some().then_some("tokenizer_config.json");
                (template, place)
            }
        };
        let generation = optional("generation_config.json");
        files.extend(generation.clone());
        let stop_tokens = match &gguf {
            Some(gguf) if generation.is_none() => gguf.stop_tokens()?,
            _ => stop_tokens(generation, folder)?,
        };
        Ok(Self { inner, template, template_place, settings, stop_tokens, files })
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

    /// Tokens of the vocabulary, added ones included.
    pub fn tokens(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The file that the chat template stands in; none without one.
    pub fn template_place(&self) -> Option<&'static str> {
        self.template_place
    }

    /// Holds the special tokens that `tokenizer_config.json` names against the ids in the verifier's `config.json`, and
    /// every id against the vocabulary. Gives how many ids were compared.
    pub fn special_tokens(&self, folder: &Path) -> Result<usize, Error> {
        let path = folder.join("config.json");
        if !path.exists() {
            return Ok(0);
        }
        let outer = Config::read(path)?;
        let config = outer.section("text_config").unwrap_or(outer);
        let vocabulary: usize = config.optional("vocab_size")?.unwrap_or(usize::MAX);
        let mut compared = 0;
        for role in ["bos", "eos", "pad"] {
            let key = format!("{role}_token_id");
            let stated: Option<Ids> = config.optional(&key)?;
            let ids = stated.map(Ids::list).unwrap_or_default();
            if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
                return Err(config.error(&key, format!("is {id}, but vocab_size is {vocabulary}")));
            }
            let Some(token) = self.named(&format!("{role}_token")) else { continue };
            let Some(id) = self.inner.token_to_id(&token) else {
                return Err(self.wrong(format!("{role}_token is {token:?}, which is no token")));
            };
            if !ids.is_empty() && !ids.contains(&id) {
                let reason = format!("is {ids:?}, but the tokenizer's {role}_token {token:?} is {id}");
                return Err(config.error(&key, reason));
            }
            compared += ids.len();
        }
        Ok(compared)
    }

    /// The special token that `tokenizer_config.json` names so.
    fn named(&self, name: &str) -> Option<String> {
        match self.settings.get(name)? {
            Value::String(token) => Some(token.clone()),
            token => token.get("content").and_then(Value::as_str).map(str::to_owned),
        }
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
        let token = |name: &str| self.named(name).unwrap_or_default();
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

    /// An error of this tokenizer.
    pub(crate) fn wrong(&self, reason: String) -> Error {
        Error::Tokenizer { path: self.files[0].clone(), reason }
    }
}

fn read(path: &Path) -> Result<tokenizers::Tokenizer, Error> {
    let bytes = files::read_regular(path, CAP * 16)?;
    tokenizers::Tokenizer::from_bytes(bytes)
        .map_err(|e| Error::Tokenizer { path: path.to_owned(), reason: e.to_string() })
}

/// Token ids as configurations state them: a number or a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

impl Ids {
    fn list(self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }
}

/// `eos_token_id` of `generation_config.json`, else of `config.json`: a number or a list.
fn stop_tokens(generation: Option<PathBuf>, folder: &Path) -> Result<Vec<u32>, Error> {
    for path in generation.into_iter().chain([folder.join("config.json")]) {
        let config = Config::read(path)?;
        let nested = config.section("text_config");
        for part in [Some(config), nested].into_iter().flatten() {
            if let Some(ids) = part.optional::<Ids>("eos_token_id")? {
                return Ok(ids.list());
            }
        }
    }
    Ok(Vec::new())
}
