//! GGUF files of Gemma 3 models, told in the words of a Hugging Face checkpoint: configuration, tensor names, tokenizer.

use crate::Error;
use crate::config::Config;
use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use serde_json::json;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::Replace;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, Tokenizer};

const AGAIN: &str = "the file is damaged or its download was cut short: download it again";
const OTHER: &str = "use a GGUF file of a Gemma 3 text model";

/// Tokens of a SentencePiece vocabulary, as `tokenizer.ggml.token_type` numbers them.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// A GGUF file whose header was read.
pub(crate) struct Gguf {
    path: PathBuf,
    content: Content,
    bytes: u64,
}

/// Where one tensor of the file lies.
pub(crate) struct Extent {
    /// Name in a Hugging Face checkpoint.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Format of its blocks.
    pub format: GgmlDType,
    /// Bytes of the file.
    pub range: Range<u64>,
}

impl Gguf {
    /// The GGUF file of `folder`, if it holds one in place of a `config.json`. Two are an error.
    pub fn find(folder: &Path) -> Result<Option<Self>, Error> {
        if folder.join("config.json").exists() {
            return Ok(None);
        }
        let listing = std::fs::read_dir(folder).map_err(|e| {
            wrong(folder, format!("cannot be listed: {e}"), "check that the pack is complete and readable")
        })?;
        let is_gguf = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "gguf");
        let found: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).filter(is_gguf).collect();
        match &found[..] {
            [] => Ok(None),
            [path] => Self::open(path).map(Some),
            [..] => Err(wrong(
                folder,
                format!("holds {} GGUF files", found.len()),
                "leave one file in the folder",
            )),
        }
    }

    fn open(path: &Path) -> Result<Self, Error> {
        let unreadable =
            |e: std::io::Error| wrong(path, format!("cannot be read: {e}"), "check the file's permissions");
        let file = File::open(path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        // The reader divides by the file's `general.alignment`, which may be 0.
        let content = catch_unwind(|| Content::read(&mut BufReader::new(file)))
            .map_err(|_| wrong(path, "has a header that cannot be read".into(), AGAIN))?
            .map_err(|e| wrong(path, format!("is no readable GGUF file: {e}"), AGAIN))?;
        Ok(Self { path: path.to_owned(), content, bytes })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its metadata as a `config.json` has them. What llama.cpp's `gemma3` fixes in code is stated here.
    pub fn config(&self) -> Result<Config, Error> {
        let architecture = self.text("general.architecture")?;
        if architecture != "gemma3" {
            let reason = format!("general.architecture is {architecture:?}; this program runs gemma3");
            return Err(wrong(&self.path, reason, OTHER));
        }
        let (hidden, heads) =
            (self.count("gemma3.embedding_length")?, self.count("gemma3.attention.head_count")?);
        let (layers, head_dim) =
            (self.count("gemma3.block_count")?, self.count("gemma3.attention.key_length")?);
        let factor = self.real("gemma3.rope.scaling.factor")?.unwrap_or(1.0);
        let value = json!({
            "model_type": "gemma3_text",
            "vocab_size": self.array("tokenizer.ggml.tokens")?.len(),
            "hidden_size": hidden,
            "intermediate_size": self.count("gemma3.feed_forward_length")?,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": self.count("gemma3.attention.head_count_kv")?,
            "head_dim": head_dim,
            "rms_norm_eps": self.real("gemma3.attention.layer_norm_rms_epsilon")?,
            "sliding_window": self.count("gemma3.attention.sliding_window")?,
            "sliding_window_pattern": 6,
            // Of the published sizes only the 27B, the one with 62 layers, scales by width instead of by head.
            "query_pre_attn_scalar": if layers == 62 && heads > 0 { hidden / heads } else { head_dim },
            "rope_theta": self.real("gemma3.rope.freq_base")?,
            "rope_local_base_freq": self.real("gemma3.rope.freq_base_swa")?.unwrap_or(10_000.0),
            "rope_scaling": if factor == 1.0 { json!(null) } else { json!({"rope_type": "linear", "factor": factor}) },
            "attn_logit_softcapping": self.real("gemma3.attn_logit_softcapping")?,
            "final_logit_softcapping": self.real("gemma3.final_logit_softcapping")?,
            "hidden_activation": "gelu_pytorch_tanh",
            "tie_word_embeddings": !self.content.tensor_infos.contains_key("output.weight"),
        });
        Ok(Config::new(self.path.clone(), value))
    }

    /// The tensors, in no order. Checks that the file holds all of them to their ends.
    pub fn tensors(&self) -> Result<Vec<Extent>, Error> {
        let extent = |(own, info): (&String, &candle_core::quantized::gguf_file::TensorInfo)| {
            let (shape, format) = (info.shape.dims().to_vec(), info.ggml_dtype);
            let elements = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
            let last = shape.last().copied().unwrap_or(0);
            if !last.is_multiple_of(format.block_size()) {
                let reason = format!(
                    "{own} has rows of {last} elements in blocks of {} ({format:?})",
                    format.block_size()
                );
                return Err(wrong(&self.path, reason, AGAIN));
            }
            let len =
                elements.and_then(|count| (count / format.block_size()).checked_mul(format.type_size()));
            let start = self.content.tensor_data_offset.checked_add(info.offset);
            let end = start.zip(len).and_then(|(start, len)| start.checked_add(len as u64));
            match start.zip(end) {
                Some((start, end)) if end <= self.bytes => {
                    Ok(Extent { name: hugging_face_name(own), shape, format, range: start..end })
                }
                _ => {
                    let end = end.map_or("beyond any file".into(), |end| format!("at byte {end}"));
                    let reason = format!("{own} {shape:?} ends {end}, but the file has {} bytes", self.bytes);
                    Err(wrong(&self.path, reason, AGAIN))
                }
            }
        };
        self.content.tensor_infos.iter().map(extent).collect()
    }

    /// Ids that end an answer.
    pub fn stop_tokens(&self) -> Result<Vec<u32>, Error> {
        let id = self.number("tokenizer.ggml.eos_token_id")?;
        Ok(id.and_then(|id| u32::try_from(id).ok()).into_iter().collect())
    }

    /// The tokenizer. The file holds a SentencePiece vocabulary with scores; two neighbours merge into the piece with the
    /// best score, which is byte-pair encoding with every pair of pieces that form a piece, ranked by its score.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        let kind = self.text("tokenizer.ggml.model")?;
        if kind != "llama" {
            let reason =
                format!("tokenizer.ggml.model is {kind:?}; this program reads \"llama\" (SentencePiece)");
            return Err(self.no_tokenizer(reason));
        }
        let pieces = self.strings("tokenizer.ggml.tokens")?;
        let ids: BTreeMap<&str, u32> = pieces.iter().zip(0..).map(|(piece, id)| (*piece, id)).collect();
        let unknown = self.piece("tokenizer.ggml.unknown_token_id", &pieces)?;
        let model = BPE::builder()
            .vocab_and_merges(
                ids.iter().map(|(piece, id)| ((*piece).to_owned(), *id)).collect::<Vocab>(),
                self.merges(&pieces, &ids)?,
            )
            .unk_token(unknown)
            .fuse_unk(true)
            .byte_fallback(true)
            .build()
            .map_err(|e| self.no_tokenizer(e.to_string()))?;
        let mut tokenizer = Tokenizer::new(model);
        let replace = |from: &str, to: &str| {
            Replace::new(from.to_owned(), to).map_err(|e| self.no_tokenizer(e.to_string()))
        };
        let decoders = vec![replace("▁", " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
        tokenizer
            .with_normalizer(Some(replace(" ", "▁")?))
            .map_err(|e| self.no_tokenizer(e.to_string()))?
            .with_decoder(Some(Sequence::new(decoders)));
        if self.flag("tokenizer.ggml.add_bos_token")? {
            let bos = self.piece("tokenizer.ggml.bos_token_id", &pieces)?;
            let id = ids.get(bos.as_str()).copied().unwrap_or_default();
            let template = TemplateProcessing::builder()
                .try_single(format!("{bos} $A"))
                .and_then(|builder| builder.try_pair(format!("{bos} $A $B")))
                .map_err(|e| self.no_tokenizer(e.to_string()))?
                .special_tokens(vec![(bos, id)])
                .build()
                .map_err(|e| self.no_tokenizer(e.to_string()))?;
            tokenizer.with_post_processor(Some(template));
        }
        let added = self.added(&pieces)?;
        tokenizer.add_tokens(added).map_err(|e| self.no_tokenizer(e.to_string()))?;
        Ok(tokenizer)
    }

    /// Every pair of pieces that form a piece, the best first.
    fn merges(&self, pieces: &[&str], ids: &BTreeMap<&str, u32>) -> Result<Vec<(String, String)>, Error> {
        let scores = self.array("tokenizer.ggml.scores")?;
        let mut merges = Vec::new();
        for (piece, score) in pieces.iter().zip(scores) {
            let score =
                score.to_f32().map_err(|e| self.no_tokenizer(format!("tokenizer.ggml.scores: {e}")))?;
            let cuts = piece.char_indices().skip(1).map(|(cut, _)| piece.split_at(cut));
            let known = |half: &str| ids.get(half).copied();
            merges.extend(cuts.filter_map(|(left, right)| Some((score, known(left)?, known(right)?))));
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0));
        let text = |id: u32| pieces[id as usize].to_owned();
        Ok(merges.into_iter().map(|(_, left, right)| (text(left), text(right))).collect())
    }

    /// Pieces that are found before any merging.
    fn added(&self, pieces: &[&str]) -> Result<Vec<AddedToken>, Error> {
        let types = self.array("tokenizer.ggml.token_type")?;
        let token = |(piece, kind): (&&str, &Value)| match integer(kind)? {
            CONTROL => Some(AddedToken::from(*piece, true).normalized(false)),
            USER_DEFINED => Some(AddedToken::from(*piece, false).normalized(true)),
            _ => None,
        };
        Ok(pieces.iter().zip(types).filter_map(token).collect())
    }

    /// The piece whose id stands under `key`.
    fn piece(&self, key: &str, pieces: &[&str]) -> Result<String, Error> {
        let id = self.number(key)?.ok_or_else(|| self.missing(key))?;
        let piece = usize::try_from(id).ok().and_then(|id| pieces.get(id));
        piece
            .map(|piece| (*piece).to_owned())
            .ok_or_else(|| self.no_tokenizer(format!("{key} is {id}, but there are {} tokens", pieces.len())))
    }

    fn strings(&self, key: &str) -> Result<Vec<&str>, Error> {
        let no_text = || self.no_tokenizer(format!("{key} holds something that is no string"));
        let values = self.array(key)?.iter();
        values
            .map(|value| if let Value::String(text) = value { Ok(text.as_str()) } else { Err(no_text()) })
            .collect()
    }

    fn array(&self, key: &str) -> Result<&[Value], Error> {
        match self.content.metadata.get(key) {
            Some(Value::Array(values)) => Ok(values),
            Some(_) => Err(wrong(&self.path, format!("{key} is no list"), OTHER)),
            None => Err(self.missing(key)),
        }
    }

    fn text(&self, key: &str) -> Result<&str, Error> {
        match self.content.metadata.get(key) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(wrong(&self.path, format!("{key} is no string"), OTHER)),
            None => Err(self.missing(key)),
        }
    }

    fn flag(&self, key: &str) -> Result<bool, Error> {
        match self.content.metadata.get(key) {
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(wrong(&self.path, format!("{key} is neither true nor false"), OTHER)),
            None => Ok(false),
        }
    }

    fn count(&self, key: &str) -> Result<u64, Error> {
        self.number(key)?.ok_or_else(|| self.missing(key))
    }

    fn number(&self, key: &str) -> Result<Option<u64>, Error> {
        let no_count = || wrong(&self.path, format!("{key} is no number of 0 or more"), OTHER);
        self.content.metadata.get(key).map(|value| integer(value).ok_or_else(no_count)).transpose()
    }

    fn real(&self, key: &str) -> Result<Option<f64>, Error> {
        match self.content.metadata.get(key) {
            Some(Value::F32(value)) => Ok(Some(f64::from(*value))),
            Some(Value::F64(value)) => Ok(Some(*value)),
            Some(_) => Err(wrong(&self.path, format!("{key} is no real number"), OTHER)),
            None => Ok(None),
        }
    }

    fn missing(&self, key: &str) -> Error {
        wrong(&self.path, format!("has no metadata {key}"), OTHER)
    }

    fn no_tokenizer(&self, reason: String) -> Error {
        Error::Tokenizer { path: self.path.clone(), reason }
    }
}

