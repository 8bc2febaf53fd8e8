//! Signs ID tokens as an issuer does.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512,
        RsaKeyPair,
    },
};
use serde_json::{Value, json};

/// The keys of an issuer for tests: an RSA key `r` and a P-256 key.
pub(crate) struct Signer {
    pub(crate) rsa: RsaKeyPair,
    pub(crate) ec: EcdsaKeyPair,
    kid: String,
}

// === impl Signer ===

impl Signer {
    pub(crate) fn new(kid: &str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let ec =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random);
        Self {
            // Of no use elsewhere: `openssl genrsa 2048`.
            rsa: RsaKeyPair::from_pkcs8(include_bytes!("rsa_2048.der")).unwrap(),
            ec: ec.unwrap(),
            kid: kid.to_owned(),
        }
    }

    /// The public keys as a JSON Web Key Set.
    pub(crate) fn jwks(&self) -> Value {
        let public: ring::rsa::PublicKeyComponents<Vec<u8>> = self.rsa.public().into();
        let point = self.ec.public_key().as_ref();
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"keys": [
            {"kty": "RSA", "kid": "r", "n": text(&public.n), "e": text(&public.e)},
            {"kty": "EC", "crv": "P-256", "kid": self.kid, "x": text(&point[1..33]), "y": text(&point[33..])},
        ]})
    }

    /// A token with this header and these claims, signed by what `alg` asks for.
    pub(crate) fn sign(&self, header: &Value, claims: &str) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let message = format!("{}.{}", encode(&header.to_string()), encode(claims));
        let random = SystemRandom::new();
        let rsa = |padding| {
            let mut signature = vec![0; self.rsa.public().modulus_len()];
            self.rsa
                .sign(padding, &random, message.as_bytes(), &mut signature)
                .unwrap();
            signature
        };
        let signature = match header["alg"].as_str() {
            Some("RS256") => rsa(&RSA_PKCS1_SHA256),
            Some("RS512") => rsa(&RSA_PKCS1_SHA512),
            Some("ES256") => self
                .ec
                .sign(&random, message.as_bytes())
                .unwrap()
                .as_ref()
                .to_vec(),
            _ => Vec::new(),
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}
