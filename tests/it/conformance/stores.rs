//! The table of the stores and cases: every case runs on every store.

use std::future::ready;

use super::{
    fixture::{embedded::Embedded, redis::Redis, redlock::Redlock},
    groups, history, late,
    leases::{
        breaks, checks, exclusion, expiry, fences, give_back, idempotency, recipients, release,
        renew, requests,
    },
    list, paths, random, told,
    waiting::{
        broken, crowd, expiries, leaving, order, orphans, places, queue,
        random::{histories, sequences},
        streams,
    },
};

/// Defines one test for each case and store, so that no store can miss a case.
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
        redis = Redis::start();
        sentinel = Redis::watched();
        cluster = Redis::clustered();
        redlock = Redlock::start();
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
            of_a_lease_with_a_key_may_be_repeated,;
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
            gives_no_more_than_the_longest_ttl_of_its_caller,
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
            the_same_key_in_other_words_is_a_mismatch,
            another_key_is_somebody_else,
            a_key_is_refused_after_the_end_of_its_lease,
            many_concurrent_attempts_under_one_key_are_one_grant,;
        give_back:
            ends_a_grant,
            before_the_acquire_arrives_refuses_it,
            racing_the_acquire_leaves_nothing_held,
            does_not_touch_a_lease_that_was_answered_again,
            ends_a_lease_with_a_key_that_was_answered_once,
            leaves_others_and_other_names_alone,
            of_an_ended_lease_holds_nothing,
            of_what_was_answered_to_nobody_leaves_the_key_usable,
            of_what_was_answered_to_nobody_is_for_its_recipient,;
        recipients:
            the_attempt_that_was_granted_keeps_it,
            whoever_it_was_adopted_from_ends_nothing,
            whoever_it_was_adopted_from_does_not_renew_it_either,
            the_last_to_adopt_it_keeps_it,
            of_many_who_adopt_it_together_one_keeps_it,
            an_adoption_may_be_repeated,
            the_token_alone_renews_and_releases_whoever_keeps_it,
            an_answer_under_the_key_makes_a_recipient,
            an_older_request_of_the_key_is_told_that_it_is_replaced,
            an_adopted_lease_is_not_given_back,
            the_recipient_of_one_lease_is_none_of_the_next,
            a_lease_is_adopted_after_a_restart,
            an_adoption_that_was_given_back_is_refused,
            an_ended_lease_is_not_adopted,;
        history:
            records_are_kept_and_belong_to_one_name,
            of_many_records_the_newest_are_kept,
            counts_of_shorter_leases_and_of_gaps_add_up,
            a_release_tells_which_lease_has_ended,
            a_lease_that_another_gateway_releases_is_one_entry,
            a_refused_check_is_a_note_of_its_lease_and_no_lease_by_itself,
            a_break_is_recorded_however_short_the_lease_was,
            a_lease_that_nobody_renews_has_expired,
            a_short_lease_that_another_gateway_releases_is_counted_there,
            the_holder_and_a_short_lease_with_a_minimum_hold_are_shown,
            a_lease_whose_rest_was_broken_stays_released,
            a_change_of_the_order_is_noted_at_the_last_lease,
            short_leases_are_only_counted,;
        list:
            shows_every_lock_that_is_held_as_inspect_does,
            of_nothing_is_an_empty_page,
            shows_nothing_that_has_ended,
            shows_the_names_that_begin_so_and_no_others,
            shows_the_leases_of_an_owner_and_no_others,
            shows_what_is_searched_for_in_name_owner_and_metadata,
            pages_are_as_long_as_was_asked_for,
            a_walk_comes_by_all_that_is_held_while_others_come_and_go,
            a_walk_goes_on_after_a_restart,
            a_cursor_that_means_nothing_here_begins_anew,;
        paths:
            are_locks_of_their_own,
            are_listed_by_the_beginning_of_the_path,
            keep_what_they_are_over_a_restart,
            pass_to_waiters_of_every_gateway_in_order,;
        breaks:
            end_whoever_holds_the_lock,
            with_a_fence_end_the_lease_that_has_it,
            with_another_target_end_nothing,
            of_a_free_lock_say_that_it_is_free,
            repeated_with_the_fence_end_no_other_lease,
            are_told_to_the_token_of_the_lease,
            are_told_to_that_token_and_for_that_lock_alone,
            use_up_the_key_and_outlast_a_late_copy,
            leave_nothing_to_be_given_back,;
        requests:
            are_heard_with_the_next_renewal,
            end_a_lease_however_often_it_is_renewed,
            end_a_lease_whose_gateway_is_gone,
            with_the_earliest_end_count,
            leave_a_short_ttl_as_it_is,
            are_forgotten_with_a_lease_that_ends_in_time,
            concern_that_lease_alone,
            are_of_what_holds_the_lock_only,
            use_up_the_key_of_the_lease,
            are_heard_of_by_every_gateway,;
        checks:
            pass_for_the_lease_that_holds_the_lock_and_no_other_number,
            fail_after_the_end_of_the_lease_however_it_ended,
            tell_how_much_of_the_lease_is_left,
            pass_through_every_gateway_and_after_a_restart,
            pass_for_a_lease_that_was_handed_over,
            of_a_closed_store_fail,;
        late:
            a_grant_is_told_without_the_time_since_it_was_made,
            a_renewal_is_told_without_the_time_since_it_was_made,
            a_hand_off_is_told_without_the_time_since_it_was_made,
            a_renewal_tells_what_was_left_before,;
        told:
            a_lease_is_told_with_all_that_it_was_given,
            inspect_shows_what_acquire_told,
            a_lock_that_nobody_ever_wanted_is_free,
            a_closed_store_says_that_it_closes,
            a_sound_store_passes_its_checks,;
        groups:
            twenty_clients_of_overlapping_groups_are_all_served,
            each_part_is_an_ordinary_lease_that_shows_its_group,
            a_lock_that_is_held_leaves_the_others_free,
            a_request_that_is_repeated_is_answered_the_same_leases,
            a_gateway_that_is_killed_leaves_what_ends_by_itself,
            a_group_of_a_killed_gateway_is_finished_for_who_asks_again,
            a_group_that_waits_is_marked_until_it_is_complete,
            a_renewal_of_a_complete_group_removes_a_mark_that_came_back,;
        random:
            sequences_behave_like_the_model,;
        order:
            those_who_wait_are_served_in_the_order_in_which_they_asked,
            nobody_passes_those_who_wait,
            one_who_does_not_wait_never_queues,
            one_who_waits_for_a_free_lock_has_it_at_once,
            the_queue_of_one_name_does_not_touch_another,;
        queue:
            inspect_shows_who_waits_in_order_and_for_how_long,
            a_list_shows_how_many_wait_for_each_lock,
            a_full_queue_takes_nobody_until_somebody_leaves,
            an_attempt_is_told_how_many_are_before_it,;
        expiries:
            of_a_lease_hands_the_lock_to_the_first,
            of_lease_after_lease_serves_all,
            does_not_come_while_the_lease_is_renewed,;
        leaving:
            one_whose_wait_runs_out_is_refused_and_passed_over,
            one_who_hangs_up_is_passed_over,
            the_last_to_leave_leaves_nothing_behind,
            a_hundred_who_are_gone_delay_nobody,;
        orphans:
            a_grant_in_the_instant_of_the_hang_up_is_given_back,
            a_grant_that_is_not_delivered_passes_on,
            one_who_is_given_back_while_queued_is_never_granted,
            one_who_leaves_after_the_grant_is_told_so,
            one_who_confirms_is_told_whether_it_holds_the_lock,
            one_who_leaves_without_having_queued_has_left,
            one_who_leaves_after_it_was_replaced_takes_nobody_along,
            one_whose_wait_runs_out_with_the_grant_leaves_it_to_a_newer_request,;
        places:
            are_kept_for_whoever_asks_again,
            have_waited_since_they_were_first_taken,
            belong_to_the_newest_request,
            are_not_taken_over_in_other_words,
            are_given_up_by_asking_without_waiting,
            that_are_given_up_supersede_whoever_waits_there,
            are_not_given_up_in_other_words_or_without_the_key,
            are_granted_the_lock_and_answer_it_in_full,
            pass_on_if_nobody_asks_again,
            run_out,
            that_were_granted_answer_the_same_lease,
            that_were_granted_pass_no_check_until_they_are_collected,
            that_are_kept_or_granted_stay_so_when_a_copy_comes_late,;
        crowd:
            two_hundred_are_each_served_once,
            a_long_queue_is_shown_by_its_head,;
        streams:
            that_end_after_another_adopted_the_lease_release_nothing,
            hear_with_their_next_renewal_that_another_adopted_the_lease,
            that_end_after_the_lease_was_answered_again_release_nothing,
            that_adopt_a_lease_together_leave_one_of_them,
            that_wait_are_told_how_their_place_moves,;
        broken:
            leases_pass_the_lock_to_the_first_who_waits,
            leases_end_the_stream_that_holds_them_at_once,;
        sequences:
            around_a_queue_behave_like_the_model,;
        histories:
            of_many_clients_exclude_rise_keep_order_and_leave_no_orphan,;
    }
}

