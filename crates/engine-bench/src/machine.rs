//! What the machine is, what this process has used, what files take, and ways to keep the page cache out of a
//! measurement.

use anyhow::{Context, Result};
use rustix::fs::Advice;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a process has used since it started, background threads included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// User and system time of all threads.
    pub cpu: Duration,
    /// Bytes written to files that need not be in memory: pages made dirty, or written past the page cache.
    pub written_bytes: u64,
    /// Bytes fetched from the disk.
    pub read_bytes: u64,
    /// Calls of the system that read: of files, whether the disk was asked or not.
    pub read_calls: u64,
}

impl Usage {
    /// Of this process, now. Without the right to look at `/proc/self/io` bytes are 0.
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        Self {
            cpu: Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32),
            written_bytes: field(&io, "write_bytes:"),
            read_bytes: field(&io, "read_bytes:"),
            read_calls: field(&io, "syscr:"),
        }
    }

    /// What was used since `before`.
    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(before.cpu),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            read_calls: self.read_calls.saturating_sub(before.read_calls),
        }
    }
}

/// The number behind a word at the start of a line; 0 when it is missing.
fn field(text: &str, name: &str) -> u64 {
    let number = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

/// The most memory this process has had resident, in bytes.
pub fn peak_resident_bytes() -> u64 {
    field(&fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmHWM:") * 1024
}

/// Memory that programs can get without anybody losing pages that are in use, in bytes.
pub fn available_bytes() -> u64 {
    field(
        &fs::read_to_string("/proc/meminfo").unwrap_or_default(),
        "MemAvailable:",
    ) * 1024
}

/// Blocks that a file or everything below a folder takes, in bytes; what vanishes meanwhile counts nothing.
pub fn disk_bytes(path: &Path) -> u64 {
    files_below(path)
        .iter()
        .filter_map(|file| fs::metadata(file).ok())
        .map(|metadata| metadata.blocks() * 512)
        .sum()
}

/// The files below a path, or the path itself when it is a file.
pub fn files_below(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return if path.is_file() { vec![path.into()] } else { Vec::new() };
    };
    entries.flatten().flat_map(|entry| files_below(&entry.path())).collect()
}

/// Asks the kernel to forget the cached pages of all files below a folder; written back first when `sync` says so
/// (pages that are not on disk cannot be forgotten). Answers how many files could not be asked for.
pub fn drop_page_cache(directory: &Path, sync: bool) -> usize {
    let drop_one = |path: &PathBuf| -> Result<()> {
        let file = File::open(path)?;
        if sync {
            file.sync_all()?;
        }
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(())
    };
    files_below(directory)
        .iter()
        .filter(|path| drop_one(path).is_err())
        .count()
}

/// Limits the memory of this process, page cache included, by a cgroup that the user prepared and may write to (version
/// 1 or 2, without other processes); then moves the process into it.
pub fn join_memory_group(group: &Path, limit_bytes: u64) -> Result<()> {
    let version_2 = group.join("memory.max");
    let limit = if version_2.exists() {
        version_2
    } else {
        group.join("memory.limit_in_bytes")
    };
    fs::write(&limit, limit_bytes.to_string()).with_context(|| format!("writing {}", limit.display()))?;
    let processes = group.join("cgroup.procs");
    fs::write(&processes, std::process::id().to_string()).with_context(|| format!("writing {}", processes.display()))
}

/// What a report says about the machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Logical processors.
    pub processors: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Type of the file system that holds the data.
    pub file_system: String,
    /// Load of the last minute when the session began.
    pub load: f64,
}

impl Machine {
    /// This machine; what cannot be found out stays empty.
    pub fn describe(directory: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned()));
        Self {
            processor: processor.unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, |n| n.get()),
            memory_bytes: field(&read("/proc/meminfo"), "MemTotal:") * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system(&read("/proc/mounts"), directory),
            load: load(),
        }
    }
}

/// Load of the last minute.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0.0)
}

/// Type of the longest mount point above a folder.
fn file_system(mounts: &str, directory: &Path) -> String {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mut best = (0, String::new());
    for line in mounts.lines() {
        let mut words = line.split_ascii_whitespace().skip(1);
        if let (Some(point), Some(kind)) = (words.next(), words.next())
            && directory.starts_with(point)
            && point.len() >= best.0
        {
            best = (point.len(), kind.to_owned());
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        assert_eq!(field("rchar: 5\nwrite_bytes: 4096\n", "write_bytes:"), 4096);
        assert_eq!(field("VmHWM:\t  123 kB\n", "VmHWM:"), 123);
        assert_eq!(field("nothing", "VmHWM:"), 0);
    }

    #[test]
    fn the_innermost_mount_tells_the_file_system() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /usr tmpfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/usr/lib")), "tmpfs");
        assert_eq!(file_system(mounts, Path::new("/nowhere")), "ext4");
    }

    #[test]
    fn a_memory_group_gets_limit_and_process() {
        let group = tempfile::tempdir().unwrap();
        join_memory_group(group.path(), 1 << 20).unwrap();
        let read = |name: &str| fs::read_to_string(group.path().join(name)).unwrap();
        assert_eq!(read("memory.limit_in_bytes"), "1048576");
        assert_eq!(read("cgroup.procs"), std::process::id().to_string());
        fs::write(group.path().join("memory.max"), "max").unwrap();
        join_memory_group(group.path(), 2 << 20).unwrap();
        assert_eq!(read("memory.max"), "2097152");
    }

    #[test]
    fn space_of_files_is_counted_in_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("below");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("file"), vec![1; 100_000]).unwrap();
        assert_eq!(drop_page_cache(directory.path(), true), 0);
        let bytes = disk_bytes(directory.path());
        assert!((100_000..=200_000).contains(&bytes), "{bytes}");
    }
}
