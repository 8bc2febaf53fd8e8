//! Imports that nearly every test of the quorum needs.

pub(crate) use super::{
    nodes::{self, Nodes, patient, quick},
    rig::{Rig, all_struck, fence_key},
};
pub(crate) use crate::redis::prelude::*;