/// Blocks of a file as candle has them. It wants them at addresses that their numbers may have, which a file need not.
pub(crate) fn blocks(
    shape: &[usize],
    format: GgmlDType,
    bytes: &[u8],
    device: &Device,
) -> Result<QTensor, Error> {
    let aligned = bytes.as_ptr().cast::<u64>().is_aligned();
    let bytes = if aligned { Cow::Borrowed(bytes) } else { Cow::Owned(bytes.to_vec()) };
    Ok(QTensor::new(QStorage::from_data(bytes, device, format)?, shape)?)
}

/// A number of 0 or more, whatever its width.
fn integer(value: &Value) -> Option<u64> {
    match *value {
        Value::U8(value) => Some(value.into()),
        Value::U16(value) => Some(value.into()),
        Value::U32(value) => Some(value.into()),
        Value::U64(value) => Some(value),
        Value::I8(value) => value.try_into().ok(),
        Value::I16(value) => value.try_into().ok(),
        Value::I32(value) => value.try_into().ok(),
        Value::I64(value) => value.try_into().ok(),
        _ => None,
    }
}

/// `blk.3.attn_q.weight` as `model.layers.3.self_attn.q_proj.weight`; names of no known part stay as they are.
fn hugging_face_name(own: &str) -> String {
    const PARTS: [(&str, &str); 13] = [
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("attn_q_norm", "self_attn.q_norm"),
        ("attn_k_norm", "self_attn.k_norm"),
        ("post_attention_norm", "post_attention_layernorm"),
        ("ffn_norm", "pre_feedforward_layernorm"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
    ];
    let layer = || {
        let (layer, part) = own.strip_prefix("blk.")?.strip_suffix(".weight")?.split_once('.')?;
        let (_, theirs) = PARTS.iter().find(|(ours, _)| *ours == part)?;
        Some(format!("model.layers.{layer}.{theirs}.weight"))
    };
    match own {
        "token_embd.weight" => "model.embed_tokens.weight".into(),
        "output_norm.weight" => "model.norm.weight".into(),
        _ => layer().unwrap_or_else(|| own.to_owned()),
    }
}

fn wrong(path: &Path, reason: String, hint: &'static str) -> Error {
    Error::Weights { path: path.to_owned(), reason, hint }
}
