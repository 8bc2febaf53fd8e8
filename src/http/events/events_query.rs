//! The query of `/events`.

use utoipa::IntoParams;

use crate::{
    http::extract::{Parameters, Query},
    lock::NamePrefix,
};

/// Which locks are listened to.
pub(in crate::http) struct EventsQuery {
    pub(super) prefix: NamePrefix,
    /// How many events of before are told first.
    pub(super) past: Option<u64>,
}

/// The same for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes what `EventsQuery` reads")]
pub(super) struct EventsParameters {
    /// How the names begin. Empty, or left out: all of them.
    #[param(
        nullable = false,
        max_length = 200,
        pattern = "^[A-Za-z0-9._:@~-]*$",
        example = "deploy:"
    )]
    prefix: Option<String>,
    /// How many of the last events, of all locks, are looked through first for those that are to be
    /// told; each of them has `past: true`.
    /// With `Last-Event-ID` it says nothing: then it reads on from there.
    #[param(nullable = false, minimum = 0, maximum = 4096)]
    past: Option<u64>,
}

/// Half of what is kept: what is told must not be lost before it is read.
const MOST_PAST: u64 = 4_096;

// === impl EventsQuery ===

impl Query for EventsQuery {
    fn read(parameters: &mut Parameters<'_>) -> Self {
        let prefix = parameters.prefix().unwrap_or_default();
        let past = parameters.whole("past");
        if past.is_some_and(|past| past > MOST_PAST) {
            parameters.refuse("past", format!("is more than {MOST_PAST}"));
        }
        Self { prefix, past }
    }
}
