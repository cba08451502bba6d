//! Fixes: shown before they are made, a backup beside the file, taken back byte for byte. None touches weights, but for
//! `git lfs pull`, which fetches them.

use crate::{DECIDING_SAMPLES, Subject, json, name};
use files::FileError;
use protocol::Pack;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use ts_rs::TS;

pub(crate) const SPECIAL_TOKENS: &str = "tokenizer-special-tokens";
pub(crate) const SAMPLES: &str = "spec-samples";
/// Rows whose fix is `git lfs pull`, and the parts that they look at.
const PULLS: [&str; 3] = ["verifier-weights", "drafter-weights", "f-theta-weights"];
const BACKUP: &str = ".kakeya-backup";
const CAP: u64 = 64 << 20;

/// What a fix would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Change {
    /// Id of the check that it is for.
    pub id: String,
    /// The file that changes, the first of several; the folder in which a command runs.
    pub path: PathBuf,
    /// The change as a unified diff of each file; empty where a command is run.
    pub diff: String,
    /// The command that is run; empty where a file is rewritten.
    pub command: String,
}

/// What a fix did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Fixed {
    /// The change was made.
    Changed {
        /// The file.
        path: PathBuf,
        /// Where its old content is kept.
        backup: PathBuf,
    },
    /// A command ran to its end.
    Ran {
        /// The command.
        command: String,
    },
    /// There was nothing to do.
    Nothing,
}

