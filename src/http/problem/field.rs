//! One thing that is wrong with a request.

use std::borrow::Cow;

use serde::Serialize;
use utoipa::ToSchema;

/// One thing that is wrong with a request, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::http) struct FieldError {
    /// Where: a field of the body (`ttl_ms`, `metadata.team`), a header (`Lock-Token`), `name` for
    /// the lock name in the path, `query.X` for a query parameter, or `body` for the body as such.
    #[schema(value_type = String, example = "ttl_ms")]
    pub(in crate::http) field: Cow<'static, str>,
    /// What is wrong with it and what is expected, to be read after the name of the field.
    #[schema(example = "is 50; allowed are 100 to 86400000 milliseconds")]
    pub(in crate::http) reason: String,
}

// === impl FieldError ===

impl FieldError {
    pub(in crate::http) fn new(
        field: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            reason: reason.into(),
        }
    }
}
