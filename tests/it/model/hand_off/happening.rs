//! What may happen next, as it is written down.

use super::{
    model::{Event, GatewayTask, Step},
    script::Script,
    state::{Faults, State},
    variant::Variant,
};

/// Finds what may happen next.
pub(super) struct Transitions<'next, const ATTEMPTS: usize> {
    pub(super) from: &'next State<ATTEMPTS>,
    pub(super) variant: Variant,
    pub(super) to: &'next mut Vec<(Step, State<ATTEMPTS>)>,
}

// === impl Transitions ===

impl<const ATTEMPTS: usize> Transitions<'_, ATTEMPTS> {
    pub(super) fn happens(
        &mut self,
        attempt: usize,
        event: Event,
        act: impl FnOnce(&mut State<ATTEMPTS>, Variant),
    ) {
        let mut state = *self.from;
        act(&mut state, self.variant);
        self.to.push((Step::Attempt(attempt, event), state));
    }

    /// The same of what is a fault unless it is heard.
    pub(super) fn may_be_lost(
        &mut self,
        attempt: usize,
        event: Event,
        heard: bool,
        act: impl FnOnce(&mut State<ATTEMPTS>, Variant),
    ) {
        let Faults { losses, .. } = self.from.faults;
        if heard || losses > 0 {
            self.happens(attempt, event, |state, variant| {
                state.faults.losses -= u8::from(!heard);
                act(state, variant);
            });
        }
    }

    pub(super) fn works(
        &mut self,
        gateway: usize,
        work: GatewayTask,
        act: impl FnOnce(&mut State<ATTEMPTS>, Variant),
    ) {
        let mut state = *self.from;
        act(&mut state, self.variant);
        self.to.push((Step::Gateway(gateway, work), state));
    }
}

/// A script about to run.
pub(super) fn script<const ATTEMPTS: usize>(
    state: &mut State<ATTEMPTS>,
    variant: Variant,
    me: usize,
    heard: bool,
) -> Script<'_, ATTEMPTS> {
    Script {
        state,
        variant,
        me,
        heard,
    }
}
