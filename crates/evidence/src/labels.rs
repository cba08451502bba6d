//! What memory figures are called. A file states a label in English; those of known programs are told in every language.

use crate::model::{CURRENT, DRIVER, PEAK};
use crate::{Text, text};

const KNOWN: [(&str, &str); 18] = [
    (PEAK, "峰值"),
    (DRIVER, "驱动分配"),
    (CURRENT, "当前分配"),
    ("resident K/V", "常驻 K/V"),
    ("K/V of the native cache", "原生缓存的 K/V"),
    ("K/V of an unbounded cache", "无界缓存的 K/V"),
    ("highest resident set of the engine process since its start", "引擎进程启动以来最高的常驻内存"),
    ("highest physical footprint of the engine process since its start", "引擎进程启动以来最高的物理占用"),
    (
        "engine process, highest resident set since its start (shared by all arms)",
        "引擎进程启动以来最高的常驻内存（所有实验臂共用）",
    ),
    ("CUDA pool high-water mark, weights included", "CUDA 内存池最高水位，含权重"),
    ("MLX high-water mark, weights included", "MLX 最高水位，含权重"),
    ("device memory in use by all processes, highest sample", "所有进程占用的设备内存，采样最高"),
    ("MLX arrays, highest sample", "MLX 数组，采样最高"),
    ("freed memory that MLX keeps, highest sample", "MLX 保留的已释放内存，采样最高"),
    ("resident K/V at the end of decoding, largest sample", "解码结束时的常驻 K/V，最大样本"),
    ("resident K/V, forecast", "常驻 K/V，预测值"),
    ("K/V of an unbounded cache at the same length", "同一长度下无界缓存的 K/V"),
    ("K/V of the native cache at the same length", "同一长度下原生缓存的 K/V"),
];

/// Parts of the figure above them.
const PARTS: [(&str, &str); 4] = [
    ("of it on sliding layers", "其中滑动层"),
    ("of it on full-attention layers", "其中全注意力层"),
    ("of it latents of f_θ", "其中 f_θ 的潜变量"),
    ("of it on sliding layers, their native window", "其中滑动层的原生窗口"),
];

/// A label in words. One that no program of ours writes is told as it stands.
pub(crate) fn memory_label(label: &str) -> Text {
    let known = KNOWN.iter().chain(&PARTS).find(|(en, _)| *en == label);
    known.map_or_else(|| Text::same(label), |(en, zh)| text!("{en}", "{zh}"))
}
