//! Limits that the system puts on a server: memory and disk speed by a control group of version 2, disk speed alone by
//! one of version 1, too; and an empty page cache.
//!
//! None of them is certain to be allowed. Each function says what it could not do, in a sentence for the report.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// The control groups of version 2, as this process sees them.
#[derive(Debug)]
struct Hierarchy {
    /// Where they are mounted.
    mount: PathBuf,
    /// The group of this process, below the mount.
    own: PathBuf,
}

impl Hierarchy {
    fn of_this_process() -> Result<Self, String> {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let none = || "this machine has no control groups of version 2".to_owned();
        Ok(Self {
            mount: mount_point(&text("/proc/self/mountinfo")).ok_or_else(none)?,
            own: own_group(&text("/proc/self/cgroup")).ok_or_else(none)?,
        })
    }

    /// The directory of the group that the server's becomes a child of: next to this process's, because a group that
    /// has processes cannot limit its children.
    fn parent(&self) -> PathBuf {
        let own = self.mount.join(&self.own);
        match own.parent() {
            Some(parent) if own != self.mount => parent.to_path_buf(),
            // Without the slash that joining an empty path leaves.
            _ => self.mount.clone(),
        }
    }

    fn make(&self, wanted: Wanted, data: &Path) -> Result<ControlGroup, String> {
        let parent = self.parent();
        for (controller, needed) in [
            ("memory", wanted.memory_bytes.is_some()),
            ("io", wanted.read_bytes_per_second.is_some()),
        ] {
            if needed {
                enable(&parent, controller)?;
            }
        }
        let who_may = "root, or systemd-run --user --scope -p Delegate=yes before the command";
        let group = ControlGroup {
            path: make_group(&parent, who_may)?,
        };
        if let Some(bytes) = wanted.memory_bytes {
            set(&group.path, "memory.max", &bytes.to_string())?;
            // What goes to swap would not be limited. A kernel without swap has no such file.
            let _ = set(&group.path, "memory.swap.max", "0");
        }
        if let Some(bytes) = wanted.read_bytes_per_second {
            set(&group.path, "io.max", &format!("{} rbps={bytes}", disk_of(data)?))?;
        }
        Ok(group)
    }
}

/// The number of the disk that a path lies on: of the whole one, whose partitions have no limits of their own.
fn disk_of(path: &Path) -> Result<String, String> {
    use std::os::unix::fs::MetadataExt;
    let device = fs::metadata(path).map_err(|error| error.to_string())?.dev();
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    // The link leads to a folder of the partition, in that of its disk.
    let partition = fs::canonicalize(format!("/sys/dev/block/{number}"));
    let disk = partition
        .ok()
        .filter(|partition| partition.join("partition").exists())
        .and_then(|partition| fs::read_to_string(partition.parent()?.join("dev")).ok());
    Ok(disk.map_or(number, |disk| disk.trim().to_owned()))
}

/// This process's group in the hierarchy of version 1 that limits disks. Memory is left to version 2.
#[derive(Debug)]
struct OldHierarchy {
    own: PathBuf,
}

impl OldHierarchy {
    fn of_this_process() -> Option<Self> {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self::find(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"))
    }

    fn find(mountinfo: &str, cgroup: &str) -> Option<Self> {
        let has = |list: &str| list.split(',').any(|name| name == "blkio");
        let (root, mount) = mountinfo.lines().find_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            let is_here = kind.next() == Some("cgroup") && kind.nth(1).is_some_and(has);
            let mut mount = mount.split(' ').skip(3);
            is_here.then(|| Some((mount.next()?, mount.next()?))).flatten()
        })?;
        let own = cgroup.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let list = fields.next()?;
            fields.next().filter(|_| has(list))
        })?;
        // Where only a part of the hierarchy is mounted, the group's path begins with it.
        let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
        Some(Self {
            own: Path::new(mount).join(below),
        })
    }

    /// A group below this process's: here, one with processes may limit its children.
    fn make(&self, read_bytes_per_second: u64, data: &Path) -> Result<ControlGroup, String> {
        let group = ControlGroup {
            path: make_group(&self.own, "root")?,
        };
        let limit = format!("{} {read_bytes_per_second}", disk_of(data)?);
        set(&group.path, "blkio.throttle.read_bps_device", &limit)?;
        Ok(group)
    }
}

/// Where control groups of version 2 are mounted, from the fields of `mountinfo`.
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let is_version_2 = kind.split(' ').next() == Some("cgroup2");
        is_version_2
            .then(|| mount.split(' ').nth(4).map(PathBuf::from))
            .flatten()
    })
}

