//! The terms of a lease, as its caller asks for them.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::{
    FencingToken, Fingerprint, HeldLease, HoldLimit, Limit, LockName, MinHold, Mode, Order,
    Reservation, Said, Sharing, SupersedeKey, Ttl, idempotency::update,
};

/// The terms of a lease. They are read once from a request, and carried whole to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// How the lease ends.
    pub ends: Ends,
    /// The TTL and the hold limit that the caller gave, without defaults.
    pub explicit: ExplicitTerms,
    /// For how long after its grant the lock is granted to no caller, even if the lease is released earlier.
    pub min_hold: Option<MinHold>,
    /// How the caller wants to share the lock; `None` for an exclusive lease.
    pub sharing: Option<Sharing>,
    /// Of the waiters of one caller with the same key, the newest stays in the queue.
    pub supersedes: Option<Supersedes>,
    /// What the caller says of itself.
    pub said: Said,
    /// What the request says of the terms that the declaration of its lock has completed; `None` if there is none.
    pub undeclared: Option<UndeclaredTerms>,
}

/// The terms of a request before the declaration of its lock completes them. A request that is repeated under its
/// idempotency key is compared by these, so a changed declaration does not make it another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UndeclaredTerms {
    /// The minimum hold that the request names.
    pub min_hold: Option<MinHold>,
    /// How the request wants to share the lock.
    pub sharing: Option<Sharing>,
    /// Whether the request wants a lock alone that is declared as shared. Without this field, a repetition that names no
    /// mode would be answered an exclusive lease in place of a shared one, or the other way round.
    pub is_alone: bool,
}

/// How a waiter is compared with other waiters of the same caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supersedes {
    /// The key. Only waiters with the same key are compared.
    pub key: SupersedeKey,
    /// How long earlier requests of the caller have waited. The waiter counts as so much older, because it continues
    /// their wait.
    pub waited_before: Duration,
}

/// How a lease ends, unless it is released or broken before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ends {
    /// The lease ends with its TTL, which each renewal starts again.
    Ttl {
        /// The TTL, counted from the grant or the last renewal.
        ttl: Ttl,
        /// How long renewals may keep the lease, counted from its grant.
        hold_limit: Option<HoldLimit>,
    },
    /// The lease ends at the time of this reservation. No renewal changes the end.
    At(Box<Reservation>),
}

/// The terms that the caller set explicitly, without defaults. A request that is repeated under its idempotency key must
/// have the same ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExplicitTerms {
    /// The TTL of the lease.
    pub ttl: Option<Ttl>,
    /// How long the lease may be kept with renewals.
    pub hold_limit: Option<HoldLimit>,
}

// === impl Terms ===

impl Terms {
    /// The terms of an exclusive lease that has this TTL, and nothing else.
    pub fn lasting(ttl: Ttl) -> Self {
        Self {
            ends: Ends::Ttl {
                ttl,
                hold_limit: None,
            },
            explicit: ExplicitTerms::default(),
            min_hold: None,
            sharing: None,
            supersedes: None,
            said: Said::default(),
            undeclared: None,
        }
    }

    /// The TTL of the lease; of a reservation [`Reservation::TTL`].
    pub fn ttl(&self) -> Ttl {
        match self.ends {
            Ends::Ttl { ttl, .. } => ttl,
            Ends::At(_) => Reservation::TTL,
        }
    }

    /// Sets the TTL, which a reservation does not have.
    pub fn set_ttl(&mut self, new: Ttl) {
        if let Ends::Ttl { ttl, .. } = &mut self.ends {
            *ttl = new;
        }
    }

    /// Sets the hold limit, which a reservation does not have.
    pub fn set_hold_limit(&mut self, new: HoldLimit) {
        if let Ends::Ttl { hold_limit, .. } = &mut self.ends {
            *hold_limit = Some(new);
        }
    }

    /// How long renewals may keep the lease, if that is limited.
    pub fn hold_limit(&self) -> Option<HoldLimit> {
        match self.ends {
            Ends::Ttl { hold_limit, .. } => hold_limit,
            Ends::At(_) => None,
        }
    }

