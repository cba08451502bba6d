//! Is the machine fit for the run?

use crate::check::{Finding, Found, Group};
use crate::{Place, Row};
use evidence::{Text, text};
use protocol::Forecast;
use std::path::Path;

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "host-system",
        group: Group::Host,
        title: Text::fixed("System", "系统"),
        why: Text::fixed("Evidence names the machine that it comes from.", "证据要注明它来自哪台机器。"),
        look: system,
    },
    Row {
        id: "host-memory",
        group: Group::Host,
        title: Text::fixed("Memory free", "可用内存"),
        why: Text::fixed(
            "A machine that swaps measures its disk, not the model.",
            "发生换页的机器测到的是硬盘，不是模型。",
        ),
        look: memory,
    },
    Row {
        id: "host-disk",
        group: Group::Host,
        title: Text::fixed("Disk free", "可用磁盘"),
        why: Text::fixed("Evidence that cannot be written is lost.", "写不下来的证据就丢失了。"),
        look: disk,
    },
    Row {
        id: "host-power",
        group: Group::Host,
        title: Text::fixed("Power", "供电"),
        why: Text::fixed(
            "On battery or in low-power mode a laptop computes slower; its times compare with nothing.",
            "用电池或处于低电量模式时，笔记本计算较慢；其用时无从比较。",
        ),
        look: power,
    },
    Row {
        id: "host-thermal",
        group: Group::Host,
        title: Text::fixed("Temperature", "温度"),
        why: Text::fixed(
            "A machine that is hot already slows down during the run.",
            "已经过热的机器在运行期间会降速。",
        ),
        look: thermal,
    },
];

const GIB: f64 = 1_073_741_824.0;
/// Evidence is small; below this a system misbehaves in other ways.
const DISK_AT_LEAST: u64 = 1 << 30;
/// Activations and the rest of the process, over weights and K/V.
const HEADROOM: f64 = 1.25;

fn system(place: &Place<'_>) -> Found {
    let host = &place.hello()?.host;
    Ok(Finding::pass(text!(
        "{} · {} · {} · {} cores · {:.1} GiB",
        "{} · {} · {} · {} 核 · {:.1} GiB",
        host.os,
        host.arch,
        host.cpu,
        host.cores,
        host.memory_bytes as f64 / GIB
    )))
}

fn memory(place: &Place<'_>) -> Found {
    let inspection = place.inspection()?;
    let device = inspection.device.found.as_ref().ok().copied().flatten();
    // One that shares the main memory does not tell what of it is in use.
    let free = device.and_then(|device| Some(device.total_bytes.saturating_sub(device.used_bytes?)));
    let (free, told) = match free {
        Some(free) => (free, text!("{:.1} GiB free on the GPU", "GPU 可用 {:.1} GiB", free as f64 / GIB)),
        None => {
            let free = main_memory()?;
            (free, text!("{:.1} GiB free", "可用 {:.1} GiB", free as f64 / GIB))
        }
    };
    let Some(Forecast { weights, kv, positions }) = inspection.forecast else {
        return Err(Finding::skipped(text!(
            language => "{}; no forecast, because the pack cannot be read",
            "{}；模型包无法读取，因此没有预测",
            told.said(language)
        )));
    };
    let needed = (weights + kv) as f64;
    let measured = text!(
        language => "{}; by formula the run holds {:.3} GiB: weights {:.3}, K/V {:.3} at {positions} positions",
        "{}；按公式这次运行占用 {:.3} GiB：权重 {:.3}，K/V {:.3}（{positions} 个位置）",
        told.said(language),
        needed / GIB,
        weights as f64 / GIB,
        kv as f64 / GIB
    );
    if (free as f64) < needed {
        let hint = text!(
            "close other programs, leave out long rungs, or run on a machine with more memory",
            "关闭其他程序，去掉较长的梯级，或在内存更大的机器上运行"
        );
        return Err(Finding::fail(measured, hint));
    }
    if (free as f64) < HEADROOM * needed {
        return Err(Finding::warn(
            measured,
            text!("close other programs: activations need room as well", "关闭其他程序：激活值也需要空间"),
        ));
    }
    Ok(Finding::pass(measured))
}

/// Bytes of main memory that this process can still get.
fn main_memory() -> Result<u64, Finding> {
    let unknown = |_| {
        Finding::skipped(text!(
            "the system does not say how much memory is free",
            "系统没有说明有多少可用内存"
        ))
    };
    let mut system = sysinfo::System::new().map_err(unknown)?;
    system.refresh_memory();
    let of_group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
    Ok(system.available_memory().min(of_group))
}

