//! Identity by OpenID Connect: programs exchange an ID token of their CI system, cluster or any issuer for a key with the
//! permissions of the `[[key]]` that matches its claims.
//!
//! `id_token.rs` checks a token with the keys of `key_set.rs`, and `crypto.rs` the signature. `issuer.rs` fetches the
//! keys when `key_cache.rs` says so. `rules.rs` says which API key a token is for (`claims.rs`), and what an exchanged key
//! may do and say (`template.rs`). `exchanged_key.rs` is that key: gateways keep none of them.

mod claims;
mod crypto;
mod exchanged_key;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzed;
mod id_token;
mod issuer;
mod key_cache;
mod key_set;
mod rules;
mod template;

pub(super) use claims::{ClaimRules, RULE, public_subjects};
pub(super) use exchanged_key::{ExchangedContent, PURPOSE};
pub use exchanged_key::{ExchangedKey, Rendered};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fuzzed::fuzzed_token;
pub use id_token::{Claims, IdToken, RefusalClass, TokenRefusal, VerifiedToken};
pub(super) use id_token::{Verification, refuse, shown};
pub(super) use issuer::FETCH_LIMIT;
pub use issuer::{Issuer, IssuerSettings, KeySource};
pub use key_set::{KeySet, KeySetError};
pub use rules::ExchangeRules;
pub(super) use rules::RulesHash;
pub(super) use template::Template;