    /// The reservation that the lease is, if it is one.
    pub fn reservation(&self) -> Option<&Reservation> {
        match &self.ends {
            Ends::Ttl { .. } => None,
            Ends::At(reservation) => Some(reservation),
        }
    }

    /// The lease with these terms that was granted at `as_of`. The store sets the end of a reservation, which depends on its
    /// clock.
    pub fn granted(&self, fence: FencingToken, mode: Mode, as_of: Instant) -> HeldLease {
        let (ttl, limit) = (self.ttl(), self.hold_limit().map(HoldLimit::duration));
        HeldLease {
            fence,
            mode,
            is_resting: false,
            ttl,
            expires_in: limit.map_or(ttl.duration(), |limit| limit.min(ttl.duration())),
            held_for: Duration::ZERO,
            hold_expires_in: limit,
            reservation: self.reservation().cloned().map(Box::new),
            said: self.said.clone(),
            release_requested: None,
            as_of,
        }
    }

    /// The number that stands for the sharing in a fingerprint: 0 for exclusive, 1 for shared without a limit, and
    /// otherwise the limit plus 1.
    pub fn sharing_number(&self) -> u16 {
        match self.undeclared {
            Some(UndeclaredTerms { is_alone: true, .. }) => u16::MAX,
            Some(UndeclaredTerms { sharing, .. }) => sharing_number(sharing),
            None => sharing_number(self.sharing),
        }
    }

    /// The fingerprint of a request with these terms. Defaults of missing fields are left out, because they may differ
    /// between gateways and operations.
    pub fn fingerprint(&self) -> Fingerprint {
        // The patterns name every field, so that a new field cannot be forgotten here.
        let Self {
            ends,
            explicit: ExplicitTerms { ttl, hold_limit },
            min_hold,
            sharing: _,
            supersedes,
            said:
                Said {
                    owner,
                    metadata,
                    group: _,
                    order,
                },
            undeclared,
        } = self;
        let min_hold = undeclared.map_or(*min_hold, |it| it.min_hold);
        let mut hash = Sha256::new();
        update(&mut hash, &ttl.map_or(0, Ttl::as_millis).to_be_bytes());
        let hold_limit = hold_limit.map_or(0, HoldLimit::as_millis);
        update(&mut hash, &hold_limit.to_be_bytes());
        update(&mut hash, &self.sharing_number().to_be_bytes());
        update(
            &mut hash,
            owner.as_ref().map_or("", |it| it.as_str()).as_bytes(),
        );
        for (name, value) in metadata.iter() {
            update(&mut hash, name.as_bytes());
            update(&mut hash, value.as_bytes());
        }
        let mut whole = hash.finalize();
        // A field that came later is hashed together with the fingerprint without it. So a request that does not have the
        // field has the same fingerprint at a gateway that does not know the field.
        if let Some(Supersedes { key, .. }) = supersedes {
            let mut hash = Sha256::new();
            for part in [whole.as_slice(), b"supersedes", key.as_str().as_bytes()] {
                update(&mut hash, part);
            }
            whole = hash.finalize();
        }
        if let Some(min_hold) = min_hold {
            let hash = Sha256::new().chain_update(whole).chain_update(b"min_hold");
            let hash = hash.chain_update(min_hold.as_millis().to_be_bytes());
            whole = hash.finalize();
        }
        if let Some(order) = order {
            let hash = Sha256::new().chain_update(whole).chain_update(b"order");
            whole = hash.chain_update(order_text(Some(order))).finalize();
        }
        if let Ends::At(reservation) = ends {
            let hash = Sha256::new().chain_update(whole).chain_update(b"reserve");
            let hash = hash.chain_update(reservation.until_ms.to_be_bytes());
            whole = hash.chain_update(reservation.reason.as_str()).finalize();
        }
        Fingerprint::from_bytes(whole.into())
    }
}

// === impl Supersedes ===

impl From<SupersedeKey> for Supersedes {
    fn from(key: SupersedeKey) -> Self {
        Self {
            key,
            waited_before: Duration::ZERO,
        }
    }
}

// === impl Fingerprint ===

