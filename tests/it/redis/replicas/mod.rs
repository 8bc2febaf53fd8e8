//! Replicas: commands that they must not answer, and grants that are answered only after replicas have them.

mod kept_back;
mod replica;
pub(crate) mod replicated;
