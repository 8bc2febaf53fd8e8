//! A model of a store without expiry: the right answer to each command of a sequence.

use crate::conformance::prelude::*;

/// The model: leases that are held, idempotency keys that are used, and attempts that were withdrawn.
#[derive(Debug, Default)]
pub(super) struct Model {
    held: HashMap<LockName, Held>,
    used: HashSet<IdempotencyHash>,
    released_with_key: HashSet<(LockName, TokenHash)>,
    given_back: HashSet<(LockName, TokenHash)>,
    fences: HashMap<LockName, FencingToken>,
    /// The attempts that have released their lease, with an idempotency key or without.
    have_released: HashSet<(LockName, TokenHash)>,
    /// Whether an attempt that has released its lease may be answered as withdrawn: a node that was late is told to end
    /// all that it has of this attempt.
    withdraws_what_was_released: bool,
}

#[derive(Debug)]
struct Held {
    token: TokenHash,
    fence: FencingToken,
    key: Option<(IdempotencyHash, Fingerprint)>,
    answered_again: bool,
    /// The attempts that were answered this lease because of its idempotency key.
    answered: HashSet<TokenHash>,
    /// The last attempt that was answered this lease.
    recipient: TokenHash,
}

// === impl Model ===

impl Model {
    /// The model of an empty store.
    pub(super) fn new(withdraws_what_was_released: bool) -> Self {
        Self {
            withdraws_what_was_released,
            ..Self::default()
        }
    }

    /// Whether the answer is right. If it is a grant, the model adds the lease.
    pub(super) fn acquired(
        &mut self,
        attempt: &Attempt,
        answer: &Result<Acquisition, StoreError>,
    ) -> bool {
        let key = attempt.idempotency.as_ref();
        let token = (attempt.name.clone(), attempt.token);
        if self.given_back.contains(&token) {
            // If the lease of the attempt was released before, the idempotency key may report the end as well.
            let has_expired = key.is_some() && self.released_with_key.contains(&token);
            // If the attempt was answered the lease of another attempt, which was answered again since, the store may
            // report this.
            let held = self.held.get(&attempt.name);
            let is_replaced = held.is_some_and(|held| {
                held.answered.contains(&attempt.token) && held.recipient != attempt.token
            });
            return *answer == Err(Unavailability::Withdrawn.into())
                || (has_expired && *answer == Ok(Acquisition::IdempotencyExpired))
                || (is_replaced && *answer == Ok(Acquisition::Replaced));
        }
        if self.withdraws_what_was_released
            && self.have_released.contains(&token)
            && *answer == Err(Unavailability::Withdrawn.into())
        {
            return true;
        }
        let Ok(answer) = answer else { return false };
        if let Some(held) = self.held.get_mut(&attempt.name) {
            if held.token == attempt.token && held.recipient != attempt.token {
                return *answer == Acquisition::Replaced;
            }
            if held.token == attempt.token {
                return matches!(answer, Acquisition::Granted(lease) if lease.fence == held.fence);
            }
            if let (Some(asked), Some((hash, fingerprint))) = (key, held.key)
                && asked.hash == hash
            {
                if asked.fingerprint != fingerprint {
                    return *answer == Acquisition::IdempotencyMismatch;
                }
                // The attempt was answered this lease before, and a newer attempt was since. A client that repeats a
                // command must learn this.
                if *answer == Acquisition::Replaced {
                    return held.answered.contains(&attempt.token)
                        && held.recipient != attempt.token;
                }
                held.answered_again = true;
                held.answered.insert(attempt.token);
                held.recipient = attempt.token;
                return matches!(answer, Acquisition::Replayed(lease, _) if lease.fence == held.fence);
            }
        }
        if key.is_some_and(|key| self.used.contains(&key.hash)) {
            return *answer == Acquisition::IdempotencyExpired;
        }
        if let Some(held) = self.held.get(&attempt.name) {
            return matches!(answer, Acquisition::Held(contention) if shows(contention.holder.as_ref(), held));
        }
        let Acquisition::Granted(lease) = answer else {
            return false;
        };
        let before = self.fences.insert(attempt.name.clone(), lease.fence);
        let held = Held {
            token: attempt.token,
            fence: lease.fence,
            key: key.map(|key| (key.hash, key.fingerprint)),
            answered_again: false,
            answered: HashSet::new(),
            recipient: attempt.token,
        };
        self.held.insert(attempt.name.clone(), held);
        Some(lease.fence) > before
    }

    /// Whether this is a right answer to a renewal.
    pub(super) fn renewed(&self, name: &LockName, token: &TokenHash, answer: &Renewal) -> bool {
        match self.held.get(name) {
            Some(held) if held.token == *token => {
                matches!(answer, Renewal::Renewed(lease, _) if lease.fence == held.fence)
            }
            other => *answer == Renewal::Lost(loss(other)),
        }
    }

    /// Whether this is a right answer to a release.
    pub(super) fn released(
        &mut self,
        name: &LockName,
        token: &TokenHash,
        answer: &Release,
    ) -> bool {
        let held = self.held.get(name);
        if held.is_some_and(|held| held.token == *token) {
            self.have_released.insert((name.clone(), *token));
            self.end(name, true);
            matches!(answer, Release::Released(_))
        } else if self.released_with_key.contains(&(name.clone(), *token)) {
            matches!(answer, Release::Released(_))
        } else {
            *answer == Release::Lost(loss(held))
        }
    }

    /// Whether this is a right answer to the release of an undelivered lease.
    pub(super) fn given_back(
        &mut self,
        name: &LockName,
        token: &TokenHash,
        answer: GiveBack,
    ) -> bool {
        let held = self.held.get(name).filter(|held| held.token == *token);
        if held.is_some_and(|held| held.answered_again) {
            return answer == GiveBack::Kept;
        }
        let was_held = held.is_some();
        self.given_back.insert((name.clone(), *token));
        if was_held {
            self.end(name, false);
            answer == GiveBack::GivenBack
        } else {
            answer == GiveBack::NothingHeld
        }
    }

    /// Whether this is a right answer to an inspection.
    pub(super) fn inspected(&self, name: &LockName, answer: &Inspection) -> bool {
        let right = match self.held.get(name) {
            Some(held) => shows(answer.holder.as_ref(), held),
            None => answer.holder.is_none(),
        };
        right && answer.queue.is_empty() && answer.waiters == 0
    }

    fn end(&mut self, name: &LockName, released: bool) {
        if let Some(Held {
            token,
            key: Some((hash, _fingerprint)),
            ..
        }) = self.held.remove(name)
        {
            self.used.insert(hash);
            if released {
                self.released_with_key.insert((name.clone(), token));
            }
        }
    }
}

fn shows(holder: Option<&Holder>, held: &Held) -> bool {
    matches!(holder, Some(Holder::Lease(lease)) if lease.fence == held.fence)
}

fn loss(held: Option<&Held>) -> Loss {
    if held.is_some() {
        Loss::HeldByAnother
    } else {
        Loss::Free
    }
}
