//! Who may do what: API keys, what each permits, and how much of it.

mod access;
mod api_key;
mod config_error;
mod entry;
mod gate;
mod keys_file;
mod permission;
mod prefixes;
mod refusal;
mod ring;
mod table;

pub use access::Access;
pub use api_key::{ApiKey, ApiKeyError, ApiKeyHash, ApiKeyId};
pub use config_error::KeysFileError;
pub use entry::{KeyEntry, KeyLimits, KeySecret, Rate};
pub use gate::Gate;
pub use keys_file::KeysFile;
pub use permission::{Permission, Scope, scope};
pub use prefixes::{PrefixError, Prefixes};
pub use refusal::Refusal;
pub use ring::KeyRing;
