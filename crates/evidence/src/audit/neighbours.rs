//! Rules on files that lie side by side.

use super::{Audit, Verdict, other, slope};
use crate::Finding;
use crate::compare;
use crate::finding::INTEGRITY;
use crate::json::At;
use crate::model::{DRIVER, Niah, NiahKind};
use crate::normalise::DFLASH;
use crate::{Text, text};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ts_rs::TS;

const CODEC: &str = "k2a_kl_mac_smoke";
const LADDER: &str = "k2a_production_smoke_ladder_mac";
const PRIMARY_DECODE: &str = "primary_decode_mac_acceptance";

/// What the neighbours need of a file beyond its audit. Documents are kept for the few kinds whose rules read them.
pub(super) struct Needed {
    document: Option<Value>,
    /// The largest `*/weight_bytes`.
    weight_bytes: Option<f64>,
}

impl Needed {
    pub(super) fn of(value: &Value, shape: &str) -> Self {
        let kept = [CODEC, LADDER, PRIMARY_DECODE].contains(&shape) || DFLASH.contains(&shape);
        let blocks = value.as_object().into_iter().flatten();
        let weights = blocks.filter_map(|(_, block)| block.number("/weight_bytes"));
        Self { document: kept.then(|| value.clone()), weight_bytes: weights.reduce(f64::max) }
    }
}

/// An identity run without an oracle, against the oracle of another file (RULES §5).
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct CrossFile {
    /// The file whose oracle it is.
    pub oracle_source: PathBuf,
    /// Hits of that oracle.
    pub oracle_correct: u64,
    /// 100·(hits of the identity run − hits of the oracle)/n, percentage points.
    pub delta_pp: f64,
    /// Samples on which both wrote the same text.
    pub identical_texts: u64,
    /// Samples.
    pub n: u64,
}

/// The audit of one file alone, and what its neighbours need of it.
pub(super) struct Alone {
    pub(super) audit: Audit,
    pub(super) needed: Needed,
}

/// What neighbours tell of one file.
pub(super) struct Told {
    findings: Vec<Finding>,
    cross_file: Option<CrossFile>,
}

/// What neighbours tell of each file.
pub(super) fn tell(files: &[Arc<Alone>]) -> Vec<Told> {
    let audits: Vec<&Audit> = files.iter().map(|file| &file.audit).collect();
    let needed: Vec<&Needed> = files.iter().map(|file| &file.needed).collect();
    let scan = Neighbours { audits: &audits, needed: &needed, named: by_name(&audits) };
    let twins = scan.twins();
    let mut slopes = slope::ladder(&audits);
    (0..audits.len())
        .map(|at| {
            let mut findings = scan.rules(at);
            findings.extend(slopes.remove(&at).unwrap_or_default());
            findings.extend(twins.get(&at).map(|other| duplicate(&audits[*other].name)));
            Told { findings, cross_file: scan.cross_file(at) }
        })
        .collect()
}

/// Adds what neighbours told, then sorts the findings, errors first.
pub(super) fn joined(mut audit: Audit, told: &Told) -> Audit {
    audit.cross_file = told.cross_file.clone();
    audit.findings.extend_from_slice(&told.findings);
    reconsider(&mut audit);
    audit.findings.sort_by_key(|finding| finding.severity);
    audit
}

/// What neighbours told can change the verdict: a copied number that its source does not hold, a baseline of another model.
fn reconsider(audit: &mut Audit) {
    let contradicted = audit.findings.iter().any(|finding| INTEGRITY.contains(&finding.code));
    let verdict = match () {
        () if contradicted => Verdict::Fail,
        () if audit.has("BASELINE_MODEL_MISMATCH") => Verdict::Inconclusive,
        () => return,
    };
    audit.integrity_ok = !contradicted;
    audit.verdict = verdict;
    audit.verdict_ignoring_schema_age = verdict;
    audit.verdict_strict_statistics = verdict;
}

fn duplicate(other: &str) -> Finding {
    let message =
        text!("{other} holds the same samples of the same system", "{other} 含有同一系统的相同样本");
    Finding::new("DUPLICATE_EVIDENCE", "/config", message, json!({ "other": other }))
}

struct Neighbours<'a> {
    audits: &'a [&'a Audit],
    needed: &'a [&'a Needed],
    /// By file name: a scan of thousands of ladders must not look through all files for every rung.
    named: BTreeMap<&'a OsStr, Vec<usize>>,
}

fn by_name<'a>(audits: &[&'a Audit]) -> BTreeMap<&'a OsStr, Vec<usize>> {
    let mut named: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (at, audit) in audits.iter().enumerate() {
        named.entry(audit.path.file_name().unwrap_or_default()).or_default().push(at);
    }
    named
}

