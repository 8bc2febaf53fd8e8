//! What is found, and what is not.

use crate::support::{Random, full, with};

use super::{
    super::{
        search::{Model, SearchOutcome, search},
        walk::walk,
    },
    protocol::Protocol,
    step::Step,
    variant::Variant,
};

/// Two attempts for one name at three nodes.
const TWO: Protocol<3, 2> = Protocol {
    variant: Variant::Guarded,
    names: [0, 0],
    highest: 3,
    losses: 0,
    raises: 0,
    ahead: 0,
    saves: 0,
    new: false,
    granted: false,
};
/// No model here has more states.
const MOST: usize = 20_000_000;

fn found(model: &Protocol<3, 2>) -> SearchOutcome<Step> {
    search(model, MOST)
}

/// Nothing wrong is found in this model.
#[expect(
    clippy::print_stdout,
    reason = "shows how much was searched, if a test is run with --nocapture"
)]
fn rise(what: &str, change: impl FnOnce(&mut Protocol<3, 2>)) {
    let found = found(&with(TWO, change)).nothing_wrong();
    println!("{what}: {found}");
}

#[test]
fn fences_are_unique_and_rise_whatever_messages_do() {
    let highest = if full() { 5 } else { 3 };
    rise("messages lost, late and again, ends at any instant", |it| {
        it.highest = highest;
    });
}

#[test]
fn they_rise_although_a_node_loses_its_data() {
    let highest = if full() { 3 } else { 2 };
    rise("one of three nodes loses its data", |it| {
        (it.highest, it.losses) = (highest, 1);
    });
}

#[test]
fn they_rise_although_nodes_lose_their_data_one_after_the_other() {
    let highest = if full() { 2 } else { 1 };
    rise("nodes lose their data twice", |it| {
        (it.highest, it.losses) = (highest, 2);
    });
}

#[test]
fn they_rise_although_a_node_has_again_what_it_had_written_down() {
    let highest = if full() { 2 } else { 1 };
    rise(
        "one of three nodes has again what it had written down",
        |it| {
            it.highest = highest;
            it.losses = 1;
            it.saves = 1;
        },
    );
}

#[test]
fn they_rise_although_nobody_has_a_vote_at_first() {
    let highest = if full() { 2 } else { 1 };
    rise("all are new, and one loses its data", |it| {
        it.highest = highest;
        it.losses = 1;
        it.new = true;
    });
}

#[test]
fn they_rise_although_other_names_raise_the_same_counters() {
    let (highest, raises) = if full() { (4, 1) } else { (3, 1) };
    rise("other names raise the counters", |it| {
        (it.highest, it.raises) = (highest, raises);
    });
}

#[test]
fn each_guard_is_needed() {
    for variant in [
        Variant::NoSecondRound,
        Variant::UnconditionalRaise,
        Variant::OwnerAlone,
        Variant::CounterAlone,
        Variant::RaiseBelowMajority,
        Variant::NonceReused,
    ] {
        let found = found(&Protocol {
            variant,
            ahead: 1,
            ..TWO
        });
        println!("{variant:?}: {found}; {}", found.wrong());
    }
}

#[test]
fn a_node_that_lost_its_data_has_to_learn() {
    let quick = [
        (Variant::VotesUnlearnt, 1, 1, 0),
        (Variant::FloorOfGateway, 1, 1, 0),
        (Variant::LearnsOfOne, 1, 1, 0),
        (Variant::NoEpoch, 1, 1, 0),
        (Variant::NoLife, 1, 2, 0),
    ];
    // Millions of states.
    let slow = [
        (Variant::LateAnswers, 2, 1, 0),
        (Variant::ConfirmsUnlearnt, 2, 1, 1),
    ];
    let variants = quick.into_iter().chain(slow.into_iter().filter(|_| full()));
    for (variant, highest, losses, saves) in variants {
        let found = found(&Protocol {
            variant,
            highest,
            losses,
            saves,
            ..TWO
        });
        println!("{variant:?}: {found}; {}", found.wrong());
    }
}

/// A model of which only so much is looked at: what happens is of these kinds, in this order.
struct RestrictedModel<M> {
    model: M,
    way: Vec<fn(&Step) -> bool>,
}

