//! Packs made from the demo pack, and the real engine in this process.

use evidence::{Language, Text};
use niah::{PromptVariant, Rung};
use preflight::{Check, EngineAnswer, PlannedRun, Status, Subject, checks};
use protocol::{
    Arm, Backend, BackendInfo, Decode, Device, ErrorCode, ErrorReport, Hello, Host, Restore, RunSpec,
};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub const VERSION: &str = "1.0.0";
pub const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 859384296\n";

pub fn demo_pack() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/demo-pack").canonicalize().unwrap()
}

/// A pack in a folder of its own, with a neighbour that nothing may touch.
pub struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    /// A copy of the demo pack without stated digests: any fault would change one.
    pub fn new() -> Self {
        let sandbox = Self { folder: tempfile::tempdir().unwrap() };
        copy(&demo_pack(), &sandbox.pack());
        edit(&sandbox.pack().join("pack.json"), |manifest| manifest["sha256"] = json!({}));
        fs::write(sandbox.root().join("neighbour"), "as it was").unwrap();
        sandbox
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn pack(&self) -> PathBuf {
        self.root().join("pack")
    }

    /// The pack alone.
    pub fn subject(&self) -> Subject {
        Subject { pack: self.pack(), run: None, digest_cache: self.root().join("cache/digests.json") }
    }

    /// The pack with a run.
    pub fn planned(&self, change: impl FnOnce(&mut RunSpec)) -> Subject {
        let mut spec = spec(&self.pack());
        change(&mut spec);
        let out = self.root().join("evidence");
        let run = PlannedRun { spec, spec_file: None, out, counterpart: None };
        Subject { run: Some(run), ..self.subject() }
    }

    /// Every file below the sandbox with its content, a link with its target.
    pub fn content(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let (mut found, mut folders) = (Vec::new(), vec![self.root().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let kind = entry.file_type().unwrap();
                let content = match () {
                    () if kind.is_dir() => {
                        folders.push(entry.path());
                        continue;
                    }
                    () if kind.is_symlink() => {
                        fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes()
                    }
                    () => fs::read(entry.path()).unwrap(),
                };
                found.push((entry.path(), content));
            }
        }
        found.sort();
        found
    }
}

pub fn spec(pack: &Path) -> RunSpec {
    RunSpec {
        pack: pack.to_owned(),
        backend: Backend::Candle,
        device: Device::Cpu,
        arms: vec![Arm::Oracle, Arm::Restored(Restore::S5)],
        decode: Decode::Incremental,
        ladder: vec![Rung(20)],
        n_samples: 59,
        seed: 42,
        sink: 4,
        window: 64,
        max_new_tokens: 24,
        prefill_chunk: 512,
        prompt: PromptVariant::Legacy,
    }
}

pub fn hello() -> Hello {
    let device = BackendInfo {
        backend: Backend::Candle,
        device: Device::Cpu,
        version: "0.11".into(),
        device_name: "a processor".into(),
        driver: None,
        probe_seconds: 0.001,
    };
    let host = Host {
        os: "an os".into(),
        arch: "an arch".into(),
        cpu: "a processor".into(),
        cores: 2,
        memory_bytes: 1 << 30,
    };
    let commit = Some("0123456".into());
    Hello {
        protocol: protocol::VERSION,
        version: VERSION.into(),
        commit,
        dirty: false,
        backends: vec![device],
        host,
    }
}

/// What the real engine sees.
pub fn ask(subject: &Subject) -> EngineAnswer {
    let spec = subject.run.as_ref().map_or_else(|| spec(&subject.pack), |run| run.spec.clone());
    // Over a pipe the request is text.
    let sent = serde_json::to_string(&spec).map_err(|e| ErrorReport::new(ErrorCode::EngineGarbled, e, ""));
    let inspection = sent.and_then(|_| engine::inspect(&spec).map_err(|e| e.report()));
    EngineAnswer { host_version: VERSION.into(), hello: Ok(hello()), inspection }
}

