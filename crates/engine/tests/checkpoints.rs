//! Tiny checkpoints made here: what loads, in which forms the same model may be stored, and what is refused with which
//! words.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "fixtures of a test need not survive a power cut")]

#[macro_use]
mod support;

use candle_core::quantized::gguf_file::{self, Value as Gguf};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use engine::candle::Candle;
use engine::decode::Models;
use engine::gemma::{Gemma, Rows};
use engine::selftest;
use engine::tokenizer::Tokenizer;
use protocol::{Arm, ErrorCode, ErrorReport};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use support::{Library, difference, logits};
use tempfile::TempDir;

const IDS: [u32; 7] = [2, 5, 9, 11, 7, 5, 12];
const HIDDEN: usize = 32;

/// A stored array.
#[derive(Clone)]
struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Stored {
    fn of(shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }

    fn values(&self) -> Vec<f32> {
        self.bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
    }
}

/// A checkpoint before it is written.
#[derive(Clone)]
struct Checkpoint {
    config: Value,
    tensors: BTreeMap<String, Stored>,
}

impl Checkpoint {
    /// A Gemma 3 of two layers. Every weight is a multiple of 1/16 from -7/16 to 8/16, so that 4 bits hold it exactly.
    fn gemma3() -> Self {
        let config = json!({
            "model_type": "gemma3_text", "vocab_size": 16, "hidden_size": HIDDEN, "intermediate_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
            "query_pre_attn_scalar": 16, "sliding_window": 4, "rms_norm_eps": 1e-6,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": null,
            "final_logit_softcapping": null, "attn_logit_softcapping": null,
            "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true
        });
        let mut tensors = BTreeMap::new();
        let mut add = |name: String, shape: &[usize]| {
            let count: usize = shape.iter().product();
            let seed = name.bytes().fold(7u32, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
            let draw = |i: u32| ((seed ^ i).wrapping_mul(2_654_435_761) ^ i.wrapping_mul(40_503)) >> 9 & 15;
            let value = |i: usize| draw(i as u32) as f32 / 16.0 - 7.0 / 16.0;
            tensors.insert(name, Stored::of(shape, &(0..count).map(value).collect::<Vec<_>>()));
        };
        add("model.embed_tokens.weight".into(), &[16, HIDDEN]);
        add("model.norm.weight".into(), &[HIDDEN]);
        for layer in 0..2 {
            for (name, shape) in [
                ("input_layernorm", &[HIDDEN][..]),
                ("post_attention_layernorm", &[HIDDEN]),
                ("pre_feedforward_layernorm", &[HIDDEN]),
                ("post_feedforward_layernorm", &[HIDDEN]),
                ("self_attn.q_proj", &[32, HIDDEN]),
                ("self_attn.k_proj", &[16, HIDDEN]),
                ("self_attn.v_proj", &[16, HIDDEN]),
                ("self_attn.o_proj", &[HIDDEN, 32]),
                ("self_attn.q_norm", &[16]),
                ("self_attn.k_norm", &[16]),
                ("mlp.gate_proj", &[64, HIDDEN]),
                ("mlp.up_proj", &[64, HIDDEN]),
                ("mlp.down_proj", &[HIDDEN, 64]),
            ] {
                add(format!("model.layers.{layer}.{name}.weight"), shape);
            }
        }
        Self { config, tensors }
    }

    fn with(mut self, key: &str, value: Value) -> Self {
        self.config[key] = value;
        self
    }

    fn without(mut self, key: &str) -> Self {
        self.config.as_object_mut().unwrap().shift_remove(key);
        self
    }

    /// Names of the matrices.
    fn matrices(&self) -> Vec<String> {
        self.tensors.iter().filter(|(_, t)| t.shape.len() == 2).map(|(name, _)| name.clone()).collect()
    }

    /// Every matrix as MLX's affine codes of `bits` bits in groups of `group`.
    fn affine(mut self, bits: u32, group: usize) -> Self {
        self.config["quantization"] = json!({"group_size": group, "bits": bits, "mode": "affine"});
        for name in self.matrices() {
            self.quantise(&name, bits, group);
        }
        self
    }

    fn quantise(&mut self, name: &str, bits: u32, group: usize) {
        let stored = &self.tensors[name];
        let (rows, width) = (stored.shape[0], stored.shape[1]);
        let codes: Vec<u32> = stored.values().iter().map(|v| (v * 16.0 + 7.0).round() as u32).collect();
        let per = (32 / bits) as usize;
        let word =
            |codes: &[u32]| codes.iter().rev().fold(0u64, |word, code| word << bits | u64::from(*code));
        let bytes = codes.chunks(per).flat_map(|codes| (word(codes) as u32).to_le_bytes()).collect();
        let packed = Stored { dtype: Dtype::U32, shape: vec![rows, width / per], bytes };
        let groups = rows * width / group;
        let path = name.strip_suffix(".weight").unwrap().to_owned();
        let each = |value: f32| Stored::of(&[rows, width / group], &vec![value; groups]);
        self.tensors.insert(format!("{path}.scales"), each(1.0 / 16.0));
        self.tensors.insert(format!("{path}.biases"), each(-7.0 / 16.0));
        self.tensors.insert(name.to_owned(), packed);
    }

    fn write(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), self.config.to_string()).unwrap();
        let views = self.tensors.iter().map(|(name, tensor)| {
            (name, TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).unwrap())
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        folder
    }

