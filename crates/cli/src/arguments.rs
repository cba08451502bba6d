//! The command line's grammar.

use api::{Language, Shard, Target};
use clap::{Args, Parser, Subcommand, ValueEnum};
use niah::{Dataset, PromptVariant, Rung};
use protocol::{Alpha, Arm, ArmError, Decode, Restore, RunSpec};
use std::path::PathBuf;
use std::str::FromStr;

/// Preflight, runs, audit, comparison and gate reports for bounded-KV inference.
#[derive(Debug, Parser)]
#[command(name = "kakeya-gate", version, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check everything that stands between a model pack and a valid run.
    Preflight(PreflightArgs),
    /// Run needle-in-a-haystack trials and write one evidence file per rung.
    Run(RunArgs),
    /// Recompute and audit evidence files.
    Audit(AuditArgs),
    /// Lay evidence files side by side.
    Compare(CompareArgs),
    /// Show the regenerated prompts of needle files or of a dataset, and how deep the needles lie.
    Prompts(PromptsArgs),
    /// The verdict for every gate, rung and platform.
    Gate(GateArgs),
    /// Export a gate report.
    Report(ReportArgs),
    /// Compare the engine with stored outputs of the reference implementations.
    Selftest(SelftestArgs),
    /// Make the shards of one run into its evidence.
    Merge(MergeArgs),
    /// List runs that can be continued.
    Runs(RunsArgs),
    /// Add, test and list machines for runs.
    #[command(subcommand)]
    Target(TargetCommand),
    /// Take trials from a queue until stopped.
    Worker(WorkerArgs),
    /// Show the app in a browser: for machines without a display. Only this machine is listened to.
    Serve(ServeArgs),
    /// Speak the engine's protocol on standard input and output (started by the app, and over ssh).
    Engine(EngineArgs),
}

