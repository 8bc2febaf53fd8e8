//! From a file, the environment and flags to a configuration: what each says of which key, and who it was.

pub(super) mod file;
pub(super) mod key;
pub(super) mod load;
