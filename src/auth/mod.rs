//! Authentication and permissions: API keys, what each key permits, and how much of it.

mod address_limiter;
mod api_key;
mod gate;
mod keys;
mod keys_file;
mod keys_watch;
mod leases;
mod permission;
mod refusal;
mod session;

pub use address_limiter::{LimitSlot, RateReading};
pub use api_key::{ApiKey, ApiKeyError, ApiKeyHash, ApiKeyId};
pub use gate::{Access, Authorization, Charge, Gate};
pub use keys::{KeyEntry, KeyLimits, KeyRing, KeySecret, Rate};
pub use keys_file::{KeysFile, KeysFileError};
pub use keys_watch::KeysWatch;
pub use leases::LeaseSlot;
pub use permission::{Permission, PermissionRow, Permissions, PrefixError, Prefixes, Scope, scope};
pub use refusal::{Excess, Refusal};
pub use session::{SealedSession, SessionSeal, SessionSecretError};
