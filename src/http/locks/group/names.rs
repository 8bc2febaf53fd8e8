//! Which locks a request means.

use utoipa::IntoParams;

use crate::{
    auth::{Access, Permission},
    http::{
        extract::{Fields, Parameters, Query},
        problem::Problem,
    },
    lock::{GroupNames, GroupNamesError, LockName},
};

/// The parameters, for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes what `GroupQuery` reads")]
pub(super) struct GroupParameters {
    /// The locks, with a comma between: 2 to 16, each once, in any order.
    #[param(
        max_length = 3215,
        pattern = "^[A-Za-z0-9._:@~-]+(,[A-Za-z0-9._:@~-]+){1,15}$",
        example = "cluster:eu,database"
    )]
    names: String,
}

/// The locks that a query names.
pub(in crate::http) struct GroupQuery(pub(super) Option<GroupNames>);

const FIELD: &str = "names";

// === impl GroupQuery ===

impl GroupQuery {
    pub(super) fn names(self) -> Result<GroupNames, Problem> {
        self.0.ok_or_else(|| {
            let reason = "is missing; it has 2 to 16 names with a comma between";
            Problem::invalid_field("query.names", reason)
        })
    }
}

impl Query for GroupQuery {
    fn read(parameters: &mut Parameters<'_>) -> Self {
        let Some(text) = parameters.text(FIELD) else {
            return Self(None);
        };
        Self(parameters.check(FIELD, GroupNames::parse(text.split(','))))
    }
}

/// The field `names`.
pub(super) fn names(fields: &mut Fields<'_>) -> Option<GroupNames> {
    let texts = fields.list(FIELD)?;
    // Which one is wrong is said by its place.
    for (at, text) in texts.iter().enumerate().take(GroupNames::MAX) {
        if let Err(error) = LockName::new(text) {
            fields.refuse(format!("{FIELD}[{at}]"), error.to_string());
        }
    }
    match GroupNames::parse(texts.iter().map(AsRef::as_ref)) {
        Ok(names) => Some(names),
        // It was said above.
        Err(GroupNamesError::Name(..)) => None,
        Err(error @ (GroupNamesError::Count(_) | GroupNamesError::Repeated(_))) => {
            fields.refuse(FIELD, error.to_string());
            None
        }
    }
}

/// Whether the caller may acquire each of them.
pub(super) fn check_permission(caller: &Access, names: &GroupNames) -> Result<(), Problem> {
    let permission = Permission::Acquire;
    let refused = names
        .iter()
        .find(|name| !caller.permits(permission, Some(name)));
    refused.map_or(Ok(()), |name| {
        Err(Problem::forbidden(permission, Some(name)))
    })
}

/// A body without names.
pub(super) fn missing_names() -> Problem {
    Problem::invalid_field(FIELD, "is missing; it has 2 to 16 names of locks")
}
