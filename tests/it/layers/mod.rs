//! The shape of the source tree.

mod amount;
mod circles;
mod edges;
mod files;
mod lua_offsets;
mod rooms;
