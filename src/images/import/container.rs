//! What is imported, as named contents: a directory, or an archive whose members can be read at will.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, copy_file_range};
use rustix::io::Errno;

use super::packed::{self, Compression};
use super::{ImportOptions, Source, shown};
use crate::directories::Staging;
use crate::unpack::{Budget, Counter, Kind, Name, each_in_file, open_beneath};
use crate::{ImageError, ImageLimits};

/// Contents of interest stand no deeper: `blobs/sha256/<digest>`.
const DEPTH: usize = 3;
/// What a content of interest is called has no more bytes, and neither has what a link to one names.
const NAME_BYTES: usize = 256;
/// More contents of interest than any image has.
const MEMBERS: usize = 10_000;
/// What says what an archive is.
const DESCRIPTIONS: [&[u8]; 3] = [b"oci-layout", b"index.json", b"manifest.json"];
/// How often a link of an archive leads to a link.
const LINKS: usize = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Container {
    shown: String,
    kind: ContainerKind,
}

#[derive(Debug)]
enum ContainerKind {
    Directory {
        root: OwnedFd,
        owned: Option<PathBuf>,
    },
    Archive {
        file: File,
        size: u64,
        owned: Option<PathBuf>,
        members: HashMap<Name, Member>,
        /// There was more of interest than is remembered.
        crowded: bool,
    },
}

#[derive(Debug)]
enum Member {
    File { position: u64, size: u64 },
    Link(Vec<u8>),
}

/// A part of a file.
#[derive(Debug)]
pub(crate) struct Content {
    file: File,
    position: u64,
    size: u64,
    /// The file's path where it is all of a file that belongs to this import.
    owned: Option<PathBuf>,
}

impl Container {
    /// Opens a source. A stream and a compressed archive are written to `staging` first, within the
    /// limits, so that what is read later is what was read before.
    pub fn open(
        source: Source,
        staging: &Staging,
        options: &ImportOptions<'_>,
    ) -> Result<Self, ImageError> {
        let limits = &options.limits;
        let path = match source {
            Source::Stream(stream) => {
                return Self::spool(stream, "the archive".to_owned(), staging, limits);
            }
            Source::Path(path) => path,
        };
        let file = File::open(&path).map_err(ImageError::io("open", &path))?;
        let found = file.metadata().map_err(ImageError::io("stat", &path))?;
        if found.is_dir() {
            return Ok(Self::directory(file.into(), shown(&path)));
        }
        if !found.is_file() || packed::compression_of(&file, 0) != Ok(Compression::None) {
            return Self::spool(file, shown(&path), staging, limits);
        }
        Self::archive(file, found.len(), shown(&path), None, limits)
    }

    /// A directory with an image layout.
    pub fn directory(root: OwnedFd, shown: String) -> Self {
        Self { shown, kind: ContainerKind::Directory { root, owned: None } }
    }

    /// A directory with an image layout whose files belong to this import and may become the store's.
    pub fn owned_directory(path: &Path, shown: String) -> Result<Self, ImageError> {
        let root = File::open(path).map_err(ImageError::io("open", path))?.into();
        Ok(Self { shown, kind: ContainerKind::Directory { root, owned: Some(path.to_owned()) } })
    }

    fn spool(
        stream: impl Read,
        shown: String,
        staging: &Staging,
        limits: &ImageLimits,
    ) -> Result<Self, ImageError> {
        let path = staging.path().join("archive");
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(ImageError::io("create", &path))?;
        // An archive of layers is as large as all of them.
        let whole = ImageLimits { layer_bytes: limits.total_bytes, ..*limits };
        let budget = Budget::new(whole);
        let packed = Counter::default();
        let reader = packed::unpack(BufReader::new(stream), &packed, &shown)?;
        let mut reader = budget.meter(reader, packed, &shown);
        copy(&mut reader, &mut file, &shown, &path)?;
        let size = budget.total();
        Self::archive(file, size, shown, Some(path), limits)
    }

