//! Reads any bytes as the reply to a script, for fuzzers.

use std::sync::LazyLock;

use bb8_redis::redis::parse_redis_value;
use tokio::time::Instant;

use crate::{
    lock::LockName,
    store::redis::{
        SlotTags,
        keys::{GatewayId, Keys},
    },
};

use super::Reply;

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let name = LockName::new("a").expect("it is one letter");
    Keys::of(&name, &SlotTags::compute(), &GatewayId::random())
});
/// What every reply must repeat.
const ECHO: &str = "e";

/// What each of these readers makes of the bytes. No reader may take what it cannot be.
pub(crate) fn fuzzed(bytes: &[u8], readers: &[fn(&mut Reply, &Keys) -> String]) -> String {
    let Ok(value) = parse_redis_value(bytes) else {
        return "no RESP".to_owned();
    };
    let mut outcome = String::new();
    let read = || Reply::read(value.clone(), ECHO, Instant::now());
    for reader in readers {
        match read() {
            Err(why) => outcome += &why,
            Ok(mut reply) => {
                assert!(
                    bytes
                        .windows(ECHO.len())
                        .any(|part| part == ECHO.as_bytes())
                );
                let seen = reader(&mut reply, &KEYS);
                assert!(!seen.contains(char::is_control), "{seen:?}");
                outcome += &seen;
            }
        }
    }
    outcome
}

/// Which kind of outcome it is; the values in it say nothing new.
pub(crate) fn shown<T>(read: Result<T, impl ToString>) -> String {
    match read {
        Ok(_) => "taken".to_owned(),
        Err(error) => error.to_string(),
    }
}
