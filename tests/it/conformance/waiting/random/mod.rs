//! Random sequences and histories of waiters.

pub(crate) mod histories;
mod observer;
mod queue_model;
pub(crate) mod sequences;
