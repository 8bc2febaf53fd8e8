//! How HTTP is served.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Millis;

/// How HTTP is served.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// A path prefix under which the whole service appears, such as `/latchgate`. Empty for none.
    pub base_path: String,
    /// The largest request body in bytes. A longer one is answered with 413.
    pub max_body_bytes: usize,
    /// The longest request target (path and query) in bytes. A longer one is answered with 414.
    pub max_uri_bytes: usize,
    /// The most bytes in all headers of a request. More are answered with 431.
    pub max_header_bytes: usize,
    /// How long a client may take to send the headers of a request.
    pub header_timeout_ms: Millis,
    /// How long a connection may stand idle between two requests.
    pub idle_timeout_ms: Millis,
    /// How long a client may take to send the body of a request. Slower is answered with 408.
    pub body_timeout_ms: Millis,
}

// === impl HttpConfig ===

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            base_path: String::new(),
            // The largest valid body is about 8 KiB: 2 KiB of metadata and an owner, escaped.
            max_body_bytes: 16 * 1024,
            // The longest valid target is a name of 200 bytes, every one percent-encoded.
            max_uri_bytes: 4 * 1024,
            // What common proxies and browsers stay below.
            max_header_bytes: 16 * 1024,
            // A client that needs longer for a few hundred bytes is gone, or is holding
            // connections open on purpose.
            header_timeout_ms: Millis(10_000),
            // Longer than the minute for which common load balancers keep a connection: if the gateway
            // closed first, they would send a request into a connection that is gone.
            idle_timeout_ms: Millis(75_000),
            body_timeout_ms: Millis(10_000),
        }
    }
}
