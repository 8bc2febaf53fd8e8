//! Declared locks: completes the terms of a request by the declaration of its lock, or refuses the request.

use std::{fmt::Display, sync::Arc};

use parking_lot::RwLock;

use crate::{
    config::{DeclaredLock, DeclaredLocks, DeclaredMode},
    http::{
        extract::Field,
        problem::{Extra, FieldError, Problem, ProblemCode},
        state::AppState,
    },
    lock::{HoldLimit, LockName, MinHold, Sharing, Terms, Ttl, UndeclaredTerms},
    store::contract::RenewalTtl,
};

use super::acquire::{AskedMode, LIMIT, MAX_HOLD, MIN_HOLD, MODE, TTL};

/// The declared locks as they were last read. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Declarations(Arc<RwLock<LoadedDeclarations>>);

#[derive(Debug)]
struct LoadedDeclarations {
    locks: Arc<DeclaredLocks>,
    /// Whether the locks file has changed since it was read, and cannot be used.
    is_outdated: bool,
}

// === impl Declarations ===

impl Declarations {
    /// The declarations of a locks file.
    pub fn new(locks: DeclaredLocks) -> Self {
        Self(Arc::new(RwLock::new(LoadedDeclarations {
            locks: Arc::new(locks),
            is_outdated: false,
        })))
    }

    /// Replaces all declarations. Leases and waiters keep their terms.
    pub fn replace(&self, other: DeclaredLocks) {
        *self.0.write() = LoadedDeclarations {
            locks: Arc::new(other),
            is_outdated: false,
        };
    }

    /// Records that the locks file has changed and cannot be used. The earlier declarations stay in force.
    pub fn mark_outdated(&self) {
        self.0.write().is_outdated = true;
    }

    /// Whether the locks file has changed since it was read, and cannot be used.
    pub(in crate::http) fn is_outdated(&self) -> bool {
        self.0.read().is_outdated
    }

    /// The hash of the declarations, which gateways compare.
    pub fn hash(&self) -> String {
        self.0.read().locks.hash.clone()
    }
}

// === impl AppState ===

impl AppState {
    /// The declaration of a lock, if there is one.
    pub(super) fn declared(&self, name: &LockName) -> Option<Arc<DeclaredLock>> {
        self.declarations
            .as_ref()?
            .0
            .read()
            .locks
            .find(name)
            .cloned()
    }

    /// 403 for a lock without a declaration, if only declared locks may be acquired.
    pub(super) fn check_undeclared(&self, name: &LockName) -> Result<(), Problem> {
        let refuses = |it: &Declarations| it.0.read().locks.refuses_undeclared;
        if !self.declarations.as_ref().is_some_and(refuses) {
            return Ok(());
        }
        let detail = format!(
            "The lock `{name}` is not declared, and this gateway grants declared locks only."
        );
        Err(Problem::new(ProblemCode::UndeclaredLock, detail))
    }

    /// Lowers the TTL that a renewal asks for to the longest that is declared for the lock. The renewal is not refused,
    /// because its holder would lose the lock.
    pub(super) fn bounded_renewal(&self, name: &LockName, mut ttl: RenewalTtl) -> RenewalTtl {
        if let Some(most) = self.declared(name).and_then(|lock| lock.max_ttl) {
            ttl.asked = ttl.asked.map(|asked| asked.min(most));
        }
        ttl
    }
}

/// Adds the description of a declared lock to the problem of a request that was refused because the lock is held.
pub(super) fn describe(lock: Option<&DeclaredLock>, mut problem: Problem) -> Problem {
    if let (Some(lock), Extra::Locked(locked)) = (lock, &mut problem.extra) {
        locked.description.clone_from(&lock.declaration.description);
    }
    problem
}

