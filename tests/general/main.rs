//! Programs that were not written for a jail run unmodified in the general profile.

mod images;
mod loopback;
mod memory;
mod places;
mod rules;
mod seeds;
mod signals;
mod store;
mod turns;
mod typescript;
mod walls;

use std::process::ExitCode;

use turnjail_tests::general::General::{Bun, Busybox, Coreutils, Esbuild, Node, Python};
use turnjail_tests::{Fact, Test, harness, without};
use turnjail_warden::wire::Way;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(walls::UNDER_A_LIE) {
        return walls::host();
    }
    let mut tests = vec![
        Test::new("an_init_reports_exit_codes_and_signals", places::endings),
        Test::new("proc_and_dev_are_the_jails_own", places::places),
        Test::new("links_at_mount_points_stop_the_start", places::traps),
        Test::new("a_jail_has_few_inotify_instances", places::watchers),
        Test::new("a_program_below_a_mount_point_is_refused", places::covered),
        Test::new("an_init_hands_signals_on_to_its_program", signals::handed_on),
        Test::new("an_init_reaps_orphans", signals::orphans),
        Test::new("an_init_is_no_target_of_its_program", signals::no_target),
        Test::new("a_loopback_works_and_leads_nowhere_else", loopback::works),
        Test::new("without_a_loopback_there_is_no_network", loopback::absent),
        Test::new("the_sealed_profile_has_no_loopback", loopback::sealed),
        Test::new("the_canary_finds_every_general_wall_standing", walls::standing),
        Test::new("the_canary_sees_a_missing_general_wall", walls::missing),
        Test::new("a_breach_stops_every_turn_for_good", walls::breach),
        Test::new("a_pass_of_the_canary_is_kept_for_the_next_process", walls::kept),
        Test::new("the_worker_is_sealed_unless_an_operator_says_otherwise", rules::builtin),
        Test::new("a_loopback_is_in_the_receipt", rules::loopback),
        Test::new("limits_of_memory_are_those_that_are_set", rules::memory),
        Test::new("settings_that_cannot_be_had_are_refused_at_the_start", rules::refused),
        Test::with(
            "busybox_works_unmodified",
            &[Fact::Jail, Fact::Image(Busybox)],
            images::busybox,
        ),
        Test::with(
            "coreutils_work_unmodified",
            &[Fact::Jail, Fact::Image(Coreutils)],
            images::coreutils,
        ),
        Test::with("python_works_unmodified", &[Fact::Jail, Fact::Image(Python)], images::python),
        Test::with("node_works_unmodified", &[Fact::Jail, Fact::Image(Node)], images::node),
        Test::with("bun_works_unmodified", &[Fact::Jail, Fact::Image(Bun)], images::bun),
        Test::with(
            "a_static_go_program_works_unmodified",
            &[Fact::Jail, Fact::Image(Esbuild)],
            images::go,
        ),
        Test::with(
            "a_fork_bomb_is_held_and_ends",
            &[Fact::Jail, Fact::Image(Busybox)],
            images::fork_bomb,
        ),
        Test::with(
            "a_program_handles_its_stop_signal",
            &[Fact::Jail, Fact::Image(Python)],
            images::stop_signal,
        ),
        Test::with(
            "r15_node_reserves_what_it_likes_and_touches_what_it_may",
            &[Fact::Jail, Fact::Image(Node)],
            memory::node,
        ),
        Test::with(
            "r15_bun_reserves_what_it_likes_and_touches_what_it_may",
            &[Fact::Jail, Fact::Image(Bun)],
            memory::bun,
        ),
        Test::new("labels_tighten_and_settings_decide", store::labels),
        Test::with(
            "a_busybox_image_answers_a_turn",
            &[Fact::Jail, Fact::Image(Busybox)],
            store::busybox,
        ),
        Test::with(
            "a_coreutils_image_answers_a_turn",
            &[Fact::Jail, Fact::Image(Coreutils)],
            store::coreutils,
        ),
        Test::with(
            "a_python_image_answers_a_turn",
            &[Fact::Jail, Fact::Image(Python)],
            store::python,
        ),
        Test::with("a_node_image_answers_a_turn", &[Fact::Jail, Fact::Image(Node)], store::node),
        Test::with("a_bun_image_answers_a_turn", &[Fact::Jail, Fact::Image(Bun)], store::bun),
        Test::new("without_newer_calls_general_programs_run", || {
            // The image store needs openat2, which Linux 5.10 has: without it nothing is imported.
            without::again_some(
                "open_tree,move_mount,mount_setattr,close_range,clone3",
                Way::Direct,
                &[
                    "an_init_",
                    "proc_and_dev_are_the_jails_own",
                    "links_at_mount_points_stop_the_start",
                    "a_program_below_a_mount_point_is_refused",
                    "a_loopback_works_and_leads_nowhere_else",
                    "the_canary_finds_every_general_wall_standing",
                    "_work_unmodified",
                    "_works_unmodified",
                    "a_fork_bomb_is_held_and_ends",
                    "_image_answers_a_turn",
                ],
            );
        }),
        Test::with(
            "workers_in_other_languages_pass_the_brokers_rules",
            &[Fact::Jail, Fact::Image(Python), Fact::Image(Node), Fact::Image(Bun)],
            turns::languages,
        ),
    ];
    let needs = &[Fact::Jail, Fact::Image(Bun)];
    match seeds::worker() {
        Err(why) => eprintln!("skipped: the TypeScript worker under Bun ({why})"),
        Ok(_) => tests.extend([
            Test::with("the_typescript_worker_answers_a_turn", needs, typescript::a_turn),
            Test::with(
                "the_typescript_worker_remembers_and_calls_tools",
                needs,
                turns::of_the_typescript_worker,
            ),
            Test::with(
                "the_typescript_worker_under_bun_passes_every_vector",
                needs,
                typescript::every_vector,
            ),
        ]),
    }
    harness(&tests)
}
