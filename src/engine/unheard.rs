//! Which leases under an idempotency key nobody has heard of yet.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::lock::TokenHash;

/// The leases under an idempotency key that were granted through this gateway and of which, as far as
/// it knows, no answer has arrived. Cheap to clone.
///
/// A lease that is answered again is its caller's, who may have heard of it before, so it is not given
/// back when that answer is lost. These are the ones of which it is known better.
#[derive(Debug, Clone, Default)]
pub(super) struct Unheard(Arc<Mutex<HashMap<TokenHash, usize>>>);

// === impl Unheard ===

impl Unheard {
    /// An answer that would be the first is under way, or is to be given back.
    pub(super) fn expect(&self, token: TokenHash) {
        *self.lock().entry(token).or_default() += 1;
    }

    /// The same for an answer that would be the first unless somebody has heard another one. Says
    /// whether it would.
    pub(super) fn expect_again(&self, token: &TokenHash) -> bool {
        let mut answers = self.lock();
        let answers = answers.get_mut(token);
        answers.map(|answers| *answers += 1).is_some()
    }

    /// Somebody has heard of the lease.
    pub(super) fn heard(&self, token: &TokenHash) {
        self.lock().remove(token);
    }

    /// Whether nobody has.
    pub(super) fn is_unheard(&self, token: &TokenHash) -> bool {
        self.lock().contains_key(token)
    }

    /// One of the answers has been dealt with.
    pub(super) fn forget(&self, token: &TokenHash) {
        let mut answers = self.lock();
        if let Some(left) = answers.get_mut(token) {
            *left -= 1;
            if *left == 0 {
                answers.remove(token);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenHash, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
