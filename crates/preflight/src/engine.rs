//! Does the engine answer, and can it compute?

use crate::check::{Check, Finding, Group, Row};

/// What the engine program answered when it was asked who it is.
#[derive(Debug)]
pub struct EngineProbe {
    /// Version of the program that asks.
    pub host_version: String,
    /// The engine's answer.
    pub answer: Result<protocol::Hello, protocol::ErrorReport>,
}

pub(crate) fn answers(probe: &EngineProbe) -> Check {
    const ROW: Row = Row {
        id: "engine-answers",
        group: Group::Engine,
        title: "Engine answers",
        why: "The model runs in a process of its own; both sides must speak the same protocol.",
    };
    ROW.look(|| {
        let hello = probe.answer.as_ref().map_err(|report| Finding::fail(&report.message, &report.hint))?;
        let measured = format!("version {}, protocol {}", hello.version, hello.protocol);
        if hello.protocol != protocol::VERSION {
            let wanted = format!("{measured}; this program speaks protocol {}", protocol::VERSION);
            return Err(Finding::fail(wanted, "install the engine of the same release"));
        }
        if hello.version != probe.host_version {
            let hint = "install the engine of the same release, or expect small differences";
            return Err(Finding::warn(format!("{measured}; this program is {}", probe.host_version), hint));
        }
        Ok(Finding::pass(measured))
    })
}

pub(crate) fn device(probe: &EngineProbe) -> Check {
    const ROW: Row = Row {
        id: "engine-device",
        group: Group::Engine,
        title: "Device computes",
        why: "A small matrix product is computed and its result checked before hours are spent.",
    };
    ROW.look(|| {
        let Ok(hello) = &probe.answer else { return Err(Finding::skipped("the engine did not answer")) };
        let devices: Vec<String> = hello
            .backends
            .iter()
            .map(|info| {
                let (library, device) = (word(&info.backend), word(&info.device));
                let milliseconds = 1e3 * info.probe_seconds;
                format!(
                    "{library} {} on {device} ({}), checked in {milliseconds:.2} ms",
                    info.version, info.device_name
                )
            })
            .collect();
        if devices.is_empty() {
            return Err(Finding::fail(
                "no device passed the check",
                "see the engine's standard error for the reason",
            ));
        }
        Ok(Finding::pass(devices.join("; ")))
    })
}

/// The word that a unit variant has in JSON.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
