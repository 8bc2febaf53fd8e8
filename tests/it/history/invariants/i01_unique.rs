//! I1: fencing tokens are unique. No two grants of a lock have the same fencing token; repeated requests with the same
//! idempotency key are answered with the same grant.

use std::collections::HashMap;

use super::prelude::*;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        let mut first = HashMap::new();
        for op in history.of_lock(lock) {
            let Some(fence) = op.granted() else { continue };
            let before = first.entry(fence).or_insert(op);
            let same_key = before.errand == op.errand && op.is_keyed();
            if !std::ptr::eq(*before, op) && !same_key {
                let what = format!(
                    "{fence} was granted to {} and to {}",
                    before.errand, op.errand
                );
                report.violated(Invariant::I1, name, op.returned(), what);
            }
        }
    }
}
