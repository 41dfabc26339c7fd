//! How programs in jails end, that nothing of them is left, and what is said about this host.
//!
//! What they can see and do while they run is in `attacks/`.

mod endings;
mod lifecycle;
mod network;
mod pool;
mod verdicts;

use std::process::ExitCode;

use turnjail_tests::{Fact, Test, harness_both_ways, without};
use turnjail_warden::wire::Way;

fn main() -> ExitCode {
    // This program again, as a host of its own for a test that needs one.
    if let Some(part) = std::env::args().skip_while(|a| a != lifecycle::AS_HOST).nth(1) {
        return lifecycle::host(&part);
    }
    harness_both_ways(&[
        Test::new("an_exit_code_is_a_failed_worker", endings::exit_code),
        Test::new("a_signal_is_a_failed_worker", endings::signal),
        Test::with(
            "a_forbidden_call_is_named_where_the_log_is",
            &[Fact::Jail, Fact::KernelLog],
            endings::forbidden_call,
        ),
        Test::new("too_much_output_ends_the_run", endings::output),
        Test::new("output_at_the_limit_is_read_whole", endings::output_at_the_limit),
        Test::new("memory_is_limited", endings::memory),
        Test::new("cpu_time_is_limited", endings::cpu),
        Test::new("a_large_file_is_refused", endings::file_size),
        Test::new("tmp_is_limited", endings::tmp),
        Test::new("unread_input_is_no_error", endings::unread_input),
        Test::new("a_missing_program_is_named", endings::missing_program),
        Test::new("a_program_that_is_none_is_named", endings::not_a_program),
        Test::new("a_missing_mount_point_is_named", endings::missing_mount_point),
        Test::new("a_replaced_source_is_refused", endings::replaced_source),
        Test::new("cancelling_leaves_nothing", lifecycle::cancel),
        Test::new("cancelling_at_any_moment_leaves_nothing", lifecycle::cancel_at_any_moment),
        Test::new("a_dropped_run_leaves_nothing", lifecycle::dropped),
        Test::new("a_dead_warden_fails_its_runs_and_takes_its_jails_along", lifecycle::warden_dies),
        Test::new("a_killed_host_leaves_no_process", lifecycle::host_dies),
        Test::new("a_killed_host_and_warden_leave_no_process", lifecycle::host_and_warden_die),
        Test::new("many_jails_leak_nothing", lifecycle::many),
        Test::new("jails_at_once_all_end", lifecycle::at_once),
        Test::new("more_jails_at_once_than_one_may_have_files", lifecycle::more_than_its_files),
        Test::new("a_warden_that_is_held_up_gets_every_request", lifecycle::warden_held_up),
        Test::with(
            "a_pool_fills_up_when_nothing_happens",
            &[Fact::Jail, Fact::Pool],
            pool::filled_when_idle,
        ),
        Test::with(
            "a_parked_jail_holds_nothing",
            &[Fact::Jail, Fact::Pool],
            pool::parked_is_closed,
        ),
        Test::with("a_prepared_jail_serves_one_plan", &[Fact::Jail, Fact::Pool], pool::used_once),
        Test::with(
            "a_prepared_jail_follows_its_own_plan",
            &[Fact::Jail, Fact::Pool],
            pool::follows_its_own_plan,
        ),
        Test::with(
            "a_prepared_jail_has_its_plans_limits",
            &[Fact::Jail, Fact::Pool],
            pool::has_its_plans_limits,
        ),
        Test::with(
            "a_prepared_jail_is_in_a_group_of_its_own",
            &[Fact::Jail, Fact::Pool, Fact::Cgroup],
            pool::in_a_group_of_its_own,
        ),
        Test::with(
            "a_prepared_jail_is_for_plans_that_fit",
            &[Fact::Jail, Fact::Pool],
            pool::only_what_fits,
        ),
        Test::with(
            "a_prepared_jail_is_there_for_each_of_two_programs",
            &[Fact::Jail, Fact::Pool],
            pool::turns_of_two_programs,
        ),
        Test::with(
            "a_prepared_jail_starts_in_a_linked_directory",
            &[Fact::Jail, Fact::Pool],
            pool::in_a_linked_directory,
        ),
        Test::new("a_failed_preparation_is_no_harm", pool::a_failure_is_the_requests),
        Test::with(
            "parked_jails_die_with_their_warden",
            &[Fact::Jail, Fact::Pool],
            pool::parked_ones_die_with_their_warden,
        ),
        Test::with(
            "a_parked_jail_that_is_killed_is_not_missed",
            &[Fact::Jail, Fact::Pool],
            pool::killed_while_waiting,
        ),
        Test::with("many_jails_from_a_pool_leave_nothing", &[Fact::Jail, Fact::Pool], pool::many),
        Test::new("without_newer_calls_jails_are_made", || {
            without::again("open_tree,move_mount,mount_setattr,close_range,clone3,openat2", &[]);
        }),
        Test::new("without_what_linux_5_10_lacks_jails_are_made", || {
            without::again("mount_setattr,landlock_create_ruleset", &[]);
        }),
        Test::with("without_openat2_jails_are_prepared", &[Fact::Jail, Fact::Pool], || {
            without::again_some("openat2", Way::Prepared, &["a_prepared_jail_"]);
        }),
        Test::new("a_network_made_ahead_is_one_jails_alone", network::made_ahead),
        Test::new("no_mount_of_a_jail_reaches_the_host", lifecycle::no_mounts),
        Test::new("doctor_finds_every_wall_standing", verdicts::doctor),
        Test::new("the_canary_judges_answers", verdicts::canary),
        Test::with(
            "the_canary_sees_a_missing_wall",
            &[Fact::Jail, Fact::Landlock],
            verdicts::breach,
        ),
        Test::new("tighter_limits_of_the_host_are_kept", lifecycle::tighter_limits),
        Test::new("a_file_size_limit_below_the_warden_is_said", lifecycle::small_files),
        Test::new("required_policies_stop_the_start", verdicts::policies),
        Test::new("the_receipt_says_what_is_in_force", verdicts::receipt),
    ])
}
