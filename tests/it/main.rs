//! Everything that is tested from outside of the modules, in one binary.

mod client;
mod config;
mod golden;
mod layers;
mod support;
