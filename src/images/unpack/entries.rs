//! A layer's entries, read strictly: only what every reader understands the same way gets through.

use std::io::{self, Read, Seek};
use std::path::Path;

use tar::{Archive, EntryType};

use super::name::{Name, shown};
use super::pax::Pax;
use crate::{ImageError, ImageLimits};

/// The most bytes of one extended header; attributes of files can be 64 KiB each.
const PAX_BYTES: u64 = 1024 * 1024;
/// A target longer than this cannot be a link's (PATH_MAX with its end).
const TARGET_BYTES: usize = 4095;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// One entry, checked.
#[derive(Debug)]
pub(crate) struct Entry {
    pub name: Name,
    pub kind: Kind,
    /// As recorded: permissions with set-id and sticky bits.
    pub mode: u32,
    /// Seconds since 1970.
    pub modified: i64,
    /// Extended attributes that are not kept.
    pub attributes: u64,
    /// Where its content starts in the archive.
    pub position: u64,
}

/// What an entry is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    /// With its size.
    File(u64),
    Symlink(Vec<u8>),
    HardLink(Name),
    /// `name` removes what lower layers have there.
    Whiteout,
    /// `name` shows nothing of lower layers.
    Opaque,
    /// Never made.
    Device,
    /// Never made.
    Fifo,
}

/// Calls `visit` with every entry of an archive and, for files, its content, which may be left unread.
pub(crate) fn each<R: Read>(
    reader: R,
    object: &str,
    limits: &ImageLimits,
    visit: &mut dyn FnMut(Entry, &mut dyn Read) -> Result<(), ImageError>,
) -> Result<(), ImageError> {
    let mut archive = Archive::new(reader);
    let entries = archive.entries().map_err(|error| unreadable(object, error))?;
    run(entries, object, limits, visit)?;
    only_zeros(archive.into_inner(), object)
}

/// As [`each`] for a file, whose contents are jumped over where they are left unread.
pub(crate) fn each_in_file<R: Read + Seek>(
    file: R,
    object: &str,
    limits: &ImageLimits,
    visit: &mut dyn FnMut(Entry, &mut dyn Read) -> Result<(), ImageError>,
) -> Result<(), ImageError> {
    let mut archive = Archive::new(file);
    let entries = archive.entries_with_seek().map_err(|error| unreadable(object, error))?;
    run(entries, object, limits, visit)?;
    only_zeros(archive.into_inner(), object)
}

fn run<R: Read>(
    entries: tar::Entries<'_, R>,
    object: &str,
    limits: &ImageLimits,
    visit: &mut dyn FnMut(Entry, &mut dyn Read) -> Result<(), ImageError>,
) -> Result<(), ImageError> {
    let unreadable = |error: io::Error| unreadable(object, error);
    let mut extension = Extension::default();
    for entry in entries.raw(true) {
        let mut entry = entry.map_err(unreadable)?;
        if extension.take(&mut entry, object, limits)? {
            continue;
        }
        let mut checked = check(entry.header(), std::mem::take(&mut extension), limits)
            .map_err(|(name, what)| ImageError::refused(format!("{object}: entry {name}"), what))?;
        checked.position = entry.raw_file_position();
        visit(checked, &mut entry)?;
    }
    if extension != Extension::default() {
        return Err(ImageError::refused(object, "it ends after a header that belongs to an entry"));
    }
    Ok(())
}

/// What could follow the end of one reader's archive is another reader's content.
fn only_zeros(mut rest: impl Read, object: &str) -> Result<(), ImageError> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = rest.read(&mut buffer).map_err(|error| unreadable(object, error))?;
        if read == 0 {
            return Ok(());
        }
        if buffer[..read].iter().any(|&byte| byte != 0) {
            return Err(ImageError::refused(object, "something follows the end of the archive"));
        }
    }
}

/// An error while reading is the archive's fault, unless a reader below says more.
fn unreadable(object: &str, error: io::Error) -> ImageError {
    match error.downcast::<ImageError>() {
        Ok(own) => own,
        Err(error) if error.raw_os_error().is_some() => {
            ImageError::io("read", Path::new(object))(error)
        }
        Err(error) => {
            ImageError::refused(object, format!("it is damaged or no tar archive ({error})"))
        }
    }
}

