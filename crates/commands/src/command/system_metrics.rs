//! Figures of the machine from `/proc`, under the names that MongoDB's diagnostic data have and monitoring tools read.
//!
//! Each function reads one file's text, in the form that `proc(5)` and the kernel's `iostats.rst` and `psi.rst`
//! describe. What is not there, or not in that form, is left out: the figures differ between kernels and containers.

use super::host_info::read_text;
use crate::invocation::Invocation;
use bson::{Document, doc};

/// The first fields of `/proc/stat`'s line `cpu`, in ticks of 10 ms.
const CPU_FIELDS: [&str; 10] = [
    "user_ms",
    "nice_ms",
    "system_ms",
    "idle_ms",
    "iowait_ms",
    "irq_ms",
    "softirq_ms",
    "steal_ms",
    "guest_ms",
    "guest_nice_ms",
];
const TICK_MS: i64 = 10;

/// Lines of `/proc/stat` with one figure.
const STAT_LINES: [&str; 5] = ["ctxt", "btime", "processes", "procs_running", "procs_blocked"];

const MEMORY_LINES: [&str; 15] = [
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "Buffers",
    "Cached",
    "SwapCached",
    "Active",
    "Inactive",
    "Active(anon)",
    "Inactive(anon)",
    "Active(file)",
    "Inactive(file)",
    "SwapTotal",
    "SwapFree",
    "Dirty",
];

const VMSTAT_LINES: [&str; 12] = [
    "pgpgin",
    "pgpgout",
    "pswpin",
    "pswpout",
    "pgfault",
    "pgmajfault",
    "pgscan_kswapd",
    "pgscan_direct",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "pageoutrun",
    "oom_kill",
];

/// Figures of a disk, in the order of `/proc/diskstats`.
const DISK_FIELDS: [&str; 11] = [
    "reads",
    "reads_merged",
    "read_sectors",
    "read_time_ms",
    "writes",
    "writes_merged",
    "write_sectors",
    "write_time_ms",
    "io_in_progress",
    "io_time_ms",
    "io_queued_ms",
];

/// All of them, by subject.
pub fn system_metrics(call: &Invocation<'_>) -> Document {
    let mut cpu = cpu(&read_text(call, "/proc/stat"));
    if let Ok(cores) = std::thread::available_parallelism() {
        cpu.insert("num_cores_available_to_process", cores.get() as i32);
    }
    let mut network = Document::new();
    for path in ["/proc/net/netstat", "/proc/net/snmp"] {
        network.extend(protocols(&read_text(call, path)));
    }
    let mut pressure = Document::new();
    for resource in ["cpu", "memory", "io"] {
        pressure.insert(
            resource,
            stalls(&read_text(call, &format!("/proc/pressure/{resource}"))),
        );
    }
    let is_disk = |name: &str| !read_text(call, &format!("/sys/block/{name}/device/uevent")).is_empty();
    doc! {
        "cpu": cpu,
        "memory": memory(&read_text(call, "/proc/meminfo")),
        "netstat": network,
        "disks": disks(&read_text(call, "/proc/diskstats"), is_disk),
        "vmstat": counters(&read_text(call, "/proc/vmstat"), &VMSTAT_LINES),
        "pressure": pressure,
    }
}

/// The figures behind some of the lines' first words.
fn counters(text: &str, names: &[&str]) -> Document {
    let mut counters = Document::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let Some(name) = words.next().filter(|name| names.contains(name))
            && let Some(figure) = words.next().and_then(|figure| figure.parse::<i64>().ok())
        {
            counters.insert(name, figure);
        }
    }
    counters
}

fn cpu(stat: &str) -> Document {
    let is_of_one = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    let mut cpu = doc! { "num_logical_cores": stat.lines().filter(is_of_one).count() as i32 };
    if let Some(all) = stat.lines().find_map(|line| line.strip_prefix("cpu ")) {
        let ticks = all.split_whitespace().map_while(|ticks| ticks.parse::<i64>().ok());
        for (name, ticks) in CPU_FIELDS.iter().zip(ticks) {
            cpu.insert(*name, ticks.saturating_mul(TICK_MS));
        }
    }
    cpu.extend(counters(stat, &STAT_LINES));
    cpu
}

fn memory(meminfo: &str) -> Document {
    let mut memory = Document::new();
    for line in meminfo.lines() {
        if let Some((name, value)) = line.split_once(':')
            && MEMORY_LINES.contains(&name)
            && let Some(kib) = value.split_whitespace().next().and_then(|kib| kib.parse::<i64>().ok())
        {
            memory.insert(format!("{name}_kb"), kib);
        }
    }
    memory
}

