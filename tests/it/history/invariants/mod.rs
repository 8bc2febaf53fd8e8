//! The invariants, one file each.

mod answers;
mod i01_unique;
mod i02_rising;
mod i03_exclusive;
mod i04_resource;
mod i05_phantoms;
mod i06_lost_grants;
mod i07_hand_off;
mod i08_orphans;
mod i09_holder_only;
mod i10_one_per_key;
mod i11_order;
mod i12_linearizable;
mod i13_slots;
mod i14_groups;
mod i15_requests;
mod prelude;

use prelude::{History, Report, Terms};

/// Looks for what breaks one promise.
type Check = fn(&History, &Terms, &mut Report);

/// All of them, in the order of their numbers.
pub(super) const ALL: [Check; 16] = [
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
