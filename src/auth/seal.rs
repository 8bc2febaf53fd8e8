//! Seals: secrets that a gateway gives away and need not keep, because only a gateway with the same secret can make,
//! read or change them.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::Sha256;

use super::api_key::random;

/// Seals and opens texts of one purpose. The first secret seals, and every secret opens.
pub(super) struct Seal {
    purpose: &'static [u8],
    keys: Vec<LessSafeKey>,
}

// === impl Seal ===

impl Seal {
    /// The seal of all gateways that have these secrets. A text that was sealed for another purpose does not open.
    pub(super) fn new(purpose: &'static [u8], secrets: &[Vec<u8>]) -> Self {
        let key = |secret: &Vec<u8>| {
            // The sealing key is derived from the shared secret and the purpose, so that another use of the secret
            // cannot open these texts.
            let mut mac =
                Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
            mac.update(purpose);
            let key = UnboundKey::new(&CHACHA20_POLY1305, &mac.finalize().into_bytes());
            LessSafeKey::new(key.expect("the hash is as long as a key"))
        };
        Self {
            purpose,
            keys: secrets.iter().map(key).collect(),
        }
    }

    /// Seals a content. The text is another one each time.
    pub(super) fn seal(&self, mut content: Vec<u8>) -> String {
        let nonce = random::<NONCE_LEN>();
        self.keys[0]
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(self.purpose),
                &mut content,
            )
            .expect("a few bytes are not too many to be sealed");
        URL_SAFE_NO_PAD.encode([&nonce[..], &content].concat())
    }

    /// Opens a text; `None` if it was not sealed for this purpose with one of the secrets.
    pub(super) fn open(&self, sealed: &str) -> Option<Vec<u8>> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        self.keys.iter().find_map(|key| {
            // A failure destroys the text that is opened in place.
            let mut content = sealed.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let opened = key
                .open_in_place(nonce, Aad::from(self.purpose), &mut content)
                .ok()?;
            let length = opened.len();
            content.truncate(length);
            Some(content)
        })
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(..)")
    }
}