/// The line of version 2 is the one without a number and controllers.
fn own_group(cgroup: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // A group outside of what this process may see is shown by dots.
    (!path.split('/').any(|part| part == "..")).then(|| PathBuf::from(path))
}

/// Lets the children of a group be limited by a controller.
fn enable(parent: &Path, controller: &str) -> Result<(), String> {
    let has = |file: &str| {
        let text = fs::read_to_string(parent.join(file)).unwrap_or_default();
        text.split_whitespace().any(|name| name == controller)
    };
    if !has("cgroup.controllers") {
        return Err(format!(
            "the control groups of version 2 at {} have no controller {controller}",
            parent.display()
        ));
    }
    if has("cgroup.subtree_control") {
        return Ok(());
    }
    fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}")).map_err(|error| {
        format!(
            "the controller {controller} cannot be used below {}: {error}",
            parent.display()
        )
    })
}

/// Makes the directory of a group, which takes `who_may`. Each server of this process has one of its own.
fn make_group(parent: &Path, who_may: &str) -> Result<PathBuf, String> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let path = parent.join(format!("tenon-bench-{}-{number}", std::process::id()));
    match fs::create_dir(&path) {
        Ok(()) => Ok(path),
        Err(error) => Err(format!(
            "no control group can be made in {} ({error}); it takes {who_may}",
            parent.display()
        )),
    }
}

fn set(group: &Path, name: &str, value: &str) -> Result<(), String> {
    fs::write(group.join(name), value).map_err(|error| format!("{name} of a control group: {error}"))
}

/// A control group of its own for a server. Dropping it removes it; the server must have ended.
#[derive(Debug)]
pub struct ControlGroup {
    path: PathBuf,
}

impl ControlGroup {
    /// Makes one with limits, next to the group of this process. `data`: the directory whose disk is limited.
    pub fn new(wanted: Wanted, data: &Path) -> Result<Self, String> {
        let newer = Hierarchy::of_this_process().and_then(|hierarchy| hierarchy.make(wanted, data));
        let Err(reason) = newer else {
            return newer;
        };
        match (wanted.read_bytes_per_second, OldHierarchy::of_this_process()) {
            (Some(bytes), Some(older)) if wanted.memory_bytes.is_none() => older.make(bytes, data),
            _ => Err(reason),
        }
    }

    /// Puts a process into it.
    pub fn add(&self, pid: u32) -> Result<(), String> {
        set(&self.path, "cgroup.procs", &pid.to_string())
    }

