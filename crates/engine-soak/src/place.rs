//! Where an engine lives: a simulated disk, or a directory of the machine.

use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Env, FileSystem, RealFs, SeededRandom, SimulatedClock, SimulatedFs, SystemClock};

/// See the module.
pub enum Place {
    /// A disk in memory, which loses what was not synced.
    Simulated(SimulatedFs),
    /// A directory; a crash keeps what was written, synced or not.
    Real {
        /// Holds one directory for each crash, and copies of backups.
        root: PathBuf,
        /// Rises with each crash.
        generation: u64,
    },
}

impl Place {
    /// A disk in memory.
    pub fn simulated(seed: u64) -> Self {
        let fs = SimulatedFs::new(seed);
        fs.create_directory_all(Path::new("/data")).unwrap();
        fs.sync_directory(Path::new("/")).unwrap();
        Self::Simulated(fs)
    }

    /// A directory that exists.
    pub fn real(root: PathBuf) -> Self {
        let place = Self::Real { root, generation: 0 };
        place.env().fs.create_directory_all(&place.directory()).unwrap();
        place
    }

    /// The engine's directory.
    pub fn directory(&self) -> PathBuf {
        match self {
            Self::Simulated(_) => PathBuf::from("/data"),
            Self::Real { root, generation } => root.join(generation.to_string()),
        }
    }

    /// A directory beside it.
    pub fn directory_beside(&self, name: &str) -> PathBuf {
        match self {
            Self::Simulated(_) => Path::new("/").join(name),
            Self::Real { root, .. } => root.join(name),
        }
    }

    /// Files and time.
    pub fn env(&self) -> Env {
        let random = Arc::new(SeededRandom::new(1));
        match self {
            Self::Simulated(fs) => Env {
                fs: Arc::new(fs.clone()),
                clock: Arc::new(SimulatedClock::new(0)),
                random,
            },
            Self::Real { .. } => Env {
                fs: Arc::new(RealFs::new()),
                clock: Arc::new(SystemClock::new()),
                random,
            },
        }
    }

    /// Whether the machine has stopped.
    pub fn has_crashed(&self) -> bool {
        match self {
            Self::Simulated(fs) => fs.has_crashed(),
            Self::Real { .. } => false,
        }
    }

    /// Loses what a crash loses. On a directory the engine must have been abandoned already; before that,
    /// `copy_for_crash` must have been called.
    pub fn restart(&mut self) {
        match self {
            Self::Simulated(fs) => fs.restart(),
            Self::Real { root, generation } => {
                let before = root.join(generation.to_string());
                *generation += 1;
                RealFs::new().remove_directory_all(&before).unwrap();
            }
        }
    }

    /// Keeps the files of a running engine as they are now, for the next `restart`.
    pub fn copy_for_crash(&self) {
        if let Self::Real { root, generation } = self {
            let fs = RealFs::new();
            let to = root.join((generation + 1).to_string());
            copy_tree(&fs, &self.directory(), &to).unwrap();
        }
    }
}

/// Copies a directory of files and directories.
pub fn copy_tree(fs: &dyn FileSystem, from: &Path, to: &Path) -> Result<()> {
    fs.create_directory_all(to)?;
    for name in fs.list(from)? {
        let (source, target) = (from.join(&name), to.join(&name));
        match fs.open(&source, Access::Read).and_then(|file| file.len()) {
            Ok(bytes) if fs.list(&source).is_err() => copy_file(fs, &source, &target, bytes)?,
            _ => copy_tree(fs, &source, &target)?,
        }
    }
    Ok(())
}

/// Copies the first bytes of a file.
pub fn copy_file(fs: &dyn FileSystem, from: &Path, to: &Path, bytes: u64) -> Result<()> {
    let mut content = vec![0; bytes as usize];
    fs.open(from, Access::Read)?.read_exact_at(&mut content, 0)?;
    let target = fs.open(to, Access::OpenOrCreate)?;
    target.set_len(0)?;
    target.write_all_at(&content, 0)
}
