//! Who may do what: API keys, what each permits, and how much of it.

mod access;
mod api_key;
mod bucket;
mod charge;
mod config_error;
mod entry;
mod excess;
mod gate;
mod keys_file;
mod keys_watch;
mod leases;
mod permission;
mod prefixes;
mod refusal;
mod ring;
mod strangers;
mod table;
mod tally;
mod warrant;

pub use access::Access;
pub use api_key::{ApiKey, ApiKeyError, ApiKeyHash, ApiKeyId};
pub use charge::Charge;
pub use config_error::KeysFileError;
pub use entry::{KeyEntry, KeyLimits, KeySecret, Rate};
pub use excess::Excess;
pub use gate::Gate;
pub use keys_file::KeysFile;
pub use keys_watch::KeysWatch;
pub use leases::LeaseSlot;
pub use permission::{Permission, Scope, scope};
pub use prefixes::{PrefixError, Prefixes};
pub use refusal::Refusal;
pub use ring::KeyRing;
pub use tally::Slot;
pub use warrant::Warrant;
