//! What list takes.

use utoipa::IntoParams;

use crate::{
    http::extract::{Parameters, Query},
    lock::Owner,
    store::{
        cursor::Cursor,
        page::{LONGEST_PAGE, ListQuery as Asked},
    },
};

/// The parameters, for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes what `ListQuery` reads")]
pub(super) struct ListParameters {
    /// How the names begin. Empty, or left out: all of them.
    #[param(
        nullable = false,
        max_length = 200,
        pattern = "^[A-Za-z0-9._:@~-]*$",
        example = "deploy:"
    )]
    prefix: Option<String>,
    /// The owner of the lease, exactly. A foreign client has none.
    #[param(
        nullable = false,
        min_length = 1,
        max_length = 128,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    owner: Option<String>,
    /// How many locks on one page at most. It may be fewer, or none, and still not be the last.
    #[param(nullable = false, minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before, with the same `prefix` and `owner`.
    #[param(
        nullable = false,
        min_length = 24,
        max_length = 40,
        pattern = "^[A-Za-z0-9_-]*$"
    )]
    cursor: Option<String>,
}

/// Which locks are to be shown.
pub(in crate::http) struct ListQuery(pub(super) Asked);

/// How many locks are shown if nothing is said: a screen or two.
const DEFAULT_LIMIT: usize = 100;

// === impl ListQuery ===

impl Query for ListQuery {
    fn read(parameters: &mut Parameters<'_>) -> Self {
        let prefix = parameters.prefix();
        let owner = parameters.text("owner").map(|text| Owner::new(&text));
        let owner = owner.map(|owner| parameters.check("owner", owner));
        let limit = limit(parameters);
        let cursor = parameters.text("cursor");
        // What it belongs to must be right before it can be.
        let cursor = match (&prefix, &owner, cursor) {
            (Some(prefix), None | Some(Some(_)), Some(text)) => {
                let owner = owner.as_ref().and_then(Option::as_ref);
                parameters.check("cursor", Cursor::parse(&text, prefix, owner))
            }
            _ => None,
        };
        Self(Asked {
            prefix: prefix.unwrap_or_default(),
            owner: owner.flatten(),
            limit,
            cursor,
        })
    }
}

fn limit(parameters: &mut Parameters<'_>) -> usize {
    let Some(limit) = parameters.whole("limit") else {
        return DEFAULT_LIMIT;
    };
    if let Ok(limit @ 1..=LONGEST_PAGE) = usize::try_from(limit) {
        return limit;
    }
    let reason = format!("is {limit}; allowed are 1 to {LONGEST_PAGE}");
    parameters.refuse("limit", reason);
    DEFAULT_LIMIT
}