/// A fix that was not made. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum FixError {
    /// The pack cannot be opened.
    #[error(transparent)]
    Pack(#[from] protocol::PackError),
    /// The check has no fix.
    #[error("{0:?} has no fix of its own")]
    NoFix(String),
    /// The file has a form that the fix does not know.
    #[error("{path}: {found}", path = path.display())]
    Unrecognised {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// The file lies where fixes do not write.
    #[error("{path} lies outside the pack {pack}", path = path.display(), pack = pack.display())]
    Outside {
        /// The file.
        path: PathBuf,
        /// The pack.
        pack: PathBuf,
    },
    /// The folder does not take a new file.
    #[error("{path} is read-only", path = .0.display())]
    ReadOnly(PathBuf),
    /// Another backup is in the way.
    #[error("{path} is the backup of an earlier fix, and the file has changed since", path = .0.display())]
    BackupInTheWay(PathBuf),
    /// There is nothing to take back.
    #[error("{path} has no backup", path = .0.display())]
    NoBackup(PathBuf),
    /// The file was changed after it was fixed.
    #[error("{path} was changed after it was fixed; its old content is in {backup}", path = path.display(), backup = backup.display())]
    ChangedSince {
        /// The file.
        path: PathBuf,
        /// Its backup.
        backup: PathBuf,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The command did not do its work.
    #[error("{command}: {reason}")]
    Command {
        /// The command.
        command: String,
        /// What it said last.
        reason: String,
    },
}

/// Every check that may have a fix.
pub fn fixes() -> impl Iterator<Item = &'static str> {
    [SPECIAL_TOKENS, SAMPLES].into_iter().chain(PULLS)
}

/// What the fix of a check would do; none if there is nothing to do.
pub fn preview(subject: &Subject, id: &str) -> Result<Option<Change>, FixError> {
    let change = |path, diff, command| Change { id: id.to_owned(), path, diff, command };
    match Fix::of(subject, id)? {
        Fix::Rewrite(rewrites) => {
            let wanted = wanted(&rewrites)?;
            let diffs =
                wanted.iter().map(|(rewrite, before, after)| diff(&name(&rewrite.path), before, after));
            let path = wanted.first().map(|(rewrite, ..)| rewrite.path.clone());
            Ok(path.map(|path| change(path, diffs.collect(), String::new())))
        }
        Fix::Pull(pull) => Ok(pull.wanted().map(|command| change(pull.folder, String::new(), command))),
    }
}

/// Makes the fix of a check. `watch` is told lines of a command that takes long.
pub fn apply(subject: &Subject, id: &str, watch: &mut dyn FnMut(&str)) -> Result<Fixed, FixError> {
    let rewrites = match Fix::of(subject, id)? {
        Fix::Rewrite(rewrites) => rewrites,
        Fix::Pull(pull) => return pull.apply(watch),
    };
    let wanted = wanted(&rewrites)?;
    for (rewrite, before, _) in &wanted {
        rewrite.require_room(before)?;
    }
    for (rewrite, before, after) in &wanted {
        rewrite.write(before, after)?;
    }
    let first = wanted.first().map(|(rewrite, ..)| rewrite);
    Ok(first
        .map_or(Fixed::Nothing, |first| Fixed::Changed { path: first.path.clone(), backup: first.backup() }))
}

/// Takes a fix back: every file is what it was, byte for byte, and the backups are gone. Gives the first file.
pub fn undo(subject: &Subject, id: &str) -> Result<PathBuf, FixError> {
    let rewrites = match Fix::of(subject, id)? {
        Fix::Rewrite(rewrites) => rewrites,
        Fix::Pull(_) => return Err(FixError::NoFix(id.to_owned())),
    };
    let path = rewrites.first().map(|first| first.path.clone()).unwrap_or_default();
    let kept: Vec<&Rewrite> = rewrites.iter().filter(|rewrite| rewrite.backup().exists()).collect();
    if kept.is_empty() {
        return Err(FixError::NoBackup(path));
    }
    let old = kept.iter().map(|rewrite| rewrite.restorable()).collect::<Result<Vec<_>, _>>()?;
    for (rewrite, old) in kept.iter().zip(old) {
        rewrite.restore(&old)?;
    }
    Ok(path)
}

/// The files that change, with their texts before and after.
fn wanted(rewrites: &[Rewrite]) -> Result<Vec<(&Rewrite, String, String)>, FixError> {
    let mut found = Vec::new();
    for rewrite in rewrites {
        found.extend(rewrite.wanted()?.map(|(before, after)| (rewrite, before, after)));
    }
    Ok(found)
}

/// Whether there is a fix to take back.
pub(crate) fn is_undoable(subject: &Subject, id: &str) -> bool {
    let kept = |rewrites: &[Rewrite]| rewrites.iter().any(|rewrite| rewrite.backup().exists());
    fixes().any(|fix| fix == id)
        && matches!(Fix::of(subject, id), Ok(Fix::Rewrite(rewrites)) if kept(&rewrites))
}

/// How a check is fixed.
enum Fix {
    Rewrite(Vec<Rewrite>),
    Pull(Pull),
}

impl Fix {
    fn of(subject: &Subject, id: &str) -> Result<Self, FixError> {
        if id == SAMPLES {
            let file = subject.run.as_ref().and_then(|run| run.spec_file.clone());
            let path = file.ok_or_else(|| FixError::NoFix(id.to_owned()))?;
            return Ok(Self::Rewrite(vec![Rewrite { path, pack: None, edit: Edit::MoreSamples }]));
        }
        let pack = Pack::open(&subject.pack)?;
        let part = match id {
            SPECIAL_TOKENS => return Ok(Self::Rewrite(token_rewrites(&pack))),
            "verifier-weights" => Some(pack.verifier()),
            "drafter-weights" => pack.drafter(),
            "f-theta-weights" => pack.f_theta(),
            _ => None,
        };
        part.map(|folder| Self::Pull(Pull { folder })).ok_or_else(|| FixError::NoFix(id.to_owned()))
    }
}

/// The tokenizer's configuration, and the manifest where that states its digest: the engine would refuse the fixed file.
fn token_rewrites(pack: &Pack) -> Vec<Rewrite> {
    const FILE: &str = "tokenizer_config.json";
    let rewrite = |path, edit| Rewrite { path, pack: Some(pack.clone()), edit };
    let tokens = rewrite(pack.verifier().join(FILE), Edit::NameTokens);
    let digest = || {
        let old = tokens.original().ok()?;
        let new = tokens.edit.of(&old).ok()??;
        pack.manifest.sha256.get(&pack.manifest.verifier.join(FILE))?;
        Some(Edit::Digest { from: files::sha256(old.as_bytes()), to: files::sha256(new.as_bytes()) })
    };
    let manifest = digest().map(|edit| rewrite(pack.folder.join("pack.json"), edit));
    std::iter::once(tokens).chain(manifest).collect()
}

/// A change of one place in a JSON file.
enum Edit {
    /// A list of special tokens becomes an object.
    NameTokens,
    /// So many samples that the claim can be decided.
    MoreSamples,
    /// A stated digest follows its file.
    Digest { from: String, to: String },
}

impl Edit {
    /// The new text; none if it is good as it is; else what was found.
    fn of(&self, text: &str) -> Result<Option<String>, String> {
        match self {
            Self::NameTokens => named_tokens(text),
            Self::MoreSamples => more_samples(text),
            // A file that never had the stated digest is left to the check of digests.
            Self::Digest { from, to } => Ok(text.contains(from.as_str()).then(|| text.replace(from, to))),
        }
    }
}

/// A file that a fix changes.
struct Rewrite {
    path: PathBuf,
    /// The pack that the file belongs to; none for a file of the user's own.
    pack: Option<Pack>,
    edit: Edit,
}

impl Rewrite {
    fn backup(&self) -> PathBuf {
        beside(&self.path, BACKUP)
    }

    fn read(&self, path: &Path) -> Result<String, FixError> {
        let bytes = files::read_regular(path, CAP)?;
        String::from_utf8(bytes).map_err(|_| self.unrecognised("is no UTF-8 text".into()))
    }

    fn unrecognised(&self, found: String) -> FixError {
        FixError::Unrecognised { path: self.path.clone(), found }
    }

    /// The text as it was before any fix.
    fn original(&self) -> Result<String, FixError> {
        let backup = self.backup();
        self.read(if backup.exists() { &backup } else { &self.path })
    }

    /// The text before and after.
    fn wanted(&self) -> Result<Option<(String, String)>, FixError> {
        let before = self.read(&self.path)?;
        let after = self.edit.of(&before).map_err(|found| self.unrecognised(found))?;
        Ok(after.map(|after| (before, after)))
    }

    /// Checks that file and backup may be written.
    fn require_room(&self, before: &str) -> Result<(), FixError> {
        self.require_place()?;
        let backup = self.backup();
        match backup.exists() && self.read(&backup)? != before {
            true => Err(FixError::BackupInTheWay(backup)),
            false => Ok(()),
        }
    }

    fn write(&self, before: &str, after: &str) -> Result<(), FixError> {
        files::write_atomic(&self.backup(), before.as_bytes())?;
        Ok(files::write_atomic(&self.path, after.as_bytes())?)
    }

    /// The text that the file is to have again, if nobody has changed it since.
    fn restorable(&self) -> Result<String, FixError> {
        self.require_place()?;
        let old = self.read(&self.backup())?;
        let fixed = self.edit.of(&old).map_err(|found| self.unrecognised(found))?;
        // A file that a crash or a user has put back already needs only its backup gone.
        let now = self.read(&self.path)?;
        if now != old && Some(&now) != fixed.as_ref() {
            return Err(FixError::ChangedSince { path: self.path.clone(), backup: self.backup() });
        }
        Ok(old)
    }

    fn restore(&self, old: &str) -> Result<(), FixError> {
        let backup = self.backup();
        files::write_atomic(&self.path, old.as_bytes())?;
        std::fs::remove_file(&backup)
            .map_err(|source| FileError::Io { action: "cannot remove", path: backup, source }.into())
    }

    /// A pack may name folders elsewhere by absolute paths; those are its parts. What leads out of it by `..` or by a link
    /// is not. A link in place of the file itself is replaced, and what it points to stays as it is.
    fn require_place(&self) -> Result<(), FixError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Some(pack) = &self.pack
            && pack.manifest.verifier.is_relative()
            && !whole(folder).starts_with(whole(&pack.folder))
        {
            return Err(FixError::Outside { path: self.path.clone(), pack: pack.folder.clone() });
        }
        match folder.metadata() {
            Ok(meta) if meta.permissions().readonly() => Err(FixError::ReadOnly(folder.to_owned())),
            _ => Ok(()),
        }
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path.file_name().unwrap_or_default());
    name.push(ending);
    path.with_file_name(name)
}

