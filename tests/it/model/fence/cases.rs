//! Searches of the quorum fence, with all its guards and without one of them.

use crate::support::{Random, full, with};

use super::{
    super::search::{Heard, Model, SearchOutcome, search, walk},
    protocol::Protocol,
    step::{Step, Variant},
};

/// Two attempts for one name at three nodes.
const TWO: Protocol<3, 2> = Protocol::new([0, 0], 3);
/// Upper bound of the number of states in any model of this file.
const MOST: usize = 20_000_000;

fn found(model: &Protocol<3, 2>) -> SearchOutcome<Step> {
    search(model, MOST)
}

/// In no state a fence is granted twice or does not rise. The numbers are the bound of each model in a short run and in
/// a full one.
#[test]
fn fences_are_unique_and_rise() {
    type Change = fn(&mut Protocol<3, 2>);
    let models: [(&str, u8, u8, Change); 6] = [
        (
            "messages are lost, late and again, ends come at any instant",
            3,
            5,
            |_| (),
        ),
        ("one of three nodes loses its data", 2, 3, |it| {
            it.losses = 1;
        }),
        ("nodes lose their data one after the other", 1, 2, |it| {
            it.losses = 2;
        }),
        ("a node has again what it had written down", 1, 2, |it| {
            (it.losses, it.saves) = (1, 1);
        }),
        (
            "nobody has a vote at first, and one loses its data",
            1,
            2,
            |it| {
                (it.losses, it.new) = (1, true);
            },
        ),
        ("other names raise the same counters", 3, 4, |it| {
            it.raises = 1;
        }),
    ];
    for (what, quick, slow, change) in models {
        let model = with(TWO, |it| it.highest = if full() { slow } else { quick });
        let found = found(&with(model, change)).nothing_wrong();
        println!("{what}: {found}");
    }
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
        let found = found(&with(TWO, |it| (it.variant, it.ahead) = (variant, 1)));
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
    // These searches visit millions of states, so a short run leaves them out.
    let slow = [
        (Variant::LateAnswers, 2, 1, 0),
        (Variant::ConfirmsUnlearnt, 2, 1, 1),
    ];
    let variants = quick.into_iter().chain(slow.into_iter().filter(|_| full()));
    for (variant, highest, losses, saves) in variants {
        let found = found(&with(TWO, |it| {
            (it.variant, it.highest, it.losses, it.saves) = (variant, highest, losses, saves);
        }));
        println!("{variant:?}: {found}; {}", found.wrong());
    }
}

/// A model of which only some ways are searched: with steps of these kinds, in this order.
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

/// Of five nodes, two may be without their data at once, and not always the same two: a learner that counts all nodes
/// that ever said so counts three.
#[test]
fn of_five_nodes_those_that_have_no_vote_are_counted_at_one_instant() {
    let lose = |step: &Step| matches!(step, Step::LoseData { .. });
    let ask = |step: &Step| matches!(step, Step::Ask(.., Heard(true)));
    let admit = |step: &Step| matches!(step, Step::Admit { .. });
    let round_one = |step: &Step| matches!(step, Step::RoundOne(.., Heard(true)));
    let round_two = |step: &Step| matches!(step, Step::RoundTwo(.., Heard(true)));
    let mut way: Vec<fn(&Step) -> bool> = vec![lose, lose];
    // Two nodes learn. One finishes, and another node loses its data before the first learner has heard all answers.
    way.extend([ask as fn(&Step) -> bool; 6]);
    way.extend([admit, lose, ask, admit] as [fn(&Step) -> bool; 4]);
    way.push(|step| matches!(step, Step::Begin { .. }));
    way.extend([round_one as fn(&Step) -> bool; 3]);
    way.push(|step| matches!(step, Step::Maximum { .. }));
    way.extend([round_two as fn(&Step) -> bool; 3]);
    way.push(|step| matches!(step, Step::Grant { .. }));
    let along = |variant| {
        let model = with(Protocol::<5, 1>::new([0], 2), |it| {
            (it.variant, it.losses, it.granted) = (variant, 3, true);
        });
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
    let faulty = |names| {
        with(Protocol::<3, 3>::new(names, 40), |it| {
            (it.losses, it.raises, it.saves) = (3, 3, 1);
        })
    };
    let five = with(Protocol::<5, 4>::new([0, 0, 1, 0], 40), |it| {
        (it.losses, it.raises, it.saves) = (4, 3, 2);
    });
    let found = [
        walk(&faulty([0, 0, 0]), &mut random, walks, 80),
        walk(&faulty([0, 1, 0]), &mut random, walks, 80),
        walk(&five, &mut random, walks, 120),
    ];
    for found in found {
        println!("walked through {}", found.nothing_wrong());
    }
}

/// If a walk found nothing in a wrong protocol, its silence about the right one would prove nothing.
#[test]
fn a_walk_finds_what_is_wrong_without_the_second_round() {
    let model = with(TWO, |it| it.variant = Variant::NoSecondRound);
    let found = walk(&model, &mut Random::seeded(), 20_000, 60);
    println!("NoSecondRound: {}", found.wrong());
}