#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    /// Carry an ordered run through instead.
    #[arg(long, hide = true)]
    pub run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// The shards that `run --shard` wrote, every one of the run.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Folder for the evidence files, or one file (.json) where there is one rung.
    #[arg(short, long)]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Forget this run instead; its finished trials with it.
    #[arg(long, value_name = "ID")]
    pub discard: Option<String>,
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    pub format: TextOrJson,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Address of the NATS server (nats://HOST, tls://HOST), or the name of a context of the `nats` tool.
    #[arg(long, value_name = "URL")]
    pub nats: String,
    /// Folder that is a pack or holds some, beside the machine's own; may be given several times.
    #[arg(long, value_name = "DIR")]
    pub packs: Vec<PathBuf>,
    /// End after this many seconds without a trial.
    #[arg(long, value_name = "SECONDS")]
    pub idle: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TargetCommand {
    /// Show a host's key, pin it once you agree, and test the machine.
    Add {
        /// HOST, USER@HOST, USER@HOST:PORT, or an alias of your ssh configuration.
        host: String,
        /// The program over there.
        #[arg(long, default_value = "kakeya-gate")]
        program: String,
        /// Folder over there that is a pack or holds some; may be given several times.
        #[arg(long, value_name = "DIR")]
        packs: Vec<PathBuf>,
        /// The fingerprint that the machine must have (SHA256:…); without it you are asked.
        #[arg(long)]
        fingerprint: Option<String>,
    },
    /// Test a machine.
    Check {
        /// The machine.
        host: String,
        #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
        format: TextOrJson,
    },
    /// Copy this program to a machine and use it from now on.
    Copy {
        /// The machine.
        host: String,
        /// Another program, for a machine of another kind (`cargo xtask cuda` builds one).
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
    },
    /// List the machines that are known.
    List,
    /// Forget a machine and its key.
    Remove {
        /// The machine.
        host: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Markdown,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum AuditFormat {
    Text,
    Json,
    Markdown,
    /// SARIF 2.1.0, for code hosts.
    Sarif,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum GateFormat {
    Text,
    Json,
    Markdown,
    /// JUnit XML, for continuous integration.
    Junit,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TextOrJson {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct PreflightArgs {
    /// Folder of the model pack (holds pack.json).
    pub pack: PathBuf,
    /// Folder whose `evidence` folder the run is to fill.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,
    /// Where the run is to happen.
    #[arg(long, value_name = "TARGET", default_value_t = Target::Local)]
    pub target: Target,
    /// JSON file with the run that is meant: adds the checks of its settings.
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,
    /// Evidence file that the run is to be compared with.
    #[arg(long, value_name = "FILE", requires = "spec")]
    pub counterpart: Option<PathBuf>,
    /// Hash every file of which pack.json states a digest, however large; digests are kept for the next time.
    #[arg(long)]
    pub digests: bool,
    /// Make the fix of this check, then check; the change is shown on standard error.
    #[arg(long, value_name = "ID", conflicts_with_all = ["fix_safe", "undo"])]
    pub fix: Option<String>,
    /// Make every fix that a failing check offers, then check.
    #[arg(long, conflicts_with = "undo")]
    pub fix_safe: bool,
    /// Take the fix of this check back, then check.
    #[arg(long, value_name = "ID")]
    pub undo: Option<String>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Evidence files, or folders that are searched for them.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t = AuditFormat::Text)]
    pub format: AuditFormat,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("source").required(true).args(["paths", "seed"])))]
#[command(group(clap::ArgGroup::new("length").args(["rung", "lines"])))]
pub(crate) struct PromptsArgs {
    /// Needle files, or folders that are searched for them.
    pub paths: Vec<PathBuf>,
    /// Seed of a dataset that needs no file.
    #[arg(long, requires = "length", allow_hyphen_values = true)]
    pub seed: Option<i64>,
    /// Rung of the dataset, padding lines.
    #[arg(long, requires = "seed")]
    pub rung: Option<u32>,
    /// Fewest and most padding lines of the dataset.
    #[arg(long, requires = "seed", value_name = "MIN-MAX", value_parser = bounds)]
    pub lines: Option<(u32, u32)>,
    /// Samples of the dataset.
    #[arg(short = 'n', long = "samples", default_value_t = 20, value_parser = count, allow_hyphen_values = true)]
    pub n_samples: usize,
    /// How the prompts are put (default: as the file says, else legacy).
    #[arg(long, value_enum)]
    pub prompt: Option<PromptName>,
    /// Show the whole text of this sample, its needle marked.
    #[arg(long, value_name = "INDEX")]
    pub sample: Option<usize>,
    /// Recall by needle depth and length instead, pooled over the files by arm and platform.
    #[arg(long, conflicts_with_all = ["seed", "sample"])]
    pub grid: bool,
    /// Only this arm in the grid, by its name in the files.
    #[arg(long, requires = "grid", value_name = "NAME")]
    pub arm: Option<String>,
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    pub format: TextOrJson,
}

impl PromptsArgs {
    /// The dataset that is asked for by its seed.
    pub(crate) fn dataset(&self) -> Option<Dataset> {
        let rung = self.rung.map(|rung| Rung(rung).line_bounds());
        let (min_lines, max_lines) = rung.or(self.lines)?;
        Some(Dataset { seed: self.seed?, n_samples: self.n_samples, min_lines, max_lines })
    }
}

#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// Evidence files, or folders that are searched for them.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// TOML file with the thresholds (default: the built-in policy).
    #[arg(long)]
    pub policy: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = GateFormat::Text)]
    pub format: GateFormat,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Two or more evidence files.
    #[arg(required = true, num_args = 2..)]
    pub paths: Vec<PathBuf>,
    /// The file that the others are compared with (default: the first).
    #[arg(long)]
    pub baseline: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Evidence files, or folders that are searched for them.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Where to write; the ending chooses the format: .html, .pdf, .md, .xml (JUnit) or .json.
    #[arg(short, long)]
    pub out: PathBuf,
    /// TOML file with the thresholds (default: the built-in policy).
    #[arg(long)]
    pub policy: Option<PathBuf>,
    /// Name of the reviewer, as it shall appear.
    #[arg(long, default_value = "")]
    pub reviewer: String,
    /// Notes kept in the report.
    #[arg(long, default_value = "")]
    pub notes: String,
    /// The reader's language: en or zh. What programs read (.xml, .json) is English.
    #[arg(long, value_name = "LANGUAGE", default_value = "en")]
    pub lang: Language,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Port on 127.0.0.1; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Folder to open, with model packs and evidence in it.
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SelftestArgs {
    /// Folder of reference outputs (manifest.json, checkpoints, goldens); without it `golden` in KAKEYA_GATE_REFERENCE.
    #[arg(long, value_name = "DIR")]
    pub golden: Option<PathBuf>,
    /// Only cases and arms whose name contains one of these, comma-separated.
    #[arg(long, value_name = "SUBSTR", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Tensor library that runs the models.
    #[arg(long, value_enum, default_value_t)]
    pub backend: BackendName,
    /// Device that holds the tensors: without it cpu, and metal for mlx on a Mac.
    #[arg(long, value_enum)]
    pub device: Option<DeviceName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArmName {
    Oracle,
    SinkWindow,
    Restored,
    /// Control: evicted positions hidden where f_θ would act.
    NoRestoration,
    /// Control: noise where f_θ would act.
    Random,
}

/// α values of a sweep, `alpha=0,0.5,1`.
#[derive(Clone, Debug)]
pub(crate) struct Sweep(Vec<Alpha>);

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let values = text.strip_prefix("alpha=").ok_or("must be alpha=A,B,…, for example alpha=0,0.5,1")?;
        let alphas = values.split(',').map(|alpha| alpha.parse().map_err(|e: ArmError| e.to_string()));
        alphas.collect::<Result<_, _>>().map(Self)
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum BackendName {
    #[cfg_attr(not(target_os = "macos"), default)]
    Candle,
    /// MLX: part of every program on macOS; on Linux of one built with `cargo xtask mlx`.
    #[cfg_attr(target_os = "macos", default)]
    Mlx,
}

impl From<BackendName> for protocol::Backend {
    fn from(name: BackendName) -> Self {
        match name {
            BackendName::Candle => Self::Candle,
            BackendName::Mlx => Self::Mlx,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DeviceName {
    Cpu,
    /// The first NVIDIA GPU; needs a program built with `cargo xtask cuda`.
    Cuda,
    /// The GPU of a Mac; for mlx.
    Metal,
}

/// The device that is asked for, or that the library is for.
pub(crate) fn device(asked: Option<DeviceName>, backend: protocol::Backend) -> protocol::Device {
    asked.map_or(backend.device(), protocol::Device::from)
}

impl From<DeviceName> for protocol::Device {
    fn from(name: DeviceName) -> Self {
        match name {
            DeviceName::Cpu => Self::Cpu,
            DeviceName::Cuda => Self::Cuda,
            DeviceName::Metal => Self::Metal,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DecodeName {
    Incremental,
    /// Sliding layers hold sink and window alone; what else they see is rebuilt.
    Bounded,
    Reforward,
    /// The answer is fed whatever is predicted: a diagnostic.
    TeacherForced,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PromptName {
    Legacy,
    DirectAnswer,
    Raw,
    RawCue,
}

impl From<PromptName> for PromptVariant {
    fn from(name: PromptName) -> Self {
        match name {
            PromptName::Legacy => Self::Legacy,
            PromptName::DirectAnswer => Self::DirectAnswer,
            PromptName::Raw => Self::Raw,
            PromptName::RawCue => Self::RawCue,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Folder of the model pack (holds pack.json), or its digest, sha256:…; behind ssh also its name or folder over there.
    #[arg(long)]
    pub pack: PathBuf,
    /// Where: local, ssh:HOST or queue:URL; several targets run at once.
    #[arg(long = "target", value_name = "TARGET", default_value = "local")]
    pub targets: Vec<Target>,
    /// Continue the run of these settings that did not end; trials that any run has finished are taken over.
    #[arg(long)]
    pub resume: bool,
    /// Only part I of N of the samples, written as a shard for `merge`.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Tensor library that runs the model.
    #[arg(long, value_enum, default_value_t)]
    pub backend: BackendName,
    /// Device that holds the tensors: without it cpu, and metal for mlx on a Mac.
    #[arg(long, value_enum)]
    pub device: Option<DeviceName>,
    /// Arms, comma-separated.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "oracle,sink-window,restored")]
    pub arms: Vec<ArmName>,
    /// Ways to restore, comma-separated: s5, f-theta, identity, same-checkpoint, mix:A. The first that is no mixture is the
    /// system under test; controls run for s5 and f-theta.
    #[arg(long, value_delimiter = ',', default_value = "s5")]
    pub restore: Vec<Restore>,
    /// Restored arms that mix true K/V into f_θ's with each of these weights, and a sweep file for each rung.
    #[arg(long, value_name = "alpha=A,B,…")]
    pub sweep: Option<Sweep>,
    /// How tokens are generated.
    #[arg(long, value_enum, default_value_t = DecodeName::Incremental)]
    pub decode: DecodeName,
    /// Rungs in padding lines, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "20,70")]
    pub ladder: Vec<u32>,
    /// Samples per rung.
    #[arg(short = 'n', long = "samples", default_value_t = 20, value_parser = count, allow_hyphen_values = true)]
    pub n_samples: usize,
    /// Seed of the datasets.
    #[arg(long, default_value_t = 42, allow_hyphen_values = true)]
    pub seed: i64,
    /// First positions that are never evicted.
    #[arg(long, default_value_t = 4, value_parser = count, allow_hyphen_values = true)]
    pub sink: usize,
    /// Last positions that are never evicted.
    #[arg(long, default_value_t = 64, value_parser = count, allow_hyphen_values = true)]
    pub window: usize,
    /// Most tokens generated for a sample.
    #[arg(long, default_value_t = 24, value_parser = count, allow_hyphen_values = true)]
    pub max_new_tokens: usize,
    /// Positions of the prompt that go through the layers at a time.
    #[arg(long, default_value_t = RunSpec::PREFILL_CHUNK, value_parser = count, allow_hyphen_values = true)]
    pub prefill_chunk: usize,
    /// How the prompt is put.
    #[arg(long, value_enum, default_value_t = PromptName::Legacy)]
    pub prompt: PromptName,
    /// Folder for the evidence files.
    #[arg(long, default_value = "evidence")]
    pub out: PathBuf,
    /// No progress on standard error.
    #[arg(long)]
    pub quiet: bool,
}

/// A number that must not be negative.
fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| match text.strip_prefix('-') {
        Some(digits) if digits.parse::<u64>().is_ok() => "must not be negative".to_owned(),
        _ => "must be a whole number".to_owned(),
    })
}

/// Two numbers of lines, `60-80`.
fn bounds(text: &str) -> Result<(u32, u32), String> {
    let ends = text.split_once('-').and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
    ends.ok_or_else(|| "must be two whole numbers, such as 60-80".to_owned())
}

impl RunArgs {
    /// The specification that these arguments ask for.
    pub(crate) fn spec(&self) -> Result<RunSpec, ArmError> {
        let mut arms = Vec::new();
        for arm in &self.arms {
            arms.extend(self.expand(*arm)?);
        }
        let sweep = self.sweep.iter().flat_map(|sweep| &sweep.0);
        arms.extend(sweep.map(|alpha| Arm::Restored(Restore::Mix(*alpha))));
        Ok(RunSpec {
            pack: self.pack.clone(),
            backend: self.backend.into(),
            device: device(self.device, self.backend.into()),
            arms,
            decode: match self.decode {
                DecodeName::Incremental => Decode::Incremental,
                DecodeName::Bounded => Decode::Bounded,
                DecodeName::Reforward => Decode::Reforward,
                DecodeName::TeacherForced => Decode::TeacherForced,
            },
            ladder: self.ladder.iter().copied().map(Rung).collect(),
            n_samples: self.n_samples,
            seed: self.seed,
            sink: self.sink,
            window: self.window,
            max_new_tokens: self.max_new_tokens,
            prefill_chunk: self.prefill_chunk,
            prompt: self.prompt.into(),
        })
    }

    /// The arms of one name: one for each mode, controls for each that has one.
    fn expand(&self, arm: ArmName) -> Result<Vec<Arm>, ArmError> {
        let modes = self.restore.iter().copied();
        let controls = |control: fn(Restore) -> Arm| {
            let arms: Vec<Arm> =
                modes.clone().filter(|mode| Restore::PROJECTED.contains(mode)).map(control).collect();
            match self.restore.first().filter(|_| arms.is_empty()) {
                Some(mode) => Err(ArmError::NoControl(*mode)),
                None => Ok(arms),
            }
        };
        match arm {
            ArmName::Oracle => Ok(vec![Arm::Oracle]),
            ArmName::SinkWindow => Ok(vec![Arm::SinkWindow]),
            ArmName::Restored => Ok(modes.map(Arm::Restored).collect()),
            ArmName::NoRestoration => controls(Arm::NoRestoration),
            ArmName::Random => controls(Arm::Random),
        }
    }
}
