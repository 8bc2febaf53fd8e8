//! I3: leases of a lock do not overlap, while their holders rely on them: from when they heard of the
//! grant until the time is over that they were told, counted from when they asked, or from when they received the
//! answer, with some time for its way; or until they release. Where the store may have forgotten a lease, an overlap is counted and not held against it.

use super::super::{History, Report, Terms, found::Invariant};

pub(super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        let mut leases: Vec<_> = lock.leases.values().collect();
        leases.sort_by_key(|lease| lease.granted);
        let mut longest = None;
        for lease in leases {
            if let Some(before) = longest {
                let before: &super::super::lease::Lease = before;
                let both = before.relied_on().min(lease.relied_on());
                if lease.granted < both {
                    let together = both - lease.granted;
                    if history.faults.forgot(before.asked, lease.granted) {
                        report.overlaps.0 += 1;
                        report.overlaps.1 += together;
                    } else {
                        let what = format!(
                            "{} ({}) and {} ({}) held it together for {} µs",
                            before.fence,
                            before.errand,
                            lease.fence,
                            lease.errand,
                            together / 1_000
                        );
                        report.violated(Invariant::I3, name, lease.granted, what);
                    }
                }
            }
            if longest.is_none_or(|before| before.relied_on() < lease.relied_on()) {
                longest = Some(lease);
            }
        }
    }
}
