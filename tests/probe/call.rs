//! System calls with arguments from JSON.
#![allow(unsafe_code)]

use serde_json::{Value, json};

use crate::report;

/// Reads address 0, which is a fault.
pub fn crash() -> ! {
    // SAFETY: it is not; the fault is the purpose, and ends the process.
    unsafe { std::ptr::with_exposed_provenance::<u8>(std::hint::black_box(0)).read_volatile() };
    std::process::exit(3)
}

/// What earlier acts gave.
#[derive(Default)]
pub struct Done {
    values: Vec<i64>,
    buffers: Vec<Vec<Vec<u8>>>,
    latest: Vec<Vec<u8>>,
}

impl Done {
    /// Remembers the outcome of an act.
    pub fn add(&mut self, outcome: &Value) {
        self.values.push(outcome["value"].as_i64().unwrap_or(-1));
        self.buffers.push(std::mem::take(&mut self.latest));
    }

    fn word(&self, place: &Value) -> Option<u64> {
        let index = |at: usize| Some(place[at].as_u64()? as usize);
        let buffer = self.buffers.get(index(0)?)?.get(index(1)?)?;
        let bytes = buffer.get(index(2)?..)?.get(..4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?).into())
    }
}

/// Memory that the arguments of one call point to. A boxed slice stays where it is.
#[derive(Default)]
struct Memory {
    hidden: Vec<Box<[u8]>>,
    shown: Vec<Box<[u8]>>,
}

impl Memory {
    fn argument(&mut self, argument: &Value, done: &Done) -> Option<u64> {
        match argument {
            Value::Number(number) => {
                number.as_u64().or_else(|| number.as_i64().map(|signed| signed as u64))
            }
            Value::String(text) => {
                let bytes = text.bytes().chain([0]).collect();
                Some(keep(&mut self.hidden, bytes))
            }
            Value::Array(words) => {
                let mut bytes = Vec::new();
                for word in words {
                    bytes.extend(self.argument(word, done)?.to_le_bytes());
                }
                Some(keep(&mut self.hidden, bytes.into()))
            }
            Value::Object(_) => {
                if let Some(size) = argument["buffer"].as_u64() {
                    Some(keep(&mut self.shown, vec![0; size as usize].into()))
                } else if let Some(hex) = argument["hex"].as_str() {
                    Some(keep(&mut self.shown, from_hex(hex)?.into()))
                } else if let Some(act) = argument["of"].as_u64() {
                    done.values.get(act as usize).map(|&value| value as u64)
                } else {
                    done.word(argument.get("word")?)
                }
            }
            _ => None,
        }
    }
}

fn keep(memory: &mut Vec<Box<[u8]>>, mut bytes: Box<[u8]>) -> u64 {
    let address = bytes.as_mut_ptr() as u64;
    memory.push(bytes);
    address
}

/// Makes the call.
pub fn system_call(number: u64, arguments: &[Value], done: &mut Done) -> Option<Value> {
    let mut memory = Memory::default();
    let mut raw = [0; 6];
    for (raw, argument) in raw.iter_mut().zip(arguments) {
        *raw = memory.argument(argument, done)?;
    }
    let mut outcome = report::value(raw_call(number, raw));
    if !memory.shown.is_empty() {
        done.latest = memory.shown.iter().map(|bytes| bytes.to_vec()).collect();
        outcome["buffers"] =
            json!(done.latest.iter().map(|bytes| to_hex(bytes)).collect::<Vec<_>>());
    }
    Some(outcome)
}

/// Makes a system call; the result, or the negative error number.
pub fn raw_call(number: u64, a: [u64; 6]) -> i64 {
    // SAFETY: this program exists to make calls that a test chose, in a jail or as a control. What
    // pointers point to lives until after the call; nothing else of this program's memory is at stake
    // that the test does not name itself.
    let result =
        unsafe { libc::syscall(number as libc::c_long, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if result == -1 {
        // SAFETY: the C library's own variable of this thread.
        return -i64::from(unsafe { *libc::__errno_location() });
    }
    result
}

/// Makes a call through the 32 bit entry.
#[cfg(target_arch = "x86_64")]
pub fn int80(number: u64, arguments: &[Value]) -> Option<Value> {
    let argument = |index: usize| arguments.get(index).map_or(Some(0), Value::as_u64);
    let (first, second, third) = (argument(0)?, argument(1)?, argument(2)?);
    let mut result = number as i64;
    // SAFETY: as above; rbx belongs to the compiler and is exchanged and put back.
    unsafe {
        std::arch::asm!(
            "xchg {first:r}, rbx",
            "int 0x80",
            "xchg {first:r}, rbx",
            first = inout(reg) first => _,
            inout("rax") result,
            in("rcx") second,
            in("rdx") third,
            in("rsi") 0_u64,
            in("rdi") 0_u64,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    Some(report::value(i64::from(result as i32)))
}

/// There is no such entry here.
#[cfg(not(target_arch = "x86_64"))]
pub fn int80(_: u64, _: &[Value]) -> Option<Value> {
    None
}

fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pair = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}
