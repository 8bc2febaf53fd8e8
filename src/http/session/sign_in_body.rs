//! What somebody shows who signs in.

use crate::http::extract::{ApiJson, Field, Fields, Form, RequestBody, declare_fields};

/// Who signs in. It does not print itself.
pub(in crate::http) struct SignInBody {
    /// The API key.
    pub(super) key: Box<str>,
}

/// The body in the OpenAPI document.
pub(in crate::http) type SignInJson = ApiJson<SignInBody>;

/// No key is longer, and what is longer need not be looked at.
const MOST: usize = 200;

declare_fields! {
    /// Who signs in. It does not print itself.
    const SIGN_IN: "SignIn" => Form::TEXT;
    /// The API key.
    const KEY: "key" => Form::text(0, MOST, "[!-~]").required().example("lgk_..");
}

// === impl SignInBody ===

impl RequestBody for SignInBody {
    const ABOUT: Field = SIGN_IN;

    fn read(fields: &mut Fields<'_>) -> Self {
        let text = fields.text(&KEY).unwrap_or_default();
        if !text.bytes().any(|byte| byte.is_ascii_graphic()) {
            fields.refuse(&KEY, "is needed: the API key");
        } else if text.chars().count() > MOST {
            fields.refuse(&KEY, "is longer than any API key");
        }
        // A paste often has a space or a line break at its end.
        let key = text.trim().into();
        Self { key }
    }
}
