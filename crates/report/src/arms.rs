//! What arms are called and how charts tell them apart.

use crate::charts::Mark;
use evidence::{Language, Niah, NiahKind, Text, said, text};

/// An arm in words: what it restores is in the name.
pub(crate) fn arm_in_words(niah: &Niah, key: &str, language: Language) -> String {
    match key {
        "k3_cross_model" if niah.identity => {
            said!(language, "restored, identity (under test)", "恢复，恒等（受测）")
        }
        "k3_cross_model" if niah.s5 => {
            said!(language, "restored, S5 + f_θ (under test)", "恢复，S5 + f_θ（受测）")
        }
        "k3_cross_model" => said!(language, "restored, f_θ only (under test)", "恢复，仅 f_θ（受测）"),
        "v04_dlm_restored" => {
            said!(language, "restored, same checkpoint (under test)", "恢复，同一检查点（受测）")
        }
        other => arm_key_in_words(other, language),
    }
}

/// An arm in words where the file that it stands in is not known.
pub(crate) fn arm_key_in_words(key: &str, language: Language) -> String {
    if let Some(alpha) = key.strip_prefix("k3_cross_model_alpha_") {
        return said!(language, "restored, {alpha} true K/V mixed in", "恢复，混入 {alpha} 真实 K/V");
    }
    let words = match key {
        "oracle" | "oracle_full_attention" => text!("oracle", "oracle（全记忆）"),
        "sink_window" | "v03_sink_window" => text!("sink + window", "sink + 窗口"),
        "no_restoration" => text!("control: hidden in place of f_θ", "对照：隐藏代替 f_θ"),
        "no_restoration_s5" => text!("control: hidden in place of f_θ, S5", "对照：隐藏代替 f_θ，S5"),
        "no_restoration_ftheta_only" => {
            text!("control: hidden in place of f_θ, f_θ only", "对照：隐藏代替 f_θ，仅 f_θ")
        }
        "random_restoration" => text!("control: noise in place of f_θ", "对照：噪声代替 f_θ"),
        "random_restoration_s5" => text!("control: noise in place of f_θ, S5", "对照：噪声代替 f_θ，S5"),
        "random_restoration_ftheta_only" => {
            text!("control: noise in place of f_θ, f_θ only", "对照：噪声代替 f_θ，仅 f_θ")
        }
        "k3_same_checkpoint" => text!("restored, same checkpoint", "恢复，同一检查点"),
        "k3_cross_model_s5" => text!("restored, S5 + f_θ", "恢复，S5 + f_θ"),
        "k3_cross_model_ftheta_only" => text!("restored, f_θ only", "恢复，仅 f_θ"),
        "k3_identity_restore" => text!("restored, identity", "恢复，恒等"),
        "k3_cross_model" | "v04_dlm_restored" => text!("restored (under test)", "恢复（受测）"),
        "engine_process" => text!("engine process (all arms)", "引擎进程（所有实验臂）"),
        other => Text::same(other),
    };
    words.said(language).to_owned()
}

/// What a chart shows an arm as.
pub(crate) fn mark(kind: NiahKind, key: &str) -> Mark {
    match key {
        key if key == kind.sut() => Mark::Restored,
        key if key == kind.oracle() => Mark::Oracle,
        "k3_identity_restore" | "k3_same_checkpoint" => Mark::Identity,
        key if key.starts_with("k3_cross_model_") => Mark::Variant,
        _ => Mark::Control,
    }
}
