//! Files that survive a crash: atomic writes, digests, capped reads, and weight files: their headers, and parts mapped.
//!
//! Every byte that Kakeya Gate leaves on a disk goes through [`write_atomic`], so a killed process never leaves half a file.

mod digests;
mod weights;

pub use digests::{Digests, digest_cache, settle};
pub use weights::{Header, ShardIndex, WeightsError, map_weights, safetensors_header, weight_bytes};

use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A file that could not be read or written, with its path and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused.
    #[error("{action} {path}: {source}", path = path.display())]
    Io {
        /// What was tried: "cannot read", "cannot write", …
        action: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// The system's own answer.
        source: io::Error,
    },
    /// The file is larger than the reader allows.
    #[error("{path} is {bytes} bytes; at most {cap} are read", path = path.display())]
    TooLarge {
        /// The file concerned.
        path: PathBuf,
        /// Its size in bytes.
        bytes: u64,
        /// The limit in bytes.
        cap: u64,
    },
}

impl FileError {
    /// The file or folder concerned.
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. } | Self::TooLarge { path, .. } => path,
        }
    }

    fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

/// Writes `bytes` to `path` so that the file holds either its old or its whole new content, even after a power cut:
/// temporary file in the same folder, fsync, rename, fsync of the folder. Missing parent folders are created.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(|e| FileError::io("cannot create folder", folder, e))?;
    let failed = |e| FileError::io("cannot write", path, e);
    let mut file = tempfile::Builder::new().prefix(".kakeya-").tempfile_in(folder).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    readable_by_all(file.as_file()).map_err(failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    sync_folder(folder).map_err(failed)
}

/// Temporary files are private (0600); what we persist is an ordinary document.
#[cfg(unix)]
fn readable_by_all(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable_by_all(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Makes the rename itself durable. Windows cannot open folders; there NTFS journals the rename.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Reads a whole file of at most `cap` bytes.
pub fn read_capped(path: &Path, cap: u64) -> Result<Vec<u8>, FileError> {
    let failed = |e| FileError::io("cannot read", path, e);
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if meta.is_dir() {
        return Err(failed(io::Error::other("it is a folder, a file was expected")));
    }
    if meta.len() > cap {
        return Err(FileError::TooLarge { path: path.to_owned(), bytes: meta.len(), cap });
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize);
    file.take(cap + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > cap {
        return Err(FileError::TooLarge { path: path.to_owned(), bytes: bytes.len() as u64, cap });
    }
    Ok(bytes)
}

/// [`read_capped`] for files of strangers' folders: pipes and devices, which may never end, are errors.
pub fn read_regular(path: &Path, cap: u64) -> Result<Vec<u8>, FileError> {
    require_regular(path)?;
    read_capped(path, cap)
}

/// Checks that a path, links followed, is an ordinary file. Merely opening a pipe may wait forever.
pub fn require_regular(path: &Path) -> Result<fs::Metadata, FileError> {
    let failed = |e| FileError::io("cannot read", path, e);
    let meta = fs::metadata(path).map_err(failed)?;
    match meta.is_file() {
        true => Ok(meta),
        false => Err(failed(io::Error::other("it is no ordinary file"))),
    }
}

/// SHA-256 of a byte string, as 64 lower-case hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of parts laid end to end, made one at a time: what is hashed need not fit the memory.
pub fn sha256_parts<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> String {
    let mut hasher = Sha256::new();
    parts.into_iter().for_each(|part| hasher.update(part));
    hex(&hasher.finalize())
}

/// SHA-256 of a file, streamed in 1 MiB blocks, as 64 lower-case hexadecimal digits.
pub fn sha256_file(path: &Path) -> Result<String, FileError> {
    let mut hasher = Sha256::new();
    each_block(path, &mut |block| {
        hasher.update(block);
        true
    })?;
    Ok(hex(&hasher.finalize()))
}

/// [`sha256_file`] that tells `go_on` the bytes of each block; none when that says no.
pub fn sha256_file_while(
    path: &Path,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<String>, FileError> {
    let mut hasher = Sha256::new();
    let whole = each_block(path, &mut |block| {
        hasher.update(block);
        go_on(block.len() as u64)
    })?;
    Ok(whole.then(|| hex(&hasher.finalize())))
}

/// Gives the file to `take` in blocks until that says no; whether it came to the end.
fn each_block(path: &Path, take: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool, FileError> {
    let failed = |e| FileError::io("cannot read", path, e);
    let mut file = File::open(path).map_err(failed)?;
    let mut block = vec![0_u8; 1 << 20];
    loop {
        match file.read(&mut block).map_err(failed)? {
            0 => return Ok(true),
            n if take(&block[..n]) => {}
            _ => return Ok(false),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_abc_is_the_published_one() {
        // FIPS 180-2, appendix B.1
        assert_eq!(sha256_parts(["a", "bc"]), sha256(b"abc"));
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn write_replaces_whole_content_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/deep/a.json");
        write_atomic(&path, b"first, longer").unwrap();
        write_atomic(&path, b"second").unwrap();
        assert_eq!(read_capped(&path, 100).unwrap(), b"second");
        assert_eq!(sha256_file(&path).unwrap(), sha256(b"second"));
        assert_eq!(sha256_file_while(&path, &mut |bytes| bytes == 6).unwrap(), Some(sha256(b"second")));
        assert_eq!(sha256_file_while(&path, &mut |_| false).unwrap(), None);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn cap_and_folders_are_clear_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write_atomic(&path, &[0; 11]).unwrap();
        let error = read_capped(&path, 10).unwrap_err().to_string();
        assert!(error.ends_with("is 11 bytes; at most 10 are read"), "{error}");
        assert!(read_capped(folder.path(), 10).unwrap_err().to_string().contains("it is a folder"));
    }
}
