//! A run that goes on: what it has told so far is kept, so that whoever comes later (a page that was loaded again, a second
//! one) sees all of it.

use crate::{Cancel, ErrorReport, News};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(crate) struct Going {
    pub(crate) cancel: Cancel,
    told: Mutex<Told>,
    more: Condvar,
}

#[derive(Default)]
struct Told {
    /// Events as JSON, in order.
    lines: Vec<String>,
    /// How it ended.
    outcome: Option<Result<String, ErrorReport>>,
}

impl Going {
    fn locked(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, line: String) {
        self.locked().lines.push(line);
        self.more.notify_all();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.locked().outcome.is_some()
    }

    pub(crate) fn end(&self, outcome: Result<String, ErrorReport>) {
        self.locked().outcome = Some(outcome);
        self.more.notify_all();
    }

    /// Tells everything from the beginning, then what comes, until the end; the run's outcome. None when nobody listens any
    /// more: that ends the telling, not the run.
    pub(crate) fn follow(&self, news: News) -> Option<Result<String, ErrorReport>> {
        let mut next = 0;
        let mut told = self.locked();
        loop {
            if let Some(line) = told.lines.get(next).cloned() {
                next += 1;
                drop(told);
                if !news(line) {
                    return None;
                }
                told = self.locked();
            } else if let Some(outcome) = &told.outcome {
                return Some(outcome.clone());
            } else {
                told = self.more.wait(told).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_late_hears_everything_in_order() {
        let going = Going::default();
        going.tell("1".into());
        let heard = |going: &Going| {
            let heard = Mutex::new(Vec::new());
            let outcome = going.follow(&|line| {
                heard.lock().unwrap().push(line);
                true
            });
            (heard.into_inner().unwrap(), outcome)
        };
        std::thread::scope(|scope| {
            let early = scope.spawn(|| heard(&going));
            going.tell("2".into());
            going.end(Ok("done".into()));
            let all = (vec!["1".to_owned(), "2".to_owned()], Some(Ok("done".to_owned())));
            assert_eq!(early.join().unwrap(), all);
            assert_eq!(heard(&going), all);
        });
        assert_eq!(going.follow(&|_| false), None);
    }
}
