//! Authentication and permissions: API keys, what each key permits, and how much of it. Programs can exchange an ID token
//! for a key, and people can sign in to the page, by OpenID Connect (`oidc/`, `sign_in/`).

mod address_limiter;
mod api_key;
mod exchange;
mod exchanged_caller;
mod gate;
mod keys;
mod keys_file;
mod keys_watch;
mod leases;
mod oidc;
mod permission;
mod refusal;
mod seal;
mod secret_texts;
mod session;
mod sign_in;

pub use address_limiter::{LimitSlot, RateReading};
pub use api_key::{ApiKey, ApiKeyError, ApiKeyHash, ApiKeyId};
pub use exchange::ExchangeError;
pub use gate::{Access, Authorization, Charge, Gate};
pub use keys::{KeyEntry, KeyLimits, KeyRing, KeySecret, Rate};
pub use keys_file::{KeysFile, KeysFileError};
pub use keys_watch::KeysWatch;
pub use leases::LeaseSlot;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use oidc::{ClaimRules, Template};
pub use oidc::{
    Claims, ExchangeRules, ExchangedKey, IdToken, Issuer, IssuerSettings, KeySet, KeySource,
    RefusalClass, Rendered, TokenRefusal, VerifiedToken,
};
pub use permission::{Permission, PermissionRow, Permissions, PrefixError, Prefixes, Scope, scope};
pub use refusal::{Excess, Refusal};
pub use secret_texts::may_hold_secret;
pub use session::{SealedSession, SessionSeal, SessionSecretError};
pub use sign_in::{ATTEMPT_LIVES, SignIn, SignInAnswer, SignInBegin, SignInError};
