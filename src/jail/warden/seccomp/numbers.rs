//! The numbers of every system call of the two machines, x86_64 and aarch64.
//!
//! The table is our own, and not the C library's: a name that the headers of the build machine do not
//! know yet would vanish from the policy without a sound. It is one long table on purpose, in the
//! order of the x86_64 numbers, so that a gap is seen. Unit tests compare it with two independent
//! ones. A call that the table does not have is unknown to the policy, and gets the answer for that.

use super::machine::Machine;

/// A system call: its name and its number on each machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The kernel's name, such as `openat`.
    pub name: &'static str,
    x86_64: Option<u32>,
    aarch64: Option<u32>,
}

impl Call {
    /// Its number on `machine`, none where that machine lacks it.
    pub const fn number(&self, machine: Machine) -> Option<u32> {
        match machine {
            Machine::X86_64 => self.x86_64,
            Machine::Aarch64 => self.aarch64,
        }
    }

    /// The call with this number on `machine`.
    pub fn find(machine: Machine, number: u32) -> Option<&'static Self> {
        ALL.iter().find(|call| call.number(machine) == Some(number))
    }
}

macro_rules! number {
    (-) => {
        None
    };
    ($number:literal) => {
        Some($number)
    };
}

macro_rules! calls {
    ($($constant:ident $name:literal $x86_64:tt $aarch64:tt;)*) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub const $constant: Call =
                Call { name: $name, x86_64: number!($x86_64), aarch64: number!($aarch64) };
        )*
        /// Every call in the table.
        pub const ALL: &[Call] = &[$($constant),*];
    };
}

