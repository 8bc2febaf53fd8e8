//! Watches that fencing tokens rise, as the store promises.

use std::{collections::hash_map::RandomState, hash::BuildHasher};

use parking_lot::{Mutex, MutexGuard};
use tracing::error;

use crate::{
    lock::{FencingToken, LockName},
    telemetry::metrics::Metrics,
};

/// Remembers the fencing token of the last grant of many names.
///
/// Nothing is decided by it: a token that does not rise is logged and counted. It shows that the store
/// has lost data and its clock as well.
#[derive(Debug)]
pub(super) struct Fences {
    metrics: Metrics,
    hasher: RandomState,
    seen: Box<[Mutex<Option<LastGrant>>]>,
}

/// The last grant of a name.
type LastGrant = (LockName, FencingToken);

/// How many names are remembered at most: names that fall together push each other out. A megabyte if
/// every one of them is long.
const NAMES: usize = 4096;

// === impl Fences ===

impl Fences {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            hasher: RandomState::new(),
            seen: (0..NAMES).map(|_| Mutex::default()).collect(),
        }
    }

    /// The fencing token of the last grant of this name that was answered. To be asked before the lock
    /// is: of two grants that are under way together either answer may come first.
    pub(super) fn last(&self, name: &LockName) -> Option<FencingToken> {
        let place = self.slot(name);
        let (seen, fence) = place.as_ref()?;
        (seen == name).then_some(*fence)
    }

    /// A lock was granted to an attempt that began after `before`.
    pub(super) fn granted(
        &self,
        name: &LockName,
        fence: FencingToken,
        before: Option<FencingToken>,
    ) {
        if let Some(before) = before.filter(|before| fence <= *before) {
            self.metrics.fence_regressed();
            error!(
                %name,
                fence = fence.get(),
                before = before.get(),
                "a fencing token did not rise: the store has lost data"
            );
        }
        let mut place = self.slot(name);
        match &mut *place {
            Some((seen, highest)) if seen == name => *highest = fence.max(*highest),
            other => *other = Some((name.clone(), fence)),
        }
    }

    fn slot(&self, name: &LockName) -> MutexGuard<'_, Option<LastGrant>> {
        let hash = self.hasher.hash_one(name) % NAMES as u64;
        let at = usize::try_from(hash).expect("the remainder of a usize fits in a usize");
        self.seen[at].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Figures;

    fn regressions(fences: &Fences) -> bool {
        let text = fences.metrics.text(&Figures::default());
        !text.contains("latchgate_fence_regressions_total 0")
    }

    #[test]
    fn a_fencing_token_that_does_not_rise_is_counted_and_only_that() {
        let fences = Fences::new(Metrics::default());
        let [a, b] = ["a", "b"].map(|name| LockName::new(name).unwrap());
        let fence = |number| FencingToken::new(number).unwrap();
        fences.granted(&a, fence(9), fences.last(&a));
        fences.granted(&b, fence(3), fences.last(&b));
        // Two that were under way together.
        let before = fences.last(&a);
        fences.granted(&a, fence(11), before);
        fences.granted(&a, fence(10), before);
        assert!(!regressions(&fences));
        assert_eq!(fences.last(&a), Some(fence(11)));
        fences.granted(&a, fence(11), fences.last(&a));
        assert!(regressions(&fences));
    }
}
