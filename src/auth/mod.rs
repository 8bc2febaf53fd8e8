//! Who may do what: API keys, what each permits, and how much of it.

mod address_limiter;
mod api_key;
mod config_error;
mod entry;
mod gate;
mod keys_file;
mod keys_watch;
mod leases;
mod permission;
mod refusal;
mod ring;
mod session;
mod table;

pub use address_limiter::{LimitSlot, RateMeter, RateReading};
pub use api_key::{ApiKey, ApiKeyError, ApiKeyHash, ApiKeyId};
pub use config_error::KeysFileError;
pub use entry::{KeyEntry, KeyLimits, KeySecret, Rate};
pub use gate::{Access, Authorization, Charge, Gate};
pub use keys_file::KeysFile;
pub use keys_watch::KeysWatch;
pub use leases::LeaseSlot;
pub use permission::{Permission, PermissionRow, Permissions, PrefixError, Prefixes, Scope, scope};
pub use refusal::{Excess, Refusal};
pub use ring::KeyRing;
pub use session::{SealedSession, SessionSeal, SessionSecretError};
