//! What this machine has for a run: packs, room, a clock.

use crate::pack;
use protocol::{FoundPack, Worker};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Packs are looked for this many folders below the ones that are named.
const DEPTH: usize = 3;

/// Looks through the folders for packs, and at the machine; `data` is where its journal lies.
pub(crate) fn worker(folders: &[PathBuf], data: &Path) -> Worker {
    let mut found = Vec::new();
    folders.iter().for_each(|folder| packs(folder, DEPTH, &mut found));
    found.sort_by(|a: &FoundPack, b| a.folder.cmp(&b.folder));
    found.dedup_by(|a, b| a.folder == b.folder);
    let mut free_memory_bytes = 0;
    if let Ok(mut system) = sysinfo::System::new() {
        system.refresh_memory();
        free_memory_bytes = system.available_memory();
    }
    Worker {
        packs: found,
        free_memory_bytes,
        free_device_bytes: crate::library::free_gpu_bytes(),
        free_disk_bytes: free_space(data),
        clock_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
    }
}

fn packs(folder: &Path, depth: usize, found: &mut Vec<FoundPack>) {
    if folder.join("pack.json").is_file() {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        found.push(pack::find(&folder));
        return;
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    if depth > 0 {
        let folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
        folders.for_each(|inner| packs(&inner, depth - 1, found));
    }
}

/// Of the disk whose mount point is the longest beginning of the path.
fn free_space(path: &Path) -> Option<u64> {
    // The folder itself is made with the first run.
    let path = path.ancestors().find_map(|folder| folder.canonicalize().ok())?;
    let disks = sysinfo::Disks::new_with_refreshed_list().ok()?;
    let holding = disks.iter().filter(|disk| path.starts_with(disk.mount_point()));
    holding.max_by_key(|disk| disk.mount_point().as_os_str().len()).map(sysinfo::Disk::available_space)
}
