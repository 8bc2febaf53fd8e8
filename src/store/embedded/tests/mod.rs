//! Tests of the embedded store from the inside: with its clock and its disk in hand.

mod chaos;
mod disk;
mod faults;
mod rig;
mod rows;
mod stall;
mod time;
mod tombstones;