    fn archive(
        file: File,
        size: u64,
        shown: String,
        owned: Option<PathBuf>,
        limits: &ImageLimits,
    ) -> Result<Self, ImageError> {
        let mut members = HashMap::new();
        let mut crowded = false;
        let mut from = &file;
        from.seek(SeekFrom::Start(0)).map_err(ImageError::io("read", Path::new(&shown)))?;
        let mut entries = 0;
        each_in_file(BufReader::new(from), &shown, limits, &mut |entry, _| {
            entries += 1;
            if entries > limits.entries {
                return Err(ImageError::Limit {
                    object: shown.clone(),
                    limit: format!("{} entries", limits.entries),
                    setting: "max_entries",
                });
            }
            let member = match entry.kind {
                Kind::File(size) => Member::File { position: entry.position, size },
                Kind::Symlink(target) => Member::Link(target),
                _ => return Ok(()),
            };
            if let Member::File { position, size: bytes } = member
                && position.checked_add(bytes).is_none_or(|end| end > size)
            {
                let what = format!("it ends within its entry {}", entry.name);
                return Err(ImageError::refused(&shown, what));
            }
            if of_interest(&entry.name, &member) {
                if members.len() < MEMBERS || DESCRIPTIONS.contains(&entry.name.bytes()) {
                    members.insert(entry.name, member);
                } else {
                    crowded = true;
                }
            }
            Ok(())
        })?;
        Ok(Self { shown, kind: ContainerKind::Archive { file, size, owned, members, crowded } })
    }

    /// Its name in messages.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The whole archive as one content.
    pub fn whole(&self) -> Result<Content, ImageError> {
        match &self.kind {
            ContainerKind::Archive { file, size, owned, .. } => Ok(Content {
                file: self.again(file)?,
                position: 0,
                size: *size,
                owned: owned.clone(),
            }),
            ContainerKind::Directory { .. } => {
                Err(ImageError::refused(&self.shown, "it is a directory and no image layout"))
            }
        }
    }

    /// Whether something has this name.
    pub fn has(&self, name: &str) -> bool {
        matches!(self.find(name), Ok(Some(_)))
    }

    /// The content with this name, which must be there.
    pub fn content(&self, name: &str) -> Result<Content, ImageError> {
        self.find(name)?
            .ok_or_else(|| ImageError::refused(&self.shown, format!("it has no {name:?}")))
    }

    /// A small content.
    pub fn document(&self, name: &str, limits: &ImageLimits) -> Result<Vec<u8>, ImageError> {
        let content = self.content(name)?;
        let most = limits.metadata_bytes;
        if content.size > most {
            return Err(ImageError::Limit {
                object: format!("{}: {name}", self.shown),
                limit: format!("{most} bytes"),
                setting: "max_metadata_kb",
            });
        }
        let mut bytes = vec![0; content.size as usize];
        content
            .file
            .read_exact_at(&mut bytes, content.position)
            .map_err(ImageError::io("read", Path::new(&self.shown)))?;
        Ok(bytes)
    }

