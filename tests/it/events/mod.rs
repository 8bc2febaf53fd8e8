//! What those hear who listen to events.

mod fixture;

mod gateways;
mod keys;
mod kinds;
mod listening;
