//! What processes, disks and this machine say about themselves in `/proc` and `/sys`.
//!
//! CPU time is that of all threads, those that ended included; bytes are those that went to and came from storage.

use crate::error::{Doing, Error, Result};
use report::Machine;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a process has used up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time of all threads.
    pub cpu: Duration,
    /// Bytes fetched from storage; `None` without the right to look.
    pub read_bytes: Option<u64>,
    /// Bytes of pages made dirty in the page cache, or written past it.
    pub written_bytes: Option<u64>,
    /// Resident memory.
    pub resident_bytes: u64,
}

/// What a process has used.
pub fn usage(pid: u32) -> Result<Usage> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::read_to_string(&path).doing(format!("reading {path}"))
    };
    let unclear = |name: &str| Error::Protocol(format!("/proc/{pid}/{name} has other fields"));
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let cpu = parse_cpu_ticks(&read("stat")?).ok_or_else(|| unclear("stat"))?;
    let pages = parse_resident_pages(&read("statm")?).ok_or_else(|| unclear("statm"))?;
    let io = read("io").unwrap_or_default();
    Ok(Usage {
        cpu: Duration::from_nanos(cpu * (1_000_000_000 / ticks)),
        read_bytes: parse_io(&io, "read_bytes:"),
        written_bytes: parse_io(&io, "write_bytes:"),
        resident_bytes: pages * rustix::param::page_size() as u64,
    })
}

/// What a server has used whose data is in a directory. What goes to a file system in memory goes to no storage, and is
/// counted nowhere.
pub fn usage_with_data(pid: u32, data: Option<&Path>) -> Result<Usage> {
    let mut usage = usage(pid)?;
    if data.is_some_and(is_in_memory) {
        (usage.read_bytes, usage.written_bytes) = (None, None);
    }
    Ok(usage)
}

/// Whether a directory is on a file system without storage, such as Debian's `/tmp`.
pub fn is_in_memory(directory: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    let kind = rustix::fs::statfs(directory).map(|status| status.f_type as u64 & 0xFFFF_FFFF);
    kind.is_ok_and(|kind| [TMPFS, RAMFS].contains(&kind))
}

/// Processor time of the programs that are neither `server` nor this one nor started by this one, and what the host of
/// a virtual machine has kept for itself, since whenever: differences count. Threads of the kernel are not counted,
/// which mostly work for those that are measured. `None` without the right to look.
pub fn others_cpu(server: Option<u32>) -> Option<Duration> {
    let own = u64::from(std::process::id());
    let mut ticks = parse_steal(&fs::read_to_string("/proc/stat").ok()?)?;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok()) else {
            continue;
        };
        // It may have ended by now: whoever started it has its time then.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some((parent, of_family)) = parse_family_ticks(&stat) else {
            continue;
        };
        let is_measured = pid == own || parent == own || server.map(u64::from) == Some(pid);
        if !is_measured && pid != KERNEL_THREADS && parent != KERNEL_THREADS {
            ticks += of_family;
        }
    }
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_nanos(ticks * (1_000_000_000 / per_second)))
}

/// The parent of all threads of the kernel.
const KERNEL_THREADS: u64 = 2;

/// The parent, field 4, and the time of the process with that of its children that have ended, fields 14 to 17.
fn parse_family_ticks(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((number(1)?, number(11)? + number(12)? + number(13)? + number(14)?))
}

/// The eighth number of the first line of `/proc/stat`.
fn parse_steal(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    line.split_ascii_whitespace()
        .nth(7)
        .map_or(Some(0), |steal| steal.parse().ok())
}

/// Whether a process listens on a port of this machine; `None` without the right to look.
pub fn listens(pid: u32, port: u16) -> Option<bool> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<PathBuf> = tables
        .iter()
        .flat_map(|table| parse_listeners(table, port))
        .map(|inode| format!("socket:[{inode}]").into())
        .collect();
    let links = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    Some(links.into_iter().any(|link| sockets.contains(&link)))
}

/// Who of a group listens on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// A process with this id.
    Process(u32),
    /// None of them.
    Nobody,
    /// Without the right to look at all of them.
    Unknown,
}

/// Who of a process group, which its leader's id names, listens on a port of this machine: the leader, or what it has
/// started.
pub fn group_listener(leader: u32, port: u16) -> Listener {
    let mut found = Listener::Nobody;
    for pid in group(leader) {
        match listens(pid, port) {
            Some(true) => return Listener::Process(pid),
            Some(false) => {}
            None => found = Listener::Unknown,
        }
    }
    found
}

