//! The shape of the source tree.

mod circles;
mod edges;
mod files;
mod rooms;
