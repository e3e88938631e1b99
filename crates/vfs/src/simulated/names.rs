//! The tree of names: as the running machine sees it, as the disk has it, and the changes between.
//!
//! Invariant: `durable` with every change of `unsynced` applied in order equals `live`.

use crate::{Random, SeededRandom};
use std::collections::{BTreeMap, HashSet};
use std::io::{Error, ErrorKind, Result};
use std::path::{Component, Path, PathBuf};

/// The root directory's number.
pub(super) const ROOT: u64 = 0;

/// A directory's number and a name in it.
type Key = (u64, String);

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Directory(u64),
    File(u64),
}

/// One atomic change: names and what they lead to afterwards.
#[derive(Clone)]
struct Change(Vec<(Key, Option<Node>)>);

type Tree = BTreeMap<Key, Node>;

/// The tree of names.
#[derive(Clone, Default)]
pub(super) struct Names {
    live: Tree,
    durable: Tree,
    unsynced: Vec<Change>,
}

pub(super) fn not_found(path: &Path) -> Error {
    Error::new(ErrorKind::NotFound, format!("{} does not exist", path.display()))
}

/// The names along a path, from the root.
fn parts(path: &Path) -> Result<Vec<String>> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "the simulated file system takes plain paths",
                ));
            }
        }
    }
    Ok(parts)
}

