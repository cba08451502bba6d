//! Gate reports, written.

use crate::evidence_view::{compare_all, load, not_drawn, policy};
use crate::{ErrorReport, VERSION, error};
use report::{GateDocument, SignOff};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use ts_rs::TS;

/// What a report is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Export {
    /// Evidence files, or folders that are searched for them.
    pub paths: Vec<PathBuf>,
    /// The policy file; null for the built-in policy.
    #[serde(default)]
    pub policy: Option<PathBuf>,
    /// Name of the reviewer, as it shall appear.
    pub reviewer: String,
    /// Notes kept in the report.
    pub notes: String,
}

fn document(request: &Export) -> Result<GateDocument, ErrorReport> {
    let policy = policy(request.policy.as_deref())?;
    let audits = load(&request.paths)?;
    let gate = evidence::gate(&audits, &policy);
    let sign_off = SignOff {
        reviewer: request.reviewer.clone(),
        notes: request.notes.clone(),
        generated_at: jiff::ZonedDateTime::now().strftime("%Y-%m-%d %H:%M %Z").to_string(),
        program_version: VERSION.to_owned(),
    };
    GateDocument::new(&audits, &compare_all(&audits), &gate, sign_off).map_err(not_drawn)
}

/// The report as a self-contained HTML page.
pub fn report_html(request: &Export) -> Result<String, ErrorReport> {
    Ok(report::html(&document(request)?))
}

/// The report as Markdown for a pull request.
pub fn report_markdown(request: &Export) -> Result<String, ErrorReport> {
    Ok(report::markdown(&document(request)?))
}

/// Writes the report; the file's ending chooses the format: `.html` or `.md`.
pub fn export(request: &Export, out: &Path) -> Result<PathBuf, ErrorReport> {
    let ending = out.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    let text = match ending.as_deref() {
        Some("html" | "htm") => report_html(request)?,
        Some("md" | "markdown") => report_markdown(request)?,
        _ => {
            let message = format!("{} does not end in .html or .md", out.display());
            return Err(error::report("unknown-format", message, "choose a name that ends in .html or .md"));
        }
    };
    files::write_atomic(out, text.as_bytes())
        .map_err(|e| error::report("file", e, "check the folder's permissions and free space"))?;
    Ok(out.to_owned())
}
