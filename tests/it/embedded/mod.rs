//! The embedded store from outside: killed processes, directories and files that are not as they
//! should be.

mod directory;
mod full;
mod killed;
pub(crate) mod place;
mod prompt;
mod removed;
mod rolled_back;
