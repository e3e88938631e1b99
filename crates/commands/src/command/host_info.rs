//! `hostInfo`: the machine, as the operating system describes it.

use crate::definition::{Access, Command};
use crate::error::Result;
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::Action;
use bson::{DateTime, doc};
use std::path::Path;

/// `hostInfo`.
pub const HOST_INFO: Command = Command::new(
    "hostInfo",
    "Describes the machine.",
    OperationKind::Command,
    Access::cluster(&[Action::HostInfo]),
    run,
)
.secondary_ok();

/// A file of `/proc` or `/etc`, empty where there is none.
pub fn read_text(call: &Invocation<'_>, path: &str) -> String {
    let read = || -> std::io::Result<String> {
        let file = call.server.env.fs.open(Path::new(path), vfs::Access::Read)?;
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match file.read_at(&mut buffer, text.len() as u64)? {
                0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
                n => text.extend_from_slice(&buffer[..n]),
            }
        }
    };
    read().unwrap_or_default()
}

/// The value behind `name` in lines such as `name : value` or `name=value`.
pub fn line_value<'t>(text: &'t str, name: &str, separator: char) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(separator)?;
        (key.trim() == name).then(|| value.trim().trim_matches('"'))
    })
}

/// `MemTotal:  24689120 kB` in MiB.
pub fn memory_total_mb(meminfo: &str) -> i64 {
    let kib = line_value(meminfo, "MemTotal", ':').and_then(|value| value.split(' ').next()?.parse::<i64>().ok());
    kib.unwrap_or(0) / 1024
}

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    // The first is a link to the second on most systems, and links are not followed.
    let release = ["/etc/os-release", "/usr/lib/os-release"].map(|path| read_text(call, path));
    let release = release.iter().find(|text| !text.is_empty()).map_or("", String::as_str);
    let meminfo = read_text(call, "/proc/meminfo");
    let cpuinfo = read_text(call, "/proc/cpuinfo");
    let kernel = read_text(call, "/proc/sys/kernel/osrelease").trim().to_owned();
    let limits = read_text(call, "/proc/self/limits");
    let open_files = limits
        .lines()
        .find_map(|line| {
            line.strip_prefix("Max open files")?
                .split_whitespace()
                .next()?
                .parse::<i64>()
                .ok()
        })
        .unwrap_or(0);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as i32);
    let physical = cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as i32;
    let page_bytes = rustix::param::page_size() as i64;
    let memory_mb = memory_total_mb(&meminfo);
    reply.append_all(&doc! {
        "system": {
            "currentTime": DateTime::from_millis(call.server.env.clock.now_ms()),
            "hostname": &call.server.settings.host,
            "cpuAddrSize": 64,
            "memSizeMB": memory_mb,
            "memLimitMB": memory_mb,
            "numCores": physical.max(1),
            "numCoresAvailableToProcess": cores,
            "numPhysicalCores": physical.max(1),
            "numCpuSockets": 1,
            "cpuArch": std::env::consts::ARCH,
            "numaEnabled": false,
            "numNumaNodes": 1,
        },
        "os": {
            "type": "Linux",
            "name": line_value(release, "NAME", '=').unwrap_or("unknown"),
            "version": line_value(release, "VERSION_ID", '=').unwrap_or("unknown"),
        },
        "extra": {
            "versionString": read_text(call, "/proc/version").trim(),
            "kernelVersion": kernel,
            "cpuFrequencyMHz": line_value(&cpuinfo, "cpu MHz", ':').unwrap_or("0"),
            "cpuFeatures": line_value(&cpuinfo, "flags", ':').unwrap_or(""),
            "cpuString": line_value(&cpuinfo, "model name", ':').unwrap_or("unknown"),
            "pageSize": page_bytes,
            "numPages": memory_mb * 1024 * 1024 / page_bytes.max(1),
            "maxOpenFiles": open_files,
        },
    });
    Ok(())
}