    fn find(&self, name: &str) -> Result<Option<Content>, ImageError> {
        let limits = ImageLimits::default();
        let parsed = Name::parse(name.as_bytes(), &limits)
            .map_err(|what| ImageError::refused(format!("{}: {name:?}", self.shown), what))?;
        match &self.kind {
            ContainerKind::Directory { root, owned } => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
                let file = match open_beneath(root, parsed.bytes(), flags) {
                    Ok(file) => File::from(file),
                    Err(Errno::NOENT) => return Ok(None),
                    Err(Errno::LOOP) => {
                        let what = format!("its {name:?} is a link");
                        return Err(ImageError::refused(&self.shown, what));
                    }
                    Err(errno) => {
                        let path = Path::new(&self.shown).join(name);
                        return Err(ImageError::errno("open", &path)(errno));
                    }
                };
                let found = file.metadata().map_err(ImageError::io("stat", Path::new(name)))?;
                if !found.is_file() {
                    return Err(ImageError::refused(
                        &self.shown,
                        format!("its {name:?} is no file"),
                    ));
                }
                let owned = owned.as_ref().map(|path| path.join(name));
                Ok(Some(Content { file, position: 0, size: found.len(), owned }))
            }
            ContainerKind::Archive { file, members, crowded, .. } => {
                let mut at = parsed;
                for _ in 0..LINKS {
                    match members.get(&at) {
                        None if *crowded && !DESCRIPTIONS.contains(&at.bytes()) => {
                            let what = format!("it has more than {MEMBERS} parts");
                            return Err(ImageError::refused(&self.shown, what));
                        }
                        None => return Ok(None),
                        Some(Member::File { position, size }) => {
                            let (position, size) = (*position, *size);
                            let file = self.again(file)?;
                            return Ok(Some(Content { file, position, size, owned: None }));
                        }
                        Some(Member::Link(target)) => at = self.followed(&at, target)?,
                    }
                }
                Err(ImageError::refused(&self.shown, format!("its {name:?} is a link to links")))
            }
        }
    }

    /// Where a link of an archive leads within it: old versions of docker write a layer that stands twice
    /// as a link.
    fn followed(&self, link: &Name, target: &[u8]) -> Result<Name, ImageError> {
        let refuse = |what: String| ImageError::refused(format!("{}: {link}", self.shown), what);
        let mut at = link.parent();
        let mut rest = target;
        while let Some(up) = rest.strip_prefix(b"../") {
            if at.is_root() {
                return Err(refuse("it is a link out of the archive".to_owned()));
            }
            at = at.parent();
            rest = up;
        }
        let rest = Name::parse(rest, &ImageLimits::default()).map_err(refuse)?;
        Ok(at.join(rest.bytes()))
    }

    fn again(&self, file: &File) -> Result<File, ImageError> {
        file.try_clone().map_err(ImageError::io("open", Path::new(&self.shown)))
    }
}

impl Content {
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Puts a copy at `path`, which is then nobody else's to change. In the kernel where it can.
    pub fn place(&self, path: &Path, shown: &str) -> Result<(), ImageError> {
        if let Some(owned) = &self.owned
            && fs::hard_link(owned, path).is_ok()
        {
            return Ok(());
        }
        let mut to = File::create_new(path).map_err(ImageError::io("create", path))?;
        let mut done = 0;
        let mut from = self.position;
        while done < self.size {
            let most = usize::try_from(self.size - done).unwrap_or(usize::MAX).min(1 << 26);
            match copy_file_range(&self.file, Some(&mut from), &to, None, most) {
                Ok(0) => {
                    return Err(ImageError::refused(shown, "it became shorter while it was read"));
                }
                Ok(copied) => done += copied as u64,
                Err(Errno::INTR) => {}
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                    let mut rest = Region { file: &self.file, at: from, left: self.size - done };
                    return copy(&mut rest, &mut to, shown, path);
                }
                Err(errno) => return Err(ImageError::errno("write", path)(errno)),
            }
        }
        Ok(())
    }
}

/// How contents end that a description of docker's names.
const ENDINGS: [&[u8]; 5] = [b".json", b".tar", b".tar.gz", b".tgz", b".tar.zst"];

/// Whether an image's description may name this content. Before it is known what an archive is, nothing
/// else of it is remembered, however much it holds.
fn of_interest(name: &Name, member: &Member) -> bool {
    let bytes = name.bytes();
    // Builders that write docker's archives without docker name layers and configurations by digests.
    let named = DESCRIPTIONS.contains(&bytes)
        || [&b"blobs/"[..], b"sha256:"].iter().any(|start| bytes.starts_with(start))
        || ENDINGS.iter().any(|end| bytes.ends_with(end))
        || bytes.len() >= 64 && bytes.iter().all(u8::is_ascii_hexdigit);
    let short = match member {
        Member::Link(target) => target.len() <= NAME_BYTES,
        Member::File { .. } => true,
    };
    named && short && bytes.len() <= NAME_BYTES && name.parts().count() <= DEPTH
}

/// Reads a part of a file without moving anybody's position in it.
struct Region<'f> {
    file: &'f File,
    at: u64,
    left: u64,
}

impl Read for Region<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buffer[..most], self.at)?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

fn copy(from: &mut impl Read, to: &mut File, shown: &str, path: &Path) -> Result<(), ImageError> {
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(packed::damaged(shown, error)),
        };
        to.write_all(&buffer[..read]).map_err(ImageError::io("write", path))?;
    }
}
