//! Whether the caller of a group is still there.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::FutureExt;

use crate::engine::detach_on_drop::CallerGone;

/// Ends when the caller has gone, as often as it is asked.
pub(super) struct HangUp {
    /// `None`: it has gone.
    caller: Option<CallerGone>,
}

// === impl HangUp ===

impl HangUp {
    pub(super) fn new(caller: CallerGone) -> Self {
        let caller = Some(caller);
        Self { caller }
    }

    /// Whether the caller has gone.
    pub(super) fn has_come(&mut self) -> bool {
        self.now_or_never().is_some()
    }
}

impl Future for HangUp {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(caller) = &mut self.caller else {
            return Poll::Ready(());
        };
        let polled = Pin::new(caller).poll(cx);
        if polled.is_ready() {
            self.caller = None;
        }
        polled
    }
}
