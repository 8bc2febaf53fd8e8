//! I4: the fenced resource never goes back and loses nothing that it has acknowledged. Whoever changes it
//! says what it has read; a change that was taken on top of something else has overwritten it. A fencing token does
//! not exclude those who share a lock, so each slot has a resource of its own. The unfenced one takes everything, and shows that there was something to lose.

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
