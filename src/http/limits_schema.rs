//! The limits of one gateway, in its OpenAPI document.

use serde_json::{Value, json};

use crate::config::LimitsConfig;

/// Writes the configured limits over the default ones.
pub(super) fn apply(document: &mut Value, limits: &LimitsConfig) {
    let ttl = [
        ("minimum", limits.min_ttl_ms.0),
        ("maximum", limits.max_ttl_ms.0),
    ];
    for (schema, field, constraints) in [
        ("AcquireBody", "ttl_ms", &ttl[..]),
        (
            "AcquireBody",
            "ttl_ms",
            &[("default", limits.default_ttl_ms.0)],
        ),
        (
            "AcquireBody",
            "wait_ms",
            &[("maximum", limits.max_wait_ms.0)],
        ),
        (
            "AcquireBody",
            "max_hold_ms",
            &[("maximum", limits.max_hold_limit_ms.0)],
        ),
        ("RenewBody", "ttl_ms", &ttl[..]),
    ] {
        let field = &mut document["components"]["schemas"][schema]["properties"][field];
        for (constraint, value) in constraints {
            field[*constraint] = json!(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Millis;

    use super::*;

    #[test]
    fn overwrites_what_the_document_says() {
        let mut document = serde_json::to_value(crate::http::openapi()).unwrap();
        let default = document.clone();
        apply(&mut document, &LimitsConfig::default());
        assert_eq!(
            document, default,
            "the default limits are those of the document"
        );
        let limits = LimitsConfig {
            default_ttl_ms: Millis(5_000),
            min_ttl_ms: Millis(1_000),
            max_ttl_ms: Millis(60_000),
            max_hold_limit_ms: Millis(90_000),
            max_wait_ms: Millis(25_000),
            ..LimitsConfig::default()
        };
        apply(&mut document, &limits);
        let of = |schema: &str, field: &str| {
            let field = &document["components"]["schemas"][schema]["properties"][field];
            [&field["minimum"], &field["maximum"], &field["default"]].map(Value::as_u64)
        };
        assert_eq!(
            of("AcquireBody", "ttl_ms"),
            [Some(1_000), Some(60_000), Some(5_000)]
        );
        assert_eq!(
            of("AcquireBody", "wait_ms"),
            [Some(0), Some(25_000), Some(0)]
        );
        assert_eq!(
            of("AcquireBody", "max_hold_ms"),
            [Some(100), Some(90_000), None]
        );
        assert_eq!(of("RenewBody", "ttl_ms"), [Some(1_000), Some(60_000), None]);
    }
}
