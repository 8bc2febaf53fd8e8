//! Signatures of ID tokens: lets `jsonwebtoken` verify them with the `ring` that TLS uses.

use std::sync::Once;

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind,
    crypto::{CryptoProvider, JwtVerifier, KeyUtils},
    errors::{ErrorKind, new_error},
    signature::{Error, Verifier},
};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};

/// Verifies the signatures of one public key.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

/// A gateway signs nothing, and verifies RS256 and ES256 only.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(new_error(ErrorKind::UnsupportedAlgorithm)),
    verifier_factory: |&algorithm, key| match algorithm {
        Algorithm::RS256 | Algorithm::ES256 => Ok(Box::new(RingVerifier {
            algorithm,
            key: key.clone(),
        })),
        _ => Err(new_error(ErrorKind::UnsupportedAlgorithm)),
    },
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes `jsonwebtoken` use `ring`. May be called repeatedly.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let installed = PROVIDER.install_default();
        debug_assert!(
            installed.is_ok(),
            "no other code of the program installs a provider"
        );
    });
}

// === impl RingVerifier ===

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Error> {
        let verified = match (self.algorithm, self.key.kind()) {
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            _ => return Err(Error::new()),
        };
        verified.map_err(|_unspecified| Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
