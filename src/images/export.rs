//! Export: an image of the store as one archive, for other programs or another machine.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use oci_spec::image::{
    ImageConfiguration, ImageIndexBuilder, ImageManifest, MediaType, PlatformBuilder,
};
use serde_json::json;

use crate::index::{NAME, to_descriptor};
use crate::lock::Hold;
use crate::{Digest, ImageError, ImageStore, Reference, builtin};

/// The annotation that docker with containerd's store takes a name from.
const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// What an archive is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// An OCI image layout.
    Oci,
    /// The same with the `manifest.json` that `docker load` reads.
    Docker,
}

/// A part of an image, opened: nobody can take it away any more.
struct Part {
    digest: Digest,
    size: u64,
    content: Box<dyn Read>,
}

impl ImageStore {
    /// Writes an image to `out` as a tar archive. The same image gives the same bytes.
    ///
    /// Every part is hashed as it is written: damage ends in an error, and what was written until then is
    /// no archive, because its end is missing.
    pub fn export(
        &self,
        reference: &str,
        format: ExportFormat,
        out: &mut dyn Write,
    ) -> Result<(), ImageError> {
        let parsed: Reference = reference.parse()?;
        let image = if builtin::is_builtin(&parsed) {
            builtin_parts(&parsed)
        } else {
            self.open_parts(&parsed, reference)?
        };
        image.write(format, out)
    }

    fn open_parts(&self, parsed: &Reference, reference: &str) -> Result<Exported, ImageError> {
        let _store = self.dirs.lock(Hold::Shared)?;
        let index = self.index()?;
        let absent = || ImageError::Absent(reference.to_owned());
        let named = index.find(parsed).ok_or_else(absent)?;
        let manifest_bytes = self.document(&named.digest)?;
        let (manifest, configuration) = self.documents(named)?;
        let mut parts = Vec::new();
        for descriptor in manifest.layers().iter().chain([manifest.config()]) {
            let what = |what| ImageError::Config { image: reference.to_owned(), what };
            let digest: Digest = descriptor.digest().to_string().parse().map_err(what)?;
            let path = self.dirs.blob(&digest);
            let file = File::open(&path).map_err(ImageError::io("open", &path))?;
            parts.push(Part { digest, size: descriptor.size(), content: Box::new(file) });
        }
        let media_type = named.media_type.clone();
        let name = named.reference.clone();
        Ok(Exported { name, media_type, manifest_bytes, manifest, configuration, parts })
    }
}

struct Exported {
    name: Reference,
    media_type: MediaType,
    manifest_bytes: Vec<u8>,
    manifest: ImageManifest,
    configuration: ImageConfiguration,
    parts: Vec<Part>,
}

fn builtin_parts(name: &Reference) -> Exported {
    let (manifest_bytes, config, layer) = builtin::parts();
    let part = |bytes: &'static [u8]| Part {
        digest: Digest::of(bytes),
        size: bytes.len() as u64,
        content: Box::new(bytes),
    };
    Exported {
        name: name.clone(),
        media_type: MediaType::ImageManifest,
        manifest_bytes: manifest_bytes.to_vec(),
        manifest: serde_json::from_slice(manifest_bytes).expect("the build script's own"),
        configuration: serde_json::from_slice(config).expect("the build script's own"),
        parts: vec![part(layer), part(config)],
    }
}

impl Exported {
    fn write(self, format: ExportFormat, out: &mut dyn Write) -> Result<(), ImageError> {
        let index = self.index();
        let docker = self.docker_manifest();
        let manifest = Digest::of(&self.manifest_bytes);
        let mut tar = tar::Builder::new(out);
        let mut file = |name: &str, size: u64, content: &mut dyn Read| {
            let mut header = tar::Header::new_ustar();
            header.set_mode(0o644);
            header.set_size(size);
            header.set_mtime(0);
            tar.append_data(&mut header, name, content)
                .map_err(ImageError::io("write", Path::new("the archive")))
        };
        let mut text = |name: &str, bytes: &[u8]| file(name, bytes.len() as u64, &mut &*bytes);
        text("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        text("index.json", &index)?;
        if format == ExportFormat::Docker {
            text("manifest.json", &docker)?;
        }
        text(&blob(&manifest), &self.manifest_bytes)?;
        let mut written = std::collections::HashSet::from([manifest]);
        for part in self.parts {
            if written.insert(part.digest.clone()) {
                let mut content = Checked::new(part.content, part.digest.clone(), part.size);
                file(&blob(&part.digest), part.size, &mut content)?;
            }
        }
        tar.finish().map_err(ImageError::io("write", Path::new("the archive")))
    }

    fn index(&self) -> Vec<u8> {
        let digest = Digest::of(&self.manifest_bytes);
        let size = self.manifest_bytes.len() as u64;
        let mut descriptor = to_descriptor(&self.media_type, &digest, size);
        let platform = PlatformBuilder::default()
            .architecture(self.configuration.architecture().clone())
            .os(self.configuration.os().clone())
            .build()
            .expect("its required parts are set");
        descriptor.set_platform(Some(platform));
        let index = ImageIndexBuilder::default()
            .schema_version(2_u32)
            .media_type(MediaType::ImageIndex)
            .manifests([descriptor])
            .build()
            .expect("its required parts are set");
        // By hand: the crate keeps annotations in a map without order.
        let mut value = serde_json::to_value(&index).expect("JSON of plain values");
        let name = self.name.canonical();
        value["manifests"][0]["annotations"] = json!({ CONTAINERD_NAME: name, NAME: name });
        serde_json::to_vec(&value).expect("JSON of plain values")
    }

    fn docker_manifest(&self) -> Vec<u8> {
        let path = |digest: &oci_spec::image::Digest| format!("blobs/sha256/{}", digest.digest());
        let layers = self.manifest.layers().iter().map(|layer| path(layer.digest()));
        let tags = self.name.tag().map(|tag| format!("{}:{tag}", self.name.familiar_repository()));
        let value = json!([{
            "Config": path(self.manifest.config().digest()),
            "RepoTags": tags.into_iter().collect::<Vec<_>>(),
            "Layers": layers.collect::<Vec<_>>(),
        }]);
        serde_json::to_vec(&value).expect("JSON of plain values")
    }
}

fn blob(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Ends in an error where a content is not what its digest and size say.
struct Checked {
    content: Box<dyn Read>,
    hasher: Option<crate::digest::Hasher>,
    digest: Digest,
    left: u64,
}

impl Checked {
    fn new(content: Box<dyn Read>, digest: Digest, size: u64) -> Self {
        Self { content, hasher: Some(crate::digest::Hasher::default()), digest, left: size }
    }

    fn mismatch(&self, found: &str) -> io::Error {
        ImageError::Mismatch {
            object: "a part of the image".to_owned(),
            expected: self.digest.to_string(),
            found: found.to_owned(),
        }
        .into_io()
    }
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.content.read(buffer)?;
        if read as u64 > self.left {
            return Err(self.mismatch("more bytes than it should have"));
        }
        self.left -= read as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..read]);
        }
        if read == 0 && !buffer.is_empty() {
            if self.left > 0 {
                return Err(self.mismatch("fewer bytes than it should have"));
            }
            let found = self.hasher.take().map(crate::digest::Hasher::finish);
            if let Some(found) = found.filter(|found| *found != self.digest) {
                return Err(self.mismatch(found.as_str()));
            }
        }
        Ok(read)
    }
}
