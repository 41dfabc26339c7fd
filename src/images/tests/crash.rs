//! Processes that die in the middle of an import, and several at once.

mod common;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Built, Layer, Packing, Place, name};
use turnjail_images::{ImageConfig, ImageStore, ImportOptions, Source};

const STORE: &str = "TURNJAIL_TEST_CHILD_STORE";
const ARCHIVE: &str = "TURNJAIL_TEST_CHILD_ARCHIVE";
const NAME: &str = "TURNJAIL_TEST_CHILD_NAME";
/// Places in time at which a child is killed.
const KILLS: u32 = 25;

/// What a child does: imports what it is told to. Run by the tests below, and ignored by itself.
#[test]
#[ignore = "the other tests of this file start it as a process"]
fn child() {
    let variable = |name: &str| std::env::var(name).expect("started by a test");
    println!("begin");
    let store = ImageStore::open(Path::new(&variable(STORE))).expect("the store");
    let source = Source::Path(PathBuf::from(variable(ARCHIVE)));
    store.import(source, &name(&variable(NAME)), &ImportOptions::default()).expect("imported");
}

fn start(place: &Place, archive: &Path, as_name: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads", "1"])
        .env(STORE, place.dir())
        .env(ARCHIVE, archive)
        .env(NAME, as_name)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child")
}

/// Waits until a child has begun.
fn begun(child: &mut Child) -> BufReader<std::process::ChildStdout> {
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("begin") {
        line.clear();
        assert!(out.read_line(&mut line).expect("text") > 0, "the child ended early");
    }
    // Kept open: the child may have more to say.
    out
}

fn archive(place: &Place, file: &str, mark: &str) -> PathBuf {
    let layer = |number: usize| {
        (0..150).fold(Layer::new(), |layer, file| {
            layer.file(
                &format!("{number}/{file}"),
                0o644,
                format!("{mark}{file}").repeat(300).as_bytes(),
            )
        })
    };
    let upper = Layer::new().whiteout("0").file("last", 0o644, mark.as_bytes());
    let layers = [layer(0), layer(1), upper];
    let built = Built::new(&ImageConfig::default(), &layers, Packing::Gzip);
    place.write(file, &built.oci_archive("x"))
}

fn assert_clean(place: &Place) -> ImageStore {
    let store = place.again();
    assert_eq!(place.staged(), 0, "opening the store sweeps what a dead process left");
    let verified = store.verify().expect("verified");
    assert!(verified.differences.is_empty(), "{:?}", verified.differences);
    store
}

#[test]
fn a47_a_process_killed_at_any_moment_leaves_a_clean_store() {
    let place = Place::new();
    let archives = [archive(&place, "a", "a"), archive(&place, "b", "b")];
    let mut whole = start(&place, &archives[0], "tool");
    let _out = begun(&mut whole);
    let begin = Instant::now();
    assert!(whole.wait().expect("ended").success());
    let mut long = begin.elapsed();
    let mut killed = 0;
    for kill in 0..KILLS {
        // In turns, so that the name has another image to move to each time.
        let archive = &archives[kill as usize % 2];
        let mut child = start(&place, archive, "tool");
        let _out = begun(&mut child);
        std::thread::sleep(long * kill / KILLS);
        child.kill().expect("SIGKILL");
        if child.wait().expect("ended").success() {
            // The first import of a cold machine takes longer than the others.
            long = long * 3 / 4;
        } else {
            killed += 1;
        }
        let store = assert_clean(&place);
        let image = store.resolve("tool").expect("the name always means a whole image");
        assert!(image.rootfs.join("last").exists() && !image.rootfs.join("0").exists());
    }
    assert!(killed > KILLS / 4, "{killed} of {KILLS} were killed while they ran");
    for archive in archives {
        let status = start(&place, &archive, "tool").wait().expect("ended");
        assert!(status.success(), "and the next import succeeds");
    }
    assert_clean(&place).gc().expect("collected");
    assert_eq!(assert_clean(&place).list().expect("a list").len(), 2);
}

#[test]
fn a47_processes_importing_and_reading_at_once_agree() {
    let place = Place::new();
    let (same, other) = (archive(&place, "same", "s"), archive(&place, "other", "o"));
    let mut children = Vec::new();
    for number in 0..3 {
        children.push(start(&place, &same, "same"));
        children.push(start(&place, &same, &format!("same:{number}")));
        children.push(start(&place, &other, "other"));
    }
    // Readers, removers and collectors among them.
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut seen = 0;
    while children.iter_mut().any(|child| child.try_wait().expect("asked").is_none()) {
        assert!(Instant::now() < deadline, "an import hangs");
        let store = place.again();
        if let Ok(image) = store.resolve("same") {
            assert!(image.rootfs.join("last").exists());
            seen += 1;
        }
        store.gc().expect("collected");
        store.list().expect("listed");
        if let Err(error) = store.remove("same:1", false) {
            assert!(matches!(error.code(), "image-absent" | "image-in-use"), "{error}");
        }
    }
    for mut child in children {
        assert!(child.wait().expect("ended").success());
    }
    assert!(seen > 0);
    let store = assert_clean(&place);
    for name in ["same", "same:0", "same:2", "other"] {
        store.resolve(name).expect(name);
    }
    assert_eq!(
        store.resolve("same").expect("one").digest,
        store.resolve("same:0").expect("two").digest
    );
}