fn disk(place: &Place<'_>) -> Found {
    let subject = place.subject;
    let folder = subject.run.as_ref().map_or(&subject.pack, |run| &run.out);
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let at = existing.canonicalize().unwrap_or_else(|_| existing.to_owned());
    let disks = sysinfo::Disks::new_with_refreshed_list()
        .map_err(|_| Finding::skipped(text!("the system does not list its disks", "系统没有列出磁盘")))?;
    let holding = disks.iter().filter(|disk| at.starts_with(disk.mount_point()));
    let Some(disk) = holding.max_by_key(|disk| disk.mount_point().as_os_str().len()) else {
        return Err(Finding::skipped(text!(
            "the system does not say which disk holds the evidence",
            "系统没有说明证据在哪个磁盘上"
        )));
    };
    let measured = text!("{:.1} GiB free", "可用 {:.1} GiB", disk.available_space() as f64 / GIB);
    if disk.available_space() < DISK_AT_LEAST {
        return Err(Finding::warn(measured, text!("free at least 1 GiB", "至少腾出 1 GiB")));
    }
    Ok(Finding::pass(measured))
}

/// What supplies the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Power {
    /// It has a battery and draws from it.
    on_battery: bool,
    /// It has a battery.
    battery: bool,
    /// The user or the system asked for low power.
    saving: bool,
}

fn power(_: &Place<'_>) -> Found {
    let power = read_power().ok_or_else(|| {
        Finding::skipped(text!("the system does not say what supplies it", "系统没有说明供电方式"))
    })?;
    match power {
        Power { on_battery: true, .. } => {
            Err(Finding::warn(text!("on battery", "使用电池"), text!("connect the power supply", "接上电源")))
        }
        Power { saving: true, .. } => Err(Finding::warn(
            text!("low-power mode is on", "低电量模式已开启"),
            text!("turn low-power mode off", "关闭低电量模式"),
        )),
        Power { battery: true, .. } => {
            Ok(Finding::pass(text!("connected, low-power mode off", "已接电源，低电量模式关闭")))
        }
        _ => Ok(Finding::pass(text!("no battery", "没有电池"))),
    }
}

#[cfg(target_os = "macos")]
fn read_power() -> Option<Power> {
    Some(power_of_pmset(&told("pmset", &["-g", "batt"])?, &told("pmset", &["-g"])?))
}

#[cfg(target_os = "linux")]
fn read_power() -> Option<Power> {
    power_of_sysfs(Path::new("/sys"))
}

#[cfg(not(any(target_os = "macos", target_os = "linux")))]
fn read_power() -> Option<Power> {
    None
}

/// What a program of the system prints.
#[cfg(target_os = "macos")]
fn told(program: &str, arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(any(target_os = "macos", test))]
fn power_of_pmset(supply: &str, settings: &str) -> Power {
    let saving = settings.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("lowpowermode") && words.next() == Some("1")
    });
    Power {
        on_battery: supply.contains("'Battery Power'"),
        battery: supply.contains("InternalBattery"),
        saving,
    }
}

/// None where the system lists no supplies at all, as in a container.
#[cfg(any(target_os = "linux", test))]
fn power_of_sysfs(root: &Path) -> Option<Power> {
    let text =
        |path: &Path| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let mut power = Power {
        saving: text(&root.join("firmware/acpi/platform_profile")) == "low-power",
        ..Power::default()
    };
    let (mut seen, mut discharging, mut online) = (false, false, false);
    for supply in std::fs::read_dir(root.join("class/power_supply")).ok()?.flatten() {
        let folder = supply.path();
        // Mice and headsets have batteries too.
        if text(&folder.join("scope")) == "Device" {
            continue;
        }
        seen = true;
        match text(&folder.join("type")).as_str() {
            "Battery" => {
                power.battery = true;
                discharging |= text(&folder.join("status")) == "Discharging";
            }
            _ => online |= text(&folder.join("online")) == "1",
        }
    }
    power.on_battery = discharging && !online;
    seen.then_some(power)
}

fn thermal(_: &Place<'_>) -> Found {
    let heat = read_heat()
        .ok_or_else(|| Finding::skipped(text!("the system tells no temperature", "系统没有提供温度")))?;
    heat.map_or_else(
        |hot| Err(Finding::warn(hot, text!("let it cool down, free its vents", "让它冷却，清理通风口"))),
        |cool| Ok(Finding::pass(cool)),
    )
}

#[cfg(target_os = "macos")]
fn read_heat() -> Option<Result<Text, Text>> {
    heat_of_pmset(&told("pmset", &["-g", "therm"])?)
}

#[cfg(target_os = "linux")]
fn read_heat() -> Option<Result<Text, Text>> {
    heat_of_sysfs(Path::new("/sys"))
}

#[cfg(not(any(target_os = "macos", target_os = "linux")))]
fn read_heat() -> Option<Result<Text, Text>> {
    None
}

