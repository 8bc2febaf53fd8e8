//! What renew takes.

use utoipa::ToSchema;

use crate::{
    config::LimitsConfig,
    http::extract::{Fields, RequestBody},
    lock::{Token, Ttl},
};

use super::{acquire_body, release_body};

/// How the lease is renewed. Every field may be left out; null is the same as leaving it out.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"ttl_ms": 30_000}))]
pub(in crate::http) struct RenewBody {
    /// The token of the lease, for those who cannot send the header `Lock-Token`.
    #[schema(
        value_type = Option<String>, write_only,
        min_length = 43, max_length = 43, pattern = "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$"
    )]
    pub(super) token: Option<Token>,
    /// For how long the lease lasts from now, in milliseconds; it becomes the lease's own TTL. Left
    /// out: the lease's own TTL again, or the longest of the API key if that is shorter.
    #[schema(
        rename = "ttl_ms", value_type = Option<u64>,
        minimum = 100, maximum = 86_400_000
    )]
    pub(super) ttl: Option<Ttl>,
}

// === impl RenewBody ===

impl RequestBody for RenewBody {
    fn read(fields: &mut Fields<'_>, limits: &LimitsConfig) -> Self {
        Self {
            token: release_body::token(fields),
            ttl: acquire_body::ttl(fields, limits),
        }
    }
}
