//! Memory of this process, as the operating system counts it.

/// Highest resident set since the process started (`VmHWM`).
#[cfg(target_os = "linux")]
pub(crate) fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Highest physical footprint since the process started: what Activity Monitor calls memory. Unlike the resident set it
/// counts what was compressed and what the GPU was given.
#[cfg(target_os = "macos")]
pub(crate) fn peak_bytes() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage_info_v4>::zeroed();
    let process = i32::try_from(std::process::id()).ok()?;
    // SAFETY: the kernel fills in the structure that this flavour names, and all of it may be 0.
    #[allow(unsafe_code)]
    let (status, usage) = unsafe {
        let status = libc::proc_pid_rusage(process, libc::RUSAGE_INFO_V4, usage.as_mut_ptr().cast());
        (status, usage.assume_init())
    };
    (status == 0).then_some(usage.ri_lifetime_max_phys_footprint)
}

/// Resident set now: where the system keeps no peak, the highest of all trials stands for it.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) fn peak_bytes() -> Option<u64> {
    let (pid, mut system) = (sysinfo::get_current_pid().ok()?, sysinfo::System::new().ok()?);
    system.refresh_processes(sysinfo::ProcessesToUpdate::Some(&[pid]), true);
    system.process(pid).map(sysinfo::Process::memory)
}
