//! Machines for runs: added with their key, tested, listed, forgotten.

use crate::arguments::{TargetCommand, TextOrJson};
use crate::commands::{Outcome, holds, json, print};
use crate::text;
use api::{ErrorCode, ErrorReport, HostKey, Machine};
use preflight::Status;
use std::io::{BufRead, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn target(command: &TargetCommand) -> Outcome {
    let data = api::data_folder()?;
    match command {
        TargetCommand::Add { host, program, packs, fingerprint } => {
            let key = api::target_key(&data, host)?;
            approve(host, &key, fingerprint.as_deref())?;
            let machine = Machine { host: host.clone(), program: program.clone(), packs: packs.clone() };
            api::add_target(&data, &machine, &key)?;
            check(&data, host, TextOrJson::Text)
        }
        TargetCommand::Check { host, format } => check(&data, host, *format),
        TargetCommand::Copy { host, binary } => {
            let machine = api::copy_to_target(&data, host, binary.as_deref())?;
            eprintln!("copied; {host} uses {} from now on", machine.program);
            check(&data, host, TextOrJson::Text)
        }
        TargetCommand::List => {
            print(&text::machines(&api::targets(&data)?))?;
            Ok(ExitCode::SUCCESS)
        }
        TargetCommand::Remove { host } => match api::remove_target(&data, host)? {
            true => Ok(ExitCode::SUCCESS),
            false => Err(ErrorReport::new(
                ErrorCode::NoTarget,
                format!("{host} is no target"),
                "see `kakeya-gate target list`",
            )),
        },
    }
}

fn check(data: &Path, host: &str, format: TextOrJson) -> Outcome {
    let report = api::test_target(data, host)?;
    print(&match format {
        TextOrJson::Text => text::target(&report),
        TextOrJson::Json => json(&report)?,
    })?;
    Ok(holds(report.checks.iter().all(|check| check.status != Status::Fail)))
}

/// The user compares the fingerprint with what the machine's owner says: beforehand, or now.
fn approve(host: &str, key: &HostKey, wanted: Option<&str>) -> Result<(), ErrorReport> {
    if key.pinned {
        return Ok(());
    }
    let refused = |message: String| {
        ErrorReport::new(
            ErrorCode::SshNotPinned,
            message,
            "ask whoever runs the machine for its fingerprint and give it with --fingerprint",
        )
    };
    if let Some(wanted) = wanted {
        return match key.fingerprint.split_whitespace().any(|word| word == wanted) {
            true => Ok(()),
            false => Err(refused(format!("{host} shows {}, not {wanted}", key.fingerprint))),
        };
    }
    eprintln!("{host} shows this key:\n  {}", key.fingerprint);
    if !std::io::stdin().is_terminal() {
        return Err(refused("nobody is here to approve of it".into()));
    }
    eprint!("Is it the right one? (yes/no) ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match read {
        Ok(_) if answer.trim() == "yes" => Ok(()),
        _ => Err(refused("the key was not approved of".into())),
    }
}
