//! Who is calling, as far as idempotency keys go.

use std::sync::Arc;

/// The scope of an idempotency key: the API key that sent it, or everybody where there are none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallerId(Option<Arc<str>>);

// === impl CallerId ===

impl CallerId {
    /// The caller of a gateway without API keys.
    pub const ANONYMOUS: Self = Self(None);

    /// The caller with the API key of this name.
    pub fn of_key(name: Arc<str>) -> Self {
        Self(Some(name))
    }

    /// The bytes that stand for the caller in a hash; empty for [`CallerId::ANONYMOUS`].
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default().as_bytes()
    }
}
