//! The program as `turnjail-docker`: what drivers of Docker call, the exit codes and words that they get,
//! and turnjail's own Docker driver on top of it.

mod account;
mod demands;
mod ending;
mod images;
mod sequence;
mod turns;

use std::process::ExitCode;

use turnjail_tests::{Fact, Test, harness};

fn main() -> ExitCode {
    // Before root is left, which cannot copy from everywhere.
    let _installed = account::install();
    harness(&[
        Test::new("the_docker_driver_on_it_meets_every_demand", demands::driver),
        Test::new("it_makes_every_check_of_images", demands::images),
        Test::new("a_recorded_run_is_answered_by_a_jail", sequence::recorded),
        Test::new("the_calls_of_a_turn_are_answered_as_docker_does", sequence::whole),
        Test::new("limits_without_a_cgroup_are_told_or_refused", sequence::limits),
        Test::new("unknown_options_and_commands_are_errors", sequence::unknown),
        Test::new("exit_codes_are_the_workers", ending::codes),
        Test::new("another_process_removes_a_jail", ending::removed),
        Test::new("signals_end_a_jail", ending::signals),
        Test::new("a_killed_command_leaves_nothing", ending::killed),
        Test::new("a_name_is_used_once_at_a_time", ending::names),
        Test::new("images_are_loaded_listed_and_saved", images::round),
        Test::new("a_turn_of_the_command_line_runs_in_it", turns::by_itself),
        Test::with("a_turn_of_the_command_line_runs_in_docker", &[Fact::Docker], turns::by_docker),
        Test::with("a_saved_worker_runs_in_docker", &[Fact::Jail, Fact::Docker], images::to_docker),
    ])
}
