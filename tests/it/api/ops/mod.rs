//! What operators read: audit log, health, figures, log.

mod audit;
mod health;
mod log;
