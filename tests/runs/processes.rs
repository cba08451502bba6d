//! Processes: found, waited for, killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Waits until something holds; a test that waits in vain fails.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(240), "waited in vain until {what}");
        pause(Duration::from_millis(20));
    }
}

/// Whether a process could be sent a signal; `-0` only asks whether it is there.
pub fn signal(signal: &str, process: u32) -> bool {
    let process = process.to_string();
    Command::new("kill").args([signal, &process]).stderr(Stdio::null()).status().unwrap().success()
}

/// Children of a process, their children, and so on.
pub fn descendants(process: u32) -> Vec<u32> {
    let children = pgrep(&["-P", &process.to_string()]);
    children.iter().flat_map(|child| std::iter::once(*child).chain(descendants(*child))).collect()
}

/// Processes whose command line contains the text.
pub fn saying(text: &str) -> Vec<u32> {
    pgrep(&["-f", "--", text])
}

fn pgrep(arguments: &[&str]) -> Vec<u32> {
    let found = Command::new("pgrep").args(arguments).output().unwrap().stdout;
    String::from_utf8(found).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

/// A port that nobody listens on now.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until the server listens; one that has ended instead fails the test.
pub fn listening(server: &mut Child, port: u16) {
    until("a server listens", || {
        assert!(server.try_wait().unwrap().is_none(), "the server has ended: is its configuration right?");
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
}

/// A program that these tests need, where it usually is; none where it is not installed, which is said.
pub fn installed(name: &str) -> Option<PathBuf> {
    let usual = ["/usr/sbin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/opt/homebrew/sbin"];
    let found = usual.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: {name} is not installed (`cargo xtask setup --tests` installs it)");
    }
    found
}

/// A server that ends with the test.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        for process in descendants(self.0.id()) {
            signal("-KILL", process);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Numbers that look random and are the same each time.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        // xorshift64, G. Marsaglia, "Xorshift RNGs", 2003
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        of.get(usize::try_from(self.roll(of.len().max(1) as u64)).unwrap()).copied()
    }
}

/// Lets time pass: between two looks at a condition, and where something is to happen in the middle of something.
#[expect(clippy::disallowed_methods, reason = "what other processes do tells nothing to a channel")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
