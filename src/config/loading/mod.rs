//! Loads the configuration from a file, the environment and flags, and keeps the source of each setting.

pub(super) mod file;
pub(super) mod key;
pub(super) mod load;
