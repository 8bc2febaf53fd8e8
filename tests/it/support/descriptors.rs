//! How many connections a test may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of descriptors as far as it goes: this side needs one for every connection, too.
pub(crate) fn raise_the_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}
