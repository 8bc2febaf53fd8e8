//! I4: the fenced resource never goes back and loses no write that it acknowledged. Each client writes with the value
//! that it has read; a write that was taken although the resource had another value has overwritten an update. A
//! fencing token does not exclude other shared leases, so each slot has a resource of its own. The unfenced resource
//! takes every write: its lost updates show that there was something to lose.

use std::collections::HashMap;

use super::prelude::*;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    let mut marks = HashMap::<(&str, Option<u64>), u64>::new();
    for (at, write) in &history.writes {
        let lost = write.taken && write.base != write.was;
        match write.resource {
            Resource::Unfenced => report.lost_updates += usize::from(lost),
            Resource::Fenced if !write.taken => report.refused_writes += 1,
            Resource::Fenced => {
                let mark = marks.entry((&write.lock, write.slot)).or_default();
                if lost {
                    let what = format!(
                        "{} made {} out of {}, and so lost what had become {}",
                        write.fence,
                        write.base + 1,
                        write.base,
                        write.was
                    );
                    report.violated(Invariant::I4, &write.lock, *at, what);
                }
                if write.fence < *mark {
                    let what = format!("{} wrote after {mark}", write.fence);
                    report.violated(Invariant::I4, &write.lock, *at, what);
                }
                *mark = write.fence.max(*mark);
            }
        }
    }
}
