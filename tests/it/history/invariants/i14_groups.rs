//! I14: a group request gets all of its locks or none, and is served. No group waits for more than ten seconds that are
//! free of faults, because groups never wait for each other in a circle and clients keep locks only for a short time.
//! I5 checks that a refused group releases its locks again: their owner would be seen after its refusal.

use super::prelude::*;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for places in history.groups.values() {
        let parts: Vec<&Op> = places.iter().map(|place| &history.ops[*place]).collect();
        let granted = parts.iter().filter(|part| part.granted().is_some()).count();
        let Some(first) = parts.first() else { continue };
        report.groups.asked += 1;
        report.groups.granted += usize::from(granted == parts.len());
        if granted > 0 && granted < parts.len() {
            let what = format!(
                "{} was granted {granted} of {} locks",
                first.errand,
                parts.len()
            );
            report.violated(Invariant::I14, &first.lock, first.returned(), what);
        }
        let until = first.given_up().min(history.ends);
        let waited = history.faults.calm(first.asked, until);
        report.groups.longest = report.groups.longest.max(waited);
        if waited > RECOVERY {
            let names: Vec<_> = parts.iter().map(|part| part.lock.as_str()).collect();
            let what = format!(
                "{} waited for {} for {} ms without a fault",
                first.errand,
                names.join(" and "),
                waited / MS
            );
            report.violated(Invariant::I14, &first.lock, until, what);
        }
    }
}
