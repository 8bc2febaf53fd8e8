//! How many connections the operating system lets this process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// Descriptors that are no callers': the store's connections and files, the logs, the runtime, and
/// connections that are just being closed.
const OTHERS: usize = 384;

/// How many connections there can be of those that are wanted. Raises the limit of the process as
/// far as that takes and it may.
pub(super) fn connections(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let needed = u64::try_from(wanted + OTHERS).unwrap_or(u64::MAX);
    let Some(current) = limit.current.filter(|&current| current < needed) else {
        return wanted;
    };
    let raised = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = match setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(raised),
            maximum: limit.maximum,
        },
    ) {
        Ok(()) => raised,
        Err(error) => {
            debug!(%error, "cannot raise the limit of open files");
            current
        }
    };
    let possible = possible(usize::try_from(raised).unwrap_or(usize::MAX), wanted);
    if possible < wanted {
        warn!(
            wanted,
            possible,
            "the limit of open files (ulimit -n) allows fewer connections than are configured"
        );
    }
    possible
}

/// How many of the descriptors are for callers. Where there are few, half of them.
fn possible(descriptors: usize, wanted: usize) -> usize {
    let left = descriptors.saturating_sub(OTHERS).max(descriptors / 2);
    left.clamp(1, wanted.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_descriptors_for_others() {
        assert_eq!(possible(20_384, 20_000), 20_000);
        assert_eq!(possible(1_024, 20_000), 640);
        assert_eq!(possible(256, 20_000), 128);
        assert_eq!(possible(0, 20_000), 1);
    }
}