/// Headers that say something about the next entry.
#[derive(Debug, Default, PartialEq, Eq)]
struct Extension {
    pax: Option<Pax>,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

impl Extension {
    /// Whether the entry was such a header.
    fn take<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        object: &str,
        limits: &ImageLimits,
    ) -> Result<bool, ImageError> {
        let kind = entry.header().entry_type();
        let refuse = |what: &str| Err(ImageError::refused(object, what));
        // A NUL ends GNU's long names.
        let long = (limits.name_bytes as u64).saturating_add(1);
        match kind {
            EntryType::XHeader if self.pax.is_some() => {
                return refuse("it has two extended headers for one entry");
            }
            EntryType::XHeader => {
                let bytes = content(entry, PAX_BYTES, object)?;
                let pax = Pax::parse(&bytes).map_err(|what| ImageError::refused(object, what))?;
                self.pax = Some(pax);
            }
            EntryType::GNULongName if self.name.is_some() => {
                return refuse("it has two long names for one entry");
            }
            EntryType::GNULongLink if self.link.is_some() => {
                return refuse("it has two long targets for one entry");
            }
            EntryType::GNULongName => self.name = Some(text(content(entry, long, object)?)),
            EntryType::GNULongLink => self.link = Some(text(content(entry, long, object)?)),
            EntryType::XGlobalHeader => {
                return refuse(
                    "it has a global extended header, which readers understand differently",
                );
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn content<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    most: u64,
    object: &str,
) -> Result<Vec<u8>, ImageError> {
    let size = entry.size();
    if size > most {
        let what = format!("a header of it has {size} bytes, and {most} are allowed");
        return Err(ImageError::refused(object, what));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(|error| unreadable(object, error))?;
    if bytes.len() as u64 == size {
        return Ok(bytes);
    }
    Err(ImageError::refused(object, "it ends within a header"))
}

/// Without the NUL that ends it.
fn text(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes
}

/// A header and what was said about it before, to an entry; else its name and the reason.
fn check(
    header: &tar::Header,
    extension: Extension,
    limits: &ImageLimits,
) -> Result<Entry, (String, String)> {
    let Extension { pax, name, link } = extension;
    let pax = pax.unwrap_or_default();
    let one = |pax: Option<Vec<u8>>, gnu: Option<Vec<u8>>| match (pax, gnu) {
        (Some(pax), Some(gnu)) if pax != gnu => Err("its headers disagree".to_owned()),
        (pax, gnu) => Ok(pax.or(gnu)),
    };
    let own_name = header.path_bytes().into_owned();
    let raw = one(pax.path, name).map_err(|what| (shown(&own_name), what))?.unwrap_or(own_name);
    let refuse = |what: String| (shown(&raw), what);
    let link = one(pax.link, link).map_err(refuse)?;
    let size = header.entry_size().map_err(|error| refuse(error.to_string()))?;
    if pax.size.is_some_and(|said| said != size) {
        return Err(refuse("its headers disagree about its size".to_owned()));
    }
    let link = || {
        let link = link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        link.filter(|link| !link.is_empty()).ok_or_else(|| "it is a link to nothing".to_owned())
    };
    let kind = kind(header.entry_type(), size, &raw, link, limits).map_err(refuse)?;
    let name = Name::parse(&raw, limits).map_err(refuse)?;
    let (name, kind) = whiteout(name, kind, limits).map_err(refuse)?;
    let mode = header.mode().map_err(|error| refuse(error.to_string()))? & 0o7777;
    let modified = match pax.modified {
        Some(modified) => modified,
        None => header.mtime().map_err(|error| refuse(error.to_string()))? as i64,
    };
    Ok(Entry { name, kind, mode, modified, attributes: pax.attributes, position: 0 })
}

fn kind(
    kind: EntryType,
    size: u64,
    raw: &[u8],
    link: impl FnOnce() -> Result<Vec<u8>, String>,
    limits: &ImageLimits,
) -> Result<Kind, String> {
    let kind = match kind {
        EntryType::Regular | EntryType::Continuous if raw.ends_with(b"/") => {
            return Err("it is a file with the name of a directory".to_owned());
        }
        EntryType::Regular | EntryType::Continuous => return Ok(Kind::File(size)),
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => match link()? {
            target if target.len() > TARGET_BYTES || target.contains(&0) => {
                return Err("it is a link to what cannot be a path".to_owned());
            }
            target => Kind::Symlink(target),
        },
        EntryType::Link => {
            let target = Name::parse(&link()?, limits);
            Kind::HardLink(
                target.map_err(|what| format!("it is a hard link, and of its target, {what}"))?,
            )
        }
        EntryType::Char | EntryType::Block => Kind::Device,
        EntryType::Fifo => Kind::Fifo,
        EntryType::GNUSparse => return Err("it is sparse".to_owned()),
        other => {
            let byte = [other.as_byte()];
            return Err(format!("it is of the unknown type {}", shown(&byte)));
        }
    };
    // Some readers take the content for headers then, and others skip it.
    if size > 0 {
        return Err("it has a content and is no file".to_owned());
    }
    Ok(kind)
}

/// Names that say what is not there.
fn whiteout(name: Name, kind: Kind, limits: &ImageLimits) -> Result<(Name, Kind), String> {
    let (directory, base) = name.split();
    if directory.split(|&byte| byte == b'/').any(|part| part.starts_with(WHITEOUT)) {
        return Err("it stands in a directory with the name of a whiteout".to_owned());
    }
    let Some(hidden) = base.strip_prefix(WHITEOUT) else { return Ok((name, kind)) };
    if kind != Kind::File(0) {
        return Err("it has the name of a whiteout and is no empty file".to_owned());
    }
    if base == OPAQUE {
        return Ok((name.parent(), Kind::Opaque));
    }
    if matches!(hidden, b"" | b"." | b"..") || hidden.starts_with(WHITEOUT) {
        return Err("it is a whiteout of nothing".to_owned());
    }
    let hidden = name.parent().join(hidden);
    let hidden = Name::parse(hidden.bytes(), limits)?;
    Ok((hidden, Kind::Whiteout))
}
