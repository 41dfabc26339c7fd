//! Trials: what has broken rootless sandboxes on real hosts, tried here by number.
//!
//! | trial | where |
//! | --- | --- |
//! | r01, r02, r05, r09, r12: masked /proc, limits of namespaces, outer filters, mounts without programs, long paths | `tests/doctor` |
//! | r03, r17: leaks of namespaces, deaths at the worst moment | `deaths` |
//! | r07: workspaces on mounts with flags | `mounts`, and whole turns in `tests/doctor` |
//! | r11: paths that vanish, directories that can only be passed through | `paths` |
//! | r14, r15, r25: limits beside a busy user, of addresses, of tmpfs | `shares`, with real runtimes in `tests/general` |
//! | r18: descriptors with high numbers | `descriptors` |
//! | r20: starts beside threads that allocate | `pressure` |
//! | r23, r24: cgroups of sessions, threaded groups | `tests/vm`, which has cgroups of version 2 |
//! | r27: calls of foreign machines | `tests/attacks`, a14; that the kernel logs their numbers, `tests/vm` |
//! | r30: hostile archives | `archives`, and by their parts in `src/images/tests` |
//! | no number: descriptors that are cut off, jails that cannot be watched, few network namespaces | `starved` |
//!
//! The counts are small unless `TURNJAIL_TRIALS=full` asks for those of the trials as they were written.

mod archives;
mod deaths;
mod descriptors;
mod hosts;
mod mounts;
mod paths;
mod pressure;
mod shares;
mod starved;

use std::process::ExitCode;

use turnjail_tests::{Fact, Test, harness};

/// As many as a quick run can have, or as many as the trial asks for.
pub fn count(quick: u32, full: u32) -> u32 {
    let wanted = std::env::var("TURNJAIL_TRIALS").is_ok_and(|value| value == "full");
    if wanted { full } else { quick }
}

fn main() -> ExitCode {
    // This program again, as a host of its own.
    let mut arguments = std::env::args().skip_while(|argument| argument != hosts::AS_HOST).skip(1);
    if let Some(part) = arguments.next() {
        return hosts::run(&part);
    }
    harness(&[
        Test::with("r03_two_hundred_turns_of_killed_hosts_leak_no_namespace", OUTER, deaths::r03),
        Test::with("r07_a_mount_keeps_its_flags_in_a_jail", OUTER, mounts::r07),
        Test::new("r11_files_that_come_and_go_stop_no_start", paths::r11_vanishing),
        Test::new("r11_a_directory_that_can_only_be_passed_through_is_enough", paths::r11_passed),
        Test::with("r14_a_bomb_takes_nothing_from_others", R14, shares::r14),
        Test::new("r15_addresses_that_nobody_touches_are_free", shares::r15),
        Test::new("r17_a_host_that_dies_at_any_moment_leaves_nothing", deaths::r17),
        Test::new("r18_no_descriptor_of_any_number_gets_in", descriptors::r18),
        Test::new("descriptors_cut_off_on_the_way_to_the_host", starved::descriptors_to_the_host),
        Test::new(
            "descriptors_cut_off_on_the_way_to_the_warden",
            starved::descriptors_to_the_warden,
        ),
        Test::new("a_jail_that_cannot_be_watched_is_ended", starved::ends_that_cannot_be_watched),
        Test::with("few_network_namespaces_are_enough", OUTER, starved::few_networks),
        Test::new("r20_starts_beside_threads_that_allocate_never_hang", pressure::r20),
        Test::new("r25_small_file_systems_in_memory_are_full_soon", shares::r25),
        Test::new("r30_a_hostile_archive_is_imported_run_and_removed", archives::r30),
    ])
}

const OUTER: &[Fact] = &[Fact::Jail, Fact::Unshare];
const R14: &[Fact] = &[Fact::Jail, Fact::Processes];
