//! The audit: every rule over every file, then the verdict.
//!
//! Rules live beside the part of a file that they look at; each is a short function that adds findings.

mod arms;
mod claims;
mod kept;
mod kinds;
mod mac;
mod neighbours;
mod other;
mod own;
mod repo_gate;
mod slope;

pub(crate) use neighbours::system;
pub(crate) use repo_gate::repo_gate;

use crate::finding::INTEGRITY;
use crate::identity::{Identity, Platform, Role, identity};
use crate::layout::{Malformed, malformed};
use crate::model::{Acceptance, Niah, NiahKind};
use crate::normalise::{self, acceptance};
use crate::read::{self, File, Place, ReadError};
use crate::recompute::{self, Recomputed};
use crate::{
    Finding,
    json::{At, integer},
};
pub use kept::{Beside, Kept};
pub use neighbours::CrossFile;
use neighbours::{Alone, Needed};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use ts_rs::TS;

/// What a file's own gate comes to (RULES §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, TS, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The gate holds as a point estimate.
    Pass,
    /// It would hold whatever the claim is.
    Vacuous,
    /// It does not hold, or stored numbers do not follow from their rows.
    Fail,
    /// An arm is missing.
    Inconclusive,
    /// Written by a schema that proves too little.
    Legacy,
    /// The kind carries no gate.
    NotAGateReport,
}

/// Everything known of one file.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct Audit {
    /// The file.
    pub path: PathBuf,
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: String,
    /// What it is.
    pub identity: Identity,
    /// Needle evidence, recounted; null for other kinds.
    pub niah: Option<Niah>,
    /// Samples; for other kinds sessions, agents or prompts, whichever the kind counts.
    pub n: Option<u64>,
    /// Stored recall by label, for kinds that are no needle evidence; null where a row has none.
    pub recall: Option<Vec<(String, Option<f64>)>>,
    /// A speculative-decoding acceptance run; null for other kinds.
    pub acceptance: Option<Acceptance>,
    /// What the file claims of itself, as stored.
    #[ts(type = "unknown")]
    pub claimed_gate: Option<Value>,
    /// Recomputed numbers; null for other kinds.
    pub recomputed: Option<Recomputed>,
    /// Fields of the wrong type, read as absent.
    pub malformed: Vec<Malformed>,
    /// Codes of the reference's own liveness gate; null for kinds that it does not judge.
    pub liveness_codes: Option<Vec<&'static str>>,
    /// An identity run without an oracle, against the oracle of another file.
    pub cross_file: Option<CrossFile>,
    /// Findings, errors first.
    pub findings: Vec<Finding>,
    /// The verdict.
    pub verdict: Verdict,
    /// The verdict if schema age did not matter.
    pub verdict_ignoring_schema_age: Verdict,
    /// That verdict, with pass turned into inconclusive below 72 samples.
    pub verdict_strict_statistics: Verdict,
    /// No stored number contradicts its rows.
    pub integrity_ok: bool,
}

impl Audit {
    /// Whether the file comes from the demonstration pack.
    pub fn is_demo(&self) -> bool {
        self.niah.as_ref().and_then(|niah| niah.provenance.as_ref()).is_some_and(|provenance| provenance.demo)
    }

    /// Whether a finding of this code was made.
    pub fn has(&self, code: &str) -> bool {
        self.findings.iter().any(|finding| finding.code == code)
    }

    /// Nominal padding lines of the file's rung, or its line bounds in words.
    pub fn rung_label(&self) -> String {
        match &self.niah {
            Some(Niah { rung: Some(rung), .. }) => rung.to_string(),
            Some(niah) => niah.lines().map_or_else(|| "–".to_owned(), |[low, high]| format!("{low}–{high}")),
            None => "–".to_owned(),
        }
    }
}

/// What a rule looks at.
struct Case<'a> {
    value: &'a Value,
    niah: &'a Niah,
    recomputed: &'a Recomputed,
    platform: Platform,
}

impl Case<'_> {
    fn is(&self, kind: NiahKind) -> bool {
        self.niah.kind == kind
    }

    /// The stored block of an arm.
    fn result(&self, arm: &str) -> &Value {
        self.value.at("/results").and_then(|results| results.get(arm)).unwrap_or(&Value::Null)
    }
}

/// Audits files that belong together: some rules look at the neighbours.
pub fn audit(files: &[File]) -> Vec<Audit> {
    looked(files.par_iter().map(|file| Arc::new(audit_one(file))).collect())
}

/// What a scan found.
#[derive(Debug)]
pub struct Scan {
    /// Files that could be read, in the order of the places.
    pub audits: Vec<Audit>,
    /// Files that could not.
    pub unreadable: Vec<ReadError>,
}

/// Reads and audits files on all cores, one document at a time a core: the memory holds what an audit keeps, never the
/// documents. `done` is called after each file.
pub fn scan(places: &[Place], done: impl Fn() + Sync) -> Scan {
    let audited: Vec<Result<_, ReadError>> = places
        .par_iter()
        .map(|place| {
            let audited = read::read(place).map(|file| Arc::new(audit_one(&file)));
            done();
            audited
        })
        .collect();
    let (mut read, mut unreadable) = (Vec::new(), Vec::new());
    for file in audited {
        match file {
            Ok(audited) => read.push(audited),
            Err(problem) => unreadable.push(problem),
        }
    }
    Scan { audits: looked(read), unreadable }
}

