//! How much an image may hold: the walls against archives that would fill memory or disk.

const MIB: u64 = 1024 * 1024;

/// How much an image may hold. Every number is a setting; the defaults are far above ordinary images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
    /// Entries of all layers together, directories that they imply included.
    pub entries: u64,
    /// Layers.
    pub layers: usize,
    /// Bytes of one layer, unpacked.
    pub layer_bytes: u64,
    /// Bytes of all layers, unpacked.
    pub total_bytes: u64,
    /// How many times more bytes may come out of a compressed layer than went in, counted from
    /// [`RATIO_FROM`](Self::RATIO_FROM) on.
    pub ratio: u64,
    /// Bytes of an index, a manifest or a configuration each.
    pub metadata_bytes: u64,
    /// Bytes of a name with its directories, and of a link's target.
    pub name_bytes: usize,
    /// Directories within each other.
    pub depth: usize,
}

impl ImageLimits {
    /// So many unpacked bytes are free of the ratio.
    pub const RATIO_FROM: u64 = 64 * MIB;
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self {
            entries: 500_000,
            layers: 128,
            layer_bytes: 4096 * MIB,
            total_bytes: 8192 * MIB,
            ratio: 200,
            metadata_bytes: 4 * MIB,
            name_bytes: 4096,
            depth: 64,
        }
    }
}
