//! Helpers that compare several fields of a JSON object at once, or parts of a text.

use serde_json::Value;

/// The values of these fields of an object, as a list.
pub(crate) fn fields<const N: usize>(of: &Value, names: [&str; N]) -> Value {
    names.map(|name| of[name].clone()).into_iter().collect()
}

/// Asserts that a text contains a part.
#[track_caller]
pub(crate) fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in {text}");
}
