//! Two gateways on one Redis that are restarted one after the other, as in an upgrade, under load.

mod client;
mod gateways;
mod observer;
mod plain;
mod restart;
mod rooms;
mod runs;
mod streams;
