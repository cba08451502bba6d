//! Does the machine have room?

use crate::check::{Check, Finding, Group, Row};
use protocol::Pack;
use std::path::Path;

const GIB: f64 = 1_073_741_824.0;
/// Weights are held as f32 (stored as bf16 they double), and as much again is left for activations and K/V.
const MEMORY_FACTOR: f64 = 3.0;
/// Evidence is small; below this a system misbehaves in other ways.
const DISK_AT_LEAST: u64 = 1 << 30;

pub(crate) fn memory(pack: &Pack) -> Check {
    const ROW: Row = Row {
        id: "host-memory",
        group: Group::Host,
        title: "Memory free",
        why: "A machine that swaps measures its disk, not the model.",
    };
    ROW.look(|| {
        let unknown = |_| Finding::skipped("the system does not say how much memory is free");
        let mut system = sysinfo::System::new().map_err(unknown)?;
        system.refresh_memory();
        let free = system.available_memory() as f64;
        let parts = [Some(pack.verifier()), pack.drafter(), pack.f_theta()];
        let stored: u64 = parts.iter().flatten().map(|folder| folder_bytes(folder)).sum();
        let needed = stored as f64 * MEMORY_FACTOR;
        let measured = format!(
            "{:.1} GiB free; the pack holds {:.3} GiB, {MEMORY_FACTOR} times that is wanted",
            free / GIB,
            stored as f64 / GIB
        );
        if free < needed {
            return Err(Finding::fail(
                measured,
                "close other programs, or run on a machine with more memory",
            ));
        }
        Ok(Finding::pass(measured))
    })
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(|meta| meta.is_file())
        .map(|meta| meta.len())
        .sum()
}

pub(crate) fn disk(folder: &Path) -> Check {
    const ROW: Row = Row {
        id: "host-disk",
        group: Group::Host,
        title: "Disk free",
        why: "Evidence that cannot be written is lost.",
    };
    ROW.look(|| {
        let at = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let disks = sysinfo::Disks::new_with_refreshed_list()
            .map_err(|_| Finding::skipped("the system does not list its disks"))?;
        let holding = disks.iter().filter(|disk| at.starts_with(disk.mount_point()));
        let Some(disk) = holding.max_by_key(|disk| disk.mount_point().as_os_str().len()) else {
            return Err(Finding::skipped("the system does not say which disk holds the pack"));
        };
        let measured = format!("{:.1} GiB free", disk.available_space() as f64 / GIB);
        if disk.available_space() < DISK_AT_LEAST {
            return Err(Finding::warn(measured, "free at least 1 GiB"));
        }
        Ok(Finding::pass(measured))
    })
}
