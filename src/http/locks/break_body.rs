//! What break takes.

use utoipa::ToSchema;

use crate::{
    config::LimitsConfig,
    http::extract::{Fields, RequestBody},
    lock::{FencingToken, Reason},
};

/// Why a lock is broken, and which lease of it.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "reason": "runner 7 is gone, asked in #ops",
    "fencing_token": 1_795_170_000_000_042_u64,
}))]
pub(in crate::http) struct BreakBody {
    /// Why, for people to read: it goes to the audit log. No control characters.
    #[schema(
        value_type = String,
        min_length = 1, max_length = 200, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    pub(super) reason: Option<Reason>,
    /// The lease that is meant: if another one holds the lock by now, nothing is broken. Left out:
    /// whoever holds it, a foreign client included.
    #[schema(
        rename = "fencing_token", value_type = Option<u64>,
        minimum = 1, maximum = 9_007_199_254_740_991_u64
    )]
    pub(super) fence: Option<FencingToken>,
}

// === impl BreakBody ===

impl RequestBody for BreakBody {
    fn read(fields: &mut Fields<'_>, _: &LimitsConfig) -> Self {
        let text = fields.text("reason").unwrap_or_default();
        let reason = fields.check("reason", Reason::new(&text));
        let fence = fields.whole("fencing_token");
        let fence =
            fence.and_then(|number| fields.check("fencing_token", FencingToken::new(number)));
        Self { reason, fence }
    }
}
