//! Tests of the embedded store with a simulated disk and a manual clock.

mod backup;
mod crash;
mod disk;
mod faults;
mod full;
mod hand_off;
mod log;
mod opening;
mod order;
mod places;
mod rig;
mod rows;
mod stall;
mod time;
mod tombstones;
mod undo;