impl<M: Model<Step = Step>> Model for RestrictedModel<M> {
    type State = (usize, M::State);
    type Step = Step;

    fn beginning(&self) -> Self::State {
        (0, self.model.beginning())
    }

    fn next(&self, (gone, from): &Self::State, to: &mut Vec<(Step, Self::State)>) {
        let Some(is_next) = self.way.get(*gone) else {
            return;
        };
        let mut all = Vec::new();
        self.model.next(from, &mut all);
        let next = all.into_iter().filter(|(step, _)| is_next(step));
        to.extend(next.map(|(step, state)| (step, (gone + 1, state))));
    }

    fn wrong(&self, (_, state): &Self::State) -> Option<&'static str> {
        self.model.wrong(state)
    }
}

/// Of five nodes two may be without their data at once, and not always the same: whoever counts all that
/// ever said so counts three.
#[test]
fn of_five_nodes_those_that_have_no_vote_are_counted_at_one_instant() {
    let lose = |step: &Step| matches!(step, Step::LoseData { .. });
    let ask = |step: &Step| matches!(step, Step::Ask { heard: true, .. });
    let admit = |step: &Step| matches!(step, Step::Admit { .. });
    let round_one = |step: &Step| matches!(step, Step::RoundOne { heard: true, .. });
    let round_two = |step: &Step| matches!(step, Step::RoundTwo { heard: true, .. });
    let mut way: Vec<fn(&Step) -> bool> = vec![lose, lose];
    // Two learn; one is done, and another loses its data before the first has heard all.
    way.extend([ask as fn(&Step) -> bool; 6]);
    way.extend([admit, lose, ask, admit] as [fn(&Step) -> bool; 4]);
    way.push(|step| matches!(step, Step::Begin { .. }));
    way.extend([round_one as fn(&Step) -> bool; 3]);
    way.push(|step| matches!(step, Step::Maximum { .. }));
    way.extend([round_two as fn(&Step) -> bool; 3]);
    way.push(|step| matches!(step, Step::Grant { .. }));
    let along = |variant| {
        let model: Protocol<5, 1> = Protocol {
            variant,
            names: [0],
            highest: 2,
            losses: 3,
            raises: 0,
            ahead: 0,
            saves: 0,
            new: false,
            granted: true,
        };
        let way = way.clone();
        search(&RestrictedModel { model, way }, MOST)
    };
    let found = along(Variant::OldAnswers);
    println!("OldAnswers: {found}; {}", found.wrong());
    let found = along(Variant::Guarded).nothing_wrong();
    println!("five nodes lose their data three times, in one order: {found}");
}

#[test]
fn three_attempts_for_two_names_and_four_at_five_nodes_are_walked_through() {
    let mut random = Random::seeded();
    let walks = if full() { 200_000 } else { 500 };
    let three = Protocol {
        variant: Variant::Guarded,
        names: [0, 0, 0],
        highest: 40,
        losses: 3,
        raises: 3,
        ahead: 0,
        saves: 1,
        new: false,
        granted: false,
    };
    let two_names = Protocol {
        names: [0, 1, 0],
        ..three
    };
    let five: Protocol<5, 4> = Protocol {
        variant: Variant::Guarded,
        names: [0, 0, 1, 0],
        highest: 40,
        losses: 4,
        raises: 3,
        ahead: 0,
        saves: 2,
        new: false,
        granted: false,
    };
    let found = [
        walk::<Protocol<3, 3>>(&three, &mut random, walks, 80),
        walk::<Protocol<3, 3>>(&two_names, &mut random, walks, 80),
        walk(&five, &mut random, walks, 120),
    ];
    for found in found {
        println!("walked through {}", found.nothing_wrong());
    }
}

/// A walk that finds nothing where there is something would prove nothing.
#[test]
fn a_walk_finds_what_is_wrong_without_the_second_round() {
    let model = Protocol {
        variant: Variant::NoSecondRound,
        ..TWO
    };
    let found = walk(&model, &mut Random::seeded(), 20_000, 60);
    println!("NoSecondRound: {}", found.wrong());
}
