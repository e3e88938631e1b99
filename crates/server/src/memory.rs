//! How much memory there is for this process: the machine's, or less where its control group says so.

use std::path::Path;
use vfs::{Access, FileSystem};

/// A longer file is not what we look for.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Memory in bytes.
pub fn bytes(fs: &dyn FileSystem) -> u64 {
    let system = rustix::system::sysinfo();
    let machine = u64::from(system.mem_unit).saturating_mul(system.totalram);
    let text = |path: &str| read_text(fs, Path::new(path));
    group_limit(&text).map_or(machine, |limit| limit.min(machine))
}

/// An engine's cache where nobody says how large it is to be, on a machine with so much memory: half of what exceeds
/// 1 GiB, as MongoDB's engines take it, and at least 256 MiB.
pub fn default_cache_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 2).saturating_sub(512 << 20).max(256 << 20)
}

/// The least limit of the process's control group and of those above it, version 2 or 1.
fn group_limit(text: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let groups = text("/proc/self/cgroup")?;
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) = (fields.next(), fields.next(), fields.next());
        let (root, file) = match controllers {
            Some("") => ("/sys/fs/cgroup", "memory.max"),
            Some(list) if list.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        // In a container the group's own path may lie outside of what is mounted: the root is then its own.
        let paths = Path::new(group.unwrap_or("/")).ancestors();
        paths
            .filter_map(|path| {
                let inner = path.to_str()?.trim_matches('/');
                let separator = if inner.is_empty() { "" } else { "/" };
                text(&format!("{root}{separator}{inner}/{file}"))?.trim().parse().ok()
            })
            .collect()
    });
    limits.min()
}

fn read_text(fs: &dyn FileSystem, path: &Path) -> Option<String> {
    let file = fs.open(path, Access::Read).ok()?;
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while text.len() < TEXT_BYTES_MAX {
        match file.read_at(&mut buffer, text.len() as u64).ok()? {
            0 => break,
            n => text.extend_from_slice(&buffer[..n]),
        }
    }
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        group_limit(&|path| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let groups = ("/proc/self/cgroup", "0::/a/b\n");
        let files = [
            groups,
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/memory.max", "2147483648\n"),
        ];
        assert_eq!(limit(&files), Some(1 << 30));
        assert_eq!(limit(&files[..2]), None, "no limit");
        assert_eq!(limit(&[groups, files[3]]), Some(2 << 30), "a container's root");
        let old = [
            ("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n"),
            ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "536870912\n"),
        ];
        assert_eq!(limit(&old), Some(512 << 20));
        assert_eq!(limit(&[]), None);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(bytes(&vfs::RealFs::new()) > 1 << 20);
    }
}