    fn logits<B: Library>(&self) -> Vec<f32> {
        all_logits::<B>(self.write().path())
    }

    /// What loading says.
    fn refusal(&self) -> ErrorReport {
        refusal(self.write().path())
    }
}

fn all_logits<B: Library>(folder: &Path) -> Vec<f32> {
    let models = Models { verifier: Gemma::load(B::open(), folder).unwrap(), projection: None };
    logits(&models, &IDS, Arm::Oracle, 0, 0, Rows::All)
}

fn refusal(folder: &Path) -> ErrorReport {
    match Gemma::load(Candle::cpu(), folder) {
        Err(e) => e.report(),
        Ok(_) => panic!("it loads"),
    }
}

fn names_may_be_nested_and_numbers_shorter<B: Library>() {
    let plain = Checkpoint::gemma3();
    let expected = plain.logits::<B>();
    assert!(expected.iter().all(|x| x.is_finite()) && expected.iter().any(|x| x.abs() > 0.1));
    for prefix in ["model.language_model.", "language_model.model."] {
        let mut nested = plain.clone();
        nested.config = json!({"model_type": "gemma3", "text_config": plain.config, "vision_config": {}});
        let renamed =
            |(name, tensor): (&String, &Stored)| (name.replacen("model.", prefix, 1), tensor.clone());
        nested.tensors = plain.tensors.iter().map(renamed).collect();
        nested.tensors.insert("vision_tower.patch.bias".into(), Stored::of(&[3], &[1.0; 3]));
        assert_eq!(nested.logits::<B>(), expected, "{prefix}");
    }
    for (dtype, format) in [(Dtype::BF16, GgmlDType::BF16), (Dtype::F16, GgmlDType::F16)] {
        let mut short = plain.clone();
        for tensor in short.tensors.values_mut() {
            let values = Tensor::from_vec(tensor.values(), tensor.shape.as_slice(), &Device::Cpu).unwrap();
            tensor.bytes = QTensor::quantize(&values, format).unwrap().data().unwrap().into_owned();
            tensor.dtype = dtype;
        }
        assert_eq!(short.logits::<B>(), expected, "{dtype:?}");
    }
}

fn a_pattern_stands_for_layer_types_and_older_keys_for_rope_parameters<B: Library>() {
    let plain = Checkpoint::gemma3();
    let expected = plain.logits::<B>();
    let pattern = plain.clone().without("layer_types").with("sliding_window_pattern", json!(2));
    assert_eq!(pattern.logits::<B>(), expected);
    let nested = json!({
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    });
    assert_eq!(plain.clone().with("rope_parameters", nested).logits::<B>(), expected);
    let scaled =
        plain.clone().with("rope_scaling", json!({"rope_type": "linear", "factor": 8.0})).logits::<B>();
    assert!(difference(&scaled, &expected) > 1e-4, "full layers turn slower");
    let scale = plain.with("query_pre_attn_scalar", json!(64)).logits::<B>();
    assert!(difference(&scale, &expected) > 1e-4);
}

