//! Runaway programs are stopped at their limits, or held at them, and the reason is right, whatever stands
//! behind the limits on this host: cgroups, or resource limits and a watch.

mod disk;
mod groups;
mod place;
mod share;
mod verdict;

use std::process::ExitCode;

use turnjail_tests::{Fact, Test, harness};

const CGROUP: &[Fact] = &[Fact::Jail, Fact::Cgroup];
const PROCESSES: &[Fact] = &[Fact::Jail, Fact::Processes];

/// Not dumpable, as the command line's host is: older kernels show such a process less of itself.
fn main() -> ExitCode {
    nix::sys::prctl::set_dumpable(false).expect("a process may say so");
    harness(&[
        Test::new("memory_of_one_process_is_limited", share::memory),
        Test::new("memory_of_processes_together_is_limited", share::memory_together),
        Test::new("files_in_memory_count_as_memory", share::memory_of_files),
        Test::new("shared_memory_that_nobody_has_resident_counts", share::memory_hidden),
        Test::new("memory_within_the_limit_is_no_matter", share::memory_within),
        Test::new("cpu_time_is_limited", share::cpu_time),
        Test::new("output_is_limited", share::output),
        Test::with("processes_are_held_at_their_limit", PROCESSES, share::processes),
        Test::new("one_file_fills_no_workspace", disk::one_file),
        Test::new("many_files_fill_no_workspace", disk::many_files),
        Test::new("free_space_is_kept_in_reserve", disk::reserve),
        Test::new("a_failure_in_a_full_workspace_is_the_disks", disk::failure),
        Test::new("a_full_workspace_refuses_its_next_turn", disk::refused),
        Test::new("a_full_workspace_can_still_be_measured_and_emptied", disk::errands),
        Test::with("a_sealed_jails_memory_is_that_of_the_whole_jail", CGROUP, groups::memory),
        Test::with("peak_memory_and_cpu_time_are_recorded", CGROUP, groups::usage),
        Test::with("the_cpu_share_is_enforced", CGROUP, groups::cpu_share),
        Test::with("a_jail_does_not_see_where_its_group_lies", CGROUP, groups::view),
        Test::with("no_group_is_left", CGROUP, groups::none_left),
        Test::with("required_limits_are_met", CGROUP, groups::required),
        Test::new("doctor_says_what_holds_limits_here_and_why", verdict::limits),
        Test::new("doctor_says_what_this_landlock_lacks", verdict::landlock),
    ])
}