/// The living processes of a group, which its leader's id names.
pub fn group(leader: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let processes = entries.flatten().filter_map(number);
    processes.filter(|pid| lives_in_group(*pid, leader)).collect()
}

/// Whether a process lives, and is of the group that its leader's id names.
pub fn lives_in_group(pid: u32, leader: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    match parse_group(&stat) {
        Some((group, State::Zombie)) => group == leader && threads(pid) > 1,
        Some((group, state)) => group == leader && state == State::Living,
        None => false,
    }
}

/// The threads of a process. One that is killed has a first thread that is a zombie at once, while others may be in the
/// kernel for long, and have its files and its port until they are not.
fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// What `/proc` says of a process's first thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Living,
    Zombie,
    Dead,
}

/// The process group, field 5, and the state, field 3.
fn parse_group(stat: &str) -> Option<(u32, State)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = match fields.next()? {
        "Z" => State::Zombie,
        "X" => State::Dead,
        _ => State::Living,
    };
    Some((fields.nth(1)?.parse().ok()?, state))
}

/// Inodes of the sockets that listen on a port, by the table of TCP's sockets.
fn parse_listeners(table: &str, port: u16) -> impl Iterator<Item = u64> {
    const LISTENING: &str = "0A";
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(local_port, 16) == Ok(port) && fields.get(3) == Some(&LISTENING);
        is_it.then(|| fields.get(9)?.parse().ok())?
    })
}

/// `utime` and `stime`, fields 14 and 15. The name in parentheses may hold anything, so count from its end.
fn parse_cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(ticks()? + ticks()?)
}

fn parse_resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn parse_io(io: &str, name: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// Bytes that files of a directory take on the disk, those below it included.
pub fn directory_bytes(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()),
            // A file may go while others are counted.
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Bytes that are free on the disk of a directory.
pub fn available_bytes(directory: &Path) -> Option<u64> {
    let status = rustix::fs::statvfs(directory).ok()?;
    Some(status.f_bavail * status.f_frsize)
}

/// Reads that the disk of a directory has completed, whoever asked for them.
pub fn disk_reads(directory: &Path) -> Option<u64> {
    let device = fs::metadata(directory).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    parse_disk_reads(&fs::read_to_string("/proc/diskstats").ok()?, major, minor)
}

fn parse_disk_reads(diskstats: &str, major: u32, minor: u32) -> Option<u64> {
    diskstats.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let found = fields.next()?.parse() == Ok(major) && fields.next()?.parse() == Ok(minor);
        found.then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

/// Bytes that the disk of a directory has written, whoever asked for that.
pub fn disk_written(directory: &Path) -> Option<u64> {
    let device = fs::metadata(directory).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    parse_disk_written(&fs::read_to_string("/proc/diskstats").ok()?, major, minor)
}

/// Sectors of 512 bytes: the seventh number behind the name.
fn parse_disk_written(diskstats: &str, major: u32, minor: u32) -> Option<u64> {
    diskstats.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let found = fields.first()?.parse() == Ok(major) && fields.get(1)?.parse() == Ok(minor);
        let sectors: u64 = found.then(|| fields.get(9)?.parse().ok())??;
        Some(sectors * 512)
    })
}

/// The machine, with the file system under a directory.
pub fn machine(directory: Option<&Path>) -> Machine {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str| {
        text.lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_owned())
            .unwrap_or_default()
    };
    let kib: u64 = value(&text("/proc/meminfo"), "MemTotal")
        .trim_end_matches(" kB")
        .parse()
        .unwrap_or(0);
    let (file_system, disk) = directory.map(mount_of).unwrap_or_default();
    Machine {
        cpu: value(&text("/proc/cpuinfo"), "model name"),
        cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u32),
        memory_bytes: kib * 1024,
        kernel: format!(
            "{} {}",
            text("/proc/sys/kernel/ostype").trim(),
            text("/proc/sys/kernel/osrelease").trim()
        ),
        file_system,
        disk,
    }
}

/// File system and device of the longest mount point that a directory is below.
fn mount_of(directory: &Path) -> (String, String) {
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_path_buf());
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (device, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
            directory
                .starts_with(point)
                .then(|| (point.len(), kind.to_owned(), device.to_owned()))
        })
        .max_by_key(|(length, ..)| *length)
        .map(|(_, kind, device)| (kind, device))
        .unwrap_or_default()
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}

