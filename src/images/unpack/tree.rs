//! What every layer has put where: decides what an entry means, before anything is done.
//!
//! The tree is the only judge of what stands at a name; nothing is looked up on disk. Each name knows
//! the layer that it is from, so that a whiteout hides lower layers alone, wherever it stands in its own.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;

use super::{Entry, File, Kind, Name, Sink, directory_mode};
use sha2::{Digest as _, Sha256};

use crate::{ImageError, ImageLimits};

/// The permissions of a directory that no entry names.
const IMPLIED: u32 = 0o755;
/// Bytes that the last parts of all names may have together: so many for each entry that is allowed.
/// Ordinary images have a third of it.
const NAME_BYTES: u64 = 64;
const TWICE: &str = "its name is there twice in one layer";

/// All layers so far.
#[derive(Debug)]
pub(crate) struct Tree {
    limits: ImageLimits,
    root: Directory,
    /// The last layer with an entry for the root itself.
    root_layer: u32,
    /// Counted from 1.
    layer: u32,
    /// The layer's name in messages.
    object: String,
    entries: u64,
    /// Bytes of all names that were ever put in.
    name_bytes: u64,
    /// The digests of what the layer has hidden: that a name is hidden twice is a duplicate too.
    hidden: HashSet<[u8; 32]>,
}

#[derive(Debug)]
pub(crate) struct Directory {
    pub mode: u32,
    pub children: BTreeMap<Box<[u8]>, Node>,
}

/// What stands at a name.
#[derive(Debug)]
pub(crate) struct Node {
    /// The last layer with an entry of this name.
    layer: u32,
    /// The last layer that has put something here or below.
    newest: u32,
    /// No entry names it: others stand below it.
    implied: bool,
    pub kind: NodeKind,
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    Directory(Directory),
    /// With what the sink remembers of it.
    File(u32),
    Symlink(u32),
}

impl Tree {
    pub fn new(limits: ImageLimits) -> Self {
        Self {
            limits,
            root: Directory { mode: IMPLIED, children: BTreeMap::new() },
            root_layer: 0,
            layer: 0,
            object: String::new(),
            entries: 0,
            name_bytes: 0,
            hidden: HashSet::new(),
        }
    }

    pub fn root(&self) -> &Directory {
        &self.root
    }

    pub fn start_layer(&mut self, object: &str) -> ImageLimits {
        self.layer += 1;
        object.clone_into(&mut self.object);
        self.hidden.clear();
        self.limits
    }

    /// One entry of the layer.
    pub fn entry<S: Sink>(
        &mut self,
        sink: &mut S,
        entry: Entry,
        content: &mut dyn Read,
    ) -> Result<(), ImageError> {
        self.count(&entry.name)?;
        let Entry { name, kind, mode, modified, .. } = entry;
        match kind {
            Kind::Device | Kind::Fifo => Ok(()),
            Kind::Opaque => self.hide(sink, &name, true),
            Kind::Whiteout => self.hide(sink, &name, false),
            Kind::Directory => self.directory(sink, &name, mode),
            Kind::File(size) => {
                self.clear_for_leaf(sink, &name)?;
                let file = File { mode, modified, size };
                let id = sink.file(&name, &file, content)?;
                self.put(&name, NodeKind::File(id));
                Ok(())
            }
            Kind::Symlink(target) => {
                self.clear_for_leaf(sink, &name)?;
                let id = sink.symlink(&name, &target)?;
                self.put(&name, NodeKind::Symlink(id));
                Ok(())
            }
            Kind::HardLink(target) => self.hard_link(sink, &name, &target),
        }
    }

    /// Makes the directories that a jail mounts over, and gives every directory its permissions.
    pub fn finish<S: Sink>(
        &mut self,
        sink: &mut S,
        mount_points: &[&str],
    ) -> Result<(), ImageError> {
        // What they replace must be there without being any layer's own.
        self.layer += 1;
        for point in mount_points {
            let name = Name::parse(point.trim_start_matches('/').as_bytes(), &self.limits)
                .map_err(|what| self.refused(&Name::root(), &what))?;
            if self.get(&name).is_some_and(|node| !matches!(node.kind, NodeKind::Directory(_))) {
                return Err(self.refused(&name, "a jail mounts there, so it must be a directory"));
            }
            self.enter(sink, &name)?;
        }
        finish_directories(&self.root, &Name::root(), sink)
    }

