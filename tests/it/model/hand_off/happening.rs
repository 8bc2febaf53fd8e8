//! What may happen next, as it is written down.

use super::{
    model::{Event, GatewayTask, Step},
    script::Script,
    state::{Faults, Mode, State},
    variant::Variant,
};

/// By which rules the scripts go, and how each attempt wants to hold the lock.
pub(super) type Protocol<'model, const ATTEMPTS: usize> = (Variant, &'model [Mode; ATTEMPTS]);

/// Finds what may happen next.
pub(super) struct Transitions<'next, const ATTEMPTS: usize> {
    pub(super) from: &'next State<ATTEMPTS>,
    pub(super) variant: Variant,
    pub(super) modes: &'next [Mode; ATTEMPTS],
    pub(super) to: &'next mut Vec<(Step, State<ATTEMPTS>)>,
}

// === impl Transitions ===

impl<const ATTEMPTS: usize> Transitions<'_, ATTEMPTS> {
    pub(super) fn happens(
        &mut self,
        attempt: usize,
        event: Event,
        act: impl FnOnce(&mut State<ATTEMPTS>, Protocol<'_, ATTEMPTS>),
    ) {
        let mut state = *self.from;
        act(&mut state, (self.variant, self.modes));
        self.to.push((Step::Attempt(attempt, event), state));
    }

    /// The same of what is a fault unless it is heard.
    pub(super) fn may_be_lost(
        &mut self,
        attempt: usize,
        event: Event,
        heard: bool,
        act: impl FnOnce(&mut State<ATTEMPTS>, Protocol<'_, ATTEMPTS>),
    ) {
        let Faults { losses, .. } = self.from.faults;
        if heard || losses > 0 {
            self.happens(attempt, event, |state, protocol| {
                state.faults.losses -= u8::from(!heard);
                act(state, protocol);
            });
        }
    }

    pub(super) fn works(
        &mut self,
        gateway: usize,
        work: GatewayTask,
        act: impl FnOnce(&mut State<ATTEMPTS>, Protocol<'_, ATTEMPTS>),
    ) {
        let mut state = *self.from;
        act(&mut state, (self.variant, self.modes));
        self.to.push((Step::Gateway(gateway, work), state));
    }
}

/// A script about to run.
pub(super) fn script<'state, const ATTEMPTS: usize>(
    state: &'state mut State<ATTEMPTS>,
    (variant, modes): Protocol<'state, ATTEMPTS>,
    me: usize,
    heard: bool,
) -> Script<'state, ATTEMPTS> {
    Script {
        state,
        variant,
        modes,
        me,
        heard,
    }
}
