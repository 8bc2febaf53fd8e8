//! Tests of the embedded store from the inside: with its clock and its disk in hand.

mod backup;
mod crash;
mod disk;
mod faults;
mod full;
mod hand_off;
mod log;
mod opening;
mod places;
mod rig;
mod rows;
mod stall;
mod time;
mod tombstones;
mod undo;
