//! Hostile code in the worker's place. A number is that of the probe in docs/attacks.md; each test has a
//! control in which the same steps succeed without the wall, because a refusal proves nothing where the
//! act would have failed anyway.
//!
//! - `inside`: what a program finds: identity, namespaces, mounts, descriptors, environment
//! - `setup`: A01 to A07, how the jail is built: runtime, working directory, descriptors, mount points
//! - `setid`: A12 with a set-id program, which only root can prepare
//! - `privilege`: A08 to A12, mounts, namespaces, other processes and identities
//! - `calls`: A14 to A20, what reaches the kernel: foreign doors, socket families, forbidden calls
//! - `survivors`: A24, what goes on when it must not, and the other way round
//! - `arguments`: A07 to A17, what reaches the host by arguments of allowed calls and by doors of /proc
//! - `marks`: A24 to A37, what stays behind or reaches the host: processes, set-id and special files
//! - `resources`: A30 and A31, more than its share (how such programs end is in `jail/endings.rs`)
//! - `burden`: A32 to A34, disk, time and output without end
//! - `planted`: A32 to A40, what is left in a workspace for the host to fall over

mod arguments;
mod burden;
mod calls;
mod inside;
mod marks;
mod planted;
mod privilege;
mod resources;
mod setid;
mod setup;
mod support;
mod survivors;

use std::process::ExitCode;

use turnjail_tests::{Test, harness_both_ways, without};

fn main() -> ExitCode {
    let _set_id = setid::prepare();
    let _capable = arguments::prepare();
    let lists = [
        inside::TESTS,
        setup::TESTS,
        setid::TESTS,
        privilege::TESTS,
        calls::TESTS,
        arguments::TESTS,
        survivors::TESTS,
        marks::TESTS,
        resources::TESTS,
        burden::TESTS,
        planted::TESTS,
        &[Test::new("without_newer_calls_the_same_walls_stand", without_newer_calls)],
    ];
    harness_both_ways(&lists.concat())
}

/// On a kernel, or within another's sandbox, where none of the newer mechanisms is to be had.
fn without_newer_calls() {
    let left_out = [
        "the_program_is_nobody_special",
        "a08_mounts_cannot_be_changed",
        "a12_a_general_program_sees_no_privilege",
        // The image store needs openat2, which Linux 5.10 has.
        "a18_the_files_of_an_image_stay_as_they_are",
    ];
    without::again("open_tree,move_mount,mount_setattr,close_range,clone3,openat2", &left_out);
}
