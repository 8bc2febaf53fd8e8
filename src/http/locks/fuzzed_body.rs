//! Reads any bytes as the body of each route, for fuzzers.

use crate::{
    config::LimitsConfig,
    http::extract::{Fields, RequestBody},
};

use super::{
    acquire::AcquireBody,
    break_lock::BreakBody,
    group::AcquireGroupBody,
    lease::{ReleaseBody, RenewBody},
};

/// Outcome of reading bytes as the body of each route. Panics if a route accepts bytes that are neither empty
/// nor one JSON object.
pub(crate) fn fuzzed_body(bytes: &[u8]) -> String {
    let is_object = bytes.is_empty()
        || serde_json::from_slice(bytes).is_ok_and(|value: serde_json::Value| value.is_object());
    let mut outcome = String::new();
    for read in [
        read::<AcquireBody>,
        read::<AcquireGroupBody>,
        read::<RenewBody>,
        read::<ReleaseBody>,
        read::<BreakBody>,
    ] {
        match read(bytes) {
            Ok(()) => {
                assert!(is_object, "it is taken and is no object");
                outcome.push_str("taken;");
            }
            Err(why) => {
                assert!(!why.contains(char::is_control), "{why:?}");
                outcome += &why;
            }
        }
    }
    outcome
}

fn read<T: RequestBody>(bytes: &[u8]) -> Result<(), String> {
    let refused = |problem: crate::http::problem::Problem| problem.detail.into_owned();
    let limits = LimitsConfig::default();
    let mut fields = Fields::parse(bytes, &limits).map_err(refused)?;
    // The value is not used: `finish` reports wrong fields, and a body with wrong fields is refused.
    let _body = T::read(&mut fields);
    fields.finish().map_err(refused)
}
