//! What release takes.

use utoipa::ToSchema;

use crate::{
    config::LimitsConfig,
    http::extract::{Fields, RequestBody},
    lock::Token,
};

/// Which lease is released.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"token": "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU"}))]
pub(in crate::http) struct ReleaseBody {
    /// The token of the lease.
    #[schema(
        value_type = String, write_only,
        min_length = 43, max_length = 43, pattern = "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$"
    )]
    pub(super) token: Option<Token>,
}

// === impl ReleaseBody ===

impl RequestBody for ReleaseBody {
    fn read(fields: &mut Fields<'_>, _: &LimitsConfig) -> Self {
        Self {
            token: token(fields),
        }
    }
}

/// The field `token`, which renew has too.
pub(super) fn token(fields: &mut Fields<'_>) -> Option<Token> {
    let text = fields.text("token")?;
    fields.check("token", Token::parse(&text))
}