// Constant, name, number on x86_64, number on aarch64; "-" where the machine lacks it.
calls! {
    READ "read" 0 63;
    WRITE "write" 1 64;
    OPEN "open" 2 -;
    CLOSE "close" 3 57;
    STAT "stat" 4 -;
    FSTAT "fstat" 5 80;
    LSTAT "lstat" 6 -;
    POLL "poll" 7 -;
    LSEEK "lseek" 8 62;
    MMAP "mmap" 9 222;
    MPROTECT "mprotect" 10 226;
    MUNMAP "munmap" 11 215;
    BRK "brk" 12 214;
    RT_SIGACTION "rt_sigaction" 13 134;
    RT_SIGPROCMASK "rt_sigprocmask" 14 135;
    RT_SIGRETURN "rt_sigreturn" 15 139;
    IOCTL "ioctl" 16 29;
    PREAD64 "pread64" 17 67;
    PWRITE64 "pwrite64" 18 68;
    READV "readv" 19 65;
    WRITEV "writev" 20 66;
    ACCESS "access" 21 -;
    PIPE "pipe" 22 -;
    SELECT "select" 23 -;
    SCHED_YIELD "sched_yield" 24 124;
    MREMAP "mremap" 25 216;
    MSYNC "msync" 26 227;
    MINCORE "mincore" 27 232;
    MADVISE "madvise" 28 233;
    SHMGET "shmget" 29 194;
    SHMAT "shmat" 30 196;
    SHMCTL "shmctl" 31 195;
    DUP "dup" 32 23;
    DUP2 "dup2" 33 -;
    PAUSE "pause" 34 -;
    NANOSLEEP "nanosleep" 35 101;
    GETITIMER "getitimer" 36 102;
    ALARM "alarm" 37 -;
    SETITIMER "setitimer" 38 103;
    GETPID "getpid" 39 172;
    SENDFILE "sendfile" 40 71;
    SOCKET "socket" 41 198;
    CONNECT "connect" 42 203;
    ACCEPT "accept" 43 202;
    SENDTO "sendto" 44 206;
    RECVFROM "recvfrom" 45 207;
    SENDMSG "sendmsg" 46 211;
    RECVMSG "recvmsg" 47 212;
    SHUTDOWN "shutdown" 48 210;
    BIND "bind" 49 200;
    LISTEN "listen" 50 201;
    GETSOCKNAME "getsockname" 51 204;
    GETPEERNAME "getpeername" 52 205;
    SOCKETPAIR "socketpair" 53 199;
    SETSOCKOPT "setsockopt" 54 208;
    GETSOCKOPT "getsockopt" 55 209;
    CLONE "clone" 56 220;
    FORK "fork" 57 -;
    VFORK "vfork" 58 -;
    EXECVE "execve" 59 221;
    EXIT "exit" 60 93;
    WAIT4 "wait4" 61 260;
    KILL "kill" 62 129;
    UNAME "uname" 63 160;
    SEMGET "semget" 64 190;
    SEMOP "semop" 65 193;
    SEMCTL "semctl" 66 191;
    SHMDT "shmdt" 67 197;
    MSGGET "msgget" 68 186;
    MSGSND "msgsnd" 69 189;
    MSGRCV "msgrcv" 70 188;
    MSGCTL "msgctl" 71 187;
    FCNTL "fcntl" 72 25;
    FLOCK "flock" 73 32;
    FSYNC "fsync" 74 82;
    FDATASYNC "fdatasync" 75 83;
    TRUNCATE "truncate" 76 45;
    FTRUNCATE "ftruncate" 77 46;
    GETDENTS "getdents" 78 -;
    GETCWD "getcwd" 79 17;
    CHDIR "chdir" 80 49;
    FCHDIR "fchdir" 81 50;
    RENAME "rename" 82 -;
    MKDIR "mkdir" 83 -;
    RMDIR "rmdir" 84 -;
    CREAT "creat" 85 -;
    LINK "link" 86 -;
    UNLINK "unlink" 87 -;
    SYMLINK "symlink" 88 -;
    READLINK "readlink" 89 -;
    CHMOD "chmod" 90 -;
    FCHMOD "fchmod" 91 52;
    CHOWN "chown" 92 -;
    FCHOWN "fchown" 93 55;
    LCHOWN "lchown" 94 -;
    UMASK "umask" 95 166;
    GETTIMEOFDAY "gettimeofday" 96 169;
    GETRLIMIT "getrlimit" 97 163;
    GETRUSAGE "getrusage" 98 165;
    SYSINFO "sysinfo" 99 179;
    TIMES "times" 100 153;
    PTRACE "ptrace" 101 117;
    GETUID "getuid" 102 174;
    SYSLOG "syslog" 103 116;
    GETGID "getgid" 104 176;
    SETUID "setuid" 105 146;
    SETGID "setgid" 106 144;
    GETEUID "geteuid" 107 175;
    GETEGID "getegid" 108 177;
    SETPGID "setpgid" 109 154;
    GETPPID "getppid" 110 173;
    GETPGRP "getpgrp" 111 -;
    SETSID "setsid" 112 157;
    SETREUID "setreuid" 113 145;
    SETREGID "setregid" 114 143;
    GETGROUPS "getgroups" 115 158;
    SETGROUPS "setgroups" 116 159;
    SETRESUID "setresuid" 117 147;
    GETRESUID "getresuid" 118 148;
    SETRESGID "setresgid" 119 149;
    GETRESGID "getresgid" 120 150;
    GETPGID "getpgid" 121 155;
    SETFSUID "setfsuid" 122 151;
    SETFSGID "setfsgid" 123 152;
    GETSID "getsid" 124 156;
    CAPGET "capget" 125 90;
    CAPSET "capset" 126 91;
    RT_SIGPENDING "rt_sigpending" 127 136;
    RT_SIGTIMEDWAIT "rt_sigtimedwait" 128 137;
    RT_SIGQUEUEINFO "rt_sigqueueinfo" 129 138;
    RT_SIGSUSPEND "rt_sigsuspend" 130 133;
    SIGALTSTACK "sigaltstack" 131 132;
    UTIME "utime" 132 -;
    MKNOD "mknod" 133 -;
    USELIB "uselib" 134 -;
    PERSONALITY "personality" 135 92;
    USTAT "ustat" 136 -;
    STATFS "statfs" 137 43;
    FSTATFS "fstatfs" 138 44;
    SYSFS "sysfs" 139 -;
    GETPRIORITY "getpriority" 140 141;
    SETPRIORITY "setpriority" 141 140;
    SCHED_SETPARAM "sched_setparam" 142 118;
    SCHED_GETPARAM "sched_getparam" 143 121;
    SCHED_SETSCHEDULER "sched_setscheduler" 144 119;
    SCHED_GETSCHEDULER "sched_getscheduler" 145 120;
    SCHED_GET_PRIORITY_MAX "sched_get_priority_max" 146 125;
    SCHED_GET_PRIORITY_MIN "sched_get_priority_min" 147 126;
    SCHED_RR_GET_INTERVAL "sched_rr_get_interval" 148 127;
    MLOCK "mlock" 149 228;
    MUNLOCK "munlock" 150 229;
    MLOCKALL "mlockall" 151 230;
    MUNLOCKALL "munlockall" 152 231;
    VHANGUP "vhangup" 153 58;
    MODIFY_LDT "modify_ldt" 154 -;
    PIVOT_ROOT "pivot_root" 155 41;
    SYSCTL "_sysctl" 156 -;
    PRCTL "prctl" 157 167;
    ARCH_PRCTL "arch_prctl" 158 -;
    ADJTIMEX "adjtimex" 159 171;
    SETRLIMIT "setrlimit" 160 164;
    CHROOT "chroot" 161 51;
    SYNC "sync" 162 81;
    ACCT "acct" 163 89;
    SETTIMEOFDAY "settimeofday" 164 170;
    MOUNT "mount" 165 40;
    UMOUNT2 "umount2" 166 39;
    SWAPON "swapon" 167 224;
    SWAPOFF "swapoff" 168 225;
    REBOOT "reboot" 169 142;
    SETHOSTNAME "sethostname" 170 161;
    SETDOMAINNAME "setdomainname" 171 162;
    IOPL "iopl" 172 -;
    IOPERM "ioperm" 173 -;
    CREATE_MODULE "create_module" 174 -;
    INIT_MODULE "init_module" 175 105;
    DELETE_MODULE "delete_module" 176 106;
    GET_KERNEL_SYMS "get_kernel_syms" 177 -;
    QUERY_MODULE "query_module" 178 -;
    QUOTACTL "quotactl" 179 60;
    NFSSERVCTL "nfsservctl" 180 42;
    GETPMSG "getpmsg" 181 -;
    PUTPMSG "putpmsg" 182 -;
    AFS_SYSCALL "afs_syscall" 183 -;
    TUXCALL "tuxcall" 184 -;
    SECURITY "security" 185 -;
    GETTID "gettid" 186 178;
    READAHEAD "readahead" 187 213;
    SETXATTR "setxattr" 188 5;
    LSETXATTR "lsetxattr" 189 6;
    FSETXATTR "fsetxattr" 190 7;
    GETXATTR "getxattr" 191 8;
    LGETXATTR "lgetxattr" 192 9;
    FGETXATTR "fgetxattr" 193 10;
    LISTXATTR "listxattr" 194 11;
    LLISTXATTR "llistxattr" 195 12;
    FLISTXATTR "flistxattr" 196 13;
    REMOVEXATTR "removexattr" 197 14;
    LREMOVEXATTR "lremovexattr" 198 15;
    FREMOVEXATTR "fremovexattr" 199 16;
    TKILL "tkill" 200 130;
    TIME "time" 201 -;
    FUTEX "futex" 202 98;
    SCHED_SETAFFINITY "sched_setaffinity" 203 122;
    SCHED_GETAFFINITY "sched_getaffinity" 204 123;
    SET_THREAD_AREA "set_thread_area" 205 -;
    IO_SETUP "io_setup" 206 0;
    IO_DESTROY "io_destroy" 207 1;
    IO_GETEVENTS "io_getevents" 208 4;
    IO_SUBMIT "io_submit" 209 2;
    IO_CANCEL "io_cancel" 210 3;
    GET_THREAD_AREA "get_thread_area" 211 -;
    LOOKUP_DCOOKIE "lookup_dcookie" 212 18;
    EPOLL_CREATE "epoll_create" 213 -;
    EPOLL_CTL_OLD "epoll_ctl_old" 214 -;
    EPOLL_WAIT_OLD "epoll_wait_old" 215 -;
    REMAP_FILE_PAGES "remap_file_pages" 216 234;
    GETDENTS64 "getdents64" 217 61;
    SET_TID_ADDRESS "set_tid_address" 218 96;
    RESTART_SYSCALL "restart_syscall" 219 128;
    SEMTIMEDOP "semtimedop" 220 192;
    FADVISE64 "fadvise64" 221 223;
    TIMER_CREATE "timer_create" 222 107;
    TIMER_SETTIME "timer_settime" 223 110;
    TIMER_GETTIME "timer_gettime" 224 108;
    TIMER_GETOVERRUN "timer_getoverrun" 225 109;
    TIMER_DELETE "timer_delete" 226 111;
    CLOCK_SETTIME "clock_settime" 227 112;
    CLOCK_GETTIME "clock_gettime" 228 113;
    CLOCK_GETRES "clock_getres" 229 114;
    CLOCK_NANOSLEEP "clock_nanosleep" 230 115;
    EXIT_GROUP "exit_group" 231 94;
    EPOLL_WAIT "epoll_wait" 232 -;
    EPOLL_CTL "epoll_ctl" 233 21;
    TGKILL "tgkill" 234 131;
    UTIMES "utimes" 235 -;
    VSERVER "vserver" 236 -;
    MBIND "mbind" 237 235;
    SET_MEMPOLICY "set_mempolicy" 238 237;
    GET_MEMPOLICY "get_mempolicy" 239 236;
    MQ_OPEN "mq_open" 240 180;
    MQ_UNLINK "mq_unlink" 241 181;
    MQ_TIMEDSEND "mq_timedsend" 242 182;
    MQ_TIMEDRECEIVE "mq_timedreceive" 243 183;
    MQ_NOTIFY "mq_notify" 244 184;
    MQ_GETSETATTR "mq_getsetattr" 245 185;
    KEXEC_LOAD "kexec_load" 246 104;
    WAITID "waitid" 247 95;
    ADD_KEY "add_key" 248 217;
    REQUEST_KEY "request_key" 249 218;
    KEYCTL "keyctl" 250 219;
    IOPRIO_SET "ioprio_set" 251 30;
    IOPRIO_GET "ioprio_get" 252 31;
    INOTIFY_INIT "inotify_init" 253 -;
    INOTIFY_ADD_WATCH "inotify_add_watch" 254 27;
    INOTIFY_RM_WATCH "inotify_rm_watch" 255 28;
    MIGRATE_PAGES "migrate_pages" 256 238;
    OPENAT "openat" 257 56;
    MKDIRAT "mkdirat" 258 34;
    MKNODAT "mknodat" 259 33;
    FCHOWNAT "fchownat" 260 54;
    FUTIMESAT "futimesat" 261 -;
    NEWFSTATAT "newfstatat" 262 79;
    UNLINKAT "unlinkat" 263 35;
    RENAMEAT "renameat" 264 38;
    LINKAT "linkat" 265 37;
    SYMLINKAT "symlinkat" 266 36;
    READLINKAT "readlinkat" 267 78;
    FCHMODAT "fchmodat" 268 53;
    FACCESSAT "faccessat" 269 48;
    PSELECT6 "pselect6" 270 72;
    PPOLL "ppoll" 271 73;
    UNSHARE "unshare" 272 97;
    SET_ROBUST_LIST "set_robust_list" 273 99;
    GET_ROBUST_LIST "get_robust_list" 274 100;
    SPLICE "splice" 275 76;
    TEE "tee" 276 77;
    SYNC_FILE_RANGE "sync_file_range" 277 84;
    VMSPLICE "vmsplice" 278 75;
    MOVE_PAGES "move_pages" 279 239;
    UTIMENSAT "utimensat" 280 88;
    EPOLL_PWAIT "epoll_pwait" 281 22;
    SIGNALFD "signalfd" 282 -;
    TIMERFD_CREATE "timerfd_create" 283 85;
    EVENTFD "eventfd" 284 -;
    FALLOCATE "fallocate" 285 47;
    TIMERFD_SETTIME "timerfd_settime" 286 86;
    TIMERFD_GETTIME "timerfd_gettime" 287 87;
    ACCEPT4 "accept4" 288 242;
    SIGNALFD4 "signalfd4" 289 74;
    EVENTFD2 "eventfd2" 290 19;
    EPOLL_CREATE1 "epoll_create1" 291 20;
    DUP3 "dup3" 292 24;
    PIPE2 "pipe2" 293 59;
    INOTIFY_INIT1 "inotify_init1" 294 26;
    PREADV "preadv" 295 69;
    PWRITEV "pwritev" 296 70;
    RT_TGSIGQUEUEINFO "rt_tgsigqueueinfo" 297 240;
    PERF_EVENT_OPEN "perf_event_open" 298 241;
    RECVMMSG "recvmmsg" 299 243;
    FANOTIFY_INIT "fanotify_init" 300 262;
    FANOTIFY_MARK "fanotify_mark" 301 263;
    PRLIMIT64 "prlimit64" 302 261;
    NAME_TO_HANDLE_AT "name_to_handle_at" 303 264;
    OPEN_BY_HANDLE_AT "open_by_handle_at" 304 265;
    CLOCK_ADJTIME "clock_adjtime" 305 266;
    SYNCFS "syncfs" 306 267;
    SENDMMSG "sendmmsg" 307 269;
    SETNS "setns" 308 268;
    GETCPU "getcpu" 309 168;
    PROCESS_VM_READV "process_vm_readv" 310 270;
    PROCESS_VM_WRITEV "process_vm_writev" 311 271;
    KCMP "kcmp" 312 272;
    FINIT_MODULE "finit_module" 313 273;
    SCHED_SETATTR "sched_setattr" 314 274;
    SCHED_GETATTR "sched_getattr" 315 275;
    RENAMEAT2 "renameat2" 316 276;
    SECCOMP "seccomp" 317 277;
    GETRANDOM "getrandom" 318 278;
    MEMFD_CREATE "memfd_create" 319 279;
    KEXEC_FILE_LOAD "kexec_file_load" 320 294;
    BPF "bpf" 321 280;
    EXECVEAT "execveat" 322 281;
    USERFAULTFD "userfaultfd" 323 282;
    MEMBARRIER "membarrier" 324 283;
    MLOCK2 "mlock2" 325 284;
    COPY_FILE_RANGE "copy_file_range" 326 285;
    PREADV2 "preadv2" 327 286;
    PWRITEV2 "pwritev2" 328 287;
    PKEY_MPROTECT "pkey_mprotect" 329 288;
    PKEY_ALLOC "pkey_alloc" 330 289;
    PKEY_FREE "pkey_free" 331 290;
    STATX "statx" 332 291;
    IO_PGETEVENTS "io_pgetevents" 333 292;
    RSEQ "rseq" 334 293;
    URETPROBE "uretprobe" 335 -;
    UPROBE "uprobe" 336 -;
    PIDFD_SEND_SIGNAL "pidfd_send_signal" 424 424;
    IO_URING_SETUP "io_uring_setup" 425 425;
    IO_URING_ENTER "io_uring_enter" 426 426;
    IO_URING_REGISTER "io_uring_register" 427 427;
    OPEN_TREE "open_tree" 428 428;
    MOVE_MOUNT "move_mount" 429 429;
    FSOPEN "fsopen" 430 430;
    FSCONFIG "fsconfig" 431 431;
    FSMOUNT "fsmount" 432 432;
    FSPICK "fspick" 433 433;
    PIDFD_OPEN "pidfd_open" 434 434;
    CLONE3 "clone3" 435 435;
    CLOSE_RANGE "close_range" 436 436;
    OPENAT2 "openat2" 437 437;
    PIDFD_GETFD "pidfd_getfd" 438 438;
    FACCESSAT2 "faccessat2" 439 439;
    PROCESS_MADVISE "process_madvise" 440 440;
    EPOLL_PWAIT2 "epoll_pwait2" 441 441;
    MOUNT_SETATTR "mount_setattr" 442 442;
    QUOTACTL_FD "quotactl_fd" 443 443;
    LANDLOCK_CREATE_RULESET "landlock_create_ruleset" 444 444;
    LANDLOCK_ADD_RULE "landlock_add_rule" 445 445;
    LANDLOCK_RESTRICT_SELF "landlock_restrict_self" 446 446;
    MEMFD_SECRET "memfd_secret" 447 447;
    PROCESS_MRELEASE "process_mrelease" 448 448;
    FUTEX_WAITV "futex_waitv" 449 449;
    SET_MEMPOLICY_HOME_NODE "set_mempolicy_home_node" 450 450;
    CACHESTAT "cachestat" 451 451;
    FCHMODAT2 "fchmodat2" 452 452;
    MAP_SHADOW_STACK "map_shadow_stack" 453 453;
    FUTEX_WAKE "futex_wake" 454 454;
    FUTEX_WAIT "futex_wait" 455 455;
    FUTEX_REQUEUE "futex_requeue" 456 456;
    STATMOUNT "statmount" 457 457;
    LISTMOUNT "listmount" 458 458;
    LSM_GET_SELF_ATTR "lsm_get_self_attr" 459 459;
    LSM_SET_SELF_ATTR "lsm_set_self_attr" 460 460;
    LSM_LIST_MODULES "lsm_list_modules" 461 461;
    MSEAL "mseal" 462 462;
    SETXATTRAT "setxattrat" 463 463;
    GETXATTRAT "getxattrat" 464 464;
    LISTXATTRAT "listxattrat" 465 465;
    REMOVEXATTRAT "removexattrat" 466 466;
    OPEN_TREE_ATTR "open_tree_attr" 467 467;
    FILE_GETATTR "file_getattr" 468 468;
    FILE_SETATTR "file_setattr" 469 469;
}
