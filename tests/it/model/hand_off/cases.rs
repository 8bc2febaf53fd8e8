//! Searches of the hand-off, with all its rules and without one of them.

use crate::support::{full, with};

use super::{
    super::search::{SearchOutcome, search},
    model::{HandOff, Step},
    state::{Faults, Mode},
    variant::Variant,
};

/// Upper bound of the number of states in any model of this file.
const MOST: usize = 40_000_000;

/// Searches the hand-off between attempts in these modes. `min_hold`: all leases have a minimum hold, and their callers
/// release them before it is over.
fn explore<const ATTEMPTS: usize>(
    min_hold: bool,
    variant: Variant,
    modes: [Mode; ATTEMPTS],
    faults: Faults,
) -> SearchOutcome<Step> {
    let protocol = HandOff {
        variant,
        modes,
        min_hold,
        faults,
    };
    search(&protocol, MOST)
}

fn shared<const ATTEMPTS: usize>(
    variant: Variant,
    modes: [Mode; ATTEMPTS],
    faults: Faults,
) -> SearchOutcome<Step> {
    explore(false, variant, modes, faults)
}

fn resting<const ATTEMPTS: usize>(
    variant: Variant,
    modes: [Mode; ATTEMPTS],
    faults: Faults,
) -> SearchOutcome<Step> {
    explore(true, variant, modes, faults)
}

const WRITER: Mode = Mode::Exclusive;
const READER: Mode = Mode::Shared(9);
const ONE_OF_TWO: Mode = Mode::Shared(2);

/// The bounds of the faults. `change` gets 0 in a short run and 1 in a full one.
fn faults(change: fn(&mut Faults, u8)) -> Faults {
    with(Faults::default(), |it| change(it, u8::from(full())))
}

/// Losses, late copies, early ends, and the death of a gateway.
fn every_fault() -> Faults {
    faults(|it, more| {
        (it.losses, it.early, it.copies, it.deaths) = (1 + more, 1 + more, 1, 1);
    })
}

/// Checks that all attempts are served, whatever happens.
#[expect(
    clippy::print_stdout,
    reason = "shows how much was searched, if a test is run with --nocapture"
)]
fn served<const ATTEMPTS: usize>(modes: [Mode; ATTEMPTS], faults: Faults) {
    let found = shared(Variant::Kept, modes, faults).nothing_wrong();
    println!("{modes:?}, {faults:?}, callers hang up: {found}");
}

#[test]
fn three_who_wait_are_served_whatever_is_lost() {
    served([WRITER; 3], faults(|it, more| it.losses = 1 + more));
}

#[test]
fn three_who_wait_are_served_although_a_gateway_dies() {
    let death = faults(|it, more| (it.deaths, it.losses) = (1, more));
    served([WRITER; 3], death);
}

#[test]
fn readers_and_a_writer_are_served_whatever_is_lost() {
    for modes in [[READER, WRITER, READER], [WRITER, READER, READER]] {
        served(modes, faults(|it, more| it.losses = more));
    }
}

#[test]
fn those_who_share_two_places_are_served_although_a_gateway_dies() {
    let death = faults(|it, more| (it.deaths, it.losses) = (1, more));
    served([ONE_OF_TWO; 3], death);
}

#[test]
fn two_in_whichever_mode_are_served_whatever_happens() {
    for modes in [
        [WRITER, WRITER],
        [READER, WRITER],
        [READER, READER],
        [WRITER, READER],
    ] {
        served(modes, every_fault());
    }
}

#[test]
fn those_who_wait_for_a_rest_are_served_whatever_happens() {
    let death = faults(|it, more| (it.deaths, it.losses) = (1, more));
    for modes in [[WRITER; 3], [ONE_OF_TWO; 3], [READER, WRITER, READER]] {
        resting(Variant::Kept, modes, death).nothing_wrong();
    }
    resting(Variant::Kept, [WRITER; 2], every_fault()).nothing_wrong();
}

#[test]
fn each_rule_of_rests_is_needed() {
    let copy = with(Faults::default(), |it| it.copies = 1);
    for (variant, modes, faults) in [
        (Variant::RestsNot, [WRITER; 3], Faults::default()),
        (Variant::RestsNot, [ONE_OF_TWO; 3], Faults::default()),
        (Variant::RestKeepsToken, [WRITER; 3], copy),
        (Variant::NoTimers, [WRITER; 3], Faults::default()),
    ] {
        let found = resting(variant, modes, faults);
        println!("{variant:?}: {found}; {}", found.wrong());
    }
}

#[test]
fn each_rule_of_shared_leases_is_needed() {
    for (variant, modes) in [
        (Variant::BargingReader, [READER, WRITER, READER]),
        (Variant::OneTooMany, [ONE_OF_TWO; 3]),
        (Variant::SlotByCount, [ONE_OF_TWO; 3]),
        (Variant::ExpiryEndsTwo, [READER; 3]),
        (Variant::OneAtATime, [READER; 3]),
        (Variant::HeadLeavesAlone, [READER, WRITER, READER]),
    ] {
        let found = shared(variant, modes, Faults::default());
        println!("{variant:?}: {found}; {}", found.wrong());
    }
}

#[test]
fn each_rule_is_needed() {
    let none = Faults::default();
    let early = with(none, |it| it.early = 1);
    let loss = with(none, |it| it.losses = 1);
    let death = with(none, |it| it.deaths = 1);
    let copy = with(none, |it| it.copies = 1);
    let early_copy = with(none, |it| (it.copies, it.early) = (1, 1));
    for (variant, faults) in [
        (Variant::Barging, none),
        (Variant::LastComeFirstServed, none),
        (Variant::ConfirmedUnseen, early),
        (Variant::NoProvisionalLimit, death),
        (Variant::NoRounds, loss),
        (Variant::NoTimers, none),
        (Variant::DeadKept, death),
        (Variant::GivenBackThoughHeard, loss),
        (Variant::NotRemembered, copy),
        (Variant::LostPlaceNotRemembered, early_copy),
        (Variant::SentAgainForgotten, early_copy),
        (Variant::NotGivenBack, none),
    ] {
        let found = shared(variant, [WRITER; 3], faults);
        println!("{variant:?}: {found}; {}", found.wrong());
    }
}