fn affine_codes_mean_what_they_were_made_of<B: Library>() {
    let plain = Checkpoint::gemma3();
    let expected = plain.logits::<B>();
    for (bits, group) in [(4, 32), (4, 16), (8, 32), (8, 8)] {
        assert!(
            difference(&plain.clone().affine(bits, group).logits::<B>(), &expected) < 1e-5,
            "{bits} {group}"
        );
    }
    // One weight with a scheme of its own, one not quantised at all.
    let mut mixed = plain.clone().affine(4, 32);
    let (own, whole) = ("model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj");
    for path in [own, whole] {
        let name = format!("{path}.weight");
        mixed.tensors.insert(name.clone(), plain.tensors[&name].clone());
        mixed.tensors.remove(&format!("{path}.scales"));
        mixed.tensors.remove(&format!("{path}.biases"));
    }
    mixed.quantise(&format!("{own}.weight"), 8, 16);
    mixed.config["quantization"][own] = json!({"bits": 8, "group_size": 16});
    assert!(difference(&mixed.logits::<B>(), &expected) < 1e-5);
    mixed.config["quantization"][whole] = json!(false);
    assert!(difference(&mixed.logits::<B>(), &expected) < 1e-5);
}

#[test]
fn bad_configurations_are_refused_with_key_and_value() {
    let plain = Checkpoint::gemma3();
    for (key, value, words) in [
        ("model_type", json!("llama"), &["\"llama\"", "gemma3_text and gemma4_text"][..]),
        ("hidden_size", json!(-32), &["hidden_size", "-32"]),
        ("hidden_size", json!(0), &["hidden_size", "is 0"]),
        ("hidden_size", json!(9_223_372_036_854_775_807i64), &["hidden_size", "no model is so large"]),
        ("intermediate_size", json!(1e30), &["intermediate_size"]),
        ("num_hidden_layers", json!(3), &["layer_types", "names 2 layers", "is 3"]),
        ("layer_types", json!(["sliding_attention", "linear_attention"]), &["\"linear_attention\""]),
        ("layer_types", json!(null), &["layer_types", "missing"]),
        ("num_key_value_heads", json!(3), &["num_key_value_heads", "3 K/V heads", "2 query heads"]),
        ("head_dim", json!(15), &["head_dim", "15 is odd"]),
        ("sliding_window", json!(0), &["sliding_window", "is 0"]),
        ("query_pre_attn_scalar", json!(-16), &["query_pre_attn_scalar", "-16"]),
        ("attn_logit_softcapping", json!(50.0), &["attn_logit_softcapping", "50.0"]),
        ("attention_bias", json!(true), &["attention_bias"]),
        ("use_bidirectional_attention", json!(true), &["use_bidirectional_attention"]),
        ("tie_word_embeddings", json!(false), &["tie_word_embeddings"]),
        ("hidden_activation", json!("relu"), &["hidden_activation", "\"relu\""]),
        ("rope_scaling", json!({"rope_type": "yarn", "factor": 8}), &["rope_type", "\"yarn\""]),
        ("rope_scaling", json!({"rope_type": "linear", "factor": 0}), &["factor", "is 0"]),
        ("rope_theta", json!(-1), &["rope_theta", "-1"]),
        (
            "quantization",
            json!({"bits": 4, "group_size": 32, "mode": "mxfp4"}),
            &["quantization.mode", "\"mxfp4\""],
        ),
        ("quantization", json!({"bits": 3, "group_size": 32}), &["quantization.bits", "is 3"]),
        ("quantization", json!({"bits": 4, "group_size": 12}), &["quantization.group_size", "is 12"]),
        ("quantization", json!({"bits": 4, "group_size": -32}), &["quantization.group_size", "-32"]),
        ("quantization_config", json!({"quant_method": "gptq"}), &["quant_method", "\"gptq\""]),
    ] {
        let report = plain.clone().with(key, value.clone()).refusal();
        assert_eq!(report.code, ErrorCode::ConfigUnsupported, "{key} {value}: {report:?}");
        for word in words.iter().chain(&["config.json"]) {
            assert!(report.message.contains(word), "{key} {value}: {word} is not in {report:?}");
        }
    }
}

