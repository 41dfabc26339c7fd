//! What the general profile does with sockets, with a loopback and without.

use libc::{EAFNOSUPPORT, ENOPROTOOPT, EOPNOTSUPP, EPROTONOSUPPORT, ESOCKTNOSUPPORT};

use crate::seccomp::{
    arguments::{STREAM, UNIX},
    numbers as call,
    rule::{Clause, Rule, clear, demand, is, masked},
};

/// `AF_INET` and `AF_INET6`.
const INET: &[u32] = &[2, 10];
/// `SOCK_DGRAM`.
const DATAGRAM: u32 = 2;
/// The bits of a socket's type that are the type.
const SOCKET_TYPE: u32 = 0xf;
/// `MSG_OOB`: urgent data, whose code for Unix sockets has been a way into the kernel.
const MSG_OOB: u32 = 1;
/// `SOL_SOCKET`.
const SOL_SOCKET: u32 = 1;

const UNIX_ONLY: &[Clause] = &[demand(&[is(0, &[UNIX])], EAFNOSUPPORT)];
const NO_URGENT_DATA_2: &[Clause] = &[demand(&[clear(2, MSG_OOB)], EOPNOTSUPP)];
const NO_URGENT_DATA_3: &[Clause] = &[demand(&[clear(3, MSG_OOB)], EOPNOTSUPP)];

/// Options of `SOL_SOCKET` that a program may set: not urgent data in line (10), not programs
/// attached to sockets (26, 50, 51, 52), nothing newer than this list.
const SOCKET_OPTIONS: &[u32] =
    &[2, 5, 6, 7, 8, 9, 12, 13, 15, 16, 18, 19, 20, 21, 27, 29, 34, 35, 37, 46, 49, 63, 64, 66, 67];

/// Messages and pairs, which no option changes.
pub(super) const MESSAGES: &[Rule] = &[
    Rule::allow_if(call::SENDTO, NO_URGENT_DATA_3, "sockets, without urgent data"),
    Rule::allow_if(call::RECVFROM, NO_URGENT_DATA_3, "sockets, without urgent data"),
    Rule::allow_if(call::SENDMSG, NO_URGENT_DATA_2, "sockets, without urgent data"),
    Rule::allow_if(call::RECVMSG, NO_URGENT_DATA_2, "sockets, without urgent data"),
    Rule::allow_if(call::SENDMMSG, NO_URGENT_DATA_3, "sockets, without urgent data"),
    Rule::allow_if(call::RECVMMSG, NO_URGENT_DATA_3, "sockets, without urgent data"),
    Rule::allow_if(call::SOCKETPAIR, UNIX_ONLY, "Unix sockets"),
];

/// Sockets when there is no network.
pub(super) const UNIX_SOCKETS: &[Rule] = &[
    Rule::allow_if(call::SOCKET, UNIX_ONLY, "Unix sockets"),
    Rule::allow_if(
        call::SETSOCKOPT,
        &[
            demand(&[is(1, &[SOL_SOCKET])], ENOPROTOOPT),
            demand(&[is(2, SOCKET_OPTIONS)], ENOPROTOOPT),
        ],
        "options of Unix sockets; no attached programs",
    ),
];

/// Protocols of a socket: the family's own, TCP, UDP. Keeps out what loads further modules.
const PROTOCOLS: &[u32] = &[0, 6, 17];
const IPPROTO_IP: u32 = 0;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_IPV6: u32 = 41;
/// TCP_NODELAY, MAXSEG, CORK, KEEPIDLE, KEEPINTVL, KEEPCNT, SYNCNT, LINGER2, DEFER_ACCEPT,
/// WINDOW_CLAMP, QUICKACK, USER_TIMEOUT, FASTOPEN, NOTSENT_LOWAT, FASTOPEN_CONNECT.
const TCP_OPTIONS: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 18, 23, 25, 30];
/// IP_TOS, TTL, PKTINFO, MTU_DISCOVER, RECVERR, BIND_ADDRESS_NO_PORT, MULTICAST_TTL and _LOOP.
const IP_OPTIONS: &[u32] = &[1, 2, 8, 10, 11, 24, 33, 34];
/// IPV6_UNICAST_HOPS, MULTICAST_HOPS and _LOOP, MTU_DISCOVER, RECVERR, V6ONLY, RECVPKTINFO, TCLASS.
const IPV6_OPTIONS: &[u32] = &[16, 18, 19, 23, 25, 26, 49, 67];

/// Sockets when the jail has a loopback of its own.
pub(super) const LOOPBACK_SOCKETS: &[Rule] = &[
    Rule::allow_if(
        call::SOCKET,
        &[
            demand(&[is(0, &[UNIX]), is(0, INET)], EAFNOSUPPORT),
            demand(&[is(0, &[UNIX]), masked(1, SOCKET_TYPE, &[STREAM, DATAGRAM])], ESOCKTNOSUPPORT),
            demand(&[is(0, &[UNIX]), is(2, PROTOCOLS)], EPROTONOSUPPORT),
        ],
        "Unix sockets, TCP and UDP",
    ),
    Rule::allow_if(
        call::SETSOCKOPT,
        &[
            demand(&[is(1, &[SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6])], ENOPROTOOPT),
            demand(
                &[is(1, &[IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6]), is(2, SOCKET_OPTIONS)],
                ENOPROTOOPT,
            ),
            demand(
                &[is(1, &[SOL_SOCKET, IPPROTO_TCP, IPPROTO_IPV6]), is(2, IP_OPTIONS)],
                ENOPROTOOPT,
            ),
            demand(
                &[is(1, &[SOL_SOCKET, IPPROTO_IP, IPPROTO_IPV6]), is(2, TCP_OPTIONS)],
                ENOPROTOOPT,
            ),
            demand(
                &[is(1, &[SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP]), is(2, IPV6_OPTIONS)],
                ENOPROTOOPT,
            ),
        ],
        "options of Unix, TCP and UDP sockets; no attached programs or upper layers",
    ),
];