/// The speed that the system allows its processor, percent; less than 100 when it is hot.
#[cfg(any(target_os = "macos", test))]
fn heat_of_pmset(text: &str) -> Option<Result<Text, Text>> {
    let limit = text.lines().find_map(|line| line.trim().strip_prefix("CPU_Speed_Limit"));
    let Some(limit) = limit else {
        let quiet = text.contains("No thermal warning level has been recorded");
        return quiet.then(|| Ok(text!("no thermal warning", "没有过热警告")));
    };
    let percent: u32 =
        limit.trim_start_matches(|c: char| c == '=' || c.is_whitespace()).trim().parse().ok()?;
    let measured =
        text!("processor allowed {percent} % of its speed", "处理器只允许以 {percent} % 的速度运行");
    Some(if percent < 100 { Err(measured) } else { Ok(measured) })
}

/// The hottest zone, and whether one has reached the point from which the system slows down.
#[cfg(any(target_os = "linux", test))]
fn heat_of_sysfs(root: &Path) -> Option<Result<Text, Text>> {
    let millidegrees = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<i64>().ok();
    let mut hottest: Option<i64> = None;
    let mut hot = false;
    for zone in std::fs::read_dir(root.join("class/thermal")).ok()?.flatten() {
        let folder = zone.path();
        let Some(now) = millidegrees(&folder.join("temp")) else { continue };
        hottest = hottest.max(Some(now));
        hot |= (0..12).any(|trip| {
            let kind =
                std::fs::read_to_string(folder.join(format!("trip_point_{trip}_type"))).unwrap_or_default();
            let limit = millidegrees(&folder.join(format!("trip_point_{trip}_temp")));
            matches!(kind.trim(), "passive" | "hot" | "critical")
                && limit.is_some_and(|limit| limit > 0 && now >= limit)
        });
    }
    let measured = text!("hottest zone {:.0} °C", "最热区域 {:.0} °C", hottest? as f64 / 1e3);
    Some(if hot {
        Err(text!(language => "{}: the system slows down", "{}：系统会降速", measured.said(language)))
    } else {
        Ok(measured)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(root: &Path, path: &str, text: &str) {
        files::write_atomic(&root.join(path), text.as_bytes()).unwrap();
    }

    #[test]
    fn power_of_linux() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(power_of_sysfs(root.path()), None);
        file(root.path(), "class/power_supply/AC/type", "Mains\n");
        file(root.path(), "class/power_supply/AC/online", "1\n");
        file(root.path(), "class/power_supply/mouse/type", "Battery\n");
        file(root.path(), "class/power_supply/mouse/scope", "Device\n");
        file(root.path(), "class/power_supply/mouse/status", "Discharging\n");
        assert_eq!(power_of_sysfs(root.path()), Some(Power::default()));
        file(root.path(), "class/power_supply/BAT0/type", "Battery\n");
        file(root.path(), "class/power_supply/BAT0/status", "Discharging\n");
        file(root.path(), "class/power_supply/AC/online", "0\n");
        file(root.path(), "firmware/acpi/platform_profile", "low-power\n");
        let all = Power { on_battery: true, battery: true, saving: true };
        assert_eq!(power_of_sysfs(root.path()), Some(all));
    }

    /// Forms of `pmset` on macOS 14 and 15.
    #[test]
    fn power_and_heat_of_macos() {
        let battery = "Now drawing from 'Battery Power'\n -InternalBattery-0 (id=1)\t81%; discharging; 5:11 remaining\n";
        let power = power_of_pmset(battery, "System-wide power settings:\n lowpowermode         1\n");
        assert_eq!(power, Power { on_battery: true, battery: true, saving: true });
        let mains = power_of_pmset("Now drawing from 'AC Power'\n", " lowpowermode         0\n");
        assert_eq!(mains, Power::default());
        assert_eq!(
            heat_of_pmset("Note: No thermal warning level has been recorded\n"),
            Some(Ok(text!("no thermal warning", "没有过热警告")))
        );
        assert!(heat_of_pmset("CPU_Scheduler_Limit \t= 100\nCPU_Speed_Limit \t= 62\n").unwrap().is_err());
        assert_eq!(heat_of_pmset("something else"), None);
    }

    #[test]
    fn heat_of_linux() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(heat_of_sysfs(root.path()), None);
        file(root.path(), "class/thermal/thermal_zone0/temp", "61000\n");
        file(root.path(), "class/thermal/thermal_zone0/trip_point_0_type", "passive\n");
        file(root.path(), "class/thermal/thermal_zone0/trip_point_0_temp", "95000\n");
        assert_eq!(heat_of_sysfs(root.path()), Some(Ok(text!("hottest zone 61 °C", "最热区域 61 °C"))));
        file(root.path(), "class/thermal/thermal_zone0/temp", "96000\n");
        assert!(heat_of_sysfs(root.path()).unwrap().is_err());
    }
}
