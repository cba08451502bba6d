//! Where the engine's program is.

use crate::{EngineProgram, ErrorCode, ErrorReport};
use std::path::PathBuf;

/// The environment variable that names the program, for installations that keep it elsewhere.
const PROGRAM_VARIABLE: &str = "KAKEYA_GATE_PROGRAM";

/// The program `kakeya-gate`: the one named in `KAKEYA_GATE_PROGRAM`, else the one beside the running executable (which
/// may be that program itself).
pub fn program_beside() -> Result<EngineProgram, ErrorReport> {
    if let Some(path) = std::env::var_os(PROGRAM_VARIABLE) {
        return Ok(EngineProgram(PathBuf::from(path)));
    }
    let running = std::env::current_exe().map_err(|e| {
        ErrorReport::new(ErrorCode::EngineNotFound, e, "name the program kakeya-gate in KAKEYA_GATE_PROGRAM")
    })?;
    Ok(EngineProgram(running.with_file_name(format!("kakeya-gate{}", std::env::consts::EXE_SUFFIX))))
}
