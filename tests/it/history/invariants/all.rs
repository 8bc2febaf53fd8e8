//! The list of invariants.

use super::{
    super::{History, Report, Terms},
    answers, i01_unique, i02_rising, i03_exclusive, i04_resource, i05_phantoms, i06_lost_grants,
    i07_hand_off, i08_orphans, i09_holder_only, i10_one_per_key, i11_order, i12_linearizable,
    i13_slots, i14_groups, i15_requests,
};

/// Looks for what breaks one promise.
type Check = fn(&History, &Terms, &mut Report);

/// All of them, in the order of their numbers.
pub(in super::super) const ALL: [Check; 16] = [
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
];
