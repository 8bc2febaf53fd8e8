//! I2: fencing tokens strictly rise in real-time order. A request that is sent after a fencing token is known is
//! granted a larger one. A fencing token is known from its grant or from an observation; exclusive and shared leases
//! count alike.

use super::prelude::*;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        let known = known(lock);
        let mut leases: Vec<_> = lock.leases.values().collect();
        leases.sort_by_key(|lease| lease.asked);
        let (mut next, mut highest) = (0, 0);
        for lease in leases {
            while next < known.len() && known[next].0 < lease.asked {
                highest = known[next].1.max(highest);
                next += 1;
            }
            if lease.fence <= highest {
                let what = format!(
                    "{} was granted {} although {highest} was known before it asked",
                    lease.errand, lease.fence
                );
                report.violated(Invariant::I2, name, lease.granted, what);
            }
        }
    }
}

/// The instants at which fencing tokens became known, in order of time.
fn known(lock: &Lock) -> Vec<(u64, u64)> {
    let granted = lock
        .leases
        .values()
        .map(|lease| (lease.granted, lease.fence));
    let seen = lock.observations.iter().flat_map(|observation| {
        let holders = observation.holders.iter();
        holders.map(|holder| (observation.heard, holder.fence))
    });
    let mut known: Vec<_> = granted.chain(seen).collect();
    known.sort_unstable();
    known
}
