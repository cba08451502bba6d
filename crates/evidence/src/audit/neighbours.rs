//! Rules on files that lie side by side.

use super::Audit;
use crate::Finding;
use serde_json::json;

pub(super) fn look(audits: &mut [Audit]) {
    let twins: Vec<Option<String>> = (0..audits.len()).map(|i| twin(audits, i)).collect();
    for (audit, twin) in audits.iter_mut().zip(twins) {
        if let Some(other) = twin {
            let message = format!("{other} holds the same bytes");
            audit.findings.push(Finding::new("DUPLICATE_EVIDENCE", "", message, json!({ "other": other })));
        }
    }
}

/// Name of another needle file with the same content.
fn twin(audits: &[Audit], at: usize) -> Option<String> {
    let this = &audits[at];
    this.niah.as_ref()?;
    let same =
        |(i, other): &(usize, &Audit)| *i != at && other.sha256 == this.sha256 && other.path != this.path;
    audits.iter().enumerate().find(same).map(|(_, other)| other.name.clone())
}