/// Lets this process open as many files as the system allows, for many connections. Returns how many.
pub fn raise_open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
    .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_known_by_their_families() {
        let stat = "77 (a (b) c) S 41 77 77 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 5 6 7";
        assert_eq!(parse_family_ticks(stat), Some((41, 100)));
        assert_eq!(parse_family_ticks("77 (x) S 41 77"), None);
        assert_eq!(parse_steal("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1"), Some(88));
        assert_eq!(parse_steal("cpu  1 2 3 4"), Some(0), "a kernel that does not tell");
        assert!(others_cpu(None).is_some());
    }

    #[test]
    fn fields_of_proc() {
        let stat = "7 (a) b (c) R 1 7 7 0 -1 0 98 0 0 0 250 17 0 0 20 0 1 0 3 4 5";
        assert_eq!(parse_cpu_ticks(stat), Some(267));
        assert_eq!(parse_cpu_ticks("7 (a) R 1"), None);
        assert_eq!(parse_resident_pages("100 42 3 4 0 6 0"), Some(42));
        let io = "rchar: 1\nread_bytes: 5\nwrite_bytes: 8192\ncancelled_write_bytes: 4\n";
        assert_eq!(parse_io(io, "write_bytes:"), Some(8192));
        assert_eq!(parse_io(io, "read_bytes:"), Some(5));
        let disks = " 254 0 vda 17 2 3 4 5\n 254 1 vda1 99 2 3 4\n";
        assert_eq!(parse_disk_reads(disks, 254, 1), Some(99));
        assert_eq!(parse_disk_reads(disks, 8, 1), None);
        let disks = " 254 0 vda 17 2 3 4 5 6 7 8 0 9\n 254 1 vda1 99 2 3 4\n";
        assert_eq!(parse_disk_written(disks, 254, 0), Some(7 * 512));
        assert_eq!(parse_disk_written(disks, 254, 1), None, "it has too few fields");
    }

    #[test]
    fn a_group_is_what_lives_of_it() {
        assert_eq!(parse_group("77 (a) b) S 41 70 77 0 -1"), Some((70, State::Living)));
        assert_eq!(parse_group("77 (a) Z 41 70 77 0 -1"), Some((70, State::Zombie)));
        assert_eq!(parse_group("77 (a) S 41"), None);
        let mut child = std::process::Command::new("/bin/true").spawn().expect("it starts");
        let stat = format!("/proc/{}/stat", child.id());
        let own = fs::read_to_string("/proc/self/stat").expect("it is there");
        let (group, _) = parse_group(&own).expect("as usual");
        assert!(lives_in_group(std::process::id(), group) && !lives_in_group(std::process::id(), group + 1));
        let seen = || parse_group(&fs::read_to_string(&stat).expect("nobody has waited for it"));
        while seen() != Some((group, State::Zombie)) {
            std::thread::yield_now();
        }
        assert!(!lives_in_group(child.id(), group), "it has no other threads");
        child.wait().expect("a child");
    }

    #[test]
    fn who_listens_is_seen() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     \x20  0: 0100007F:6989 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n\
                     \x20  1: 0100007F:6989 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1\n";
        assert_eq!(parse_listeners(table, 0x6989).collect::<Vec<_>>(), [4711]);
        assert_eq!(parse_listeners(table, 0x8000).count(), 0);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it has one").port();
        assert_eq!(listens(std::process::id(), port), Some(true));
        drop(listener);
        assert_eq!(listens(std::process::id(), port), Some(false));
    }

    #[test]
    fn this_process_and_machine_are_seen() {
        assert!(usage(std::process::id()).expect("it is there").resident_bytes > 0);
        let machine = machine(Some(&std::env::temp_dir()));
        assert!(
            machine.cores > 0 && machine.memory_bytes > 0 && !machine.file_system.is_empty(),
            "{machine:?}"
        );
    }

    #[test]
    fn sizes_of_directories_are_added_up() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("inner")).expect("made");
        fs::write(directory.path().join("inner/a"), vec![1; 100_000]).expect("written");
        fs::write(directory.path().join("b"), vec![1; 100_000]).expect("written");
        rustix::fs::sync();
        assert!((200_000..400_000).contains(&directory_bytes(directory.path())));
    }
}
