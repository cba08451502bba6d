//! The threads that share the arithmetic on the processor: rayon's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Makes this thread one of them. From outside, every operation would wake another thread and sleep until that is done:
/// on the demo model a fifth of its time. Where the threads exist already, they stay as they are.
pub(crate) fn join() {
    let _ = rayon::ThreadPoolBuilder::new().use_current_thread().build_global();
}

/// Somebody else had the core for so long that they need it.
const CROWDED: Duration = Duration::from_micros(500);

/// While it lives, the other threads look for work without sleeping. Operations of a small model are shorter than it takes
/// to wake a thread, so that most would have to be done alone. Where other programs need the cores, a thread goes back to
/// sleeping.
pub struct Awake(Arc<AtomicBool>);

impl Awake {
    /// Wakes the others and waits until they are there. From outside those threads nothing is done, since others may be
    /// in the middle of their work.
    pub(crate) fn new() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let Some(own) = rayon::current_thread_index() else { return Self(over) };
        let (seen, (arrived, arrivals)) = (over.clone(), channel());
        rayon::spawn_broadcast(move |thread| {
            if thread.index() == own {
                return;
            }
            // Whoever waited for it may be gone.
            let _ = arrived.send(());
            while !seen.load(Ordering::Relaxed) && (worked() || !is_crowded()) {}
        });
        // No work begins before: a thread that came to this in the middle of a part of it would never go on with that part.
        for _ in 1..rayon::current_num_threads() {
            let _ = arrivals.recv();
        }
        Self(over)
    }
}

/// Whether there was a part of an operation to do; it is done.
fn worked() -> bool {
    rayon::yield_now() == Some(rayon::Yield::Executed)
}

/// Lets others have the core; whether they took it for long.
fn is_crowded() -> bool {
    let start = Instant::now();
    thread::yield_now();
    start.elapsed() > CROWDED
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums a range in halves, each of them by whoever is free.
    fn sum(from: u64, to: u64) -> u64 {
        if to - from < 4 {
            return (from..to).sum();
        }
        let middle = u64::midpoint(from, to);
        let (low, high) = rayon::join(|| sum(from, middle), || sum(middle, to));
        low + high
    }

    /// A thread that began to stay awake in the middle of a part of the work would never end that part.
    #[test]
    fn work_in_parts_of_parts_ends_while_threads_are_awake() {
        for threads in 1..=4 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                for round in 0..200 {
                    let _awake = Awake::new();
                    for end in (round..round + 1000).step_by(50) {
                        assert_eq!(sum(round, end), (round..end).sum::<u64>());
                    }
                }
            });
        }
    }

    #[test]
    fn threads_that_stay_awake_take_parts_of_the_work() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        pool.install(|| {
            let _awake = Awake::new();
            let own = rayon::current_thread_index();
            let taken = AtomicBool::new(false);
            rayon::scope(|scope| {
                scope.spawn(|_| taken.store(rayon::current_thread_index() != own, Ordering::Relaxed));
                // Without touching rayon, so that only another thread can take it.
                while !taken.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            });
        });
    }
}
