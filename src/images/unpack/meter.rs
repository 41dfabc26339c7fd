//! Counts what comes out of layers and stops where a limit is.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use crate::{ImageError, ImageLimits};

/// Bytes that went through somewhere, shared between who counts and who looks.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counter(Rc<Cell<u64>>);

impl Counter {
    pub fn get(&self) -> u64 {
        self.0.get()
    }

    pub fn add(&self, bytes: u64) {
        self.0.set(self.0.get().saturating_add(bytes));
    }
}

/// What all layers together may still unpack to.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: ImageLimits,
    total: Counter,
}

impl Budget {
    pub fn new(limits: ImageLimits) -> Self {
        Self { limits, total: Counter::default() }
    }

    /// Bytes unpacked so far.
    pub fn total(&self) -> u64 {
        self.total.get()
    }

    /// A reader of one layer's unpacked bytes; `packed` counts what went into the decompressor.
    pub fn meter<R: Read>(&self, reader: R, packed: Counter, object: &str) -> Meter<R> {
        Meter {
            reader,
            packed,
            unpacked: 0,
            total: self.total.clone(),
            limits: self.limits,
            object: object.to_owned(),
        }
    }
}

/// See [`Budget::meter`].
pub(crate) struct Meter<R> {
    reader: R,
    packed: Counter,
    unpacked: u64,
    total: Counter,
    limits: ImageLimits,
    object: String,
}

impl<R: Read> Read for Meter<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.unpacked += read as u64;
        self.total.add(read as u64);
        self.check().map_err(ImageError::into_io)?;
        Ok(read)
    }
}

impl<R> Meter<R> {
    fn check(&self) -> Result<(), ImageError> {
        const MIB: u64 = 1024 * 1024;
        let limits = &self.limits;
        let over = |limit: String, setting| {
            Err(ImageError::Limit { object: self.object.clone(), limit, setting })
        };
        if self.unpacked > limits.layer_bytes {
            return over(format!("{} MiB unpacked", limits.layer_bytes / MIB), "max_layer_mb");
        }
        if self.total.get() > limits.total_bytes {
            let all = limits.total_bytes / MIB;
            return over(format!("{all} MiB unpacked in all layers"), "max_total_mb");
        }
        let allowed = self.packed.get().saturating_mul(limits.ratio);
        if self.unpacked > ImageLimits::RATIO_FROM && self.unpacked > allowed {
            let ratio = limits.ratio;
            return over(format!("{ratio} times as many bytes unpacked as packed"), "max_ratio");
        }
        Ok(())
    }
}
