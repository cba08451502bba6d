//! Does the engine answer, and does it compute what it should?

use crate::check::{Finding, Found, Group};
use crate::{Place, Row, word};
use protocol::{Backend, BackendInfo, SelfTest};

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "engine-answers",
        group: Group::Engine,
        title: "Engine answers",
        why: "The model runs in a process of its own; both sides must speak the same protocol.",
        look: answers,
    },
    Row {
        id: "engine-device",
        group: Group::Engine,
        title: "Device computes",
        why: "A small matrix product is computed and its result checked before hours are spent.",
        look: device,
    },
    Row {
        id: "engine-self-test",
        group: Group::Engine,
        title: "Self-test",
        why: "The demo pack's first logits on this device must be those that were stored: a wrong kernel shows here.",
        look: self_test,
    },
    Row {
        id: "engine-identity",
        group: Group::Engine,
        title: "Identity equals oracle",
        why: "Restoring the verifier's own K/V must change nothing; if it does, no restored arm can be trusted.",
        look: identity,
    },
];

/// Largest difference of a logit between identity and oracle: f32 arithmetic in another order.
const IDENTITY_TOLERANCE: f64 = 1e-3;

fn answers(place: &Place<'_>) -> Found {
    let answer = place.engine();
    let hello = answer.hello.as_ref().map_err(Finding::from)?;
    let measured = format!("version {}, protocol {}", hello.version, hello.protocol);
    if hello.protocol != protocol::VERSION {
        let wanted = format!("{measured}; this program speaks protocol {}", protocol::VERSION);
        return Err(Finding::fail(wanted, "install the engine of the same release"));
    }
    if hello.version != answer.host_version {
        let hint = "install the engine of the same release, or expect small differences";
        return Err(Finding::warn(format!("{measured}; this program is {}", answer.host_version), hint));
    }
    Ok(Finding::pass(measured).took(place.asking()))
}

fn device(place: &Place<'_>) -> Found {
    let hello = place.hello()?;
    if let Ok(inspection) = place.inspection() {
        inspection.device.found.as_ref().map_err(Finding::from)?;
    }
    let default = (Backend::default(), Backend::default().device());
    let (backend, wanted) =
        place.subject.run.as_ref().map_or(default, |run| (run.spec.backend, run.spec.device));
    let asked = |info: &&BackendInfo| info.backend == backend && info.device == wanted;
    let Some(info) = hello.backends.iter().find(asked) else {
        let measured = format!("no {} passed the check", word(&wanted));
        return Err(Finding::fail(measured, "see the engine's standard error for the reason"));
    };
    let (library, milliseconds) = (word(&info.backend), 1e3 * info.probe_seconds);
    let driver = info.driver.as_ref().map_or_else(String::new, |driver| format!(", driver {driver}"));
    Ok(Finding::pass(format!(
        "{library} {} on {} ({}{driver}), checked in {milliseconds:.2} ms",
        info.version,
        word(&wanted),
        info.device_name
    )))
}

/// The self-test's figures, and the seconds it took.
fn tested(place: &Place<'_>) -> Result<(SelfTest, f64), Finding> {
    place.hello()?;
    let inspection = place.inspection()?;
    let look = inspection.self_test.as_ref().ok_or_else(|| Finding::skipped("the device cannot be used"))?;
    Ok((*look.found.as_ref().map_err(Finding::from)?, look.seconds))
}

fn self_test(place: &Place<'_>) -> Found {
    let (test, seconds) = tested(place)?;
    let measured = format!(
        "{} arms on the demo pack, first logits at most {:.1e} from the stored ones",
        test.arms, test.difference
    );
    if !test.holds {
        let hint = "do not trust runs on this device; run `kakeya-gate selftest`, and report the device and its driver";
        return Err(Finding::fail(format!("{measured}; 1e-3 is allowed"), hint));
    }
    Ok(Finding::pass(measured).took(seconds))
}

fn identity(place: &Place<'_>) -> Found {
    let (test, _) = tested(place)?;
    if test.identity == 0.0 {
        return Ok(Finding::pass("first logits of the demo pack are the same, bit for bit"));
    }
    let measured = format!("first logits of the demo pack differ by {:.1e}", test.identity);
    if test.identity > IDENTITY_TOLERANCE {
        let hint = "do not trust restored arms on this device; report the device and its driver";
        return Err(Finding::fail(format!("{measured}; 1e-3 is allowed"), hint));
    }
    Ok(Finding::pass(measured))
}
