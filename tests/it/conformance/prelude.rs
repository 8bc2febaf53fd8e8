//! Imports that nearly every case needs.

pub(super) use super::{
    Fixture,
    attempts::{
        LONG, SHORT, attempt, granted, holders, holding, is_free, key, keyed, limited, name,
        one_of, owned, patient, reader, refused, released, renewed, share, sharers, token, ttl,
        under, until_holders,
    },
    waiting::{Caller, Gateways, LATE, new_key, request, sharing},
};
pub(super) use crate::support::prelude::*;