fn diff(name: &str, before: &str, after: &str) -> String {
    let diff = similar::TextDiff::from_lines(before, after);
    diff.unified_diff().context_radius(1).header(name, name).to_string()
}

/// A list of special tokens as an object; a token's name is its text. The error says what was found instead.
pub(crate) fn tokens_by_name(found: &Value) -> Result<Value, String> {
    let kind = match found {
        Value::Array(list) => return named(list).map(Value::Object),
        Value::String(_) => "a string",
        Value::Number(_) => "a number",
        Value::Bool(_) => "true or false",
        Value::Null => "null",
        Value::Object(_) => "an object",
    };
    Err(kind.to_owned())
}

fn named(list: &[Value]) -> Result<Map<String, Value>, String> {
    let mut tokens = Map::new();
    for (at, entry) in list.iter().enumerate() {
        let text = entry.as_str().or_else(|| entry.get("content").and_then(Value::as_str));
        let text = text.filter(|text| !text.is_empty()).ok_or_else(|| {
            format!("a list whose entry {at} is neither a token nor an object with its content")
        })?;
        tokens.insert(text.to_owned(), Value::from(text));
    }
    Ok(tokens)
}

fn named_tokens(text: &str) -> Result<Option<String>, String> {
    let config: Value = serde_json::from_str(text).map_err(|e| format!("is not JSON: {e}"))?;
    match config.get("extra_special_tokens") {
        None | Some(Value::Null | Value::Object(_)) => Ok(None),
        Some(found) => {
            let named = tokens_by_name(found).map_err(|found| format!("extra_special_tokens is {found}"))?;
            replaced(text, "extra_special_tokens", &named).map(Some)
        }
    }
}

