//! Everything that is tested from outside of the modules, in one binary.

mod config;
mod golden;
mod layers;
mod support;
