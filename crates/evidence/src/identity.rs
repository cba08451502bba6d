//! What a file is: kind, shape, schema, machine (RULES §3).

use crate::json::At;
use crate::model::NiahKind;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use ts_rs::TS;

/// Whether a file is needle evidence, or evidence of another kind that is kept and shown but carries no needle gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// One of the three needle kinds.
    Niah,
    /// Anything else.
    Other,
}

/// Machine that a file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, TS, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// A CUDA device.
    Cuda,
    /// Apple silicon.
    Mac,
    /// A processor without an accelerator.
    Cpu,
    /// Not stated.
    Unknown,
}

impl Platform {
    /// The platform as a reader writes it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Cuda => "CUDA",
            Self::Mac => "Mac",
            Self::Cpu => "CPU",
            Self::Unknown => "unknown",
        }
    }
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct Identity {
    /// `/kind`.
    pub kind: Option<String>,
    /// The kind, or `nokind:NAME` for a file that names none: a name for its set of keys, `nokind:unknown` if there is none.
    pub shape: String,
    /// Needle evidence or not.
    pub role: Role,
    /// `/schema_version`, as stored.
    #[ts(type = "unknown")]
    pub schema_version: Option<Value>,
    /// Machine.
    pub platform: Platform,
}

/// Keys that tell a file without a kind: the first set that it holds names its shape.
const SHAPES: [(&[&str], &str); 10] = [
    (&["report_type", "partial_source"], "long_session_aborted_analysis"),
    (&["turn_spacing_s", "baseline_metrics", "turns", "agg"], "bench_long_session"),
    (&["backend", "junit", "coverage", "host"], "platform_junit"),
    (&["dense", "sparse", "comparison"], "sparse_vs_dense"),
    (&["cpu", "mlx", "comparison"], "mlx_verifier_bench"),
    (&["results", "summary", "prompt_token_count"], "mlx_speculative_bench"),
    (&["results", "best", "prompt_token_count"], "param_sweep"),
    (&["mlx.core"], "mlx_probe"),
    (&["baseline", "speculative", "net_bytes_per_token_report"], "pv_run"),
    (&["drafter_num_layers", "verifier_num_layers", "rank"], "f_theta_config"),
];

/// Kinds that only a CUDA program writes.
const CUDA_ONLY: [&str; 5] = [
    "k3_dflash_specdecode_acceptance",
    "k3_dflash_alignment_train",
    "k3_f_theta_train",
    "k3_s6_fidelity_recall_sweep",
    "k3_grpc_multitenant_e2e",
];

/// Kinds and shapes that only a Mac program writes, though neither they nor their files say so.
const MAC_ONLY: [&str; 4] = [
    "grpc_agent_capacity_loadtest",
    "bench_session_long_run",
    "nokind:bench_long_session",
    "nokind:long_session_aborted_analysis",
];

/// What a file is; our own provenance comes first. `name` is the file's own name, a hint of last resort.
pub(crate) fn identity(value: &Value, name: &str) -> Identity {
    let kind = value.text("/kind").map(str::to_owned);
    let niah = kind.as_deref().and_then(NiahKind::of);
    let shape = kind.clone().unwrap_or_else(|| format!("nokind:{}", nameless_shape(value)));
    let platform = match value.text("/provenance/device") {
        Some("cpu") => Platform::Cpu,
        Some("cuda") => Platform::Cuda,
        Some("metal") => Platform::Mac,
        _ => niah.map_or_else(|| other_platform(value, &shape, name), |niah| niah_platform(value, niah)),
    };
    Identity {
        role: if niah.is_some() { Role::Niah } else { Role::Other },
        schema_version: value.at("/schema_version").cloned(),
        platform,
        shape,
        kind,
    }
}

fn nameless_shape(value: &Value) -> &'static str {
    let holds = |keys: &[&str]| keys.iter().all(|key| value.get(key).is_some());
    SHAPES.iter().find(|(keys, _)| holds(keys)).map_or("unknown", |(_, name)| name)
}

fn niah_platform(value: &Value, kind: NiahKind) -> Platform {
    match (value.text("/config/device"), kind) {
        (Some("cuda"), _) | (_, NiahKind::CrossModel) => Platform::Cuda,
        (Some("mps"), _) | (_, NiahKind::CrossModelMac) => Platform::Mac,
        (Some("cpu"), _) => Platform::Cpu,
        _ => Platform::Unknown,
    }
}

/// The first sign that applies, from what the file states down to what only its kind or name suggests.
fn other_platform(value: &Value, shape: &str, name: &str) -> Platform {
    stated_platform(value)
        .or_else(|| device_platform(value, name))
        .or_else(|| {
            let mlx = value.text("/config/verifier_path").is_some_and(|path| path.contains("mlx"));
            (mlx || kind_names_a_mac(value)).then_some(Platform::Mac)
        })
        .or_else(|| CUDA_ONLY.contains(&shape).then_some(Platform::Cuda))
        .or_else(|| MAC_ONLY.contains(&shape).then_some(Platform::Mac))
        .unwrap_or(Platform::Unknown)
}

fn stated_platform(value: &Value) -> Option<Platform> {
    match value.text("/config/platform") {
        Some("mac") => return Some(Platform::Mac),
        Some("cuda") => return Some(Platform::Cuda),
        _ => {}
    }
    if value.text("/platform") == Some("mac") {
        return Some(Platform::Mac);
    }
    let env = value.at("/env").and_then(Value::as_object);
    if env.is_some_and(|env| env.contains_key("gpu")) {
        return Some(Platform::Cuda);
    }
    let host = value.at("/host").or_else(|| value.at("/environment"));
    let mac = env.is_some_and(|env| env.keys().any(|key| key.contains("mlx")))
        || host.and_then(|host| host.text("/platform")).is_some_and(|host| host.contains("macOS"));
    mac.then_some(Platform::Mac)
}

fn device_platform(value: &Value, name: &str) -> Option<Platform> {
    match value.text("/device").or_else(|| value.text("/config/device"))? {
        "mps" => Some(Platform::Mac),
        "cpu" if name.contains("mac") => Some(Platform::Mac),
        "cpu" => Some(Platform::Cpu),
        device => device.starts_with("cuda").then_some(Platform::Cuda),
    }
}

fn kind_names_a_mac(value: &Value) -> bool {
    value.text("/kind").is_some_and(|kind| kind.contains("mac") || kind.contains("mlx"))
}
