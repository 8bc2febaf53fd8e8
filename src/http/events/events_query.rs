//! The query of `/events`.

use utoipa::IntoParams;

use crate::{
    http::extract::{Parameters, Query},
    lock::NamePrefix,
};

/// Which locks are listened to.
pub(in crate::http) struct EventsQuery {
    pub(super) prefix: NamePrefix,
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
}

// === impl EventsQuery ===

impl Query for EventsQuery {
    fn read(parameters: &mut Parameters<'_>) -> Self {
        let prefix = parameters.prefix().unwrap_or_default();
        Self { prefix }
    }
}