    /// True when a process of the group was killed because it needed more memory than it may have.
    pub fn has_killed(&self) -> bool {
        let events = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.is_some_and(|count| count.trim() != "0")
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

    const MEMORY: Wanted = Wanted {
        memory_bytes: Some(64 << 20),
        read_bytes_per_second: None,
    };

    /// A directory that looks like the file system of control groups, with this process in `slice/own.scope`.
    fn made_up(controllers: &str, enabled: &str) -> (tempfile::TempDir, Hierarchy) {
        let directory = tempfile::tempdir().expect("a directory");
        let slice = directory.path().join("slice");
        fs::create_dir_all(slice.join("own.scope")).expect("made");
        fs::write(slice.join("cgroup.controllers"), controllers).expect("written");
        fs::write(slice.join("cgroup.subtree_control"), enabled).expect("written");
        let hierarchy = Hierarchy {
            mount: directory.path().to_path_buf(),
            own: "slice/own.scope".into(),
        };
        (directory, hierarchy)
    }

    #[test]
    fn a_group_has_the_limits_that_were_asked_for() {
        let (directory, hierarchy) = made_up("cpu io memory\n", "cpu\n");
        let wanted = Wanted {
            read_bytes_per_second: Some(20_000_000),
            ..MEMORY
        };
        let group = hierarchy.make(wanted, directory.path()).expect("everything is allowed");
        group.add(4711).expect("there is room");
        let text = |name: &str| fs::read_to_string(group.path.join(name)).expect("written");
        assert_eq!(group.path.parent(), Some(directory.path().join("slice").as_path()));
        assert_eq!(
            (text("memory.max").as_str(), text("memory.swap.max").as_str()),
            ("67108864", "0")
        );
        assert!(text("io.max").ends_with(" rbps=20000000"), "{}", text("io.max"));
        assert_eq!(text("cgroup.procs"), "4711");
        let control = directory.path().join("slice/cgroup.subtree_control");
        assert_eq!(
            fs::read_to_string(&control).ok().as_deref(),
            Some("+io"),
            "the last one that was enabled"
        );
        assert!(!group.has_killed());
        fs::write(group.path.join("memory.events"), "low 0\noom 3\noom_kill 1\n").expect("written");
        assert!(group.has_killed());
    }

    /// Only the first member of a set was limited.
    #[test]
    fn several_servers_are_limited_at_once() {
        let (_directory, hierarchy) = made_up("memory\n", "memory\n");
        let groups = [(); 3].map(|()| hierarchy.make(MEMORY, Path::new("/")).expect("everything is allowed"));
        assert!(groups[0].path != groups[1].path && groups[1].path != groups[2].path);
        for group in &groups {
            let limit = fs::read_to_string(group.path.join("memory.max")).expect("written");
            assert_eq!(limit, "67108864");
        }
    }

    #[test]
    fn version_1_limits_disks() {
        let directory = tempfile::tempdir().expect("a directory");
        let mount = directory.path().join("blkio");
        let mountinfo = format!(
            "24 18 0:21 / /elsewhere rw - cgroup cgroup rw,memory\n25 18 0:22 /box {} rw - cgroup cgroup rw,cpu,blkio\n",
            mount.display()
        );
        let hierarchy = OldHierarchy::find(&mountinfo, "4:memory:/\n5:cpu,blkio:/box/a\n").expect("it is there");
        assert_eq!(hierarchy.own, mount.join("a"));
        fs::create_dir_all(&hierarchy.own).expect("made");
        let group = hierarchy
            .make(20_000_000, directory.path())
            .expect("everything is allowed");
        group.add(4711).expect("there is room");
        let text = |name: &str| fs::read_to_string(group.path.join(name)).expect("written");
        assert_eq!(group.path.parent(), Some(hierarchy.own.as_path()));
        assert!(text("blkio.throttle.read_bps_device").ends_with(" 20000000"));
        assert_eq!(text("cgroup.procs"), "4711");
        assert!(OldHierarchy::find(&mountinfo, "4:memory:/\n").is_none());
        assert!(OldHierarchy::find("", "5:cpu,blkio:/\n").is_none());
    }

    #[test]
    fn what_is_not_allowed_is_a_sentence() {
        let reason = |hierarchy: &Hierarchy| hierarchy.make(MEMORY, Path::new("/")).expect_err("it is not allowed");
        let (_directory, hierarchy) = made_up("cpu\n", "");
        assert!(reason(&hierarchy).contains("have no controller memory"));
        let (directory, mut hierarchy) = made_up("memory\n", "memory\n");
        hierarchy.own = "nowhere/own".into();
        let refused = hierarchy.make(Wanted::default(), Path::new("/"));
        let refused = refused.expect_err("there is no such folder");
        assert!(
            refused.ends_with("it takes root, or systemd-run --user --scope -p Delegate=yes before the command"),
            "{refused}"
        );
        let refused = make_group(&directory.path().join("nowhere"), "somebody").expect_err("there is no such folder");
        assert!(
            refused.contains("no control group can be made") && refused.ends_with("it takes somebody"),
            "{refused}"
        );
        let (directory, hierarchy) = made_up("memory\n", "");
        fs::remove_file(directory.path().join("slice/cgroup.subtree_control")).expect("removed");
        fs::create_dir(directory.path().join("slice/cgroup.subtree_control")).expect("made");
        assert!(reason(&hierarchy).contains("cannot be used below"));
        let nowhere = Hierarchy {
            mount: "/nonexistent".into(),
            own: PathBuf::new(),
        };
        assert!(reason(&nowhere).contains("/nonexistent"));
    }

    #[test]
    fn mounts_and_groups_are_found() {
        let hybrid = "24 18 0:21 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      30 18 0:27 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(hybrid), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point("24 18 0:21 / / rw - ext4 /dev/vda rw\n"), None);
        assert_eq!(
            own_group("4:memory:/a\n0::/user.slice/x.scope\n"),
            Some("user.slice/x.scope".into())
        );
        assert_eq!(own_group("0::/\n"), Some(PathBuf::new()));
        assert_eq!(own_group("0::/../other\n"), None);
        assert_eq!(own_group("4:memory:/a\n"), None);
        let root = Hierarchy {
            mount: "/sys/fs/cgroup".into(),
            own: PathBuf::new(),
        };
        assert_eq!(root.parent(), Path::new("/sys/fs/cgroup/"));
    }

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
