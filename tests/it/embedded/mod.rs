//! The embedded store from outside: killed processes, and damaged directories and files.

mod directory;
mod full;
mod killed;
pub(crate) mod place;
mod prompt;
mod removed;
mod rolled_back;
