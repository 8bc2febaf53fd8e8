//! What is found, and what is not.

use crate::support::full;

use super::{
    super::search::{SearchOutcome, search},
    model::{HandOff, Step},
    state::{Faults, Holder},
    variant::Variant,
};

/// No model here has more states.
const MOST: usize = 40_000_000;

fn hand_off<const ATTEMPTS: usize>(variant: Variant, faults: Faults) -> SearchOutcome<Step> {
    let model: HandOff<ATTEMPTS> = HandOff {
        variant,
        holder: Holder::SomebodyElse,
        faults,
    };
    search(&model, MOST)
}

#[test]
fn three_who_wait_are_served_whatever_is_lost() {
    let more = u8::from(full());
    let faults = Faults {
        losses: 1 + more,
        ..Faults::NONE
    };
    let found = hand_off::<3>(Variant::Kept, faults).nothing_wrong();
    println!("answers and messages are lost, callers hang up: {found}");
}

#[test]
fn three_who_wait_are_served_although_a_gateway_dies() {
    let more = u8::from(full());
    let faults = Faults {
        deaths: 1,
        losses: more,
        ..Faults::NONE
    };
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
fn each_rule_is_needed() {
    let early = Faults {
        early: 1,
        ..Faults::NONE
    };
    let loss = Faults {
        losses: 1,
        ..Faults::NONE
    };
    let death = Faults {
        deaths: 1,
        ..Faults::NONE
    };
    let copy = Faults {
        copies: 1,
        ..Faults::NONE
    };
    let early_copy = Faults {
        copies: 1,
        early: 1,
        ..Faults::NONE
    };
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
