//! The setting `loopback`: a network of the jail's own, and nothing else.

use serde_json::{Value, json};
use turnjail_jail::{Isolation, Profile};
use turnjail_tests::acts::{Report, call};
use turnjail_tests::jails::Bench;
use turnjail_warden::seccomp::numbers as calls;

const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const STREAM: u32 = 1;
const DATAGRAM: u32 = 2;

/// `struct sockaddr_in` of an address and port 8080.
fn ipv4(address: &str) -> Value {
    json!({"hex": format!("02001f90{address}0000000000000000")})
}

/// `struct sockaddr_in6` of ::1 and port 8080.
fn ipv6() -> Value {
    json!({"hex": format!("0a001f9000000000{}0100000000", "00".repeat(15))})
}

const HERE: &str = "7f000001";
/// 192.0.2.1, which is nobody's.
const OUTSIDE: &str = "c0000201";

fn with_loopback(bench: &Bench, acts: &[Value]) -> Report {
    let mut spec = bench.spec_for(Profile::General, acts);
    spec.isolation = Isolation { loopback: true, ..Isolation::GENERAL };
    bench.acts_in(&spec, b"")
}

fn socket(family: u32, kind: u32) -> Value {
    call(calls::SOCKET, json!([family, kind, 0]))
}

/// A server and a client in one process: the client connects, writes, and the server reads.
fn talk(family: u32, address: &Value, size: u32) -> Vec<Value> {
    vec![
        socket(family, STREAM),
        call(calls::BIND, json!([{"of": 0}, address, size])),
        call(calls::LISTEN, json!([{"of": 0}, 1])),
        socket(family, STREAM),
        call(calls::CONNECT, json!([{"of": 3}, address, size])),
        call(calls::ACCEPT4, json!([{"of": 0}, 0, 0, 0])),
        call(calls::SENDTO, json!([{"of": 3}, "hello", 5, 0, 0, 0])),
        call(calls::RECVFROM, json!([{"of": 5}, {"buffer": 5}, 5, 0, 0, 0])),
    ]
}

pub fn works() {
    let bench = Bench::new();
    for (family, address, size) in [(AF_INET, ipv4(HERE), 16), (AF_INET6, ipv6(), 28)] {
        let report = with_loopback(&bench, &talk(family, &address, size));
        assert!(report.worked(), "family {family}: {report:?}");
        assert_eq!(report.buffer(7, 0), b"hello");
    }
    let datagram = [
        socket(AF_INET, DATAGRAM),
        call(calls::BIND, json!([{"of": 0}, ipv4(HERE), 16])),
        call(calls::SENDTO, json!([{"of": 0}, "hello", 5, 0, ipv4(HERE), 16])),
        call(calls::RECVFROM, json!([{"of": 0}, {"buffer": 5}, 5, 0, 0, 0])),
    ];
    assert!(with_loopback(&bench, &datagram).worked());
    let outside = |kind, last| {
        let report = with_loopback(&bench, &[socket(AF_INET, kind), last]);
        assert_eq!(report.last_error(), Some(libc_errno::ENETUNREACH), "{report:?}");
    };
    outside(STREAM, call(calls::CONNECT, json!([{"of": 0}, ipv4(OUTSIDE), 16])));
    outside(DATAGRAM, call(calls::SENDTO, json!([{"of": 0}, "x", 1, 0, ipv4(OUTSIDE), 16])));
    // Neither raw sockets nor packets, nor what loads further modules.
    for (family, kind, protocol) in [(AF_INET, 3, 1), (17, 3, 0), (16, 3, 0), (AF_INET, 1, 132)] {
        let act = call(calls::SOCKET, json!([family, kind, protocol]));
        let report = with_loopback(&bench, &[act]);
        assert!(report.last_error().is_some(), "{family} {kind} {protocol}: {report:?}");
    }
}

pub fn absent() {
    let bench = Bench::new();
    for family in [AF_INET, AF_INET6] {
        let report = bench.acts(Profile::General, &[socket(family, STREAM)]);
        assert_eq!(report.last_error(), Some(libc_errno::EAFNOSUPPORT), "{report:?}");
    }
}

pub fn sealed() {
    let bench = Bench::new();
    let mut spec = bench.spec(Profile::Sealed, &[]);
    spec.isolation = Isolation { loopback: true, ..Isolation::SEALED };
    let error = bench.run(&spec, b"").expect_err("refused");
    assert_eq!(error.code(), "policy");
}

/// Error numbers, the same on x86_64 and aarch64 (errno(3)).
mod libc_errno {
    pub(super) const EAFNOSUPPORT: i64 = 97;
    pub(super) const ENETUNREACH: i64 = 101;
}
