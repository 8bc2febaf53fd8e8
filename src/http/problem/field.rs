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
    #[schema(example = "is 50 ms; allowed are 100 to 86400000 ms")]
    pub(in crate::http) reason: String,
}

// === impl FieldError ===

impl FieldError {
    pub(in crate::http) fn new(
        field: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
    ) -> Self {
        let mut field = field.into();
        // Whoever reads it on a terminal chose the name of a field that is not known, or was led to it.
        if field.contains(char::is_control) {
            field = Cow::Owned(field.escape_debug().to_string());
        }
        Self {
            field,
            reason: reason.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_move_a_terminal_is_shown_by_its_characters() {
        let field = FieldError::new("a\u{7f}\u{9b}31m\n".to_owned(), "is not known").field;
        assert_eq!(field, "a\\u{7f}\\u{9b}31m\\n");
        assert_eq!(
            FieldError::new("metadata.näher", "").field,
            "metadata.näher"
        );
    }
}
