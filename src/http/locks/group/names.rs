//! Which locks a request means.

use crate::{
    auth::{Access, Permission},
    http::{
        extract::{Fields, Form, NAME, Query, declare_fields},
        problem::Problem,
    },
    lock::{GroupNames, GroupNamesError, LockName},
};

/// The locks that a query names.
pub(in crate::http) struct GroupQuery(pub(super) Option<GroupNames>);

declare_fields! {
    /// The locks, with a comma between: 2 to 16, each once, in any order.
    const IN_QUERY: "names" => Form::text(
        0,
        GroupNames::MAX * (LockName::MAX_LEN + 1) - 1,
        "^[A-Za-z0-9._:@~-]+(,[A-Za-z0-9._:@~-]+){1,15}$",
    )
    .required()
    .example("cluster:eu,database");
    /// The locks: 2 to 16, each once, in any order. They are taken in the order of their names.
    const NAMES: "names" => NAME.list(GroupNames::MIN, GroupNames::MAX).required();
}

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
    fn read(fields: &mut Fields<'_>) -> Self {
        Self(fields.parsed(&IN_QUERY, |text| GroupNames::parse(text.split(','))))
    }
}

/// The field `names`.
pub(super) fn names(fields: &mut Fields<'_>) -> Option<GroupNames> {
    let texts = fields.list(&NAMES)?;
    // Which one is wrong is said by its place.
    for (at, text) in texts.iter().enumerate().take(GroupNames::MAX) {
        if let Err(error) = LockName::new(text) {
            fields.refuse_at(format!("{}[{at}]", NAMES.name), error.to_string());
        }
    }
    match GroupNames::parse(texts.iter().map(AsRef::as_ref)) {
        Ok(names) => Some(names),
        // It was said above.
        Err(GroupNamesError::Name(..)) => None,
        Err(error @ (GroupNamesError::Count(_) | GroupNamesError::Repeated(_))) => {
            fields.refuse(&NAMES, error.to_string());
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
    Problem::invalid_field(NAMES.name, "is missing; it has 2 to 16 names of locks")
}
