//! Several fields of a JSON object, to be compared at once.

use serde_json::Value;

/// These fields of an object, as a list.
pub(crate) fn fields<const N: usize>(of: &Value, names: [&str; N]) -> Value {
    names.map(|name| of[name].clone()).into_iter().collect()
}
