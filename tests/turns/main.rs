//! Whole turns: the runtime, its broker, real jails and the real worker, with a scripted model.

mod conversation;
mod crowd;
mod demands;
mod restart;
mod skills;
mod stage;

use std::process::ExitCode;

use turnjail_tests::{Fact, Test, harness, without};
use turnjail_warden::wire::Way;

fn main() -> ExitCode {
    harness(&[
        Test::new("jails_meet_every_demand_on_drivers", demands::jail),
        Test::with(
            "the_example_of_a_driver_meets_them_too",
            &[Fact::Bubblewrap],
            demands::bubblewrap,
        ),
        Test::new("a_second_turn_remembers_the_first", conversation::remembers),
        Test::new("a_fresh_start_forgets_the_conversation", conversation::fresh),
        Test::new("a_guild_shares_its_memory_and_not_its_conversations", conversation::guild),
        Test::new("a_host_call_ends_with_its_turn", conversation::host_call),
        Test::new("the_receipt_tells_each_call_and_its_cost", conversation::receipt),
        Test::new("a_failing_model_is_the_workers_failure", conversation::failing_model),
        Test::new("a_dead_warden_fails_its_turns_and_no_other", restart::after_death),
        Test::new("skills_are_read_in_pages_that_no_worker_cuts", skills::pages),
        Test::new("without_newer_calls_turns_run", || {
            without::again_some(
                "open_tree,move_mount,mount_setattr,close_range,clone3,openat2",
                Way::Direct,
                &["a_second_turn", "a_fresh_start", "a_guild_shares", "a_host_call", "the_receipt"],
            );
        }),
        Test::new("two_hundred_channels_in_twenty_guilds", crowd::guilds),
    ])
}