impl Fingerprint {
    /// The fingerprint of the same request for a group, which must have exactly these locks, each with this
    /// [`Terms::sharing_number`] and order. The locks are sorted by their names; `self` was computed with the terms of
    /// the last lock.
    #[must_use]
    pub fn of_group<'a>(
        self,
        locks: impl Iterator<Item = (&'a LockName, u16, Option<&'a Order>)>,
    ) -> Self {
        let locks = locks.map(|(name, sharing, order)| {
            (name.as_str(), format!("{sharing}{}", order_text(order)))
        });
        let locks: Vec<_> = locks.collect();
        // If all locks have the same terms, the names alone are hashed. Gateways that know no terms of single locks
        // compute the same fingerprint.
        let is_uniform = locks.windows(2).all(|pair| pair[0].1 == pair[1].1);
        let mut hash = Sha256::new();
        hash.update(self.as_bytes());
        for (at, (name, terms)) in locks.iter().enumerate() {
            hash.update(if at > 0 { "," } else { "" });
            hash.update(name);
            if !is_uniform {
                hash.update(format!("={terms}"));
            }
        }
        Self::from_bytes(hash.finalize().into())
    }
}

/// The text that stands for an order in a fingerprint, whichever API key asks; empty without an order.
fn order_text(order: Option<&Order>) -> String {
    order.map_or_else(String::new, |order| {
        let by_nobody = Order {
            by: None,
            ..order.clone()
        };
        by_nobody.stored("")
    })
}

fn sharing_number(sharing: Option<Sharing>) -> u16 {
    sharing.map_or(0, |it| 1 + it.explicit_limit().map_or(0, Limit::get))
}

#[cfg(test)]
mod tests {
    use crate::{Metadata, OrderNumber, Owner, Reason, TokenHash};

    use super::*;

    fn plain() -> Terms {
        Terms::lasting(Ttl::MAX)
    }

    fn with(change: impl FnOnce(&mut Terms)) -> Terms {
        let mut terms = plain();
        change(&mut terms);
        terms
    }

