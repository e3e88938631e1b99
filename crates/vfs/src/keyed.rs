//! A file system with the keys under which the files in it are sealed.

use crate::{Access, DirectoryLock, File, FileSystem, Space};
use crypt::Keys;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the module. Bytes pass as they are: whoever frames and checks them seals them, too.
pub struct KeyedFs {
    below: Arc<dyn FileSystem>,
    keys: Arc<Keys>,
}

impl KeyedFs {
    /// `below`, with these keys.
    pub fn new(below: Arc<dyn FileSystem>, keys: Arc<Keys>) -> Self {
        Self { below, keys }
    }
}

impl FileSystem for KeyedFs {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.below.open(path, access)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.below.remove_file(path)
    }

    fn remove_directory_all(&self, path: &Path) -> Result<()> {
        self.below.remove_directory_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.rename(from, to)
    }

    fn create_directory_all(&self, path: &Path) -> Result<()> {
        self.below.create_directory_all(path)
    }

    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        self.below.list(directory)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.below.exists(path)
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        self.below.sync_directory(directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirectoryLock>> {
        self.below.lock(path)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.below.space(path)
    }

    fn check_descriptors(&self) -> Result<()> {
        self.below.check_descriptors()
    }

    fn keys(&self) -> Option<&Arc<Keys>> {
        Some(&self.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OverlayFs, SimulatedFs, Watch, WatchedFs};

    struct Nobody;

    impl Watch for Nobody {
        type Held<'w> = ();

        fn change(&self) {}

        fn sync(&self) {}
    }

    /// A wrapper that forgot them would have plain text written.
    #[test]
    fn every_wrapper_hands_the_keys_on() {
        let keys = Arc::new(Keys::ephemeral());
        let plain: Arc<dyn FileSystem> = Arc::new(SimulatedFs::new(1));
        assert!(plain.keys().is_none());
        let keyed: Arc<dyn FileSystem> = Arc::new(KeyedFs::new(plain, keys.clone()));
        let watched = WatchedFs::new(keyed.clone(), Nobody);
        let overlay = OverlayFs::new(keyed.clone());
        for fs in [&*keyed, &watched, &overlay] {
            assert!(fs.keys().is_some_and(|found| Arc::ptr_eq(found, &keys)));
        }
    }
}
