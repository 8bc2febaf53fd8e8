//! What those hear who listen to events.

mod reader;
mod site;

mod databases;
mod gaps;
mod gateways;
mod keys;
mod kinds;
mod listening;
mod secrets;
mod slow;
