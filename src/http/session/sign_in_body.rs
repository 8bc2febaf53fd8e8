//! What somebody shows who signs in.

use utoipa::ToSchema;

use crate::{
    config::LimitsConfig,
    http::extract::{Fields, RequestBody},
};

/// Who signs in. It does not print itself.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SignIn)]
pub(in crate::http) struct SignInBody {
    /// The API key.
    #[schema(value_type = String, max_length = 200, pattern = "[!-~]", example = "lgk_..")]
    pub(super) key: Box<str>,
}

/// The name of the field.
const KEY: &str = "key";
/// No key is longer, and what is longer need not be looked at.
const MOST: usize = 200;

// === impl SignInBody ===

impl RequestBody for SignInBody {
    fn read(fields: &mut Fields<'_>, _: &LimitsConfig) -> Self {
        let text = fields.text(KEY).unwrap_or_default();
        if !text.bytes().any(|byte| byte.is_ascii_graphic()) {
            fields.refuse(KEY, "is needed: the API key");
        } else if text.chars().count() > MOST {
            fields.refuse(KEY, "is longer than any API key");
        }
        // A paste often has a space or a line break at its end.
        let key = text.trim().into();
        Self { key }
    }
}