    fn directory<S: Sink>(
        &mut self,
        sink: &mut S,
        name: &Name,
        mode: u32,
    ) -> Result<(), ImageError> {
        let mode = directory_mode(mode);
        if name.is_root() {
            if self.root_layer == self.layer {
                return Err(self.refused(name, TWICE));
            }
            self.root_layer = self.layer;
            self.root.mode = mode;
            return Ok(());
        }
        let layer = self.layer;
        if let Some(node) = self.get(name) {
            let own = node.layer == layer && !node.implied;
            let directory = matches!(node.kind, NodeKind::Directory(_));
            if own || (node.layer == layer && !directory) {
                return Err(self.refused(name, TWICE));
            }
            if !directory {
                self.remove(sink, name)?;
            }
        }
        self.enter(sink, name)?;
        self.touch(name);
        if let Some(node) = self.get_mut(name) {
            node.layer = layer;
            node.implied = false;
            if let NodeKind::Directory(directory) = &mut node.kind {
                directory.mode = mode;
            }
        }
        Ok(())
    }

    fn hard_link<S: Sink>(
        &mut self,
        sink: &mut S,
        name: &Name,
        target: &Name,
    ) -> Result<(), ImageError> {
        if name == target {
            return Err(self.refused(name, "it is a hard link to itself"));
        }
        let kind = match self.get(target).map(|node| &node.kind) {
            Some(NodeKind::File(id)) => NodeKind::File(*id),
            Some(NodeKind::Symlink(id)) => NodeKind::Symlink(*id),
            Some(NodeKind::Directory(_)) => {
                return Err(self.refused(name, "it is a hard link to a directory"));
            }
            None => return Err(self.refused(name, "it is a hard link to what is not there")),
        };
        self.clear_for_leaf(sink, name)?;
        // What made room may have been the target's own directory.
        if self.get(target).is_none() {
            return Err(self.refused(name, "it is a hard link to what it replaces"));
        }
        sink.link(name, target)?;
        self.put(name, kind);
        Ok(())
    }

    /// Makes the directory of `name`, and takes away what lower layers have at `name` itself.
    fn clear_for_leaf<S: Sink>(&mut self, sink: &mut S, name: &Name) -> Result<(), ImageError> {
        if name.is_root() {
            return Err(self.refused(name, "the root must be a directory"));
        }
        self.enter(sink, &name.parent())?;
        let layer = self.layer;
        match self.get(name) {
            None => Ok(()),
            Some(node) if node.newest == layer => Err(self.refused(name, TWICE)),
            Some(_) => self.remove(sink, name),
        }
    }

    /// Makes the directory `name` and all above it where they are missing.
    fn enter<S: Sink>(&mut self, sink: &mut S, name: &Name) -> Result<(), ImageError> {
        let mut at = Name::root();
        for part in name.parts() {
            at = at.join(part);
            match self.get(&at) {
                Some(Node { kind: NodeKind::Directory(_), .. }) => continue,
                Some(node) if node.layer == self.layer => {
                    return Err(
                        self.refused(name, "a directory of it is a link or file in this layer")
                    );
                }
                // A lower layer's link is replaced, never followed.
                Some(_) => self.remove(sink, &at)?,
                None => {}
            }
            self.count(&at)?;
            sink.directory(&at)?;
            let directory = Directory { mode: IMPLIED, children: BTreeMap::new() };
            self.put(&at, NodeKind::Directory(directory));
            if let Some(node) = self.get_mut(&at) {
                node.implied = true;
            }
        }
        Ok(())
    }

    /// A whiteout: what lower layers have at `name`, or within it, is gone.
    fn hide<S: Sink>(&mut self, sink: &mut S, name: &Name, within: bool) -> Result<(), ImageError> {
        let marker = if within { name.join(b".wh..wh..opq") } else { name.clone() };
        if !self.hidden.insert(Sha256::digest(marker.bytes()).into()) {
            return Err(self.refused(name, "it is hidden twice in one layer"));
        }
        let mut at = Name::root();
        let directories = if within { name.clone() } else { name.parent() };
        for part in directories.parts() {
            at = at.join(part);
            match self.get(&at) {
                None => return Ok(()),
                Some(Node { kind: NodeKind::Directory(_), .. }) => {}
                Some(_) => {
                    return Err(self.refused(name, "a whiteout stands below a link or file"));
                }
            }
        }
        let layer = self.layer;
        let directory = if within {
            self.directory_mut(name)
        } else {
            match self.get_mut(name) {
                Some(node) if node.newest < layer => return self.remove(sink, name),
                Some(Node { kind: NodeKind::Directory(directory), .. }) => Some(directory),
                _ => None,
            }
        };
        directory.map_or(Ok(()), |directory| remove_older(directory, name, layer, sink))
    }

