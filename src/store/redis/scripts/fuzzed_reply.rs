//! Reads any bytes as the reply to a script, for fuzzers.

use std::sync::LazyLock;

use bb8_redis::redis::parse_redis_value;

use crate::lock::LockName;

use super::{
    super::{
        keys::{GatewayId, Keys},
        slot::SlotTags,
    },
    Reply,
    inspect::queue,
};

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let name = LockName::new("a").expect("it is one letter");
    Keys::of(&name, &SlotTags::compute(), &GatewayId::random())
});
/// What every reply must repeat.
const ECHO: &str = "e";

/// What every reader of replies makes of the bytes. No reader may take what it cannot be.
pub(crate) fn fuzzed_reply(bytes: &[u8]) -> String {
    let Ok(value) = parse_redis_value(bytes) else {
        return "no RESP".to_owned();
    };
    let mut outcome = String::new();
    let read = || Reply::read(value.clone(), ECHO);
    let readers: [fn(&mut Reply) -> String; 8] = [
        |reply| shown(reply.news()),
        |reply| shown(reply.lease(&KEYS)),
        |reply| shown(reply.held(&KEYS)),
        |reply| format!("{:?}", queue(reply).is_some()),
        |reply| shown(reply.contention(&KEYS)),
        |reply| shown(reply.broken()),
        |reply| format!("{:?}", reply.foreign().is_some()),
        |reply| reply.layout(&KEYS).to_string(),
    ];
    for reader in readers {
        match read() {
            Err(why) => outcome += &why,
            Ok(mut reply) => {
                assert!(
                    bytes
                        .windows(ECHO.len())
                        .any(|part| part == ECHO.as_bytes())
                );
                let seen = reader(&mut reply);
                assert!(!seen.contains(char::is_control), "{seen:?}");
                outcome += &seen;
            }
        }
    }
    outcome
}

/// Which kind of outcome it is; the values in it say nothing new.
fn shown<T>(read: Result<T, impl ToString>) -> String {
    match read {
        Ok(_) => "taken".to_owned(),
        Err(error) => error.to_string(),
    }
}
