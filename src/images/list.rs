//! What is in the store, for people and machines.

use oci_spec::image::Descriptor;
use serde_json::{Value, json};

use crate::index::Named;
use crate::lock::{Hold, Lock};
use crate::{
    Digest, ImageConfig, ImageError, ImageStore, ProfileLabel, Reference, architecture, builtin,
};

/// One name of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The name.
    pub reference: Reference,
    /// The image's identity.
    pub digest: Digest,
    /// Bytes of all layers, unpacked.
    pub size: u64,
    /// The protocol that its label says.
    pub protocol: Option<u32>,
    /// When it was made, as its configuration says: RFC 3339.
    pub created: Option<String>,
    /// Whether it is the worker inside this program.
    pub builtin: bool,
    /// Whether a process has it open for jails.
    pub in_use: bool,
}

impl ImageStore {
    /// Every name, the built-in worker first.
    pub fn list(&self) -> Result<Vec<Listed>, ImageError> {
        let mut list = vec![self.listed_builtin()?];
        for named in &self.index()?.0 {
            // A damaged image is listed like one that says nothing of itself; `verify` tells the damage.
            let configuration = self.documents(named).ok().map(|(_, configuration)| configuration);
            let config = configuration.as_ref().and_then(|found| ImageConfig::of(found).ok());
            let config = config.unwrap_or_default();
            list.push(Listed {
                reference: named.reference.clone(),
                digest: named.digest.clone(),
                size: named.size,
                protocol: config.protocol(),
                created: configuration.and_then(|found| found.created().clone()),
                builtin: false,
                in_use: self.in_use(&named.digest)?,
            });
        }
        Ok(list)
    }

    fn listed_builtin(&self) -> Result<Listed, ImageError> {
        let digest = builtin::digest();
        Ok(Listed {
            reference: builtin::BUILTIN.parse()?,
            in_use: self.in_use(&digest)?,
            digest,
            size: builtin::size(),
            protocol: builtin::config().protocol(),
            created: None,
            builtin: true,
        })
    }

    /// Whether somebody holds the root of an image.
    pub(crate) fn in_use(&self, digest: &Digest) -> Result<bool, ImageError> {
        let root = self.dirs.root(digest);
        Ok(root.exists() && Lock::of_directory(&root, Hold::Exclusive)?.is_none())
    }

    /// An image as `docker image inspect` shows it, with what turnjail makes of it beside.
    pub fn inspect(&self, reference: &str) -> Result<Value, ImageError> {
        let parsed: Reference = reference.parse()?;
        if builtin::is_builtin(&parsed) {
            return self.inspect_builtin();
        }
        let index = self.index()?;
        let absent = || ImageError::Absent(reference.to_owned());
        let named = index.find(&parsed).ok_or_else(absent)?;
        let (manifest, configuration) = self.documents(named)?;
        let config = ImageConfig::of(&configuration)
            .map_err(|what| ImageError::Config { image: reference.to_owned(), what })?;
        let names: Vec<&Named> =
            index.0.iter().filter(|other| other.digest == named.digest).collect();
        let layers = manifest.layers().iter().map(Descriptor::size).sum();
        Ok(shown(&Shown {
            digest: &named.digest,
            names: names.iter().map(|named| named.reference.clone()).collect(),
            chosen_from: names.iter().filter_map(|named| named.chosen_from.clone()).collect(),
            created: configuration.created().clone(),
            size: named.size,
            packed: layers,
            diff_ids: configuration.rootfs().diff_ids().clone(),
            rootfs: self.dirs.root(&named.digest).display().to_string(),
            config: &config,
            builtin: false,
        }))
    }

    fn inspect_builtin(&self) -> Result<Value, ImageError> {
        let (_, _, layer) = builtin::parts();
        let digest = builtin::digest();
        Ok(shown(&Shown {
            digest: &digest,
            names: vec![builtin::BUILTIN.parse()?],
            chosen_from: Vec::new(),
            created: None,
            size: builtin::size(),
            packed: layer.len() as u64,
            diff_ids: vec![Digest::of(layer).to_string()],
            rootfs: self.dirs.root(&digest).display().to_string(),
            config: &builtin::config(),
            builtin: true,
        }))
    }
}

struct Shown<'s> {
    digest: &'s Digest,
    names: Vec<Reference>,
    chosen_from: Vec<Digest>,
    created: Option<String>,
    size: u64,
    packed: u64,
    diff_ids: Vec<String>,
    rootfs: String,
    config: &'s ImageConfig,
    builtin: bool,
}

fn shown(image: &Shown<'_>) -> Value {
    let config = image.config;
    let tagged = image.names.iter().filter(|name| name.digest().is_none());
    let by_digest = image.names.iter().flat_map(|name| {
        let digests = image.chosen_from.iter().chain([image.digest]);
        digests.map(|digest| format!("{}@{digest}", name.familiar_repository()))
    });
    let mut by_digest: Vec<_> = by_digest.collect();
    by_digest.sort();
    by_digest.dedup();
    let or = |text: &str, default: &str| if text.is_empty() { default } else { text }.to_owned();
    let profile = match config.profile() {
        ProfileLabel::None => Value::Null,
        ProfileLabel::Sealed => "sealed".into(),
        ProfileLabel::Unknown(other) => other.into(),
    };
    json!({
        "Id": image.digest.as_str(),
        "RepoTags": tagged.map(ToString::to_string).collect::<Vec<_>>(),
        "RepoDigests": by_digest,
        "Created": image.created,
        "Architecture": or(&config.architecture, architecture()),
        "Os": or(&config.os, "linux"),
        "Size": image.size,
        "Config": {
            "Entrypoint": config.entrypoint,
            "Cmd": config.cmd,
            "Env": config.env,
            "WorkingDir": config.working_dir,
            "Labels": config.labels,
            "StopSignal": config.stop_signal,
        },
        "RootFS": { "Type": "layers", "Layers": image.diff_ids },
        "Turnjail": {
            "Protocol": config.protocol(),
            "Profile": profile,
            "BuiltIn": image.builtin,
            "PackedSize": image.packed,
            "Rootfs": image.rootfs,
        },
    })
}
