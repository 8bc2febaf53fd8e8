//! Checks a history against every invariant.

use super::{
    History, Report, Terms,
    invariants::{
        answers, i01_unique, i02_rising, i03_exclusive, i04_resource, i05_phantoms,
        i06_lost_grants, i07_hand_off, i08_orphans, i09_holder_only, i10_one_per_key, i11_order,
        i12_linearizable, i13_slots, i14_groups, i15_requests, i16_checks, i17_rests,
        i18_reservations, i19_history, i20_never_back,
    },
    validity,
};

/// Looks for violations of one invariant.
type Check = fn(&History, &Terms, &mut Report);

/// All invariants, in the order of their numbers.
const ALL: [Check; 21] = [
    answers::check,
    i01_unique::check,
    i02_rising::check,
    i03_exclusive::check,
    i04_resource::check,
    i05_phantoms::check,
    i06_lost_grants::check,
    i07_hand_off::check,
    i08_orphans::check,
    i09_holder_only::check,
    i10_one_per_key::check,
    i11_order::check,
    i12_linearizable::check,
    i13_slots::check,
    i14_groups::check,
    i15_requests::check,
    i16_checks::check,
    i17_rests::check,
    i18_reservations::check,
    i19_history::check,
    i20_never_back::check,
];

/// Checks a history against every invariant, and whether the run was valid.
pub(crate) fn check(history: &History, terms: &Terms) -> Report {
    let mut report = Report::new(history);
    for invariant in ALL {
        invariant(history, terms, &mut report);
    }
    report.violations.sort_by_key(|violation| violation.at);
    report.invalid = validity::why_not(history, terms, &report);
    report
}
