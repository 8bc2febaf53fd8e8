//! A rolling restart under load: two gateways on one Redis server are restarted one after the other, as in an upgrade.

mod client;
mod gateways;
mod observer;
mod plain;
mod restart;
mod rooms;
mod runs;
mod streams;
