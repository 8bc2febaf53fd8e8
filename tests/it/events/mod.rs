//! The stream of events: its kinds, its readers, their permissions, and several gateways.

mod fixture;

mod gateways;
mod keys;
mod kinds;
mod listening;