#[test]
fn tensors_that_do_not_fit_are_refused_with_file_name_and_both_sides() {
    let refused = |words: &[&str], change: &dyn Fn(&mut Checkpoint)| {
        let mut checkpoint = Checkpoint::gemma3();
        change(&mut checkpoint);
        let report = checkpoint.refusal();
        for word in words.iter().chain(&["model.safetensors"]) {
            assert!(report.message.contains(word), "{word} is not in {report:?}");
        }
    };
    let k_norm = "model.layers.1.self_attn.k_norm.weight";
    let up = "model.layers.0.mlp.up_proj";
    refused(&["has no tensor", k_norm], &|c| drop(c.tensors.remove(k_norm)));
    refused(&["has no tensor model.layers.2."], &|c| {
        c.config["num_hidden_layers"] = json!(3);
        c.config["layer_types"] = json!(["sliding_attention", "sliding_attention", "full_attention"]);
    });
    refused(&["has no tensor model.embed_tokens.weight"], &|c| {
        drop(c.tensors.remove("model.embed_tokens.weight"));
    });
    refused(&[k_norm, "[8]", "[16]"], &|c| {
        c.tensors.insert(k_norm.into(), Stored::of(&[8], &[0.0; 8]));
    });
    refused(&["model.layers.0.self_attn.v_proj.weight", "[16, 32]", "[16, 64]"], &|c| {
        c.config["hidden_size"] = json!(64);
    });
    refused(&[k_norm, "I32"], &|c| c.tensors.get_mut(k_norm).unwrap().dtype = Dtype::I32);
    refused(&["scales", "config.json has no quantization"], &|c| {
        *c = c.clone().affine(4, 32);
        c.config.as_object_mut().unwrap().shift_remove("quantization");
    });
    refused(&[&format!("{up}.scales"), "[64, 2]", "[64, 1]"], &|c| {
        *c = c.clone().affine(4, 32);
        c.tensors.insert(format!("{up}.scales"), Stored::of(&[64, 2], &[0.0; 128]));
    });
    refused(&["has no tensor", &format!("{up}.biases")], &|c| {
        *c = c.clone().affine(4, 32);
        drop(c.tensors.remove(&format!("{up}.biases")));
    });
    refused(&["has no tensor", &format!("{up}.scales")], &|c| {
        c.config["quantization"] = json!({"bits": 4, "group_size": 32});
        c.config["quantization"][up] = json!({"bits": 4, "group_size": 32});
        c.tensors.get_mut(&format!("{up}.weight")).unwrap().dtype = Dtype::U32;
        c.tensors.get_mut(&format!("{up}.weight")).unwrap().shape = vec![64, 4];
        c.tensors.get_mut(&format!("{up}.weight")).unwrap().bytes.truncate(64 * 4 * 4);
    });
    let report = Checkpoint::gemma3()
        .affine(4, 32)
        .with("quantization", json!({"bits": 4, "group_size": 64}))
        .refusal();
    assert_eq!(report.code, ErrorCode::DimensionMismatch);
    assert!(report.message.contains("groups of 64") && report.message.contains("32 elements"), "{report:?}");
}