    /// Sharing terms; with a slot if the limit comes from the caller.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "a request may have no sharing terms"
    )]
    fn shared(limit: u64, has_slot: bool) -> Option<Sharing> {
        let limit = Limit::new(limit).unwrap();
        Some(Sharing { limit, has_slot })
    }

    fn reserved(until_ms: u64, reason: &str) -> Terms {
        let reservation = Reservation {
            until_ms,
            reason: Reason::new(reason).unwrap(),
            by: Some("ops".into()),
        };
        with(|it| it.ends = Ends::At(Box::new(reservation)))
    }

    fn order(number: u64, rollback: Option<&str>) -> Order {
        Order {
            number: OrderNumber::new(number).unwrap(),
            by: None,
            rollback: rollback.map(|why| Reason::new(why).unwrap()),
        }
    }

    fn ordered(number: u64, rollback: Option<&str>) -> Terms {
        with(|it| it.said.order = Some(Box::new(order(number, rollback))))
    }

    /// The fingerprint of a group request, as the engine makes it: from the request for its last lock.
    fn group<const N: usize>(terms: &Terms, locks: [(&str, Option<Sharing>); N]) -> Fingerprint {
        let names = locks.map(|(name, _)| LockName::new(name).unwrap());
        let sharing = locks.map(|(_, sharing)| sharing);
        let last = Terms {
            sharing: sharing[N - 1],
            ..terms.clone()
        };
        let order = terms.said.order.as_deref();
        let locks = names
            .iter()
            .zip(sharing.map(sharing_number))
            .map(|(name, it)| (name, it, order));
        last.fingerprint().of_group(locks)
    }

    #[test]
    fn of_a_group_with_the_same_terms_for_all_is_that_of_earlier_versions() {
        for (fingerprint, golden) in [
            (
                group(&plain(), [("a", None), ("b", None)]),
                "201874740bd4f26298cbf036a5df57e1df6242d9abaec1e7a6074fe98ba985bd",
            ),
            (
                group(&plain(), [("a", shared(3, true)), ("b", shared(3, true))]),
                "5ee543896a8d015bae2b1bc0987f69f421c49784607d1445012cbae8334a9d25",
            ),
            // The limit of the gateway is no term of the request.
            (
                group(&plain(), [("a", shared(7, false)), ("b", shared(9, false))]),
                "5359794c2f9e66c7dad1f8500b9ce0350d4927fe49b564fc84adb083fd0cc2a9",
            ),
        ] {
            // A token hash prints its bytes in hexadecimal digits.
            let hex = TokenHash::from_bytes(*fingerprint.as_bytes()).to_string();
            assert_eq!(hex, golden);
        }
    }

    fn superseding(waited_ms: u64) -> Terms {
        let supersedes = Supersedes {
            key: SupersedeKey::new("x").unwrap(),
            waited_before: Duration::from_millis(waited_ms),
        };
        with(|it| it.supersedes = Some(supersedes))
    }

    #[test]
    fn a_request_may_have_waited_longer_when_it_is_repeated() {
        let [first, later] = [0, 7].map(superseding);
        assert_eq!(first.fingerprint(), later.fingerprint());
    }

    #[test]
    fn the_api_key_of_an_order_is_no_part_of_the_request() {
        let mut by_ops = ordered(1, None);
        by_ops.said.order.as_mut().unwrap().by = Some("ops".into());
        assert_eq!(by_ops.fingerprint(), ordered(1, None).fingerprint());
    }

    #[test]
    fn a_declaration_does_not_change_the_fingerprint_of_a_request() {
        let declared = |is_alone: bool| {
            with(|it| {
                it.min_hold = MinHold::from_millis(60_000, Ttl::MAX).ok();
                it.sharing = shared(20, true).filter(|_| !is_alone);
                it.undeclared = Some(UndeclaredTerms {
                    min_hold: None,
                    sharing: None,
                    is_alone,
                });
            })
        };
        assert_eq!(declared(false).fingerprint(), plain().fingerprint());
        assert_ne!(declared(true).fingerprint(), plain().fingerprint());
        assert_ne!(declared(true).sharing_number(), 0);
    }

    #[test]
    fn tells_requests_apart_by_every_field() {
        let min_hold = |ms| MinHold::from_millis(ms, Ttl::MAX).ok();
        let rests = |ms| with(|it| it.min_hold = min_hold(ms)).fingerprint();
        let entry = [("a".to_owned(), "b".to_owned())];
        let metadata = with(|it| it.said.metadata = Metadata::new(entry.into()).unwrap());
        let shares = |sharing| with(|it| it.sharing = sharing).fingerprint();
        let [lock, b] = ["a", "b"].map(|name| LockName::new(name).unwrap());
        let one = order(1, None);
        let all = [
            plain().fingerprint(),
            reserved(1, "x").fingerprint(),
            reserved(2, "x").fingerprint(),
            reserved(1, "y").fingerprint(),
            rests(1),
            rests(2),
            rests(1).of_group([(&lock, 0, None)].into_iter()),
            ordered(1, None).fingerprint(),
            ordered(2, None).fingerprint(),
            ordered(1, Some("x")).fingerprint(),
            ordered(1, Some("y")).fingerprint(),
            group(&ordered(1, None), [("a", None), ("b", None)]),
            (plain().fingerprint()).of_group([(&lock, 0, Some(&one)), (&b, 0, None)].into_iter()),
            with(|it| it.explicit.ttl = Some(Ttl::MIN)).fingerprint(),
            with(|it| it.explicit.ttl = Some(Ttl::MAX)).fingerprint(),
            with(|it| it.explicit.hold_limit = Some(HoldLimit::MAX)).fingerprint(),
            shares(shared(1, false)),
            shares(shared(1, true)),
            shares(shared(2, true)),
            with(|it| it.said.owner = Owner::new("x").ok()).fingerprint(),
            metadata.fingerprint(),
            superseding(0).fingerprint(),
            group(&plain(), [("a", None), ("b", None)]),
            group(&plain(), [("a", None), ("c", None)]),
            group(&metadata, [("a", None), ("b", None)]),
            group(&plain(), [("a", shared(1, true)), ("b", None)]),
            group(&plain(), [("a", None), ("b", shared(1, true))]),
            group(&plain(), [("a", shared(1, false)), ("b", None)]),
            group(&plain(), [("a", shared(2, true)), ("b", shared(1, true))]),
            group(&plain(), [("a", shared(1, true)), ("b", shared(1, true))]),
        ];
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate() {
                assert_eq!(a == b, i == j);
            }
        }
    }
}
