//! Reads a backup of a gateway's embedded store.

use std::time::Duration;

use reqwest::{Method, Response};
use tokio::time::{Instant, timeout};

use crate::{
    Client, ClientError,
    events::MAX_PROBLEM,
    http::{CallResponse, RetryableFailure, cause},
};

/// How long the client waits for data from the gateway, which makes the whole backup before it answers.
const SILENCE: Duration = Duration::from_mins(1);
/// The largest backup that is read, about ten million leases without metadata. A larger or endless answer must not
/// use up the memory.
const MAX_BACKUP: usize = 1 << 30;

// === impl Client ===

impl Client {
    /// Reads a backup of the embedded store. Sends the request once: the caller decides whether to repeat it.
    pub async fn backup(&self) -> Result<Vec<u8>, ClientError> {
        self.read_backup(MAX_BACKUP).await
    }

    async fn read_backup(&self, max_bytes: usize) -> Result<Vec<u8>, ClientError> {
        let address = self.addresses.current();
        let unreachable = |reason| RetryableFailure::unreachable(address.url, reason).error;
        let lost = |error: &reqwest::Error| unreachable(cause(error));
        let silent = |_elapsed| unreachable("no answer in time".to_owned());
        let sent_at = Instant::now();
        let request = self.request(Method::GET, format!("{}/backup", address.url));
        let sent = self.send(address.url, request, None);
        let response = timeout(SILENCE, sent).await.map_err(silent)?;
        let mut response: Response = response.map_err(|error| {
            let result = error.result(address.url, true);
            result.map_or_else(|failure| failure.error, CallResponse::refusal)
        })?;
        let longest = if response.status().is_success() {
            max_bytes
        } else {
            MAX_PROBLEM
        };
        let mut body = Vec::new();
        while let Some(part) = timeout(SILENCE, response.chunk())
            .await
            .map_err(silent)?
            .map_err(|error| lost(&error))?
        {
            if body.len() + part.len() > longest {
                return Err(ClientError::Unexpected {
                    url: address.url.to_owned(),
                    what: format!("more than {longest} bytes"),
                });
            }
            body.extend(part);
        }
        if response.status().is_success() {
            return Ok(body);
        }
        Err(CallResponse::new(address.url, sent_at, &response, body).refusal())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;
    use crate::ClientOptions;

    #[tokio::test]
    async fn an_answer_without_end_is_not_kept_in_memory() {
        for status in ["200 OK", "500 Internal Server Error"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
                let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n");
                stream.write_all(head.as_bytes()).unwrap();
                // The server sends data until the client closes the connection.
                while stream.write_all(&[b'x'; 4096]).is_ok() {}
            });
            let options = ClientOptions {
                url,
                ..ClientOptions::default()
            };
            let client = Client::new(options).unwrap();
            let error = client.read_backup(100_000).await.unwrap_err();
            assert!(error.to_string().contains("more than "), "{error}");
        }
    }
}
