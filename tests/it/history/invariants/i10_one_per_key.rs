//! I10: an idempotency key has only one fencing token, for ever. Requests that repeat the key, through any gateway,
//! never get a second grant.

use super::prelude::*;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        for (errand, requests) in &lock.errands {
            let requests = requests.iter().map(|place| &history.ops[*place]);
            let mut granted = requests.filter(|op| op.is_keyed() && op.granted().is_some());
            let Some(first) = granted.next() else {
                continue;
            };
            for other in granted.filter(|op| op.granted() != first.granted()) {
                if history.faults.forgot(first.asked, other.returned()) {
                    continue;
                }
                let what = format!(
                    "the key of {errand} was granted {:?} and {:?}",
                    first.granted(),
                    other.granted()
                );
                report.violated(Invariant::I10, name, other.returned(), what);
            }
        }
    }
}
