//! A real registry: Debian's docker-registry on loopback, anonymous and with a password.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use oci_client::Client;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use serde_json::{Value, json};
use turnjail_images::{Digest, ImageStore, ImportOptions, Imported, Platform, Reference};
use turnjail_pull::{Login, PullError, Registry, fetch};

/// `htpasswd -Bbn bot 'open sesame'`
const HTPASSWD: &str = "bot:$2y$05$7D4GgoqIJShu8NFPm3YmtOaCaslDQTHWnpcbaDJHEhsH/UrBcuhsi\n";
const PASSWORD: &str = "open sesame";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn main() {
    // The client that pushes wants one too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let missing = Command::new("docker-registry")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_err();
    let required = std::env::var("TURNJAIL_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|word| word.trim() == "registry"));
    if missing && !required {
        println!("skipped: docker-registry is not installed (apt-get install docker-registry)");
    }
    let tests: [(&str, fn()); 9] = [
        ("a_layer_that_stands_twice_leaves_a_clean_store", layer_twice),
        ("a_damaged_part_of_the_store_is_not_taken_again", damaged_in_the_store),
        ("by tag and by digest", by_tag_and_by_digest),
        ("one platform of an index", one_platform_of_an_index),
        ("with a password", with_a_password),
        ("what is absent", what_is_absent),
        ("what is damaged leaves nothing", what_is_damaged_leaves_nothing),
        ("parts that the store has do not come again", parts_do_not_come_again),
        ("limits hold before anything comes", limits_hold_before_anything_comes),
    ];
    let tests = tests.map(|(name, test)| {
        let run = move || -> Result<(), Failed> {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(missing && !required)
    });
    libtest_mimic::run(&Arguments::from_args(), tests.into()).exit();
}

/// A registry, ended when it is dropped.
struct Server {
    process: Child,
    dir: tempfile::TempDir,
    host: String,
    login: Option<Login>,
}

impl Server {
    fn start(password: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let htpasswd = dir.path().join("htpasswd");
        fs::write(&htpasswd, HTPASSWD).expect("written");
        let mut config = json!({
            "version": "0.1",
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": dir.path().join("data")}},
            "http": {"addr": format!("127.0.0.1:{port}")},
        });
        if password {
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": htpasswd}});
        }
        // JSON is YAML.
        let file = dir.path().join("config.yml");
        fs::write(&file, config.to_string()).expect("written");
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry");
        let host = format!("127.0.0.1:{port}");
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(&host).is_err() {
            assert!(Instant::now() < deadline, "the registry does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        let login = password
            .then(|| Login { username: "bot".to_owned(), password: PASSWORD.to_owned().into() });
        Self { process, dir, host, login }
    }

    fn name(&self, rest: &str) -> Reference {
        format!("{}/{rest}", self.host).parse().expect("a reference")
    }

    fn registry(&self) -> Registry {
        Registry { login: self.login.clone(), allow_http: true, authorities: Vec::new() }
    }

    /// Puts blobs and a manifest there, as any client does.
    fn push(&self, tag: &str, media_type: &str, manifest: &[u8], blobs: &[&[u8]]) {
        let config = ClientConfig { protocol: ClientProtocol::Http, ..ClientConfig::default() };
        let client = Client::new(config);
        let auth = match &self.login {
            None => RegistryAuth::Anonymous,
            Some(login) => RegistryAuth::Basic(login.username.clone(), login.password.to_string()),
        };
        let image: oci_client::Reference =
            format!("{}/tool:{tag}", self.host).parse().expect("valid");
        block_on(async {
            client.store_auth_if_needed(&self.host, &auth).await;
            for blob in blobs {
                let digest = Digest::of(blob).to_string();
                client.push_blob(&image, blob.to_vec(), &digest).await.expect("a blob");
            }
            let media_type = media_type.parse().expect("a header");
            client
                .push_manifest_raw(&image, manifest.to_vec(), media_type)
                .await
                .expect("a manifest");
        });
    }

    fn stored(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        self.dir
            .path()
            .join("data/docker/registry/v2/blobs/sha256")
            .join(&hex[..2])
            .join(hex)
            .join("data")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An image whose one file holds `mark`.
struct Built {
    layer: Vec<u8>,
    config: Vec<u8>,
    manifest: Vec<u8>,
}

impl Built {
    fn new(mark: &str, architecture: &str) -> Self {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(mark.len() as u64);
        tar.append_data(&mut header, "mark", mark.as_bytes()).expect("an entry");
        let layer = tar.into_inner().expect("a layer");
        let config = json!({
            "architecture": architecture, "os": "linux",
            "config": {"Entrypoint": ["/mark"]},
            "rootfs": {"type": "layers", "diff_ids": [Digest::of(&layer).to_string()]},
        })
        .to_string()
        .into_bytes();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        });
        Self { layer, config, manifest: manifest.to_string().into_bytes() }
    }

    fn here(mark: &str) -> Self {
        Self::new(mark, turnjail_images::architecture())
    }

    fn push(&self, server: &Server, tag: &str) -> Digest {
        server.push(tag, MANIFEST, &self.manifest, &[&self.config, &self.layer]);
        Digest::of(&self.manifest)
    }
}

fn descriptor(media: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media, "digest": Digest::of(bytes).to_string(), "size": bytes.len()})
}

struct Place {
    dir: tempfile::TempDir,
    store: ImageStore,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let store = ImageStore::open(&dir.path().join("store")).expect("a store");
        Self { dir, store }
    }

    fn pull(&self, name: &Reference, registry: &Registry) -> Result<Imported, PullError> {
        self.pull_with(name, registry, &ImportOptions::default())
    }

    fn pull_with(
        &self,
        name: &Reference,
        registry: &Registry,
        options: &ImportOptions<'_>,
    ) -> Result<Imported, PullError> {
        let fetched = block_on(fetch(&self.store, name, registry, options, &()));
        let imported = fetched.and_then(|fetched| Ok(fetched.import(options)?));
        let staging = self.dir.path().join("store/staging");
        assert_eq!(
            fs::read_dir(staging).map_or(0, Iterator::count),
            0,
            "nothing is left half made"
        );
        imported
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

fn mark(root: &Path) -> String {
    fs::read_to_string(root.join("mark")).expect("the mark")
}

fn by_tag_and_by_digest() {
    let (server, place) = (Server::start(false), Place::new());
    let digest = Built::here("one").push(&server, "1");
    let registry = server.registry();
    let by_tag = place.pull(&server.name("tool:1"), &registry).expect("by tag");
    assert_eq!(
        (mark(&by_tag.image.rootfs), by_tag.image.digest),
        ("one".to_owned(), digest.to_string())
    );
    let by_digest = server.name(&format!("tool@{digest}"));
    place.pull(&by_digest, &registry).expect("by digest");
    assert!(place.store.resolve(&by_digest.to_string()).is_ok());
    assert!(place.store.resolve(&server.name("tool:1").to_string()).is_ok());
    // The tag moves there; the digest does not.
    let other = Built::here("two").push(&server, "1");
    assert_eq!(mark(&place.pull(&by_digest, &registry).expect("the old one").image.rootfs), "one");
    let both = server.name(&format!("tool:1@{other}"));
    assert_eq!(mark(&place.pull(&both, &registry).expect("both").image.rootfs), "two");
    let verified = place.store.verify().expect("verified");
    assert!(verified.differences.is_empty(), "{:?}", verified.differences);
}

fn one_platform_of_an_index() {
    let (server, place) = (Server::start(false), Place::new());
    let (here, there) = (Built::here("here"), Built::new("there", "riscv64"));
    here.push(&server, "here");
    there.push(&server, "there");
    let entry = |built: &Built, architecture: &str| {
        let mut entry = descriptor(MANIFEST, &built.manifest);
        entry["platform"] = json!({"os": "linux", "architecture": architecture});
        entry
    };
    let entries = [entry(&there, "riscv64"), entry(&here, turnjail_images::architecture())];
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
    server.push("all", INDEX, index.as_bytes(), &[]);
    let name = server.name("tool:all");
    let imported = place.pull(&name, &server.registry()).expect("for this machine");
    assert_eq!(mark(&imported.image.rootfs), "here");
    // A reference may name the index: that is what other clients print.
    let by_index = server.name(&format!("tool@{}", Digest::of(index.as_bytes())));
    place.pull(&by_index, &server.registry()).expect("by the index's digest");
    assert!(place.store.resolve(&by_index.to_string()).is_ok());
    let options = |platform: &str| ImportOptions {
        platform: Some(platform.parse::<Platform>().expect("a platform")),
        ..ImportOptions::default()
    };
    let foreign =
        place.pull_with(&server.name("tool:all"), &server.registry(), &options("linux/riscv64"));
    assert_eq!(mark(&foreign.expect("asked for").image.rootfs), "there");
    let none =
        place.pull_with(&name, &server.registry(), &options("linux/s390x")).expect_err("none");
    assert_eq!(none.code(), "image-platform");
    assert!(none.to_string().contains("linux/riscv64"), "{none}");
    let verified = place.store.verify().expect("verified");
    assert!(verified.differences.is_empty(), "{:?}", verified.differences);
}

fn with_a_password() {
    let (server, place) = (Server::start(true), Place::new());
    Built::here("secret").push(&server, "1");
    let name = server.name("tool:1");
    let with = |password: Option<&str>| Registry {
        login: password.map(|password| Login {
            username: "bot".to_owned(),
            password: password.to_owned().into(),
        }),
        ..server.registry()
    };
    for wrong in [None, Some("wrong password"), Some("")] {
        let error = place.pull(&name, &with(wrong)).expect_err("refused");
        assert_eq!(error.code(), "registry-denied", "{error}");
        assert!(error.remedy().contains(&server.host));
        assert!(!format!("{error:?}{error}").contains("wrong password"));
    }
    let right = with(Some(PASSWORD));
    assert!(!format!("{right:?}").contains("sesame"), "{right:?}");
    assert_eq!(mark(&place.pull(&name, &right).expect("pulled").image.rootfs), "secret");
}

fn what_is_absent() {
    let (server, place) = (Server::start(false), Place::new());
    Built::here("one").push(&server, "1");
    let digest = format!("tool@sha256:{:064}", 7);
    for absent in ["tool:2", "other:1", &digest] {
        let error = place.pull(&server.name(absent), &server.registry()).expect_err(absent);
        assert_eq!(error.code(), "registry-absent", "{absent}: {error}");
    }
    // Over TLS there is nobody, and on another port neither.
    let error = place.pull(&server.name("tool:1"), &Registry::default()).expect_err("no TLS");
    assert_eq!(error.code(), "registry", "{error}");
    assert!(error.remedy().contains("allow_http"));
    let nobody: Reference = "127.0.0.1:1/tool:1".parse().expect("a reference");
    assert_eq!(place.pull(&nobody, &server.registry()).expect_err("nobody").code(), "registry");
    assert_eq!(
        place.store.resolve(&server.name("tool:1").to_string()).expect_err("never pulled").code(),
        "image-absent"
    );
}

fn what_is_damaged_leaves_nothing() {
    let server = Server::start(false);
    let built = Built::here("whole");
    let digest = built.push(&server, "1");
    for part in [&built.layer, &built.config, &built.manifest] {
        let stored = server.stored(&Digest::of(part));
        let mut damaged = part.clone();
        damaged[0] ^= 1;
        let mut longer = part.clone();
        longer.extend([b' '; 4096]);
        for spoilt in [damaged, longer] {
            fs::write(&stored, spoilt).expect("damaged");
            let place = Place::new();
            for name in ["tool:1".to_owned(), format!("tool@{digest}")] {
                place.pull(&server.name(&name), &server.registry()).expect_err(&name);
                assert!(place.store.resolve(&server.name(&name).to_string()).is_err());
                assert!(!place.dir.path().join("store/blobs").exists());
            }
        }
        fs::write(&stored, part).expect("mended");
    }
    Place::new().pull(&server.name("tool:1"), &server.registry()).expect("mended");
}

fn parts_do_not_come_again() {
    let (server, place) = (Server::start(false), Place::new());
    let built = Built::here("one");
    built.push(&server, "1");
    place.pull(&server.name("tool:1"), &server.registry()).expect("pulled");
    fs::remove_file(server.stored(&Digest::of(&built.layer))).expect("removed");
    place.pull(&server.name("tool:1"), &server.registry()).expect("the layer is here");
    assert!(
        Place::new().pull(&server.name("tool:1"), &server.registry()).is_err(),
        "and not there"
    );
}

fn layer_twice() {
    let (server, place) = (Server::start(false), Place::new());
    let mut built = Built::here("one");
    let diff_id = Digest::of(&built.layer).to_string();
    let mut config: Value = serde_json::from_slice(&built.config).expect("JSON");
    config["rootfs"]["diff_ids"] = json!([diff_id, diff_id]);
    built.config = config.to_string().into_bytes();
    let layer = descriptor("application/vnd.oci.image.layer.v1.tar", &built.layer);
    built.manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &built.config),
        "layers": [layer, layer],
    })
    .to_string()
    .into_bytes();
    built.push(&server, "1");
    let imported = place.pull(&server.name("tool:1"), &server.registry()).expect("pulled");
    assert_eq!(imported.layers, 2);
    let differences = place.store.verify().expect("verified").differences;
    assert!(differences.is_empty(), "{differences:?}");
}

