//! An answer as it comes, without trust in what it says of itself.

use std::io;

use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    time::{Duration, error::Elapsed, timeout},
};

/// What came back.
#[derive(Debug)]
pub(super) struct RawResponse {
    pub(super) status: u16,
    /// In lower case.
    head: String,
    pub(super) body: String,
}

/// Longer than a machine takes that does other things as well.
pub(super) const TIMEOUT: Duration = Duration::from_mins(1);

// === impl RawResponse ===

impl RawResponse {
    /// Reads one; none if the connection is closed before it begins.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let answer = Self::read_within(TIMEOUT, from).await;
        answer.expect("it is answered or closed")
    }

    /// The same, unless it takes longer.
    pub(super) async fn read_within(
        time: Duration,
        from: &mut (impl AsyncRead + Unpin),
    ) -> Result<Option<Self>, Elapsed> {
        let answer = timeout(time, Self::read_whole(from)).await?;
        // However it is closed.
        Ok(answer.ok())
    }

    pub(super) async fn read_whole(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        loop {
            let head = head(from).await?;
            let status = head
                .split(' ')
                .nth(1)
                .and_then(|status| status.parse().ok());
            let mut answer = Self {
                status: status.unwrap_or_else(|| panic!("no status: {head}")),
                head,
                body: String::new(),
            };
            if answer.status == 100 {
                continue;
            }
            if let Some(length) = answer.header("content-length") {
                let mut body = vec![0; length.parse().unwrap()];
                // The answer to HEAD says a length and has no body: the connection is closed then.
                if from.read_exact(&mut body).await.is_ok() {
                    answer.body = String::from_utf8(body).unwrap();
                }
            }
            return Ok(answer);
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(field, value)| (field == name).then_some(value))
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of a problem document that is as it should be.
    pub(super) fn problem(&self) -> String {
        let media = self.header("content-type");
        assert_eq!(media, Some("application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], self.status, "{self:?}");
        let id = body["request_id"].as_str().unwrap();
        let sent = self.header("x-request-id");
        assert_eq!(Some(id.to_ascii_lowercase().as_str()), sent, "{self:?}");
        for member in ["title", "detail"] {
            let text = body[member].as_str().unwrap();
            assert!(
                !text.is_empty() && !text.contains(char::is_control),
                "{self:?}"
            );
        }
        let code = body["code"].as_str().unwrap().to_owned();
        let of_list = latchgate::http::ProblemCode::from_slug(&code);
        assert_eq!(
            of_list.map(|code| code.status().as_u16()),
            Some(self.status)
        );
        assert_eq!(body["type"], format!("/problems/{code}"));
        code
    }
}

async fn head(from: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(from.read_u8().await?);
    }
    Ok(String::from_utf8(bytes).unwrap().to_ascii_lowercase())
}