fn more_samples(text: &str) -> Result<Option<String>, String> {
    let spec: Value = serde_json::from_str(text).map_err(|e| format!("is not JSON: {e}"))?;
    match spec.get("n_samples").and_then(Value::as_u64) {
        None => Err("states no n_samples".into()),
        Some(n) if n >= DECIDING_SAMPLES as u64 => Ok(None),
        Some(_) => replaced(text, "n_samples", &Value::from(DECIDING_SAMPLES)).map(Some),
    }
}

/// The text with another value for `key`, everything else as it is.
fn replaced(text: &str, key: &str, value: &Value) -> Result<String, String> {
    let range = json::value_range(text, key).ok_or_else(|| format!("states {key} twice"))?;
    let new = json::pretty_at(text, range.start, value);
    Ok(format!("{}{new}{}", &text[..range.start], &text[range.end..]))
}

/// A fix that fetches weights in place of their pointers.
struct Pull {
    folder: PathBuf,
}

impl Pull {
    /// The command, if something in the folder is a pointer.
    fn wanted(&self) -> Option<String> {
        let pointer = self.pointers().next()?;
        pull_command(&pointer)
    }

    fn pointers(&self) -> impl Iterator<Item = PathBuf> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_pointer = |path: &PathBuf| files::weight_bytes(path).is_err_and(|error| error.pointer);
        entries.map(|entry| entry.path()).filter(is_pointer)
    }

    fn apply(&self, watch: &mut dyn FnMut(&str)) -> Result<Fixed, FixError> {
        let Some(command) = self.wanted() else { return Ok(Fixed::Nothing) };
        let failed = |reason: String| FixError::Command { command: command.clone(), reason };
        let mut child = Command::new("git")
            .arg("-C")
            .arg(&self.folder)
            .args(["lfs", "pull", "--include", &included(&self.folder)])
            .env("GIT_LFS_FORCE_PROGRESS", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| failed(e.to_string()))?;
        let last = child.stderr.take().map(|said| follow(said, watch)).unwrap_or_default();
        match child.wait() {
            Ok(status) if !status.success() => Err(failed(format!("{status}; {last}"))),
            Err(e) => Err(failed(e.to_string())),
            Ok(_) if self.pointers().next().is_some() => Err(failed("a pointer is left".into())),
            Ok(_) => Ok(Fixed::Ran { command }),
        }
    }
}

/// Tells `watch` every line as it comes, ended by a newline or, as progress is, by a carriage return. Gives the last one.
fn follow(output: impl Read, watch: &mut dyn FnMut(&str)) -> String {
    let (mut line, mut last) = (Vec::new(), String::new());
    for byte in BufReader::new(output).bytes().map_while(Result::ok).chain([b'\n']) {
        if !matches!(byte, b'\n' | b'\r') {
            line.push(byte);
            continue;
        }
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        line.clear();
        if !text.is_empty() {
            watch(&text);
            last = text;
        }
    }
    last
}

/// The checkout that a path lies in.
fn checkout(path: &Path) -> Option<&Path> {
    path.ancestors().skip(1).find(|folder| folder.join(".git").exists())
}

/// What `git lfs pull` is to fetch: everything in `folder`, as seen from its checkout.
fn included(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let inside = checkout(&whole.join("file")).and_then(|root| whole.strip_prefix(root).ok());
    inside.map_or_else(|| "*".to_owned(), |inside| inside.join("*").display().to_string())
}

/// The command that fetches the weights behind a pointer; none outside a checkout.
pub(crate) fn pull_command(pointer: &Path) -> Option<String> {
    let whole = pointer.canonicalize().ok()?;
    checkout(&whole)?;
    let folder = whole.parent()?;
    Some(format!(
        "git -C {} lfs pull --include {}",
        quoted(&folder.display().to_string()),
        quoted(&included(folder))
    ))
}

/// A word as a POSIX shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Whether `git-lfs` is among the programs of this user.
pub(crate) fn has_git_lfs() -> bool {
    let program = format!("git-lfs{}", std::env::consts::EXE_SUFFIX);
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(&program).is_file()))
}
