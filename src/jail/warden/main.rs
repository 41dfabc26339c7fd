//! The warden's program. Started by turnjail with its end of a socket as standard input.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    turnjail_warden::launch::main()
}