/// The same model as a GGUF file, its matrices in `format`.
fn gguf(checkpoint: &Checkpoint, format: GgmlDType, change: &dyn Fn(&mut BTreeMap<String, Gguf>)) -> TempDir {
    let text = |text: &str| Gguf::String(text.into());
    let pieces = [
        "<pad>", "<eos>", "<bos>", "<unk>", "a", "b", "ab", "▁", "▁ab", "<0x0A>", "c", "abc", "d", "e", "f",
        "g",
    ];
    let mut metadata: BTreeMap<String, Gguf> = [
        ("general.architecture", text("gemma3")),
        ("gemma3.embedding_length", Gguf::U32(HIDDEN as u32)),
        ("gemma3.block_count", Gguf::U32(2)),
        ("gemma3.feed_forward_length", Gguf::U32(64)),
        ("gemma3.attention.head_count", Gguf::U32(2)),
        ("gemma3.attention.head_count_kv", Gguf::U32(1)),
        ("gemma3.attention.key_length", Gguf::U32(16)),
        ("gemma3.attention.layer_norm_rms_epsilon", Gguf::F32(1e-6)),
        ("gemma3.attention.sliding_window", Gguf::U32(4)),
        ("gemma3.rope.freq_base", Gguf::F32(1e6)),
        ("tokenizer.ggml.model", text("llama")),
        ("tokenizer.ggml.tokens", Gguf::Array(pieces.iter().map(|piece| text(piece)).collect())),
        ("tokenizer.ggml.scores", Gguf::Array((0..pieces.len()).map(|i| Gguf::F32(-(i as f32))).collect())),
        (
            "tokenizer.ggml.token_type",
            Gguf::Array((0..pieces.len()).map(|i| Gguf::I32(if i < 4 { 3 } else { 1 })).collect()),
        ),
        ("tokenizer.ggml.bos_token_id", Gguf::U32(2)),
        ("tokenizer.ggml.eos_token_id", Gguf::U32(1)),
        ("tokenizer.ggml.unknown_token_id", Gguf::U32(3)),
        ("tokenizer.ggml.add_bos_token", Gguf::Bool(true)),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    change(&mut metadata);
    let own_name = |name: &str| {
        let mut own = name.replace("model.layers.", "blk.");
        for (theirs, ours) in [
            ("model.embed_tokens", "token_embd"),
            ("model.norm", "output_norm"),
            ("input_layernorm", "attn_norm"),
            ("post_attention_layernorm", "post_attention_norm"),
            ("pre_feedforward_layernorm", "ffn_norm"),
            ("post_feedforward_layernorm", "post_ffw_norm"),
            ("self_attn.q_proj", "attn_q"),
            ("self_attn.k_proj", "attn_k"),
            ("self_attn.v_proj", "attn_v"),
            ("self_attn.o_proj", "attn_output"),
            ("self_attn.q_norm", "attn_q_norm"),
            ("self_attn.k_norm", "attn_k_norm"),
            ("mlp.gate_proj", "ffn_gate"),
            ("mlp.up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
        ] {
            own = own.replace(theirs, ours);
        }
        own
    };
    let tensors: Vec<(String, QTensor)> = checkpoint
        .tensors
        .iter()
        .map(|(name, stored)| {
            let norm = stored.shape.len() == 1;
            // As llama.cpp's converter stores norms.
            let values = stored.values().into_iter().map(|x| if norm { x + 1.0 } else { x }).collect();
            let tensor = Tensor::from_vec(values, stored.shape.as_slice(), &Device::Cpu).unwrap();
            let format = if norm { GgmlDType::F32 } else { format };
            (own_name(name), QTensor::quantize(&tensor, format).unwrap())
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let mut file = std::fs::File::create(folder.path().join("tiny.gguf")).unwrap();
    let metadata: Vec<(&str, &Gguf)> = metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<(&str, &QTensor)> =
        tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    gguf_file::write(&mut file, &metadata, &tensors).unwrap();
    folder
}

/// llama.cpp gives every sixth layer full attention: both of two layers slide.
fn all_sliding() -> Checkpoint {
    Checkpoint::gemma3().with("layer_types", json!(["sliding_attention", "sliding_attention"]))
}

fn a_gguf_file_says_the_same_as_the_checkpoint_that_it_was_made_of<B: Library>() {
    let checkpoint = all_sliding();
    let expected = checkpoint.logits::<B>();
    let plain = gguf(&checkpoint, GgmlDType::F32, &|_| ());
    assert!(difference(&all_logits::<B>(plain.path()), &expected) < 1e-5);
    // Codes of 8 bits, and activations rounded to 8 bits by the product itself.
    let quantised = gguf(&checkpoint, GgmlDType::Q8_0, &|_| ());
    let apart = difference(&all_logits::<B>(quantised.path()), &expected);
    let largest = expected.iter().fold(0f32, |max, x| max.max(x.abs()));
    assert!(apart > 0.0 && apart < 0.05 * largest, "{apart} of {largest}");
}

#[test]
fn the_tokenizer_of_a_gguf_file_merges_the_best_piece_first() {
    let folder = gguf(&all_sliding(), GgmlDType::F32, &|_| ());
    let tokenizer = Tokenizer::load(folder.path()).unwrap();
    assert_eq!(tokenizer.stop_tokens, [1]);
    assert_eq!(tokenizer.encode_raw("ab abc\n").unwrap(), [2, 6, 8, 10, 9]);
    assert_eq!(tokenizer.encode_plain("<eos>abc").unwrap(), [1, 11]);
    assert_eq!(tokenizer.decode(&[6, 8, 10, 9]).unwrap(), "ab abc\n");
    assert_eq!(tokenizer.encode_plain("é").unwrap(), [3], "neither a piece nor bytes");
}

#[test]
fn bad_gguf_files_are_refused() {
    let checkpoint = all_sliding();
    let refused = |words: &[&str], change: &dyn Fn(&mut BTreeMap<String, Gguf>)| {
        let folder = gguf(&checkpoint, GgmlDType::Q8_0, change);
        let report = refusal(folder.path());
        for word in words.iter().chain(&["tiny.gguf"]) {
            assert!(report.message.contains(word), "{word} is not in {report:?}");
        }
    };
    refused(&["general.architecture", "\"llama\"", "gemma3"], &|m| {
        m.insert("general.architecture".into(), Gguf::String("llama".into()));
    });
    refused(&["gemma3.block_count"], &|m| drop(m.remove("gemma3.block_count")));
    refused(&["gemma3.block_count"], &|m| {
        m.insert("gemma3.block_count".into(), Gguf::I32(-2));
    });
    refused(&["no model is so large"], &|m| {
        m.insert("gemma3.feed_forward_length".into(), Gguf::U64(u64::MAX));
    });
    refused(&["model.layers.2."], &|m| {
        m.insert("gemma3.block_count".into(), Gguf::U32(3));
    });
    refused(&["model.layers.0.mlp.gate_proj.weight", "[64, 32]", "[32, 32]"], &|m| {
        m.insert("gemma3.feed_forward_length".into(), Gguf::U32(32));
    });
    refused(&[], &|m| {
        m.insert("general.alignment".into(), Gguf::U32(0));
    });
    let folder = gguf(&checkpoint, GgmlDType::Q8_0, &|_| ());
    let path = folder.path().join("tiny.gguf");
    let whole = std::fs::read(&path).unwrap();
    for cut in [whole.len() - 1, whole.len() / 2, 200, 10, 0] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let report = refusal(folder.path());
        assert_eq!(report.code, ErrorCode::WeightsDamaged, "{cut}: {report:?}");
        assert!(report.message.contains("tiny.gguf"), "{report:?}");
    }
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let report = refusal(folder.path());
    let bytes = format!("the file has {} bytes", whole.len() - 1);
    assert!(report.message.contains(&bytes) && report.message.contains(".weight"), "{report:?}");
    std::fs::write(&path, &whole).unwrap();
    std::fs::write(folder.path().join("other.gguf"), &whole).unwrap();
    assert!(refusal(folder.path()).message.contains("2 GGUF files"));
}

/// A folder of goldens with one run of `checkpoint`, its logits those of this engine but for `off` on one of them.
fn goldens(checkpoint: &Checkpoint, off: f32) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    std::fs::create_dir_all(at("goldens")).unwrap();
    std::fs::create_dir_all(at("checkpoints")).unwrap();
    std::fs::rename(checkpoint.write().keep(), at("checkpoints/tiny")).unwrap();
    let mut values = all_logits::<Candle>(&at("checkpoints/tiny"));
    values[50] += off;
    let integers = |values: &[u32]| {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Stored { dtype: Dtype::I32, shape: vec![values.len()], bytes }
    };
    let stored = [
        ("input_ids", integers(&IDS)),
        ("rows", integers(&[0, 1, 2, 3, 4, 5, 6])),
        ("logits.oracle", Stored::of(&[7, 16], &values)),
        ("logits.telepathy", Stored::of(&[7, 16], &values)),
    ];
    let views = stored.iter().map(|(name, stored)| {
        (*name, TensorView::new(stored.dtype, stored.shape.clone(), &stored.bytes).unwrap())
    });
    std::fs::write(at("goldens/torch_tiny_t7.safetensors"), safetensors::serialize(views, None).unwrap())
        .unwrap();
    let case = json!({"sink": 0, "window": 4, "arms": {"oracle": {}, "identity": {}}});
    let run = json!({"checkpoint": "tiny", "cases": {"t7": case, "t8": case}});
    std::fs::write(at("goldens/torch_tiny_manifest.json"), run.to_string()).unwrap();
    let absent = json!({"checkpoint": "elsewhere", "cases": {"t7": case}});
    std::fs::write(at("goldens/torch_absent_manifest.json"), absent.to_string()).unwrap();
    let manifest = json!({
        "tolerance_classes": {"f32": {"logits_atol": 1e-3, "logits_rtol": 1e-3, "kv_atol": 2e-4}},
        "files": {"goldens/torch_tiny_t7.safetensors": {"tolerance_class": "f32"}},
    });
    std::fs::write(at("manifest.json"), manifest.to_string()).unwrap();
    folder
}

#[test]
fn the_self_test_tells_a_fault_from_what_it_leaves_out() {
    let told = |folder: &Path, only: &[&str]| {
        let only: Vec<String> = only.iter().map(|part| (*part).to_owned()).collect();
        let mut lines = Vec::new();
        let tally = selftest::run(&Candle::cpu(), folder, &only, &mut |check| lines.push(check.to_string()));
        (tally, lines)
    };
    let good = goldens(&Checkpoint::gemma3(), 0.0);
    let (tally, lines) = told(good.path(), &[]);
    let tally = tally.unwrap();
    assert_eq!((tally.good, tally.failed), (2, 0), "{lines:#?}");
    let line = |words: &[&str]| {
        let found = lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "{words:?} in {lines:#?}");
    };
    line(&["ok", "torch_tiny t7", "oracle", "max abs diff 0.00e0", "1e-3"]);
    line(&["skipped", "torch_tiny t7", "telepathy"]);
    line(&["skipped", "torch_tiny t8", "torch_tiny_t8.safetensors"]);
    line(&["skipped", "torch_absent t7", "elsewhere"]);
    let bad = goldens(&Checkpoint::gemma3(), 0.01);
    let (tally, lines) = told(bad.path(), &["oracle"]);
    assert_eq!(tally.unwrap().failed, 1, "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("FAIL") && line.contains("1.00e-2")), "{lines:#?}");
    let (tally, lines) = told(bad.path(), &["identity ="]);
    assert_eq!((tally.unwrap().good, lines.len()), (1, 1));
    std::fs::write(bad.path().join("checkpoints/tiny/config.json"), "{}").unwrap();
    assert_eq!(told(bad.path(), &[]).0.unwrap().failed, 2, "a checkpoint that is there must load");
    for (folder, only) in [(good.path(), "nothing like it"), (Path::new("/nowhere"), "")] {
        let report = told(folder, &[only]).0.unwrap_err().report();
        assert!(!report.hint.is_empty() && report.message.contains(folder.to_str().unwrap()), "{report:?}");
    }
}

on_every_library!(
    names_may_be_nested_and_numbers_shorter,
    a_pattern_stands_for_layer_types_and_older_keys_for_rope_parameters,
    affine_codes_mean_what_they_were_made_of,
    a_gguf_file_says_the_same_as_the_checkpoint_that_it_was_made_of,
);
