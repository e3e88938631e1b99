//! Limits that the system puts on a server: memory and disk speed by a control group (version 2), and an empty page cache.
//!
//! None of them is certain to be allowed. Each function says what it could not do, in a sentence for the report.

use std::fs;
use std::path::{Path, PathBuf};

/// Where version 2 is mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Memory with the page cache of its files.
    pub memory_bytes: Option<u64>,
    /// Bytes per second from the disk.
    pub read_bytes_per_second: Option<u64>,
}

impl Wanted {
    /// True when there is something to limit.
    pub fn any(&self) -> bool {
        self.memory_bytes.is_some() || self.read_bytes_per_second.is_some()
    }
}

/// A control group of its own for a server. Dropping it removes it; the server must have ended.
#[derive(Debug)]
pub struct ControlGroup {
    path: PathBuf,
}

impl ControlGroup {
    /// Makes one with limits, next to the group of this process. `data`: the directory whose disk is limited.
    pub fn new(wanted: Wanted, data: &Path) -> Result<Self, String> {
        let root = Path::new(ROOT);
        let controllers = fs::read_to_string(root.join("cgroup.controllers"))
            .map_err(|_| "this machine has no control groups of version 2".to_owned())?;
        for (controller, needed) in [
            ("memory", wanted.memory_bytes.is_some()),
            ("io", wanted.read_bytes_per_second.is_some()),
        ] {
            if needed && !controllers.split_whitespace().any(|have| have == controller) {
                return Err(format!(
                    "the control groups of this machine have no controller {controller}"
                ));
            }
        }
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))
            .unwrap_or_default();
        let parent = root
            .join(own)
            .parent()
            .map_or_else(|| root.to_path_buf(), Path::to_path_buf);
        let parent = if parent.starts_with(root) {
            parent
        } else {
            root.to_path_buf()
        };
        let path = parent.join(format!("tenon-bench-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("no control group can be made: {error}"))?;
        let group = Self { path };
        if let Some(bytes) = wanted.memory_bytes {
            group.set("memory.max", &bytes.to_string())?;
        }
        if let Some(bytes) = wanted.read_bytes_per_second {
            use std::os::unix::fs::MetadataExt;
            let device = fs::metadata(data).map_err(|error| error.to_string())?.dev();
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            group.set("io.max", &format!("{major}:{minor} rbps={bytes}"))?;
        }
        Ok(group)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), String> {
        fs::write(self.path.join(name), value).map_err(|error| format!("{name} of a control group: {error}"))
    }

    /// Puts a process into it.
    pub fn add(&self, pid: u32) -> Result<(), String> {
        self.set("cgroup.procs", &pid.to_string())
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A group that still has a process stays; the next boot removes it.
        let _ = fs::remove_dir(&self.path);
    }
}

/// How the page cache was emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// All of the machine's, by `/proc/sys/vm/drop_caches`.
    Machine,
    /// The pages of the files of the directory, by `posix_fadvise`; the directory's own and the disk's stay.
    Files,
}

impl Emptied {
    /// In words, for the report.
    pub fn words(self) -> &'static str {
        match self {
            Emptied::Machine => "cold: the page cache was emptied by drop_caches",
            Emptied::Files => "cold: the files' pages were dropped by posix_fadvise, drop_caches is not allowed here",
        }
    }
}

/// Empties the page cache as well as is allowed here.
pub fn empty_page_cache(directory: &Path) -> Emptied {
    rustix::fs::sync();
    drop_file_pages(directory);
    match fs::write("/proc/sys/vm/drop_caches", "3\n") {
        Ok(()) => Emptied::Machine,
        Err(_) => Emptied::Files,
    }
}

/// Drops the clean pages of all files of a directory, those below it included. Returns the number of files.
pub fn drop_file_pages(directory: &Path) -> usize {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => drop_file_pages(&entry.path()),
            Ok(kind) if kind.is_file() => match fs::File::open(entry.path()) {
                Ok(file) => {
                    // A file system that cannot do it keeps its pages; the measured reads show that.
                    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                    1
                }
                Err(_) => 0,
            },
            _ => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_below_a_directory_are_dropped() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("inner")).expect("made");
        fs::write(directory.path().join("inner/a"), [1; 10_000]).expect("written");
        fs::write(directory.path().join("b"), [1; 10]).expect("written");
        assert_eq!(drop_file_pages(directory.path()), 2);
        assert_eq!(drop_file_pages(Path::new("/nonexistent")), 0);
    }
}
