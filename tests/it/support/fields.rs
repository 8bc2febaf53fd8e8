//! Several fields of a JSON object, to be compared at once; and parts of a text.

use serde_json::Value;

/// These fields of an object, as a list.
pub(crate) fn fields<const N: usize>(of: &Value, names: [&str; N]) -> Value {
    names.map(|name| of[name].clone()).into_iter().collect()
}

/// A text has this part.
#[track_caller]
pub(crate) fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in {text}");
}