/// Every row of every test is looked at: it must be told in Chinese too.
pub fn rows(subject: &Subject) -> Vec<Check> {
    let rows = checks(subject, &|| ask(subject)).unwrap();
    rows.iter().for_each(told_in_chinese);
    rows
}

/// Title and reason are our own words; what was measured may be a value or the words of an error, which are English.
fn told_in_chinese(row: &Check) {
    let is_chinese =
        |text: &Text| text.said(Language::Zh).chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
    assert!(is_chinese(&row.title) && is_chinese(&row.why), "{row:?}");
    for text in [&row.measured, &row.hint] {
        assert_eq!(digits(text.en()), digits(text.said(Language::Zh)), "{row:?}");
    }
}

fn digits(words: &str) -> Vec<char> {
    let mut digits: Vec<char> = words.chars().filter(char::is_ascii_digit).collect();
    digits.sort_unstable();
    digits
}

pub fn row(subject: &Subject, id: &str) -> Check {
    preflight::check(subject, id, &|| ask(subject)).unwrap()
}

/// Rows that neither pass nor depend on this machine, as text, without the paths of this machine.
pub fn told(subject: &Subject) -> String {
    let of_machine = ["host-memory", "host-disk", "host-power", "host-thermal"];
    let other = |row: &&Check| row.status != Status::Pass && !of_machine.contains(&row.id.as_str());
    // The sandbox states no digests, for want of which nothing binds f_θ to its drafter either.
    let unstated = |row: &&Check| {
        row.id == "pack-digests" || row.measured.en().starts_with("nothing says which drafter")
    };
    let stated = |row: &&Check| !unstated(row);
    let lines: Vec<String> = rows(subject).iter().filter(other).filter(stated).map(line).collect();
    let whole = subject.pack.canonicalize().unwrap();
    let text = lines.join("\n").replace(whole.to_str().unwrap_or("\0"), "PACK");
    text.replace(subject.pack.to_str().unwrap_or("\0"), "PACK")
}

pub fn line(row: &Check) -> String {
    let status = format!("{:?}", row.status).to_lowercase();
    let mut line = format!("{status} {}: {}", row.id, row.measured.en());
    for (sign, text) in [(" → ", row.hint.en()), (" $ ", &row.command)] {
        if !text.is_empty() {
            line += &format!("{sign}{text}");
        }
    }
    line + if row.fixable { " [fix]" } else { "" } + if row.undoable { " [undo]" } else { "" }
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::write(target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

pub fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// Cuts the verifier's weights into two shards with an index.
pub fn shard(pack: &Path) {
    let folder = pack.join("verifier");
    let bytes = fs::read(folder.join("model.safetensors")).unwrap();
    let start = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Map<String, Value> = serde_json::from_slice(&bytes[8..start]).unwrap();
    let mut map = serde_json::Map::new();
    for part in 0..2 {
        let name = format!("model-0000{}-of-00002.safetensors", part + 1);
        let (mut own, mut data) = (serde_json::Map::new(), Vec::new());
        let tensors = header.iter().filter(|(tensor, _)| *tensor != "__metadata__");
        for (tensor, facts) in tensors.enumerate().filter(|(at, _)| at % 2 == part).map(|(_, entry)| entry) {
            let end = |i: usize| start + facts["data_offsets"][i].as_u64().unwrap() as usize;
            let from = data.len();
            data.extend(&bytes[end(0)..end(1)]);
            let mut facts = facts.clone();
            facts["data_offsets"] = json!([from, data.len()]);
            own.insert(tensor.clone(), facts);
            map.insert(tensor.clone(), json!(name));
        }
        let header = serde_json::to_vec(&own).unwrap();
        let file = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
        fs::write(folder.join(name), file).unwrap();
    }
    fs::remove_file(folder.join("model.safetensors")).unwrap();
    let index = json!({ "metadata": {}, "weight_map": map });
    fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
}