/// Files that were audited alone, with what each tells of the others.
fn looked(files: Vec<Arc<Alone>>) -> Vec<Audit> {
    let told = neighbours::tell(&files);
    let unshared = |file: Arc<Alone>| {
        Arc::try_unwrap(file).map_or_else(|shared| shared.audit.clone(), |alone| alone.audit)
    };
    files.into_iter().zip(&told).map(|(file, told)| neighbours::joined(unshared(file), told)).collect()
}

/// The audit of one file alone, and what its neighbours need of it.
fn audit_one(file: &File) -> Alone {
    let value = &file.value;
    let identity = identity(value, &file.name);
    let niah = normalise::niah(value);
    let recomputed = niah.as_ref().map(|niah| recompute::recompute(value, niah));
    let mut findings = Vec::new();
    if let Some((niah, recomputed)) = niah.as_ref().zip(recomputed.as_ref()) {
        let case = Case { value, niah, recomputed, platform: identity.platform };
        arms::rules(&case, &mut findings);
        claims::rules(&case, &mut findings);
        kinds::rules(&case, &mut findings);
        mac::rules(&case, &mut findings);
        own::rules(&case, &mut findings);
    }
    kinds::unpublished(file, &identity, &mut findings);
    let other = other::Case { value, shape: &identity.shape, name: &file.name };
    let summary = match &niah {
        Some(niah) => other::Summary {
            n: Some(niah.n),
            recall: None,
            claimed: value.at("/gate").map(without_violations),
        },
        None => other::summary(&other),
    };
    if identity.role == Role::Other {
        other::rules(&other, &mut findings);
        slope::bench(value, &identity.shape, &mut findings);
    }
    let integrity_ok = !findings.iter().any(|finding| INTEGRITY.contains(&finding.code));
    let verdicts = match (&niah, identity.role) {
        (Some(niah), _) => niah_verdicts(niah, value, &findings, integrity_ok),
        (None, Role::Niah) => [Verdict::Inconclusive; 3],
        (None, Role::Other) if !integrity_ok => [Verdict::Fail; 3],
        (None, Role::Other) => [other::verdict(&other, &findings); 3],
    };
    let malformed = if identity.role == Role::Niah { malformed(value) } else { Vec::new() };
    let needed = Needed::of(value, &identity.shape);
    let audit = Audit {
        path: file.place.path.clone(),
        name: file.name.clone(),
        bytes: file.bytes,
        sha256: file.sha256.clone(),
        n: summary.n,
        recall: summary.recall,
        claimed_gate: summary.claimed,
        acceptance: acceptance(value, &identity.shape),
        identity,
        niah,
        recomputed,
        liveness_codes: other::liveness::codes(value),
        malformed,
        cross_file: None,
        findings,
        verdict: verdicts[0],
        verdict_ignoring_schema_age: verdicts[1],
        verdict_strict_statistics: verdicts[2],
        integrity_ok,
    };
    Alone { audit, needed }
}

/// The stored gate without the list of the reference's own codes, which is judged apart.
fn without_violations(gate: &Value) -> Value {
    let mut gate = gate.clone();
    if let Value::Object(fields) = &mut gate {
        fields.shift_remove("evidence_violations");
    }
    gate
}

/// RULES §6.1, in order: the verdict, the verdict ignoring schema age, the strict one.
fn niah_verdicts(niah: &Niah, value: &Value, findings: &[Finding], integrity_ok: bool) -> [Verdict; 3] {
    let fired = |codes: &[&str]| findings.iter().any(|finding| codes.contains(&finding.code));
    let gate = match niah.recounted() {
        _ if !integrity_ok => Verdict::Fail,
        None => Verdict::Inconclusive,
        Some((sut, oracle)) if !recompute::within_5pp(sut.hits, oracle.hits, niah.n) => Verdict::Fail,
        _ if fired(&["DELTA_ON_ZERO_RECALL", "RESTORATION_NOT_EXECUTED", "SUT_NEVER_RAN"]) => {
            Verdict::Vacuous
        }
        _ if niah.kind == NiahKind::SameCheckpoint && !value.is_on("/kl/kl_on") => Verdict::Vacuous,
        _ => Verdict::Pass,
    };
    let legacy = integrity_ok
        && niah.kind == NiahKind::CrossModelMac
        && schema(value).is_none_or(|version| version < 2);
    let ageless = if legacy && gate == Verdict::Pass { Verdict::Inconclusive } else { gate };
    let strict = if ageless == Verdict::Pass && niah.n < 72 { Verdict::Inconclusive } else { ageless };
    [if legacy { Verdict::Legacy } else { gate }, ageless, strict]
}

/// Schema version for tests: missing counts as 1; None when it is no whole number.
pub(crate) fn schema(value: &Value) -> Option<i64> {
    value.at("/schema_version").map_or(Some(1), integer)
}
