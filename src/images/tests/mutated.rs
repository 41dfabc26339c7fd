//! The body of the fuzz target over the kept corpus and over archives made from it by chance: no panic,
//! nothing outside of its directory, and never another tree than a second reading computes.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use turnjail_images::ImageLimits;
use turnjail_images::fuzzing::unpack;

const LIMITS: ImageLimits = ImageLimits {
    entries: 500,
    layers: 4,
    layer_bytes: 1 << 20,
    total_bytes: 1 << 21,
    ratio: 200,
    metadata_bytes: 1 << 16,
    name_bytes: 4096,
    depth: 64,
};
const ROUNDS: usize = 400;
const BLOCK: usize = 512;

fn corpus() -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/unpack");
    let paths = fs::read_dir(&dir).expect("the corpus").map(|entry| entry.expect("one").path());
    let mut corpus: Vec<_> =
        paths.map(|path| (path.clone(), fs::read(path).expect("readable"))).collect();
    corpus.sort();
    assert!(corpus.len() >= 6, "{}", dir.display());
    corpus
}

/// Chance that is the same every time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most.max(1) as u64) as usize
    }
}

fn attempt(place: &Path, layers: &[&[u8]]) -> bool {
    let root = place.join("root");
    fs::create_dir(&root).expect("a directory");
    let before = common::snapshot(place, &root);
    let result = unpack(layers, &root, LIMITS);
    assert_eq!(before, common::snapshot(place, &root), "something outside was changed");
    fs::remove_dir_all(&root).expect("removed");
    result.is_ok()
}

#[test]
fn the_corpus_unpacks_as_it_is_computed() {
    let place = tempfile::tempdir().expect("a directory");
    let corpus = corpus();
    let good = corpus.iter().filter(|(_, bytes)| attempt(place.path(), &[bytes])).count();
    assert!(good >= corpus.len() / 2, "{good} of {} are good", corpus.len());
    for (_, lower) in &corpus {
        for (_, upper) in &corpus {
            attempt(place.path(), &[lower, upper]);
        }
    }
}

#[test]
fn mutated_archives_neither_panic_nor_escape() {
    let place = tempfile::tempdir().expect("a directory");
    fs::write(place.path().join("precious"), b"precious").expect("a file");
    let corpus = corpus();
    let mut chance = Chance(0x5eed);
    let mut good = 0;
    for _ in 0..ROUNDS {
        let mut pick = || corpus[chance.below(corpus.len())].1.clone();
        let (lower, mut upper) = (pick(), pick());
        for _ in 0..=chance.below(4) {
            mutate(&mut upper, &mut chance);
        }
        // Most changes spoil a checksum, and would never get further.
        if chance.below(4) > 0 {
            mend_checksums(&mut upper);
        }
        good += usize::from(attempt(place.path(), &[&lower, &upper]));
    }
    assert!(
        good > ROUNDS / 20,
        "{good} of {ROUNDS} got through: the changes are too wild to test much"
    );
}

fn mutate(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let at = chance.below(bytes.len());
    let block = at / BLOCK * BLOCK;
    let end = (block + BLOCK).min(bytes.len());
    match chance.below(7) {
        0 => bytes[at] ^= 1 << chance.below(8),
        1 => bytes[at] = [0, b'/', b'.', b'0', b'7', 0xff, b'2', b'5'][chance.below(8)],
        2 => {
            let copy = bytes[block..end].to_vec();
            let to = chance.below(bytes.len()) / BLOCK * BLOCK;
            bytes.splice(to..to, copy);
        }
        3 if bytes.len() > BLOCK => drop(bytes.drain(block..end)),
        // The type of an entry, and its link.
        4 => bytes[(block + 156).min(end - 1)] = b"0123456789xgLKSD"[chance.below(16)],
        5 => {
            let link = [&b"../../precious"[..], b"/etc/passwd", b"a", b"dir"][chance.below(4)];
            let from = (block + 157).min(end);
            let most = link.len().min(end - from);
            bytes[from..from + most].copy_from_slice(&link[..most]);
        }
        _ => {
            let name = [&b".wh.a\0"[..], b"a/.wh..wh..opq\0", b"../x\0", b"a/b\0", b"dir\0"]
                [chance.below(5)];
            let most = name.len().min(end - block);
            bytes[block..block + most].copy_from_slice(&name[..most]);
        }
    }
    if bytes.is_empty() {
        bytes.push(0);
    }
}

/// Gives every block that looks like a header the checksum that it should have.
fn mend_checksums(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(BLOCK) {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}
