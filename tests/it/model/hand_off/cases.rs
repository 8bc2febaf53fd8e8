//! What is found, and what is not.

use crate::support::{full, with};

use super::{
    super::search::{SearchOutcome, search},
    model::{HandOff, Step},
    state::{Faults, Mode},
    variant::Variant,
};

/// No model here has more states.
const MOST: usize = 40_000_000;

/// Of those who each want the lock alone.
fn hand_off<const ATTEMPTS: usize>(variant: Variant, faults: Faults) -> SearchOutcome<Step> {
    shared(variant, [Mode::Exclusive; ATTEMPTS], faults)
}

fn shared<const ATTEMPTS: usize>(
    variant: Variant,
    modes: [Mode; ATTEMPTS],
    faults: Faults,
) -> SearchOutcome<Step> {
    let protocol = HandOff {
        variant,
        modes,
        faults,
    };
    search(&protocol, MOST)
}

const WRITER: Mode = Mode::Exclusive;
const READER: Mode = Mode::Shared(9);
const ONE_OF_TWO: Mode = Mode::Shared(2);

#[test]
fn three_who_wait_are_served_whatever_is_lost() {
    let more = u8::from(full());
    let faults = with(Faults::NONE, |it| it.losses = 1 + more);
    let found = hand_off::<3>(Variant::Kept, faults).nothing_wrong();
    println!("answers and messages are lost, callers hang up: {found}");
}

#[test]
fn three_who_wait_are_served_although_a_gateway_dies() {
    let more = u8::from(full());
    let faults = with(Faults::NONE, |it| (it.deaths, it.losses) = (1, more));
    let found = hand_off::<3>(Variant::Kept, faults).nothing_wrong();
    println!("a gateway dies, callers hang up: {found}");
}

#[test]
fn two_who_wait_are_served_whatever_happens() {
    let more = u8::from(full());
    let faults = Faults {
        losses: 1 + more,
        early: 1 + more,
        copies: 1,
        deaths: 1,
    };
    let found = hand_off::<2>(Variant::Kept, faults).nothing_wrong();
    println!("losses, late copies, early ends, a death: {found}");
}

#[test]
fn readers_and_a_writer_are_served_whatever_is_lost() {
    let faults = with(Faults::NONE, |it| it.losses = u8::from(full()));
    for modes in [[READER, WRITER, READER], [WRITER, READER, READER]] {
        let found = shared(Variant::Kept, modes, faults).nothing_wrong();
        println!("{modes:?}, callers hang up: {found}");
    }
}

#[test]
fn those_who_share_two_places_are_served_although_a_gateway_dies() {
    let faults = with(Faults::NONE, |it| {
        (it.deaths, it.losses) = (1, u8::from(full()));
    });
    let modes = [ONE_OF_TWO; 3];
    let found = shared(Variant::Kept, modes, faults).nothing_wrong();
    println!("{modes:?}, a gateway dies: {found}");
}

#[test]
fn two_in_either_mode_are_served_whatever_happens() {
    let more = u8::from(full());
    let faults = Faults {
        losses: 1 + more,
        early: 1 + more,
        copies: 1,
        deaths: 1,
    };
    for modes in [[READER, WRITER], [READER, READER], [WRITER, READER]] {
        let found = shared(Variant::Kept, modes, faults).nothing_wrong();
        println!("{modes:?}, losses, late copies, early ends, a death: {found}");
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
        let found = shared(variant, modes, Faults::NONE);
        println!("{variant:?}: {found}; {}", found.wrong());
    }
}

#[test]
fn each_rule_is_needed() {
    let early = with(Faults::NONE, |it| it.early = 1);
    let loss = with(Faults::NONE, |it| it.losses = 1);
    let death = with(Faults::NONE, |it| it.deaths = 1);
    let copy = with(Faults::NONE, |it| it.copies = 1);
    let early_copy = with(Faults::NONE, |it| (it.copies, it.early) = (1, 1));
    for (variant, faults) in [
        (Variant::Barging, Faults::NONE),
        (Variant::LastComeFirstServed, Faults::NONE),
        (Variant::ConfirmedUnseen, early),
        (Variant::NoProvisionalLimit, death),
        (Variant::NoRounds, loss),
        (Variant::NoTimers, Faults::NONE),
        (Variant::DeadKept, death),
        (Variant::GivenBackThoughHeard, loss),
        (Variant::NotRemembered, copy),
        (Variant::LostPlaceNotRemembered, early_copy),
        (Variant::SentAgainForgotten, early_copy),
        (Variant::NotGivenBack, Faults::NONE),
    ] {
        let found = hand_off::<3>(variant, faults);
        println!("{variant:?}: {found}; {}", found.wrong());
    }
}
