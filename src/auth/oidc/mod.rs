//! Identity by OpenID Connect: programs exchange an ID token of their CI system, cluster or any issuer for a key with the
//! permissions of the `[[key]]` that matches its claims.
//!
//! `id_token.rs` checks a token with the keys of `key_set.rs`, and `crypto.rs` the signature. `issuer.rs` fetches the
//! keys when `key_cache.rs` says so. `rules.rs` says which API key a token is for (`claims.rs`), and what an exchanged key
//! may do and say (`template.rs`). `exchanged_key.rs` is that key: gateways keep none of them.

mod claims;
mod crypto;
mod exchanged_key;
mod id_token;
mod issuer;
mod key_cache;
mod key_set;
mod rules;
mod template;

pub(crate) use claims::ClaimRules;
pub(super) use claims::{RULE, public_subjects};
pub(super) use exchanged_key::{ExchangedContent, PURPOSE};
pub use exchanged_key::{ExchangedKey, Rendered};
pub use id_token::{Claims, IdToken, RefusalClass, TokenRefusal, VerifiedToken};
pub(super) use id_token::{refuse, shown};
pub(super) use issuer::{Discovery, FETCH_LIMIT};
pub use issuer::{Issuer, IssuerSettings, KeySource};
pub use key_set::KeySet;
pub use rules::ExchangeRules;
pub(super) use rules::rules_hash;
pub(crate) use template::Template;
