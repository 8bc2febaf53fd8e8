//! One attempt of a browser to sign in. The browser keeps it sealed, so that any gateway can finish it.

use std::time::{Duration, SystemTime};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use url::Url;

use crate::auth::{api_key::random, seal::Seal, session::milliseconds};

use super::SignIn;

/// An attempt to sign in.
#[derive(Serialize, Deserialize)]
pub(super) struct Attempt {
    /// What the issuer sends back with the browser, which shows that this browser has begun.
    pub(super) state: String,
    /// What the ID token must repeat, which shows that it was made for this attempt.
    pub(super) nonce: String,
    /// The secret of PKCE, without which nobody can use the code.
    pub(super) verifier: String,
    /// The path of the page to which the browser returns.
    pub(super) return_to: String,
    /// When the attempt ends, in milliseconds since 1970.
    until_ms: u64,
}

/// How long a person has for the pages of the issuer.
pub const ATTEMPT_LIVES: Duration = Duration::from_mins(10);

// === impl Attempt ===

impl Attempt {
    pub(super) fn new(return_to: String, now: SystemTime) -> Self {
        let text = || URL_SAFE_NO_PAD.encode(random::<32>());
        Self {
            state: text(),
            nonce: text(),
            verifier: text(),
            return_to,
            until_ms: milliseconds(now + ATTEMPT_LIVES),
        }
    }

    pub(super) fn seal(&self, seal: &Seal) -> String {
        seal.seal(serde_json::to_vec(self).expect("texts and numbers can be written as JSON"))
    }

    /// Opens an attempt that has not ended and has this state.
    pub(super) fn open(sealed: &str, state: &str, seal: &Seal, now: SystemTime) -> Option<Self> {
        let attempt: Self = serde_json::from_slice(&seal.open(sealed)?).ok()?;
        (attempt.state == state && milliseconds(now) < attempt.until_ms).then_some(attempt)
    }

    /// The page of the issuer at which a person signs in.
    pub(super) fn location(&self, sign_in: &SignIn, mut endpoint: Url) -> String {
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&self.verifier));
        endpoint
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &sign_in.client_id)
            .append_pair("redirect_uri", &sign_in.redirect_uri())
            .append_pair("scope", &sign_in.scopes)
            .append_pair("state", &self.state)
            .append_pair("nonce", &self.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        endpoint.into()
    }
}
