//! Declared locks: completes the terms of a request by the declaration of its lock, or refuses the request.

use std::{fmt::Display, sync::Arc};

use crate::{
    config::{DeclaredLock, DeclaredMode},
    http::{
        extract::Field,
        problem::{Extra, FieldError, Problem, ProblemCode},
        state::AppState,
    },
    lock::{HoldLimit, Limit, LockName, MinHold, Sharing, Ttl, UndeclaredTerms},
    store::contract::RenewalTtl,
};

use super::acquire::{AcquireBody, LIMIT, MAX_HOLD, MIN_HOLD, MODE, ORDER, TTL};

// === impl AppState ===

impl AppState {
    /// The declaration of a lock, if there is one.
    pub(super) fn declared(&self, name: &LockName) -> Option<Arc<DeclaredLock>> {
        self.declarations.as_ref()?.read().find(name)
    }

    /// Lowers the TTL that a renewal asks for to the longest that is declared for the lock. The renewal is not refused,
    /// because its holder would lose the lock.
    pub(super) fn bounded_renewal(&self, name: &LockName, mut ttl: RenewalTtl) -> RenewalTtl {
        if let Some(most) = self.declared(name).and_then(|lock| lock.max_ttl()) {
            ttl.asked = ttl.asked.map(|asked| asked.min(most));
        }
        ttl
    }
}

// === impl AcquireBody ===

impl AcquireBody {
    /// Completes the terms by the declaration of the lock, if there is one. Fails if the request says something else.
    pub(super) fn complete(
        &mut self,
        name: &LockName,
        lock: Option<&DeclaredLock>,
        gateway: &AppState,
    ) -> Result<(), Problem> {
        let Some(lock) = lock else {
            let all = gateway.declarations.as_ref();
            if !all.is_some_and(|all| all.read().refuses_undeclared) {
                return Ok(());
            }
            let detail = format!("The lock `{name}` is not declared. Nothing happened.");
            return Err(Problem::new(ProblemCode::UndeclaredLock, detail));
        };
        let terms = &mut self.terms;
        let is_reservation = terms.reservation().is_some();
        let is_alone = self.says_alone || is_reservation;
        let mode = terms
            .sharing
            .map(|_| "shared")
            .or(is_alone.then_some("exclusive"));
        let is_shared = lock.mode == Some(DeclaredMode::Shared);
        let declared_mode = lock
            .mode
            .map(|_| if is_shared { "shared" } else { "exclusive" });
        let asked_limit = terms.sharing.and_then(|it| it.explicit_limit());
        let differences = [
            differs(&MODE, mode, declared_mode).filter(|_| !is_alone || lock.exclusive.is_some()),
            differs(&LIMIT, asked_limit, lock.limit()),
            differs(&MIN_HOLD, self.min_hold, lock.min_hold_ms),
        ];
        let differences: Vec<_> = differences.into_iter().flatten().collect();
        if !differences.is_empty() {
            let each = differences
                .iter()
                .map(|it| format!("`{}` {}", it.field, it.reason));
            let each = each.collect::<Vec<_>>().join("; ");
            let detail = format!("The lock `{name}` is declared with other terms: {each}.");
            let problem = Problem::new(ProblemCode::DeclaredDifferently, detail);
            return Err(problem.with(Extra::Fields(differences)));
        }
        if is_reservation {
            return Ok(());
        }
        if lock.order.is_some() && self.order.is_none() {
            let reason =
                format!("is missing; the lock `{name}` is declared with order = \"required\"");
            return Err(Problem::invalid_field(ORDER.name, reason));
        }
        terms.undeclared = Some(UndeclaredTerms {
            min_hold: terms.min_hold,
            sharing: terms.sharing,
            is_alone: is_alone && is_shared,
        });
        if is_shared && !is_alone {
            let most = || Limit::new(gateway.config.limits.max_holders).ok();
            let sharing = lock.limit().or_else(most).map(|limit| Sharing {
                limit,
                has_slot: lock.limit.is_some(),
            });
            terms.sharing = terms.sharing.filter(|_| lock.limit.is_none()).or(sharing);
        }
        terms.min_hold = lock.min_hold().or(terms.min_hold);
        let least = terms.min_hold.map_or(0, MinHold::as_millis);
        let max_ttl = lock.max_ttl().map(Ttl::as_millis);
        let asked_hold = terms.hold_limit().map(HoldLimit::as_millis);
        for (field, asked, most) in [
            (&TTL, terms.explicit.ttl.map(Ttl::as_millis), max_ttl),
            (&MIN_HOLD, Some(least), max_ttl),
            (&MAX_HOLD, asked_hold, lock.max_hold_ms),
        ] {
            if let Some((asked, most)) = asked.zip(most).filter(|(asked, most)| asked > most) {
                let reason = format!(
                    "is {asked} ms; the declaration of the lock `{name}` allows at most {most} ms"
                );
                return Err(Problem::invalid_field(field.name, reason));
            }
        }
        let ttl = terms
            .ttl()
            .as_millis()
            .min(max_ttl.unwrap_or(u64::MAX))
            .max(least);
        let ttl = Ttl::from_millis(ttl).unwrap_or(terms.ttl());
        terms.set_ttl(ttl);
        if let Some(limit) = asked_hold.or(lock.max_hold_ms) {
            // The minimum hold may have raised the TTL above the hold limit, with which the lease, and its rest, would
            // end too soon.
            let limit = HoldLimit::from_millis(limit, ttl);
            let limit = limit.map_err(|why| Problem::invalid_field(MAX_HOLD.name, why.to_string()));
            terms.set_hold_limit(limit?);
        }
        Ok(())
    }
}

/// A field for which the request says another value than the declaration.
fn differs<T: PartialEq + Display>(
    field: &Field,
    asked: Option<T>,
    declared: Option<T>,
) -> Option<FieldError> {
    let (asked, declared) = asked
        .zip(declared)
        .filter(|(asked, declared)| asked != declared)?;
    let reason = format!("is {asked}, and declared as {declared}");
    Some(FieldError::new(field.name, reason))
}
