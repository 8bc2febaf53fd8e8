//! The table: every case runs on every store.

use std::future::ready;

use super::{
    embedded::Embedded, exclusion, expiry, fences, give_back, idempotency, random, release, renew,
    told,
};

/// Makes one test of each case for each store, so that a case cannot be forgotten for one of them.
macro_rules! conformance {
    (stores: { $($store:ident = $fixture:expr;)+ } cases: $cases:tt) => {
        $(conformance!(@store $store, $fixture, $cases);)+
    };
    (@store $store:ident, $fixture:expr, { $($topic:ident: $($case:ident,)+;)+ }) => {
        mod $store {
            $(mod $topic {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    use super::super::*;
                    $topic::$case(&$fixture.await).await;
                })+
            })+
        }
    };
}

conformance! {
    stores: {
        embedded = ready(Embedded::start());
    }
    cases: {
        exclusion:
            one_of_many_concurrent_attempts_is_granted,
            a_held_lock_shows_its_holder_to_others,
            names_do_not_exclude_each_other,
            nobody_is_inside_together,
            a_lease_survives_a_restart_and_still_excludes,;
        release:
            frees_the_lock_for_the_next,
            needs_the_token_of_the_holder,
            of_a_free_lock_says_that_it_is_free,
            of_a_lease_with_a_key_may_be_repeated,
            of_a_lease_with_a_key_may_be_repeated_after_a_restart,
            repeated_without_a_key_says_that_it_is_lost,
            repeated_does_not_end_the_lease_of_the_next,;
        expiry:
            frees_the_lock,
            ends_what_renew_and_release_may_do,
            is_neither_earlier_nor_much_later_than_the_ttl,
            goes_on_through_a_restart,;
        renew:
            makes_a_lease_outlast_its_first_ttl,
            needs_the_token_of_the_holder,
            never_resurrects_an_ended_lease,
            stops_at_the_hold_limit,
            takes_a_given_ttl_for_the_leases_own,
            keeps_the_fence_and_everything_else,
            may_be_repeated,
            survives_a_restart,;
        fences:
            rise_over_release,
            rise_over_expiry,
            rise_over_give_back,
            rise_over_restarts,
            are_the_same_for_the_same_lease,;
        idempotency:
            the_token_of_the_living_lease_answers_that_lease,
            the_same_key_answers_the_same_lease_and_salt,
            the_same_key_answers_the_same_lease_after_a_restart,
            the_same_key_in_other_words_is_a_mismatch,
            another_key_is_somebody_else,
            a_key_is_refused_after_release,
            a_key_is_refused_after_expiry,
            a_key_is_refused_while_somebody_else_holds,
            a_key_is_refused_after_a_restart,
            many_concurrent_attempts_under_one_key_are_one_grant,;
        give_back:
            ends_a_grant,
            before_the_acquire_arrives_refuses_it,
            before_the_acquire_arrives_refuses_it_after_a_restart,
            racing_the_acquire_leaves_nothing_held,
            may_be_repeated,
            does_not_touch_a_lease_that_was_answered_again,
            does_not_touch_a_lease_that_was_answered_again_before_a_restart,
            ends_a_lease_with_a_key_that_was_answered_once,
            leaves_others_alone,
            leaves_other_names_alone,
            of_an_ended_lease_holds_nothing,;
        told:
            a_lease_is_told_with_all_that_it_was_given,
            inspect_shows_what_acquire_told,
            a_lock_that_nobody_ever_wanted_is_free,
            a_closed_store_says_that_it_closes,
            a_sound_store_passes_its_checks,;
        random:
            sequences_behave_like_the_model,;
    }
}
