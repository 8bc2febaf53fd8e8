//! That somebody has asked for a lock, as people are told it.

use std::time::Duration;

use crate::client::{Holder, ReleaseRequest};

use super::{duration, visible};

/// How much time the holder has, who asked, and why.
pub(crate) fn asked_for(request: &ReleaseRequest) -> String {
    let within = duration::show(request.within());
    let by = request.by.as_deref().unwrap_or("somebody");
    format!(
        "within {within}, asked for by {}: {}",
        visible(by),
        visible(&request.reason)
    )
}

/// The owner of a lease in a table, and that it is to be released.
pub(crate) fn owner_and_request(holder: &Holder) -> String {
    let owner = match &holder.owner {
        Some(owner) => visible(owner).into_owned(),
        None if holder.foreign => "(a client that uses no gateway)".to_owned(),
        None => String::new(),
    };
    match &holder.release_requested {
        None => owner,
        Some(request) => format!("{owner} (to be released {})", asked_for(request)),
    }
}

/// How long a lease lasts, in a table.
pub(crate) fn expires_in(holder: &Holder) -> String {
    let left = holder.expires_in_ms.map(Duration::from_millis);
    left.map_or_else(|| "never".to_owned(), duration::show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_pretend_to_be_somebody_else() {
        let request = |by: &str| serde_json::from_str(by).unwrap();
        let named = r#"{"by":"ops","reason":"a\u202eb","within_ms":30000}"#;
        assert_eq!(
            asked_for(&request(named)),
            r"within 30s, asked for by ops: a\u{202e}b"
        );
        let open = r#"{"by":null,"reason":"deploy","within_ms":500}"#;
        assert_eq!(
            asked_for(&request(open)),
            "within 500ms, asked for by somebody: deploy"
        );
    }
}
