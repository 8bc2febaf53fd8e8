//! One request that nobody should send, and what must come of it.

/// A request as it is written to the connection.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// What is said of it if it fails.
    pub(super) what: String,
    pub(super) bytes: Vec<u8>,
    pub(super) expected: Expected,
}

/// What must come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// This problem.
    Refused(u16, &'static str),
    /// Any problem with a status below 500, or a connection that is closed without an answer.
    Declined,
    /// This status.
    Answered(u16),
    /// A lease, which is released again.
    Granted,
    /// Any of these: what is sent may be right by chance.
    Sane,
}

/// What is wrong with a request that is read well.
pub(super) const INVALID: Expected = Expected::Refused(400, "invalid-request");

// === impl Case ===

impl Case {
    /// A request with a body of JSON, which is left out if it is empty.
    pub(super) fn new(
        line: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        expected: Expected,
    ) -> Self {
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        let mut bytes = format!("{line} HTTP/1.1\r\n").into_bytes();
        let has = |wanted: &str| {
            headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        if !has("host") {
            bytes.extend_from_slice(b"Host: localhost\r\n");
        }
        if !body.is_empty() && !has("content-type") {
            bytes.extend_from_slice(b"Content-Type: application/json\r\n");
        }
        for (name, value) in headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        Self {
            what: format!("{line} {headers:?} {shown}"),
            bytes,
            expected,
        }
    }

    /// Bytes that may be no request at all.
    pub(super) fn raw(bytes: impl Into<Vec<u8>>, expected: Expected) -> Self {
        let bytes = bytes.into();
        Self {
            what: bytes[..bytes.len().min(400)].escape_ascii().to_string(),
            bytes,
            expected,
        }
    }

    /// An acquire of `a` with a body.
    pub(super) fn acquire(body: impl AsRef<[u8]>, expected: Expected) -> Self {
        Self::new("POST /locks/a", &[], body.as_ref(), expected)
    }
}
