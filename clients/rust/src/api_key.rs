//! The secret by which a gateway knows its caller.

use std::fmt;

use reqwest::header::HeaderValue;

/// An API key. It never prints itself.
#[derive(Clone)]
pub struct ApiKey(HeaderValue);

/// The text is no API key. What it was is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is empty or has a character that is not visible ASCII")]
pub struct ApiKeyError;

// === impl ApiKey ===

impl ApiKey {
    /// Takes a text as a key.
    pub fn new(text: &str) -> Result<Self, ApiKeyError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ApiKeyError);
        }
        let mut header =
            HeaderValue::try_from(format!("Bearer {text}")).map_err(|_invalid| ApiKeyError)?;
        header.set_sensitive(true);
        Ok(Self(header))
    }

    /// The value of the `Authorization` header.
    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_prints_itself() {
        let key = ApiKey::new("s3cret").unwrap();
        assert!(!format!("{key:?} {:?}", key.header()).contains("s3cret"));
    }

    #[test]
    fn cannot_smuggle_a_header() {
        assert!(ApiKey::new("a\r\nX: y").is_err());
        assert!(ApiKey::new("").is_err());
    }
}
