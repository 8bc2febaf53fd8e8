//! The lines of all locks at this gateway.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::lock::LockName;

use super::line::Line;

/// The lines of the locks that somebody is about here.
#[derive(Debug, Default)]
pub(super) struct Lines {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_name: HashMap<LockName, Weak<Line>>,
    /// How many there may be before those are cleared away that nobody is about any more.
    most: usize,
}

/// Fewer are not worth a look.
const FEW: usize = 1_024;

// === impl Lines ===

impl Lines {
    /// The line of a lock. It is kept as long as somebody has it.
    pub(super) fn of(&self, name: &LockName) -> Arc<Line> {
        let mut known = self.known();
        if let Some(line) = known.by_name.get(name).and_then(Weak::upgrade) {
            return line;
        }
        if known.by_name.len() >= known.most.max(FEW) {
            known.by_name.retain(|_, line| line.strong_count() > 0);
            known.most = 2 * known.by_name.len();
        }
        let line = Arc::new(Line::default());
        known.by_name.insert(name.clone(), Arc::downgrade(&line));
        line
    }

    /// The line of a lock that somebody is about already.
    pub(super) fn existing(&self, name: &LockName) -> Option<Arc<Line>> {
        self.known().by_name.get(name).and_then(Weak::upgrade)
    }

    /// A lock may be free now.
    pub(super) fn wake(&self, name: &LockName) {
        if let Some(line) = self.existing(name) {
            line.woken.notify_one();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_kept_as_long_as_somebody_is_about_the_lock() {
        let lines = Lines::default();
        let name = |n: usize| LockName::new(&format!("lock:{n}")).unwrap();
        let kept = lines.of(&name(0));
        for n in 0..3 * FEW {
            assert!(Arc::ptr_eq(&lines.of(&name(0)), &kept));
            drop(lines.of(&name(n)));
        }
        assert!(lines.known().by_name.len() <= FEW);
        drop(kept);
        assert!(lines.existing(&name(0)).is_none());
    }
}