fn damaged_in_the_store() {
    let (server, place) = (Server::start(false), Place::new());
    let built = Built::here("one");
    built.push(&server, "1");
    let pull = || place.pull(&server.name("tool:1"), &server.registry());
    drop(pull().expect("pulled"));
    let blob = place.dir.path().join("store/blobs/sha256").join(Digest::of(&built.layer).hex());
    fs::remove_file(&blob).expect("removed");
    fs::write(&blob, "something else").expect("written");
    assert!(!place.store.verify().expect("verified").differences.is_empty(), "the control");
    drop(pull().expect("pulled again"));
    let differences = place.store.verify().expect("verified").differences;
    assert!(differences.is_empty(), "{differences:?}");
}

fn limits_hold_before_anything_comes() {
    let (server, place) = (Server::start(false), Place::new());
    let built = Built::here("one");
    built.push(&server, "1");
    for part in [&built.layer, &built.config] {
        fs::remove_file(server.stored(&Digest::of(part))).expect("removed");
    }
    let mut options = ImportOptions::default();
    options.limits.layer_bytes = 100;
    let error = place
        .pull_with(&server.name("tool:1"), &server.registry(), &options)
        .expect_err("too large");
    assert_eq!(error.code(), "image-limit", "{error}");
    let mut options = ImportOptions::default();
    options.limits.metadata_bytes = 100;
    let error = place
        .pull_with(&server.name("tool:1"), &server.registry(), &options)
        .expect_err("too large");
    assert!(error.remedy().contains("max_metadata_kb"), "{error}");
}
