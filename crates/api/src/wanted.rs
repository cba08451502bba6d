//! The run that would decide what the gates leave open.

use crate::ErrorReport;
use crate::evidence_view::judge;
use evidence::{Audit, Platform};
use niah::Rung;
use protocol::{Arm, Device, Restore, RunSpec};

/// The settings of `spec` with the rungs, the samples and the arms that its platform lacks for a verdict; none when every
/// recall gate of that platform is decided.
pub fn wanted(audits: &[Audit], spec: &RunSpec) -> Result<Option<RunSpec>, ErrorReport> {
    let report = judge(audits, None)?;
    let wanted = evidence::wanted(audits, &report, platform(spec.device));
    Ok(wanted.map(|wanted| RunSpec {
        ladder: wanted.rungs.into_iter().map(Rung).collect(),
        n_samples: usize::try_from(wanted.samples).unwrap_or(usize::MAX),
        arms: with_pair(&spec.arms),
        ..spec.clone()
    }))
}

/// The platform that evidence from a device belongs to.
fn platform(device: Device) -> Platform {
    match device {
        Device::Cpu => Platform::Cpu,
        Device::Cuda => Platform::Cuda,
        Device::Metal => Platform::Mac,
    }
}

/// The arms, and the two without which there is no verdict: the oracle and a restored one.
fn with_pair(arms: &[Arm]) -> Vec<Arm> {
    let mut all = arms.to_vec();
    if !all.contains(&Arm::Oracle) {
        all.insert(0, Arm::Oracle);
    }
    if !all.iter().any(|arm| matches!(arm, Arm::Restored(_))) {
        all.push(Arm::Restored(Restore::S5));
    }
    all
}
