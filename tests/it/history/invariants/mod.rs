//! The invariants, one file each.

mod all;
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

pub(super) use all::ALL;
