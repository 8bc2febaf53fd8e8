//! I17: a lock that rests is granted to nobody. After the release of an exclusive lease with a minimum hold, no later
//! grant of the lock was heard of before the minimum hold was over, counted from when the lease was asked for. A break or
//! a release request may end the rest. Where the store may have forgotten the rest, nothing is checked.

use super::prelude::*;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        let resting = lock.leases.values().filter(|lease| lease.min_hold > 0);
        for lease in resting.filter(|lease| !lease.mode.shares()) {
            let about = || {
                history
                    .of_lock(lock)
                    .filter(|op| op.about() == Some(lease.fence))
            };
            let released = about().any(|op| op.answer() == Some(&RecordedAnswer::Released));
            let broken = about().any(|op| matches!(op.ask, Ask::Break { .. }));
            if !released || broken {
                continue;
            }
            let until = lease.asked + lease.min_hold;
            let later = lock.leases.values().filter(|it| it.fence > lease.fence);
            for next in later.filter(|it| it.granted < until) {
                if history.faults.forgot(lease.asked, next.granted) {
                    continue;
                }
                let what = format!(
                    "{} was granted to {} {} ms before the rest of {} was over",
                    next.fence,
                    next.errand,
                    (until - next.granted) / MS,
                    lease.fence
                );
                report.violated(Invariant::I17, name, next.granted, what);
            }
        }
    }
}
