//! What somebody shows who signs in.

use utoipa::ToSchema;

use crate::{
    config::LimitsConfig,
    http::extract::{Fields, RequestBody},
};

/// Who signs in.
#[derive(ToSchema)]
#[schema(as = SignIn)]
#[expect(dead_code, reason = "it only describes what `ShownKey` reads")]
pub(in crate::http) struct SignInBody {
    /// The API key.
    #[schema(min_length = 1, max_length = 200, example = "lgk_..")]
    key: String,
}

/// The text that was shown as a key. It does not print itself.
pub(in crate::http) struct ShownKey(pub(super) Box<str>);

/// The name of the field.
const KEY: &str = "key";
/// No key is longer, and what is longer need not be looked at.
const MOST: usize = 200;

// === impl ShownKey ===

impl RequestBody for ShownKey {
    fn read(fields: &mut Fields<'_>, _: &LimitsConfig) -> Self {
        // A paste often has a space or a line break at its end.
        let text = fields.text(KEY).unwrap_or_default();
        let key = text.trim();
        if key.is_empty() {
            fields.refuse(KEY, "is needed: the API key");
        } else if key.len() > MOST {
            fields.refuse(KEY, "is longer than any API key");
        }
        Self(key.into())
    }
}
