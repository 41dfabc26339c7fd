//! The steps of making a jail, in their order. The host turns a step and an errno into a cause and a
//! remedy; here is only what each step is.

use serde::{Deserialize, Serialize};

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A step of making the warden or a jail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum Step { $($(#[$doc])* $name,)* }

        impl Step {
            /// Every step, in the order in which they are taken.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The step in words, fit for `cannot <words>`.
            pub fn words(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

steps! {
    /// The warden's own: its socket, its signals, its descriptors.
    WardenSetup = "set up the warden",
    /// clone3 of the warden into its user, pid and mount namespaces.
    WardenNamespaces = "create a user namespace",
    /// Writing /proc/self/setgroups.
    SetGroups = "deny setgroups in the new user namespace",
    /// Writing /proc/self/uid_map.
    UidMap = "map the user id into the new user namespace",
    /// Writing /proc/self/gid_map.
    GidMap = "map the group id into the new user namespace",
    /// Making the mounts slave or private.
    Propagation = "make the mounts private",
    /// Opening a source directory.
    OpenSource = "open a directory to mount",
    /// The source is not the directory that the host checked.
    SourceIdentity = "recognise a directory to mount (it was replaced meanwhile)",
    /// open_tree: a detached copy of a mount.
    CopyTree = "copy a mount",
    /// mount_setattr on the detached copy.
    TreeFlags = "restrict a mount",
    /// The status pipe.
    StatusPipe = "make a pipe",
    /// clone3 of the jail into all its namespaces.
    JailNamespaces = "create the namespaces of a jail",
    /// epoll_ctl: being told of a jail's end.
    Watch = "watch for the end of a jail",
    /// Entering the cgroup that holds the jail's limits.
    Cgroup = "place the jail in its cgroup",
    /// Passing a jail what it gets after it has been cloned: the trees to mount, or a whole plan.
    Plan = "hand a jail what it is to mount",
    /// setsid.
    Session = "start a session of its own",
    /// Raising lo, for a general image with a loopback.
    Loopback = "raise the loopback of the jail",
    /// Standard input, output and error.
    Stdio = "set up standard input and output",
    /// Writing 0 to the limits of namespaces.
    NamespaceLimit = "forbid further namespaces",
    /// Writing /proc/self/oom_score_adj.
    OomScore = "make the jail the first victim when memory runs out",
    /// Attaching the root.
    AttachRoot = "attach the root filesystem",
    /// pivot_root.
    PivotRoot = "change the root",
    /// Unmounting the old root.
    DetachOldRoot = "detach the host's root",
    /// A mount into the root.
    AttachMount = "mount a directory into the jail",
    /// /dev and what is in it, for general images.
    Devices = "make /dev",
    /// /proc, for general images.
    Proc = "mount /proc",
    /// /tmp and the home directory in it.
    Tmp = "mount /tmp",
    /// sethostname.
    HostName = "set the host name",
    /// A resource limit.
    ResourceLimit = "set a resource limit",
    /// What stands in the writable directories, against its bounds.
    Holdings = "accept what a writable directory holds",
    /// The look itself.
    HoldingsWalk = "count what a writable directory holds",
    /// The nice value.
    Nice = "lower the priority",
    /// The working directory.
    WorkingDir = "enter the working directory",
    /// Dropping the bounding set.
    BoundingSet = "drop the capability bounding set",
    /// Locking the secure bits.
    SecureBits = "lock the secure bits",
    /// Clearing the ambient set.
    AmbientSet = "clear the ambient capabilities",
    /// Clearing the other capability sets.
    Capabilities = "drop all capabilities",
    /// no_new_privs.
    NoNewPrivileges = "set no_new_privs",
    /// PR_SET_MDWE.
    MemoryDenyWriteExecute = "deny executable memory",
    /// The landlock ruleset.
    Landlock = "apply landlock",
    /// The init of a general image: the process that reaps, and the one that it watches.
    Init = "start the init of the jail",
    /// Closing everything but the standard streams.
    Descriptors = "close descriptors",
    /// The seccomp filter.
    Seccomp = "apply the seccomp filter",
    /// execve.
    Exec = "execute the program",
}

impl Step {
    /// The step with this number; none when there is none.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions() {
        for (position, &step) in Step::ALL.iter().enumerate() {
            assert_eq!(step as usize, position);
            assert_eq!(Step::from_number(step as u8), Some(step));
        }
        assert_eq!(Step::from_number(Step::ALL.len() as u8), None);
    }
}
