//! Sequences and histories of those who wait, made at random.

pub(crate) mod histories;
mod observer;
mod queue_model;
pub(crate) mod sequences;
