//! Which run of a server is at the other end of a connection, and for how long it has run.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

/// The run of a server to which a connection is. A connection is to one run of it, so that it is asked
/// once. Empty if it was not asked, or did not say.
#[derive(Debug, Default)]
pub(crate) struct Run(Option<RunInfo>);

/// What a server has said of its run.
#[derive(Debug)]
struct RunInfo {
    /// When it was asked.
    asked: Instant,
    uptime: Option<Duration>,
    id: Option<RunId>,
}

/// By what a server tells its runs apart; no other server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunId(Arc<str>);

// === impl Run ===

impl Run {
    /// Reads what the server answered to `INFO server`, which was asked then.
    pub(crate) fn read(info: &str, asked: Instant) -> Self {
        Self(Some(RunInfo {
            asked,
            uptime: uptime(info),
            id: RunId::read(info),
        }))
    }

    /// How long it has run by now; `None` if it was not asked, or did not say.
    pub(crate) fn age(&self) -> Option<Duration> {
        let run = self.0.as_ref()?;
        Some(run.uptime? + run.asked.elapsed())
    }

    /// Which it is; `None` if it was not asked, or did not say.
    pub(crate) fn id(&self) -> Option<&RunId> {
        self.0.as_ref()?.id.as_ref()
    }
}

/// A field of what a server has answered to INFO.
pub(crate) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn uptime(info: &str) -> Option<Duration> {
    let seconds = info_field(info, "uptime_in_seconds")?;
    seconds.parse().ok().map(Duration::from_secs)
}

// === impl RunId ===

impl RunId {
    /// What `INFO server` says.
    pub(crate) fn read(info: &str) -> Option<Self> {
        info_field(info, "run_id").map(|id| Self(id.into()))
    }

    /// As the server says it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_told_with_its_age_in_whole_seconds() {
        let info = "# Server\r\nrun_id:0a1b\r\nuptime_in_seconds:61\r\nuptime_in_days:0\r\n";
        assert_eq!(uptime(info), Some(Duration::from_secs(61)));
        assert_eq!(uptime("# Server\r\nuptime_in_seconds:x\r\n"), None);
        assert_eq!(RunId::read(info), Some(RunId("0a1b".into())));
        assert_eq!(RunId::read("# Server\r\n"), None);
        assert_eq!(Run::default().age(), None);
        assert_eq!(Run::default().id(), None);
    }
}
