//! What break takes.

use utoipa::ToSchema;

use crate::{
    config::LimitsConfig,
    http::extract::{Fields, RequestBody},
    lock::{BreakTarget, FencingToken, ForeignMark, Reason},
};

/// Why a lock is broken, and from whom it is taken.
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
    /// The lease that is meant: if something else holds the lock by now, nothing is broken. Left out,
    /// and `foreign_mark` too: whoever holds it, a foreign client included.
    #[schema(
        rename = "fencing_token", value_type = Option<u64>,
        minimum = 1, maximum = 9_007_199_254_740_991_u64
    )]
    fence: Option<FencingToken>,
    /// The foreign client that is meant, by the `foreign_mark` that inspect and list show: if something
    /// else holds the lock by now, nothing is broken. Not together with `fencing_token`.
    #[schema(
        rename = "foreign_mark", value_type = Option<String>,
        min_length = 40, max_length = 40, pattern = "^[0-9a-f]{40}$"
    )]
    mark: Option<ForeignMark>,
}

/// The name of the field.
const MARK: &str = "foreign_mark";

// === impl BreakBody ===

impl BreakBody {
    /// What is to be broken; `None`: whatever holds the lock.
    pub(super) fn target(&self) -> Option<BreakTarget> {
        let fence = self.fence.map(BreakTarget::Lease);
        fence.or(self.mark.map(BreakTarget::Foreign))
    }
}

impl RequestBody for BreakBody {
    fn read(fields: &mut Fields<'_>, _: &LimitsConfig) -> Self {
        let text = fields.text("reason").unwrap_or_default();
        let reason = fields.check("reason", Reason::new(&text));
        let fence = fields.whole("fencing_token");
        let fence =
            fence.and_then(|number| fields.check("fencing_token", FencingToken::new(number)));
        let mark = fields.text(MARK);
        if mark.is_some() && fence.is_some() {
            fields.refuse(
                MARK,
                "is of a foreign client, which has no fencing_token: send one of both",
            );
        }
        let mark = mark.and_then(|text| fields.check(MARK, ForeignMark::new(&text)));
        Self {
            reason,
            fence,
            mark,
        }
    }
}