/// Completes the terms of a request by the declaration of its lock. Fails if the request says something else.
/// `asked_min_hold` is the minimum hold that the request names, which may be 0.
pub(super) fn complete(
    lock: &DeclaredLock,
    name: &LockName,
    mode: AskedMode,
    asked_min_hold: Option<u64>,
    terms: &mut Terms,
) -> Result<(), Problem> {
    let mut differences = Vec::new();
    let sharing = sharing(lock, mode).map_err(|difference| differences.push(difference));
    let said = UndeclaredTerms {
        min_hold: terms.min_hold,
        sharing: terms.sharing,
        is_alone: mode == AskedMode::Exclusive && lock.sharing.is_some(),
    };
    terms.sharing = sharing.unwrap_or_default();
    let is_reservation = terms.reservation().is_some();
    if let Some(declared) = lock.min_hold.filter(|_| !is_reservation) {
        let ms = declared.as_millis();
        if let Some(asked) = asked_min_hold.filter(|&asked| asked != ms) {
            differences.push(differs(MIN_HOLD.name, asked, ms));
        }
        terms.min_hold = Some(declared);
    }
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
    // No field of a request carries an order yet, so a lock that requires one cannot be acquired.
    check_order(lock, name, None)?;
    let min_hold = terms.min_hold.map_or(0, MinHold::as_millis);
    let asked = terms.hold_limit();
    let at_most = |field: &Field, asked: Option<u64>, most: u64| match asked {
        Some(asked) if asked > most => Err(Problem::invalid_field(
            field.name,
            format!("is {asked} ms; the declaration of the lock `{name}` allows at most {most} ms"),
        )),
        _ => Ok(()),
    };
    let mut ttl = terms.ttl();
    if let Some(most) = lock.max_ttl {
        at_most(
            &TTL,
            terms.explicit.ttl.map(Ttl::as_millis),
            most.as_millis(),
        )?;
        at_most(&MIN_HOLD, Some(min_hold), most.as_millis())?;
        ttl = ttl.min(most);
    }
    ttl = Ttl::from_millis(min_hold).map_or(ttl, |least| ttl.max(least));
    terms.set_ttl(ttl);
    if let Some(most) = lock.max_hold {
        at_most(&MAX_HOLD, asked.map(HoldLimit::as_millis), most.as_millis())?;
    }
    if let Some(limit) = asked.or(lock.max_hold) {
        // The minimum hold may have raised the TTL above the hold limit, with which the lease, and its rest, would end
        // too soon.
        let limit = HoldLimit::from_millis(limit.as_millis(), ttl);
        terms.set_hold_limit(
            limit.map_err(|why| Problem::invalid_field(MAX_HOLD.name, why.to_string()))?,
        );
    }
    terms.undeclared = Some(said);
    Ok(())
}

/// 400 if the declaration requires an order and the request has none.
fn check_order(lock: &DeclaredLock, name: &LockName, order: Option<u64>) -> Result<(), Problem> {
    if lock.declaration.order.is_none() || order.is_some() {
        return Ok(());
    }
    let reason = format!("is missing; the lock `{name}` is declared with order = \"required\"");
    Err(Problem::invalid_field("order", reason))
}

/// How a request shares a declared lock, or how the request differs from the declaration.
fn sharing(lock: &DeclaredLock, mode: AskedMode) -> Result<Option<Sharing>, FieldError> {
    let Some(declared) = lock.sharing else {
        let is_alone = lock.declaration.mode == Some(DeclaredMode::Exclusive);
        return match mode.sharing() {
            Some(_) if is_alone => Err(differs(MODE.name, "shared", "exclusive")),
            asked => Ok(asked),
        };
    };
    match mode {
        AskedMode::Unsaid => Ok(Some(declared)),
        AskedMode::Exclusive if lock.declaration.exclusive.is_some() => Err(differs(
            MODE.name,
            "exclusive",
            "shared, with exclusive = \"refuse\"",
        )),
        AskedMode::Exclusive => Ok(None),
        AskedMode::Shared(asked) => match (asked.explicit_limit(), declared.explicit_limit()) {
            (Some(asked), Some(declared)) if asked != declared => {
                Err(differs(LIMIT.name, asked, declared))
            }
            (_, Some(_)) => Ok(Some(declared)),
            (_, None) => Ok(Some(asked)),
        },
    }
}

/// A field of a request that has another value than the declaration of its lock.
fn differs(field: &'static str, asked: impl Display, declared: impl Display) -> FieldError {
    FieldError::new(field, format!("is {asked}, and declared as {declared}"))
}