/// A path as an absolute one.
pub(super) fn absolute(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

impl Names {
    /// What a path leads to, if anything.
    pub fn find(&self, path: &Path) -> Result<Option<Node>> {
        let mut node = Node::Directory(ROOT);
        for part in parts(path)? {
            let Node::Directory(directory) = node else {
                return Ok(None);
            };
            match self.live.get(&(directory, part)) {
                Some(next) => node = *next,
                None => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// The directory a path leads to.
    pub fn directory(&self, path: &Path) -> Result<u64> {
        match self.find(path)?.ok_or_else(|| not_found(path))? {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// The file a path leads to.
    pub fn file(&self, path: &Path) -> Result<u64> {
        match self.find(path)?.ok_or_else(|| not_found(path))? {
            Node::File(inode) => Ok(inode),
            Node::Directory(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// The parent directory and the last name of a path.
    fn key(&self, path: &Path) -> Result<Key> {
        let name = parts(path)?.pop().ok_or_else(|| Error::from(ErrorKind::InvalidInput))?;
        Ok((self.directory(path.parent().unwrap_or(Path::new("/")))?, name))
    }

    fn change(&mut self, changes: Vec<(Key, Option<Node>)>) {
        let change = Change(changes);
        apply(&mut self.live, &change);
        self.unsynced.push(change);
    }

    /// Adds a name that must be free.
    pub fn add(&mut self, path: &Path, node: Node) -> Result<()> {
        let key = self.key(path)?;
        if self.live.contains_key(&key) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.change(vec![(key, Some(node))]);
        Ok(())
    }

    /// Removes the name of a file, and returns the file.
    pub fn remove_file(&mut self, path: &Path) -> Result<u64> {
        let inode = self.file(path)?;
        let key = self.key(path)?;
        self.change(vec![(key, None)]);
        Ok(inode)
    }

    /// Removes a directory and all below, name by name from the leaves up; the files are returned.
    pub fn remove_directory(&mut self, path: &Path) -> Result<Vec<u64>> {
        let root = self.directory(path)?;
        let root_key = self.key(path)?;
        let mut files = Vec::new();
        let mut order = vec![(root_key, Node::Directory(root))];
        let mut next = 0;
        while let Some((_, node)) = order.get(next) {
            if let Node::Directory(directory) = *node {
                let children: Vec<_> = self
                    .live
                    .range((directory, String::new())..)
                    .take_while(|((parent, _), _)| *parent == directory)
                    .collect();
                order.extend(children.into_iter().map(|(key, node)| (key.clone(), *node)));
            }
            next += 1;
        }
        for (key, node) in order.into_iter().rev() {
            if let Node::File(inode) = node {
                files.push(inode);
            }
            self.change(vec![(key, None)]);
        }
        Ok(files)
    }

    /// Renames; returns the file that was replaced.
    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<Option<u64>> {
        let node = self.find(from)?.ok_or_else(|| not_found(from))?;
        let (from_key, to_key) = (self.key(from)?, self.key(to)?);
        let replaced = match self.live.get(&to_key) {
            Some(Node::Directory(_)) => return Err(ErrorKind::AlreadyExists.into()),
            Some(Node::File(_)) if matches!(node, Node::Directory(_)) => {
                return Err(ErrorKind::NotADirectory.into());
            }
            Some(Node::File(inode)) => Some(*inode),
            None => None,
        };
        if absolute(to).starts_with(absolute(from)) && absolute(to) != absolute(from) {
            return Err(ErrorKind::InvalidInput.into());
        }
        if from_key == to_key {
            return Ok(None);
        }
        self.change(vec![(from_key, None), (to_key, Some(node))]);
        Ok(replaced)
    }

    /// Names in a directory, sorted.
    pub fn list(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let directory = self.directory(path)?;
        let children = self
            .live
            .range((directory, String::new())..)
            .take_while(|((parent, _), _)| *parent == directory);
        Ok(children.map(|((_, name), _)| PathBuf::from(name)).collect())
    }

    /// Makes the changes of a directory durable, and those they rest on.
    pub fn sync(&mut self, directory: u64) {
        let mut needed: Vec<bool> = vec![false; self.unsynced.len()];
        let mut keys: HashSet<&Key> = HashSet::new();
        for (index, Change(parts)) in self.unsynced.iter().enumerate().rev() {
            if parts.iter().any(|(key, _)| key.0 == directory || keys.contains(key)) {
                needed[index] = true;
                keys.extend(parts.iter().map(|(key, _)| key));
            }
        }
        let mut left = Vec::new();
        for (change, needed) in std::mem::take(&mut self.unsynced).into_iter().zip(needed) {
            if needed {
                apply(&mut self.durable, &change);
            } else {
                left.push(change);
            }
        }
        self.unsynced = left;
    }

    /// Each change survives by chance, unless an earlier one of the same name is lost.
    pub fn lose_unsynced(&mut self, random: &SeededRandom) {
        self.lose_unsynced_where(random, |_| true);
    }

    /// The same for the changes of one directory: the others stay unsynced.
    pub fn lose_unsynced_of(&mut self, directory: u64, random: &SeededRandom) {
        self.lose_unsynced_where(random, |change| {
            change.0.iter().any(|((parent, _), _)| *parent == directory)
        });
    }

    fn lose_unsynced_where(&mut self, random: &SeededRandom, concerned: impl Fn(&Change) -> bool) {
        let mut blocked: HashSet<Key> = HashSet::new();
        let mut left = Vec::new();
        for change in std::mem::take(&mut self.unsynced) {
            let follows = change.0.iter().any(|(key, _)| blocked.contains(key));
            if !concerned(&change) {
                blocked.extend(change.0.iter().map(|(key, _)| key.clone()));
                left.push(change);
            } else if follows || random.next_u64().is_multiple_of(2) {
                blocked.extend(change.0.into_iter().map(|(key, _)| key));
            } else {
                apply(&mut self.durable, &change);
            }
        }
        self.unsynced = left;
    }

    /// The machine starts again: it sees what the disk has.
    pub fn reload(&mut self) {
        self.unsynced.clear();
        self.live = self.durable.clone();
    }

    /// The files that have a name.
    pub fn files(&self) -> HashSet<u64> {
        let nodes = self.live.values().chain(self.durable.values());
        nodes
            .filter_map(|node| {
                if let Node::File(inode) = node {
                    Some(*inode)
                } else {
                    None
                }
            })
            .collect()
    }
}

fn apply(tree: &mut Tree, Change(parts): &Change) {
    for (key, node) in parts {
        match node {
            Some(node) => tree.insert(key.clone(), *node),
            None => tree.remove(key),
        };
    }
}
