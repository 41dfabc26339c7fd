//! Programs that were not written for a jail run unmodified in the general profile.

mod loopback;
mod places;
mod rules;
mod signals;
mod walls;

use std::process::ExitCode;

use turnjail_tests::{Test, harness};

fn main() -> ExitCode {
    harness(&[
        Test::new("an_init_reports_exit_codes_and_signals", places::endings),
        Test::new("proc_and_dev_are_the_jails_own", places::places),
        Test::new("links_at_mount_points_stop_the_start", places::traps),
        Test::new("an_init_hands_signals_on_to_its_program", signals::handed_on),
        Test::new("an_init_reaps_orphans", signals::orphans),
        Test::new("an_init_is_no_target_of_its_program", signals::no_target),
        Test::new("a_loopback_works_and_leads_nowhere_else", loopback::works),
        Test::new("without_a_loopback_there_is_no_network", loopback::absent),
        Test::new("the_sealed_profile_has_no_loopback", loopback::sealed),
        Test::new("the_canary_finds_every_general_wall_standing", walls::standing),
        Test::new("the_canary_sees_a_missing_general_wall", walls::missing),
        Test::new("a_pass_of_the_canary_is_kept_for_the_next_process", walls::kept),
        Test::new("the_worker_is_sealed_unless_an_operator_says_otherwise", rules::builtin),
        Test::new("a_loopback_is_in_the_receipt", rules::loopback),
        Test::new("limits_of_memory_are_those_that_are_set", rules::memory),
        Test::new("settings_that_cannot_be_had_are_refused_at_the_start", rules::refused),
    ])
}
