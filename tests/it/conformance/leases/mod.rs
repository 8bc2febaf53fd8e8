//! A lease from its grant to its end: the clauses that concern a single holder.

pub(super) mod breaks;
pub(super) mod checks;
pub(super) mod exclusion;
pub(super) mod expiry;
pub(super) mod fences;
pub(super) mod give_back;
pub(super) mod idempotency;
pub(super) mod recipients;
pub(super) mod release;
pub(super) mod renew;
pub(super) mod requests;
pub(super) mod reservations;
