//! A client, and what gateways answer it.

use std::time::Duration;

use latchgate::{
    client::{AcquireRequest, Client, ClientError, ClientOptions, Lease},
    lock::{LockName, Token},
};

use crate::support::fake_gateway::{FakeGateway, Reply};

/// The token in [`lease`].
pub(super) const TOKEN: &str = "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU";

pub(super) fn lease() -> Reply {
    let body = format!(
        r#"{{"name":"deploy","token":"{TOKEN}","fencing_token":42,"ttl_ms":30000,"expires_in_ms":29000,"expires_at":"2026-11-20T12:00:30.000Z","acquired_at":"2026-11-20T12:00:00.000Z","renew_after_ms":9666,"hold_expires_in_ms":null,"owner":"me","metadata":{{"job":"7"}},"waited_ms":0,"from_the_future":[1]}}"#
    );
    Reply::Answer(201, body)
}

pub(super) fn client(gateway: &FakeGateway) -> Client {
    client_of(&gateway.url)
}

pub(super) fn client_of(url: &str) -> Client {
    let options = ClientOptions {
        url: url.to_owned(),
        request_timeout: Duration::from_millis(500),
        attempts: 3,
        ..ClientOptions::default()
    };
    Client::new(options).unwrap()
}

pub(super) fn name() -> LockName {
    LockName::new("deploy").unwrap()
}

pub(super) fn token() -> Token {
    Token::parse(TOKEN).unwrap()
}

pub(super) async fn acquire(gateway: &FakeGateway) -> Result<Lease, ClientError> {
    client(gateway)
        .acquire(&name(), &AcquireRequest::default())
        .await
}
