//! A site in a temporary directory of the machine's file system.
//!
//! A crash is emulated: the directory is copied as it stands at one moment while the engine still runs, and the copy is
//! what is opened next. So whatever the engine holds in its own memory is lost; what it handed to the operating system
//! is kept, synced or not. (Losing unsynced bytes as well takes the simulated file system, see `faults`.)

#![allow(
    clippy::disallowed_methods,
    reason = "looks at an engine's files from outside the engine"
)]

use crate::fixture::Site;
use crate::gate::Gate;
use engine::{Backup, CloseMode, Engine, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use vfs::{Env, RealFs, SystemClock, SystemRandom, WatchedFs};

/// A temporary directory and how to open an engine in it.
pub struct RealSite {
    root: TempDir,
    /// Rises with each crash; names the directory in use.
    generation: u64,
    fs: Arc<WatchedFs<Gate>>,
    open: fn(&Env, &Path) -> Result<Arc<dyn Engine>>,
}

impl RealSite {
    /// An empty directory.
    pub fn new(open: fn(&Env, &Path) -> Result<Arc<dyn Engine>>) -> Self {
        let site = Self {
            root: TempDir::new().unwrap(),
            generation: 0,
            fs: Arc::new(WatchedFs::new(Arc::new(RealFs::new()), Gate::default())),
            open,
        };
        fs::create_dir(site.directory()).unwrap();
        site
    }

    fn directory(&self) -> PathBuf {
        self.root.path().join(self.generation.to_string())
    }

    fn env(&self) -> Env {
        Env {
            fs: self.fs.clone(),
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom::new()),
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect_files(&self.directory(), &mut found);
        found.sort();
        found
    }
}

impl Site for RealSite {
    fn open(&self) -> Result<Arc<dyn Engine>> {
        (self.open)(&self.env(), &self.directory())
    }

    fn crash(&mut self, engine: Arc<dyn Engine>) {
        let before = self.directory();
        self.generation += 1;
        {
            let _shut = self.fs.watch().shut();
            copy_live_directory(&before, &self.directory());
        }
        let _ = engine.close(CloseMode::Abandon);
        drop(engine);
        fs::remove_dir_all(before).unwrap();
    }

    fn restore(&self, backup: &dyn Backup) -> Box<dyn Site> {
        let target = Self::new(self.open);
        let source = self.directory().join(backup.root());
        for (name, bytes) in backup.files() {
            let to = target.directory().join(&name);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            let content = fs::read(source.join(&name)).unwrap();
            fs::write(to, &content[..bytes as usize]).unwrap();
        }
        Box::new(target)
    }

    fn flip_bit(&self, choice: u64) -> bool {
        let files: Vec<(PathBuf, u64)> = self
            .files()
            .into_iter()
            .map(|path| (path.clone(), fs::metadata(path).unwrap().len()))
            .filter(|file| file.1 > 0)
            .collect();
        let total: u64 = files.iter().map(|file| file.1).sum();
        if total == 0 {
            return false;
        }
        let mut position = choice % (total * 8);
        for (path, bytes) in files {
            if position < bytes * 8 {
                let mut content = fs::read(&path).unwrap();
                content[(position / 8) as usize] ^= 1 << (position % 8);
                fs::write(path, content).unwrap();
                break;
            }
            position -= bytes * 8;
        }
        true
    }

    fn bytes_on_disk(&self) -> u64 {
        self.files()
            .iter()
            .filter_map(|path| fs::metadata(path).ok())
            .map(|metadata| metadata.len())
            .sum()
    }
}

fn collect_files(directory: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect_files(&entry.path(), found),
            Ok(_) => found.push(entry.path()),
            Err(_) => {}
        }
    }
}

/// Hard-links nothing and follows nothing: a plain copy. Again from the start when a file of an engine that opens them
/// by itself comes or goes in between, since a crash shows one moment and not two.
fn copy_live_directory(from: &Path, to: &Path) {
    while !try_copy(from, to) {
        fs::remove_dir_all(to).unwrap();
    }
}

fn try_copy(from: &Path, to: &Path) -> bool {
    fs::create_dir_all(to).unwrap();
    let mut files = Vec::new();
    collect_files(from, &mut files);
    let listed = files.clone();
    for path in files {
        let target = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        if fs::copy(&path, target).is_err() {
            return false;
        }
    }
    let mut again = Vec::new();
    collect_files(from, &mut again);
    again == listed
}
