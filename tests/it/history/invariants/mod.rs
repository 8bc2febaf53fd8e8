//! The invariants, one file each.

pub(super) mod answers;
pub(super) mod i01_unique;
pub(super) mod i02_rising;
pub(super) mod i03_exclusive;
pub(super) mod i04_resource;
pub(super) mod i05_phantoms;
pub(super) mod i06_lost_grants;
pub(super) mod i07_hand_off;
pub(super) mod i08_orphans;
pub(super) mod i09_holder_only;
pub(super) mod i10_one_per_key;
pub(super) mod i11_order;
pub(super) mod i12_linearizable;
pub(super) mod i13_slots;
pub(super) mod i14_groups;
pub(super) mod i15_requests;
pub(super) mod i16_checks;
pub(super) mod i17_rests;
pub(super) mod i18_reservations;
pub(super) mod i19_history;
pub(super) mod i20_never_back;
mod prelude;
