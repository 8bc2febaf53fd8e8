//! Replicas: what they may not say, and grants that are answered only when they have them.

mod kept_back;
mod replica;
pub(crate) mod replicated;
