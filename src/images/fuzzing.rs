//! What fuzzing and its test do with bytes: unpack them, and hold what is on disk to what should be.

use std::path::Path;

use turnjail_protocol::MOUNT_POINTS;

use crate::unpack::{Budget, Counter, Disk, Record, Tree, apply};
use crate::{ImageError, ImageLimits, Skipped, import, verify};

/// Unpacks `layers` one above the other into the empty directory `root`, and answers how many names are
/// there.
///
/// # Panics
///
/// When what is on disk is not what a second reading says that it should be: a fault of this crate.
pub fn unpack(layers: &[&[u8]], root: &Path, limits: ImageLimits) -> Result<usize, ImageError> {
    let mut disk = Disk::new(root)?;
    let (mut tree, mut record) = (Tree::new(limits), Record::default());
    let mut expected = Tree::new(limits);
    let (budget, again) = (Budget::new(limits), Budget::new(limits));
    for layer in layers {
        let read = |budget: &Budget| {
            let packed = Counter::default();
            let reader = import::unpack(*layer, &packed, "layer")?;
            Ok::<_, ImageError>(budget.meter(reader, packed, "layer"))
        };
        let written = apply(&mut tree, &mut disk, read(&budget)?, "layer", &mut Skipped::default());
        let computed =
            apply(&mut expected, &mut record, read(&again)?, "layer", &mut Skipped::default());
        // What a file system refuses, such as too many links, only the disk can know.
        assert!(written.is_err() || computed.is_ok(), "read in two ways: {computed:?}");
        written?;
        computed?;
    }
    tree.finish(&mut disk, &MOUNT_POINTS)?;
    expected.finish(&mut record, &MOUNT_POINTS)?;
    let differences = verify::differences(&expected, &record, root);
    assert!(differences.is_empty(), "{differences:?}");
    Ok(record.0.len())
}
