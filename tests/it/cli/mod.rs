//! The real program, run as a process.

mod audit;
mod backup;
mod commands;
mod declared;
mod demo;
mod gateways;
mod id_tokens;
mod keys;
mod leases;
mod metrics;
mod operators;
mod order;
mod prelude;
mod reservations;
mod rests;
mod run;
mod serve;
mod shared;
mod shutdown;
mod supervisors;
