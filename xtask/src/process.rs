//! Starting other programs.

use crate::error::Error;
use crate::place;
use crate::tally::Tally;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// A command in the repository, whose input is empty so that nothing ever waits for an answer.
pub(crate) fn command(program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(place::root()).stdin(Stdio::null());
    command
}

/// Shows the command, runs it to the end and demands success.
pub(crate) fn run(command: &mut Command) -> Result<(), Error> {
    show(command);
    let status = command.status().map_err(|source| not_started(command, source))?;
    if status.success() { Ok(()) } else { Err(Error::Failed { command: words(command), status }) }
}

/// As [`run`]; returns what the program writes to standard output.
pub(crate) fn run_and_read(command: &mut Command) -> Result<String, Error> {
    show(command);
    let output = command.stderr(Stdio::inherit()).output().map_err(|source| not_started(command, source))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Error::Failed { command: words(command), status: output.status })
    }
}

/// As [`run`], and counts the tests of which the program tells.
pub(crate) fn run_tests(command: &mut Command, tally: &mut Tally) -> Result<(), Error> {
    show(command);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| not_started(command, source))?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let (told, also_told) = std::thread::scope(|scope| {
        let errors = scope.spawn(|| pass_on(errors, std::io::stderr()));
        (pass_on(output, std::io::stdout()), errors.join().unwrap_or_default())
    });
    tally.add(told);
    tally.add(also_told);
    let status = child.wait().map_err(|source| not_started(command, source))?;
    if status.success() { Ok(()) } else { Err(Error::Failed { command: words(command), status }) }
}

/// Runs quietly: standard output when the program succeeds, standard error when it does not.
pub(crate) fn ask(command: &mut Command) -> Result<Result<String, String>, Error> {
    let output = command.output().map_err(|source| not_started(command, source))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let errors = text(&output.stderr);
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(errors) })
}

/// Whether a program of this name can be found.
pub(crate) fn installed(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .any(|folder| folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX)).is_file())
}

fn pass_on(from: Option<impl Read>, mut to: impl Write) -> Tally {
    let mut tally = Tally::default();
    let Some(from) = from else { return tally };
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        tally.read(&String::from_utf8_lossy(&line));
        // A closed terminal does not end the tests.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        line.clear();
    }
    tally
}

fn show(command: &Command) {
    eprintln!("$ {}", words(command));
}

/// The command as one would type it; paths inside the repository are shortened.
fn words(command: &Command) -> String {
    let root = place::root();
    let short = |word: &OsStr| {
        let path = Path::new(word);
        path.strip_prefix(&root).unwrap_or(path).display().to_string()
    };
    std::iter::once(command.get_program()).chain(command.get_args()).map(short).collect::<Vec<_>>().join(" ")
}

fn not_started(command: &Command, source: std::io::Error) -> Error {
    let program = command.get_program().to_string_lossy().into_owned();
    let hint = match program.as_str() {
        "npm" | "node" => "install Node 20 or newer: https://nodejs.org",
        "apt-get" | "sudo" => "install sudo, or run `cargo xtask setup` as root",
        _ => "check that it is installed and in PATH",
    };
    Error::Start { program, source, hint }
}