/// The cases for shared locks, for rests, for reservations, for `supersedes` and for orders. The quorum store does not
/// support them.
mod sharing {
    use std::future::ready;

    use super::super::{
        fixture::{embedded::Embedded, redis::Redis},
        groups,
        leases::reservations,
        order,
        sharing::{
            breaks, checks, ends, grants, keys, leases, queue, rests, sequences, shown, slots,
        },
        waiting::newest,
    };

    conformance! {
        stores: {
            embedded = ready(Embedded::start());
            redis = Redis::start();
            sentinel = Redis::watched();
            cluster = Redis::clustered();
        }
        cases: {
            reservations:
                last_until_their_time_and_no_renewal_changes_it,
                end_at_their_time,
                end_at_their_time_however_long_they_were_queued,
                are_granted_to_nobody_after_their_time,
                are_repeated_under_an_idempotency_key,
                end_earlier_by_a_break_or_a_release_request_only,;
            newest:
                takes_the_older_out_and_stands_at_the_end,
                leaves_other_keys_callers_locks_and_the_holder_alone,
                takes_nobody_out_unless_it_is_queued,
                tells_the_next_request_of_a_chain,
                of_two_chains_one_stays,
                lets_those_behind_the_older_share_the_lock,
                late_copies_change_nothing,
                of_a_long_queue_takes_the_older_out,;
            order:
                of_a_lower_number_is_refused_and_told_of_the_grant,
                of_the_same_or_a_higher_number_passes,
                is_compared_with_nothing_if_there_is_none,
                of_a_rollback_is_neither_compared_nor_remembered,
                is_not_compared_for_an_attempt_that_has_its_lease,
                that_becomes_outdated_in_the_queue_leaves_it_and_the_next_is_granted,
                of_all_waiters_outdated_leaves_the_lock_free,
                of_a_crowd_outdated_delays_nobody,
                of_a_lease_that_was_not_used_is_taken_back,
                that_is_taken_back_lets_the_next_waiter_pass,
                is_set_if_it_is_the_one_that_was_seen,
                decides_which_of_two_waiters_stays,
                leaves_it_to_the_arrival_which_of_two_waiters_stays,
                that_is_outdated_keeps_nobody_from_sharing_the_lock,
                of_a_kept_position_counts_when_its_grant_is_collected,
                of_a_kept_position_is_compared_when_its_grant_is_collected,
                of_a_kept_position_that_is_outdated_passes_the_lock_on,
                that_is_outdated_gives_up_its_own_position_only,;
            grants:
                those_who_share_a_lock_hold_it_together,
                one_who_wants_to_be_alone_is_refused_until_the_last_has_gone,
                nobody_shares_with_one_who_is_alone,
                as_many_as_the_limit_says_hold_it_together,
                a_limit_binds_at_its_own_grant_only,
                those_without_a_limit_count_for_those_with_one,
                of_many_concurrent_attempts_as_many_are_granted_as_the_limit_says,
                nobody_is_inside_beside_one_who_is_alone,
                fences_rise_over_both_modes,
                the_expiry_of_one_frees_one_place,
                the_expiry_of_all_frees_the_lock,
                nothing_of_those_who_shared_it_comes_back,
                a_name_that_is_shared_does_not_touch_another,;
            leases:
                a_release_ends_the_one_and_no_other,
                who_does_not_share_it_can_do_nothing_with_it,
                each_expires_with_its_own_ttl,
                a_renewal_makes_one_last_and_no_other,
                each_stops_at_its_own_hold_limit,
                a_lease_is_told_with_all_that_it_was_given,
                they_survive_a_restart_and_still_exclude,
                one_who_was_granted_confirms_and_does_not_leave,;
            groups:
                each_lock_of_a_group_is_held_in_its_own_mode,
                a_group_stands_in_the_queue_in_the_mode_of_each_lock,
                a_repeated_group_must_have_the_same_modes,
                many_groups_in_mixed_modes_are_all_served,
                what_a_killed_gateway_shares_ends_by_itself_and_nothing_else,;
            slots:
                are_the_smallest_that_are_free,
                are_had_by_those_with_a_limit_alone,
                are_distinct_over_different_limits,
                are_free_again_after_the_expiry,
                are_free_again_after_a_break_and_a_give_back,
                stay_those_of_the_lease_while_it_lives,
                begin_at_zero_when_nobody_holds_the_lock,
                of_many_who_come_and_go_are_never_had_twice,;
            keys:
                a_lost_reply_is_answered_again_with_the_same_lease_and_slot,
                the_same_key_answers_the_same_lease_however_many_share_it,
                the_same_key_in_another_mode_or_with_another_limit_is_a_mismatch,
                a_key_is_refused_after_the_release_while_others_share_it,
                a_key_is_refused_after_the_expiry_while_others_share_it,
                many_concurrent_attempts_under_one_key_are_one_grant,
                different_keys_are_different_holders,
                a_give_back_ends_the_one_and_no_other,
                a_give_back_before_the_acquire_arrives_refuses_it,
                a_give_back_racing_the_acquire_leaves_nothing_held,
                a_lease_that_was_answered_again_is_not_given_back,
                each_has_a_recipient_of_its_own,
                an_older_request_of_the_key_is_told_that_it_is_replaced,;
            shown:
                inspect_shows_first_who_ends_first,
                of_very_many_those_are_shown_who_end_first,
                an_owner_finds_a_lock_by_a_holder_that_is_not_shown,
                one_alone_in_shared_mode_is_shown_as_such,
                a_list_shows_a_shared_lock_once,
                a_list_shows_a_lock_to_the_owner_of_any_of_its_leases,
                a_list_shows_nothing_of_those_who_have_gone,;
            breaks:
                with_a_fence_end_that_lease_and_no_other,
                of_all_end_all_that_share_it,
                of_all_end_one_who_is_alone,
                of_all_show_whole_what_they_end,
                must_say_which_lease_is_meant,
                with_another_target_end_nothing,
                repeated_with_the_fence_end_no_other_lease,
                do_not_reach_who_has_expired,
                use_up_the_keys_and_outlast_late_copies,
                are_heard_of_by_every_gateway,;
            checks:
                pass_for_each_lease_and_fail_for_the_one_that_has_ended,
                last_as_long_as_the_lease_and_not_as_the_lock,
                find_one_lease_among_very_many,;
            queue:
                one_who_reads_does_not_pass_one_who_waits_to_be_alone,
                one_with_a_larger_limit_does_not_pass_one_with_a_small_one,
                those_who_read_and_stand_together_are_granted_together,
                of_those_who_stand_together_as_many_are_granted_as_may,
                one_who_waits_and_may_share_it_has_it_at_once,
                a_hundred_who_stand_together_are_granted_together,
                a_crowd_in_both_modes_is_served_and_never_too_many_at_once,
                those_who_wait_are_shown_with_how_they_want_to_share_it,
                a_full_queue_takes_nobody_and_the_lock_is_shared_with_nobody_else,
                an_attempt_is_told_how_many_are_before_it_and_who_share_the_lock,;
            ends:
                one_who_leaves_the_head_lets_the_next_share_it_at_once,
                one_whose_wait_runs_out_lets_the_next_share_it_at_once,
                one_who_leaves_behind_the_head_lets_nobody_pass,
                a_kept_place_holds_back_the_next_until_its_time_is_over,
                a_place_that_is_given_up_lets_the_next_share_it_at_once,
                a_head_that_leaves_or_is_given_back_lets_the_next_share_it_at_once,
                a_lease_that_is_given_back_makes_room_for_the_next,
                a_grant_that_is_not_delivered_passes_on,
                the_expiry_of_one_makes_room_for_one,
                a_small_limit_waits_for_as_many_expiries_as_it_takes,
                one_who_wants_to_be_alone_waits_for_the_last_expiry,
                lease_after_lease_that_expires_serves_all,
                a_place_is_not_free_while_the_lease_is_renewed,
                a_break_makes_room_for_as_many_as_it_ends,
                a_break_of_all_grants_one_who_waits_to_be_alone,
                a_kept_place_is_granted_beside_others_and_collected,
                a_kept_place_that_nobody_collects_passes_on,;
            rests:
                keep_the_lock_until_the_minimum_hold_is_over,
                do_not_come_after_the_minimum_hold,
                are_not_left_by_what_was_not_delivered,
                are_not_left_by_a_lease_that_was_asked_for,
                are_ended_by_a_break,
                survive_a_restart,
                keep_the_idempotency_key_used,
                of_a_slot_count_for_limits_and_writers,
                of_slots_are_n_per_period,
                are_on_a_list,
                that_are_many_hide_no_holder,
            are_not_counted_as_holders_however_many_there_are,
                hand_the_lock_to_the_first_who_waits_when_they_end,
                of_slots_serve_those_who_wait_in_order,
                are_left_by_a_stream_whose_grant_was_read,
                are_left_by_a_group_and_not_by_parts_that_are_given_back,;
            sequences:
                behave_like_the_model,;
        }
    }
}
