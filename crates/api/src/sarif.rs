//! Findings for code hosts: SARIF 2.1.0, one rule a code, one result a finding.

use crate::{UnreadableFile, VERSION};
use evidence::{Audit, Finding, Position, Scan, Severity, shown_path};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use serde_sarif::sarif;
use std::collections::BTreeMap;

/// Characters of a path that stay as they are in a URI reference.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The findings of a scan. Lines are those of the files as they lie on the disk now, when nothing changed since.
pub fn sarif(scan: &Scan) -> sarif::Sarif {
    let rules: BTreeMap<&str, &Finding> =
        scan.audits.iter().flat_map(|audit| &audit.findings).map(|finding| (finding.code, finding)).collect();
    let codes: Vec<&str> = rules.keys().copied().collect();
    let driver = sarif::ToolComponent::builder()
        .name("kakeya-gate")
        .semantic_version(VERSION)
        .rules(rules.into_values().map(rule).collect::<Vec<_>>())
        .build();
    let run = sarif::Run::builder()
        .tool(driver)
        .column_kind(json!("unicodeCodePoints"))
        .results(scan.audits.iter().flat_map(|audit| results(audit, &codes)).collect::<Vec<_>>())
        .invocations(vec![invocation(scan)])
        .build();
    sarif::Sarif::builder()
        .schema("https://json.schemastore.org/sarif-2.1.0.json")
        .version(json!("2.1.0"))
        .runs(vec![run])
        .build()
}

fn level(severity: Severity) -> sarif::ResultLevel {
    match severity {
        Severity::Error => sarif::ResultLevel::Error,
        Severity::Warn => sarif::ResultLevel::Warning,
        Severity::Info => sarif::ResultLevel::Note,
    }
}

fn text(text: &str) -> sarif::MultiformatMessageString {
    sarif::MultiformatMessageString::builder().text(text).build()
}

fn rule(finding: &Finding) -> sarif::ReportingDescriptor {
    let level = json!(level(finding.severity));
    sarif::ReportingDescriptor::builder()
        .id(finding.code)
        .short_description(text(finding.why.en()))
        .help(text(finding.fix.en()))
        .default_configuration(sarif::ReportingConfiguration::builder().level(level).build())
        .build()
}

fn results(audit: &Audit, codes: &[&str]) -> Vec<sarif::Result> {
    let positions = audit.positions().unwrap_or_default();
    let findings = audit.findings.iter().enumerate();
    findings.map(|(at, finding)| result(audit, finding, positions.get(at), codes)).collect()
}

fn result(audit: &Audit, finding: &Finding, position: Option<&Position>, codes: &[&str]) -> sarif::Result {
    let mut place = artifact(&shown_path(&audit.path));
    place.region = position.map(region);
    let pointed =
        sarif::LogicalLocation::builder().fully_qualified_name(&finding.pointer).kind("value").build();
    let location =
        sarif::Location::builder().physical_location(place).logical_locations(vec![pointed]).build();
    let numbers: BTreeMap<String, serde_json::Value> =
        finding.data.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    sarif::Result::builder()
        .rule_id(finding.code)
        .rule_index(codes.partition_point(|code| *code < finding.code) as i64)
        .level(level(finding.severity))
        .message(finding.message.en())
        .locations(vec![location])
        .properties(sarif::PropertyBag::builder().additional_properties(numbers).build())
        .build()
}

fn artifact(path: &str) -> sarif::PhysicalLocation {
    let encoded = utf8_percent_encode(path, KEPT).to_string();
    let uri = if path.starts_with('/') { format!("file://{encoded}") } else { encoded };
    let location = sarif::ArtifactLocation::builder().uri(uri).build();
    sarif::PhysicalLocation::builder().artifact_location(location).build()
}

fn region(position: &Position) -> sarif::Region {
    let (line, column) = (position.line as i64, position.column as i64);
    sarif::Region::builder().start_line(line).start_column(column).build()
}

/// Files that could not be read are what the program has to say of itself.
fn invocation(scan: &Scan) -> sarif::Invocation {
    let notification = |file: UnreadableFile| {
        let place = sarif::Location::builder().physical_location(artifact(&file.path)).build();
        sarif::Notification::builder()
            .level(json!("error"))
            .message(format!("{}; {}", file.message, file.hint).as_str())
            .locations(vec![place])
            .build()
    };
    let notifications: Vec<_> = scan.unreadable.iter().map(UnreadableFile::from).map(notification).collect();
    sarif::Invocation::builder()
        .execution_successful(notifications.is_empty())
        .tool_execution_notifications(notifications)
        .build()
}