    /// Takes away what stands at `name`, all of it.
    fn remove<S: Sink>(&mut self, sink: &mut S, name: &Name) -> Result<(), ImageError> {
        let (_, base) = name.split();
        let Some(node) = self.directory_mut(&name.parent()).and_then(|d| d.children.remove(base))
        else {
            return Ok(());
        };
        remove_all(&node, name, sink)
    }

    fn put(&mut self, name: &Name, kind: NodeKind) {
        let layer = self.layer;
        let (_, base) = name.split();
        if let Some(directory) = self.directory_mut(&name.parent()) {
            let node = Node { layer, newest: layer, implied: false, kind };
            directory.children.insert(base.into(), node);
        }
        self.touch(name);
    }

    /// Notes that this layer has put something at `name`, and so below all directories above it.
    fn touch(&mut self, name: &Name) {
        let layer = self.layer;
        let mut directory = &mut self.root;
        for part in name.parts() {
            let Some(node) = directory.children.get_mut(part) else { return };
            node.newest = layer;
            match &mut node.kind {
                NodeKind::Directory(next) => directory = next,
                _ => return,
            }
        }
    }

    fn get(&self, name: &Name) -> Option<&Node> {
        let (above, base) = name.split();
        let mut directory = &self.root;
        for part in above.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
            match &directory.children.get(part)?.kind {
                NodeKind::Directory(next) => directory = next,
                _ => return None,
            }
        }
        directory.children.get(base)
    }

    fn get_mut(&mut self, name: &Name) -> Option<&mut Node> {
        let (_, base) = name.split();
        self.directory_mut(&name.parent())?.children.get_mut(base)
    }

    fn directory_mut(&mut self, name: &Name) -> Option<&mut Directory> {
        let mut directory = &mut self.root;
        for part in name.parts() {
            match &mut directory.children.get_mut(part)?.kind {
                NodeKind::Directory(next) => directory = next,
                _ => return None,
            }
        }
        Some(directory)
    }

    fn count(&mut self, name: &Name) -> Result<(), ImageError> {
        self.entries += 1;
        self.name_bytes += name.split().1.len() as u64;
        let limit = if self.entries > self.limits.entries {
            format!("{} entries", self.limits.entries)
        } else if self.name_bytes > self.limits.entries.saturating_mul(NAME_BYTES) {
            format!("{} bytes in all names", self.limits.entries * NAME_BYTES)
        } else {
            return Ok(());
        };
        Err(ImageError::Limit { object: self.object.clone(), limit, setting: "max_entries" })
    }

    fn refused(&self, name: &Name, what: &str) -> ImageError {
        ImageError::refused(format!("{}: entry {name}", self.object), what)
    }
}

/// Takes a node away that is no longer in the tree, deepest names first.
fn remove_all<S: Sink>(node: &Node, name: &Name, sink: &mut S) -> Result<(), ImageError> {
    let NodeKind::Directory(directory) = &node.kind else { return sink.remove(name, false) };
    for (part, child) in &directory.children {
        remove_all(child, &name.join(part), sink)?;
    }
    sink.remove(name, true)
}

/// Takes everything out of a directory that is older than `layer`; directories that newer entries stand
/// in stay for them.
fn remove_older<S: Sink>(
    directory: &mut Directory,
    name: &Name,
    layer: u32,
    sink: &mut S,
) -> Result<(), ImageError> {
    let mut result = Ok(());
    directory.children.retain(|part, child| {
        if result.is_err() {
            return true;
        }
        let at = name.join(part);
        if child.newest < layer {
            result = remove_all(child, &at, sink);
            return false;
        }
        if let NodeKind::Directory(directory) = &mut child.kind {
            result = remove_older(directory, &at, layer, sink);
        }
        true
    });
    result
}

fn finish_directories<S: Sink>(
    directory: &Directory,
    name: &Name,
    sink: &mut S,
) -> Result<(), ImageError> {
    for (part, child) in &directory.children {
        if let NodeKind::Directory(directory) = &child.kind {
            finish_directories(directory, &name.join(part), sink)?;
        }
    }
    sink.finish_directory(name, directory.mode)
}
