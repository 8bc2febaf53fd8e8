//! The shape of the source tree.

mod edges;
mod files;
