//! What operators look at: audit log, health, numbers, log.

mod audit;
mod health;
mod log;