impl Neighbours<'_> {
    fn rules(&self, at: usize) -> Vec<Finding> {
        let Some(document) = &self.needed[at].document else { return Vec::new() };
        match self.audits[at].identity.shape.as_str() {
            CODEC => self.threshold_moved(at, document).into_iter().collect(),
            LADDER => self.ladder_sources(document),
            PRIMARY_DECODE => self.baseline(document).into_iter().collect(),
            _ => self.reference(at, document).into_iter().collect(),
        }
    }

    /// The file that another file names. Paths inside files are relative to the scan root; the shortest path that ends so
    /// is the one, so that a scan of a part of the tree finds it too.
    fn named(&self, path: &str) -> Option<usize> {
        let path = Path::new(path);
        let alike = self.named.get(path.file_name()?)?.iter().copied();
        let found = alike.filter(|at| self.audits[*at].path.ends_with(path));
        found.min_by_key(|at| self.audits[*at].path.as_os_str().len())
    }

    fn of_shape<'s>(&'s self, shape: &'s str) -> impl Iterator<Item = (usize, &'s Audit)> {
        self.audits.iter().copied().enumerate().filter(move |(_, audit)| audit.identity.shape == shape)
    }

    /// A bound that was raised after the same measurement had failed a lower one.
    fn threshold_moved(&self, at: usize, document: &Value) -> Option<Finding> {
        let measured = |value: &Value| {
            let error = |tensor| value.number(&format!("/checks/direct_codec/{tensor}_relative_mse"));
            Some((error("K")?, error("V")?))
        };
        let bound = document.number("/config/rmse_bound")?;
        let this = measured(document)?;
        if !other::codec_measured_pass(document)? {
            return None;
        }
        let failed_lower = self.of_shape(CODEC).filter(|(i, _)| *i != at).filter_map(|(i, _)| {
            let neighbour = self.needed[i].document.as_ref()?;
            let lower = neighbour.number("/config/rmse_bound").filter(|lower| *lower < bound)?;
            let failed = neighbour.text("/summary/status") == Some("fail");
            (failed && measured(neighbour) == Some(this)).then_some(lower)
        });
        let earlier = failed_lower.reduce(f64::max)?;
        let message = text!(
            "the bound is {bound}; the same measurement had failed {earlier} before",
            "上限为 {bound}；同样的测量此前没有通过 {earlier}"
        );
        let data = json!({ "bound": bound, "earlier_bound": earlier, "measured": this.0 });
        Some(Finding::new("THRESHOLD_MOVED", "/config/rmse_bound", message, data))
    }

    /// Each rung must repeat what the file says that it was taken from.
    fn ladder_sources(&self, document: &Value) -> Vec<Finding> {
        let rungs = document.list("/rungs").unwrap_or_default().iter().enumerate();
        rungs
            .filter_map(|(i, rung)| {
                let path = rung.text("/report_path")?;
                let source = self.audits[self.named(path)?].niah.as_ref()?;
                let differs = self.differing_source(rung, source)?;
                let message = text!(
                    language => "rung {i}: {} is not what {path} holds",
                    "梯级 {i}：{}与 {path} 中的不符",
                    differs.said(language)
                );
                let data = json!({ "ctx": rung.at("/ctx_lines") });
                Some(Finding::new("LADDER_SOURCE_MISMATCH", format!("/rungs/{i}"), message, data))
            })
            .collect()
    }

    fn differing_source(&self, rung: &Value, source: &Niah) -> Option<Text> {
        let text = source.sut().and_then(|arm| arm.rows.first()).map(|row| row.text.as_str());
        let driver = source
            .memory
            .iter()
            .find(|figure| figure.arm == "v04_dlm_restored" && figure.label.en() == DRIVER);
        let stored = rung.at("/metrics/decoded").and_then(Value::as_str);
        let bytes = rung.number("/metrics/driver_allocated_bytes");
        if text.zip(stored).is_some_and(|(source, stored)| source != stored) {
            return Some(text!("the decoded text", "解码文本"));
        }
        let driver = driver.map(|figure| figure.bytes as f64);
        driver
            .zip(bytes)
            .is_some_and(|(source, stored)| source != stored)
            .then(|| text!("the memory", "内存"))
    }

    /// A latency baseline of a model much smaller than the one that is judged.
    fn baseline(&self, document: &Value) -> Option<Finding> {
        let named = document.text("/config/latency_baseline")?;
        let needed = other::nominal_weights(document.text("/config/tokenizer_id")?)? / 2.0;
        let at = self.named(named).or_else(|| self.sibling(named))?;
        let bytes = self.needed[at].weight_bytes.filter(|bytes| *bytes < needed)?;
        let file = &self.audits[at].name;
        let message = text!(
            "the latency baseline {file} ran {:.2} GB of weights, another model",
            "延迟基线 {file} 运行的是 {:.2} GB 的权重，是另一个模型",
            bytes / 1e9
        );
        let data = json!({
            "gate": "decode_latency_regression",
            "baseline_file": Path::new(named).file_name().map(|name| name.to_string_lossy()),
            "baseline_weight_bytes": bytes,
        });
        Some(Finding::new("BASELINE_MODEL_MISMATCH", "/config/latency_baseline", message, data))
    }

    /// The first file, by path, whose name is the same up to its last run of digits: another run of the same series.
    fn sibling(&self, named: &str) -> Option<usize> {
        let stem = series(Path::new(named).file_name()?.to_str()?)?;
        let of_series = |(_, audit): &(usize, &Audit)| series(&audit.name) == Some(stem);
        let found = self.audits.iter().copied().enumerate().filter(of_series);
        found.min_by_key(|(_, audit)| &audit.path).map(|(at, _)| at)
    }

    /// An embedded reference that ran other prompts or another verifier, or that cannot be looked at.
    fn reference(&self, at: usize, document: &Value) -> Option<Finding> {
        let blocks = document.at("/aggregate")?.as_object()?.iter();
        let references = blocks.filter(|(key, _)| key.starts_with("reference_"));
        references
            .filter_map(|(key, block)| {
                let source = block.text("/source")?;
                let differs = match self.named(source) {
                    None => text!("is not among the files", "不在这些文件之中"),
                    Some(other) if self.audits[other].n != self.audits[at].n => {
                        text!("ran another number of prompts", "运行的提示词数量不同")
                    }
                    Some(other) if self.verifier(other) != verifier(document) => {
                        text!("ran another verifier", "运行的是另一个验证模型")
                    }
                    Some(_) => return None,
                };
                let message = text!(
                    language => "the embedded reference {source} {}",
                    "嵌入的参考 {source} {}",
                    differs.said(language)
                );
                let pointer = format!("/aggregate/{key}");
                Some(Finding::new("REFERENCE_NOT_COMPARABLE", pointer, message, json!({})))
            })
            .next()
    }

    fn verifier(&self, at: usize) -> Option<String> {
        self.needed[at].document.as_ref().and_then(verifier)
    }

    /// The neighbour's oracle that equals most of an identity run's texts; ties go to the first path.
    fn cross_file(&self, at: usize) -> Option<CrossFile> {
        let this = self.audits[at].niah.as_ref()?;
        if !this.identity || this.oracle().is_some() || this.kind != NiahKind::CrossModel {
            return None;
        }
        let sut = this.sut()?;
        let comparable = |niah: &Niah| {
            niah.kind == this.kind
                && niah.prompt_lens == this.prompt_lens
                && niah.max_new_tokens == this.max_new_tokens
                && niah.verifier == this.verifier
        };
        let candidates = self.audits.iter().copied().filter_map(|audit| {
            let niah = audit.niah.as_ref().filter(|niah| comparable(niah))?;
            let oracle = niah.oracle()?;
            let same = sut.rows.iter().zip(&oracle.rows).filter(|(a, b)| a.text == b.text).count() as u64;
            Some((audit, oracle.hits, same))
        });
        let order = |(audit, _, same): &(&Audit, u64, u64)| (std::cmp::Reverse(*same), audit.path.clone());
        let (source, oracle_hits, same) = candidates.min_by_key(order)?;
        Some(CrossFile {
            oracle_source: source.path.clone(),
            oracle_correct: oracle_hits,
            delta_pp: 100.0 * (sut.hits as f64 - oracle_hits as f64) / this.n.max(1) as f64,
            identical_texts: same,
            n: this.n,
        })
    }

    /// Files that put the same prompts to the same system, or one a beginning of the other: each with one such other.
    fn twins(&self) -> BTreeMap<usize, usize> {
        let mut groups: BTreeMap<(String, &str), Vec<usize>> = BTreeMap::new();
        for (at, audit) in self.audits.iter().enumerate() {
            let Some(niah) = &audit.niah else { continue };
            let Some(first) = niah.samples.first() else { continue };
            groups.entry((system(audit, niah), first.answer.as_str())).or_default().push(at);
        }
        let samples = |at: usize| self.audits[at].niah.as_ref().map_or(&[][..], |niah| &niah.samples);
        let shares = |a: usize, b: usize| samples(a).iter().zip(samples(b)).all(|(a, b)| a == b);
        let mut twins = BTreeMap::new();
        for group in groups.values() {
            for at in group {
                let twin = group.iter().find(|other| *other != at && shares(*at, **other));
                twins.extend(twin.map(|twin| (*at, *twin)));
            }
        }
        twins
    }
}

/// What tells one system from another: machine, kind, every setting.
pub(crate) fn system(audit: &Audit, niah: &Niah) -> String {
    let settings = compare::settings(niah).map(|(_, _, value)| value.en().to_owned()).join("\n");
    format!("{:?}\n{:?}\n{settings}", audit.identity.platform, niah.kind)
}

/// Name up to its last run of digits; None without digits.
fn series(name: &str) -> Option<&str> {
    let last = name.rfind(|c: char| c.is_ascii_digit())?;
    Some(name[..=last].trim_end_matches(|c: char| c.is_ascii_digit()))
}

fn verifier(document: &Value) -> Option<String> {
    let id = document.text("/config/verifier_id").or_else(|| document.text("/config/verifier_path"))?;
    Some(compare::last_component(id).to_owned())
}
