//! Does the engine answer, and does it compute what it should?

use crate::check::{Finding, Found, Group};
use crate::{Place, Row, word};
use evidence::{Text, text};
use protocol::{Backend, BackendInfo, SelfTest};

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "engine-answers",
        group: Group::Engine,
        title: Text::fixed("Engine answers", "引擎应答"),
        why: Text::fixed(
            "The model runs in a process of its own; both sides must speak the same protocol.",
            "模型在单独的进程中运行；两边必须使用同一协议。",
        ),
        look: answers,
    },
    Row {
        id: "engine-device",
        group: Group::Engine,
        title: Text::fixed("Device computes", "设备可计算"),
        why: Text::fixed(
            "A small matrix product is computed and its result checked before hours are spent.",
            "在花费数小时之前，先计算一个小矩阵乘积并核对结果。",
        ),
        look: device,
    },
    Row {
        id: "engine-self-test",
        group: Group::Engine,
        title: Text::fixed("Self-test", "自检"),
        why: Text::fixed(
            "The demo pack's first logits on this device must be those that were stored: a wrong kernel shows here.",
            "演示包在此设备上的首批 logit 必须与存储的一致：错误的算子会在这里显现。",
        ),
        look: self_test,
    },
    Row {
        id: "engine-identity",
        group: Group::Engine,
        title: Text::fixed("Identity equals oracle", "恒等与 oracle 相同"),
        why: Text::fixed(
            "Restoring the verifier's own K/V must change nothing; if it does, no restored arm can be trusted.",
            "恢复验证模型自己的 K/V 不应改变任何东西；若有改变，任何恢复实验臂都不可信。",
        ),
        look: identity,
    },
];

/// Largest difference of a logit between identity and oracle: f32 arithmetic in another order.
const IDENTITY_TOLERANCE: f64 = 1e-3;

fn answers(place: &Place<'_>) -> Found {
    let answer = place.engine();
    let hello = answer.hello.as_ref().map_err(Finding::from)?;
    let measured = text!("version {}, protocol {}", "版本 {}，协议 {}", hello.version, hello.protocol);
    if hello.protocol != protocol::VERSION {
        let wanted = text!(
            language => "{}; this program speaks protocol {}",
            "{}；本程序使用协议 {}",
            measured.said(language),
            protocol::VERSION
        );
        return Err(Finding::fail(
            wanted,
            text!("install the engine of the same release", "安装同一发行版的引擎"),
        ));
    }
    if hello.version != answer.host_version {
        let hint = text!(
            "install the engine of the same release, or expect small differences",
            "安装同一发行版的引擎，否则会有微小差异"
        );
        let other = text!(
            language => "{}; this program is {}",
            "{}；本程序为 {}",
            measured.said(language),
            answer.host_version
        );
        return Err(Finding::warn(other, hint));
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
        let measured = text!("no {} passed the check", "没有 {} 通过检查", word(&wanted));
        return Err(Finding::fail(
            measured,
            text!("see the engine's standard error for the reason", "原因见引擎的标准错误输出"),
        ));
    };
    let (library, milliseconds) = (word(&info.backend), 1e3 * info.probe_seconds);
    let driver = info
        .driver
        .as_ref()
        .map_or_else(Text::default, |driver| text!(", driver {driver}", "，驱动 {driver}"));
    Ok(Finding::pass(text!(
        language => "{library} {} on {} ({}{}), checked in {milliseconds:.2} ms",
        "{library} {}，{}（{}{}），检查用时 {milliseconds:.2} 毫秒",
        info.version,
        word(&wanted),
        info.device_name,
        driver.said(language)
    )))
}

/// The self-test's figures, and the seconds it took.
fn tested(place: &Place<'_>) -> Result<(SelfTest, f64), Finding> {
    place.hello()?;
    let inspection = place.inspection()?;
    let look = inspection
        .self_test
        .as_ref()
        .ok_or_else(|| Finding::skipped(text!("the device cannot be used", "设备无法使用")))?;
    Ok((*look.found.as_ref().map_err(Finding::from)?, look.seconds))
}

fn self_test(place: &Place<'_>) -> Found {
    let (test, seconds) = tested(place)?;
    let measured = text!(
        "{} arms on the demo pack, first logits at most {:.1e} from the stored ones",
        "在演示包上运行 {} 个实验臂，首批 logit 与存储值相差至多 {:.1e}",
        test.arms,
        test.difference
    );
    if !test.holds {
        let hint = text!(
            "do not trust runs on this device; run `kakeya-gate selftest`, and report the device and its driver",
            "不要信任此设备上的运行；请运行 `kakeya-gate selftest`，并反馈设备及其驱动"
        );
        return Err(Finding::fail(beyond(&measured), hint));
    }
    Ok(Finding::pass(measured).took(seconds))
}

fn beyond(measured: &Text) -> Text {
    text!(language => "{}; 1e-3 is allowed", "{}；允许 1e-3", measured.said(language))
}

fn identity(place: &Place<'_>) -> Found {
    let (test, _) = tested(place)?;
    if test.identity == 0.0 {
        return Ok(Finding::pass(text!(
            "first logits of the demo pack are the same, bit for bit",
            "演示包的首批 logit 逐位相同"
        )));
    }
    let measured = text!(
        "first logits of the demo pack differ by {:.1e}",
        "演示包的首批 logit 相差 {:.1e}",
        test.identity
    );
    if test.identity > IDENTITY_TOLERANCE {
        let hint = text!(
            "do not trust restored arms on this device; report the device and its driver",
            "不要信任此设备上的恢复实验臂；请反馈设备及其驱动"
        );
        return Err(Finding::fail(beyond(&measured), hint));
    }
    Ok(Finding::pass(measured))
}
