//! Gate reports, rendered and written.

use crate::documents::ReportDocument;
use crate::evidence_view::{compare_all, load, not_drawn, policy};
use crate::{ErrorCode, ErrorReport, VERSION};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use evidence::{Audit, Language, spoken};
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

/// What a report can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum ReportFormat {
    /// One page that stands alone.
    Html,
    /// Pages to print and to file.
    Pdf,
    /// For a pull request: within the length that GitHub takes.
    Markdown,
    /// For continuous integration.
    Junit,
    /// For programs.
    Json,
}

impl ReportFormat {
    /// The format that a file's ending names.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_lowercase().as_str() {
            "html" | "htm" => Some(Self::Html),
            "pdf" => Some(Self::Pdf),
            "md" | "markdown" => Some(Self::Markdown),
            "xml" => Some(Self::Junit),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    fn ending(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Pdf => "pdf",
            Self::Markdown => "md",
            Self::Junit => "xml",
            Self::Json => "json",
        }
    }
}

/// A file that is not written yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Rendered {
    /// The name that it would have.
    pub name: String,
    /// What is in it.
    pub content: Content,
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Text, to be written as UTF-8.
    Text(String),
    /// Bytes, in base 64.
    Base64(String),
}

impl Content {
    fn bytes(&self) -> Result<Vec<u8>, ErrorReport> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Base64(text) => BASE64.decode(text).map_err(|e| {
                ErrorReport::new(ErrorCode::Content, e, "this is a fault of the program; please report it")
            }),
        }
    }
}

/// A report of the files that the request names, in the reader's language. What programs read is English.
pub fn render(request: &Export, format: ReportFormat, language: Language) -> Result<Rendered, ErrorReport> {
    render_audits(&load(&request.paths)?, request, format, language)
}

/// A report of these audits. `request.paths` are where they come from.
pub(crate) fn render_audits(
    audits: &[Audit],
    request: &Export,
    format: ReportFormat,
    language: Language,
) -> Result<Rendered, ErrorReport> {
    let gate = evidence::gate(audits, &policy(request.policy.as_deref())?);
    let comparisons = compare_all(audits);
    let sign_off = SignOff {
        reviewer: request.reviewer.clone(),
        notes: request.notes.clone(),
        generated_at: jiff::ZonedDateTime::now().strftime("%Y-%m-%d %H:%M %Z").to_string(),
        program_version: VERSION.to_owned(),
        language,
    };
    let document = || GateDocument::new(audits, &comparisons, &gate, sign_off.clone()).map_err(not_drawn);
    let content = match format {
        ReportFormat::Html => Content::Text(report::html(&document()?)),
        ReportFormat::Markdown => Content::Text(report::markdown(&document()?)),
        ReportFormat::Pdf => Content::Base64(BASE64.encode(report::pdf(&document()?).map_err(not_drawn)?)),
        ReportFormat::Junit => Content::Text(report::junit(&gate, &sign_off).map_err(not_drawn)?),
        ReportFormat::Json => {
            let document = ReportDocument::new(audits, comparisons, gate, sign_off);
            let text = spoken(Language::En, || serde_json::to_string_pretty(&document));
            Content::Text(
                text.map_err(|e| ErrorReport::new(ErrorCode::Report, e, "please report it"))? + "\n",
            )
        }
    };
    Ok(Rendered { name: format!("gate-report.{}", format.ending()), content })
}

/// Writes the report; the file's ending chooses the format: `.html`, `.pdf`, `.md`, `.xml` (JUnit) or `.json`.
pub fn export(request: &Export, out: &Path, language: Language) -> Result<PathBuf, ErrorReport> {
    let format = ReportFormat::of(out).ok_or_else(|| {
        let message = format!("{} does not end in .html, .pdf, .md, .xml or .json", out.display());
        ErrorReport::new(ErrorCode::UnknownFormat, message, "choose a name with one of these endings")
    })?;
    save(&render(request, format, language)?.content, out)
}

/// Writes what was rendered.
pub fn save(content: &Content, out: &Path) -> Result<PathBuf, ErrorReport> {
    files::write_atomic(out, &content.bytes()?)
        .map_err(|e| ErrorReport::new(ErrorCode::File, e, "check the folder's permissions and free space"))?;
    Ok(out.to_owned())
}