/// `Tcp:InSegs` and the like, from pairs of lines of which the first has the names and the second the figures.
fn protocols(text: &str) -> Document {
    let mut figures = Document::new();
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (mut names, mut values) = (names.split_whitespace(), values.split_whitespace());
        let (Some(protocol), Some(again)) = (names.next(), values.next()) else {
            continue;
        };
        if protocol != again || !["TcpExt:", "IpExt:", "Tcp:", "Ip:"].contains(&protocol) {
            continue;
        }
        for (name, value) in names.zip(values) {
            if let Ok(value) = value.parse::<i64>() {
                figures.insert(format!("{protocol}{name}"), value);
            }
        }
    }
    figures
}

/// Disks that have done something; not partitions, and nothing that is made of other disks or of memory.
fn disks(diskstats: &str, is_disk: impl Fn(&str) -> bool) -> Document {
    let mut disks = Document::new();
    for line in diskstats.lines() {
        let mut words = line.split_whitespace().skip(2);
        let Some(name) = words.next() else { continue };
        let figures: Vec<i64> = words.map_while(|figure| figure.parse().ok()).collect();
        if figures.len() < DISK_FIELDS.len() || figures.iter().all(|figure| *figure == 0) || !is_disk(name) {
            continue;
        }
        let mut disk = Document::new();
        for (name, figure) in DISK_FIELDS.iter().zip(figures) {
            disk.insert(*name, figure);
        }
        disks.insert(name, disk);
    }
    disks
}

/// How long some, and all, tasks have waited for a resource.
fn stalls(pressure: &str) -> Document {
    let mut stalls = Document::new();
    for line in pressure.lines() {
        if let Some((who, figures)) = line.split_once(' ')
            && let Some(total) = figures.split(' ').find_map(|figure| figure.strip_prefix("total="))
            && let Ok(micros) = total.parse::<i64>()
        {
            stalls.insert(who, doc! { "totalMicros": micros });
        }
    }
    stalls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors() {
        let stat = "cpu  10 2 5 1000 7 0 1 3 0 0\ncpu0 5 1 2 500 4 0 1 2 0 0\ncpu1 5 1 3 500 3 0 0 1 0 0\n\
                    intr 77 0 1\nctxt 4711\nbtime 1700000000\nprocesses 99\nprocs_running 2\nprocs_blocked 1\n";
        let expected = doc! {
            "num_logical_cores": 2, "user_ms": 100_i64, "nice_ms": 20_i64, "system_ms": 50_i64, "idle_ms": 10_000_i64,
            "iowait_ms": 70_i64, "irq_ms": 0_i64, "softirq_ms": 10_i64, "steal_ms": 30_i64, "guest_ms": 0_i64,
            "guest_nice_ms": 0_i64, "ctxt": 4711_i64, "btime": 1_700_000_000_i64, "processes": 99_i64,
            "procs_running": 2_i64, "procs_blocked": 1_i64,
        };
        assert_eq!(cpu(stat), expected);
    }

    #[test]
    fn memory_is_in_kib() {
        let meminfo = "MemTotal:       24689120 kB\nHugePages_Total:       0\nInactive(anon):    12 kB\n";
        assert_eq!(
            memory(meminfo),
            doc! { "MemTotal_kb": 24_689_120_i64, "Inactive(anon)_kb": 12_i64 }
        );
    }

    #[test]
    fn figures_of_the_network_have_their_protocol() {
        let snmp = "Ip: Forwarding InReceives\nIp: 2 100\nIcmp: InMsgs\nIcmp: 3\nTcp: MaxConn InSegs\nTcp: -1 50\n";
        assert_eq!(
            protocols(snmp),
            doc! { "Ip:Forwarding": 2_i64, "Ip:InReceives": 100_i64, "Tcp:MaxConn": -1_i64, "Tcp:InSegs": 50_i64 }
        );
    }

    #[test]
    fn disks_that_work() {
        let diskstats = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n \
                         254       0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n \
                         254       1 vda1 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0 0 0\n   8       0 sda 1 2\n";
        let expected = doc! { "vda": {
            "reads": 1_i64, "reads_merged": 2_i64, "read_sectors": 3_i64, "read_time_ms": 4_i64, "writes": 5_i64,
            "writes_merged": 6_i64, "write_sectors": 7_i64, "write_time_ms": 8_i64, "io_in_progress": 9_i64,
            "io_time_ms": 10_i64, "io_queued_ms": 11_i64,
        } };
        assert_eq!(disks(diskstats, |name| name != "vda1"), expected);
    }

    #[test]
    fn waits_for_resources() {
        let pressure =
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=126\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(
            stalls(pressure),
            doc! { "some": { "totalMicros": 126_i64 }, "full": { "totalMicros": 7_i64 } }
        );
        assert_eq!(stalls(""), doc! {});
    }
}
