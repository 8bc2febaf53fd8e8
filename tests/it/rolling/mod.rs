//! Two gateways on one Redis that are restarted one after the other, as in an upgrade, under load.

mod acquirers;
mod client;
mod gateways;
mod observer;
mod renewers;
mod restart;
mod rooms;
mod runs;
mod streams;
