//! A request to release a lease, as the stores in Redis keep it with the lease.

use std::time::Duration;

use crate::lock::{Reason, ReleaseRequest};

use super::super::super::fields::Layout;

/// When the lease must be released, in digits: an instant in µs, or of a quorum in ms. Behind it stands who asks, and why.
pub(crate) const REQUEST: Layout = Layout {
    name: "request",
    groups: &[&[("ends", 16)]],
};

/// Who asks, and why: what no script reads.
pub(crate) fn request_text(request: &ReleaseRequest) -> String {
    let by = request.by.as_deref();
    serde_json::to_string(&(by, request.reason.as_str())).expect("texts can be written")
}

/// Reads a number, which says how much time there is, and the same; `None` if it is anything else.
pub(crate) fn read_request(
    text: &str,
    within: impl FnOnce(u64) -> Duration,
) -> Option<ReleaseRequest> {
    let (number, rest) = text.split_at_checked(const { REQUEST.place("ends").end })?;
    let (by, reason): (Option<String>, String) = serde_json::from_str(rest).ok()?;
    Some(ReleaseRequest {
        by: by.map(Into::into),
        reason: Reason::new(&reason).ok()?,
        within: within(number.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_back_from_its_text() {
        for by in [None, Some("ops \"1\"")] {
            let request = ReleaseRequest {
                by: by.map(Into::into),
                reason: Reason::new("a\"b\\").unwrap(),
                within: Duration::from_millis(7),
            };
            let text = format!("{:016}{}", 7, request_text(&request));
            assert!(!text.contains('\n'));
            assert_eq!(
                read_request(&text, Duration::from_millis),
                Some(request.clone())
            );
        }
        for odd in [
            "",
            "7",
            "0000000000000007",
            "000000000000000x[null,\"a\"]",
            "0000000000000007[null,\"\"]",
        ] {
            assert_eq!(read_request(odd, Duration::from_millis), None, "{odd}");
        }
    }
}
