//! Drivers of container engines beside the jails: real engines, the same demands, the same turns.

mod docker;
mod endings;
mod images;
mod podman;
mod turns;

use std::process::ExitCode;

use turnjail_tests::{Fact, Test, harness};

/// Tests that need a Docker engine.
const fn docker(name: &'static str, check: fn()) -> Test {
    Test::with(name, &[Fact::Docker], check)
}

fn main() -> ExitCode {
    harness(&[
        docker("docker_meets_every_demand_on_drivers", docker::demands),
        docker("a_docker_receipt_says_what_is_and_is_not_in_force", docker::receipt),
        docker("an_engine_that_does_not_answer_is_named", docker::unreachable),
        docker("what_is_no_engine_is_refused", docker::no_engine),
        docker("the_client_knows_nothing_of_its_host", docker::environment),
        docker("containers_of_a_dead_host_are_removed", docker::leftovers),
        docker("over_its_memory_a_container_ends_for_memory", endings::memory),
        docker("over_its_output_a_container_is_removed", endings::output),
        docker("a_container_that_fails_says_how", endings::codes),
        docker("a_worker_cannot_speak_for_the_engine", endings::pretending),
        docker("a_program_that_is_not_there_is_the_engines_failure", endings::not_found),
        docker("a_name_in_use_is_freed", endings::name_in_use),
        docker("docker_makes_every_check_of_images", images::docker),
        Test::new("jails_make_every_check_of_images", images::jail),
        Test::with(
            "docker_and_jails_give_the_same_replies",
            &[Fact::Docker, Fact::Jail],
            turns::same,
        ),
        Test::with("podman_meets_every_demand_on_drivers", &[Fact::Podman], podman::demands),
    ])
}
