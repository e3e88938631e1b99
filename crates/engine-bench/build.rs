//! Compiles the shim over WiredTiger when its header is there; otherwise the crate is built without WiredTiger, and
//! says so at run time. `WIREDTIGER_INCLUDE` and `WIREDTIGER_LIB` name folders other than the system's.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=shim/wtshim.c");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WIREDTIGER_INCLUDE");
    println!("cargo::rerun-if-env-changed=WIREDTIGER_LIB");
    let include = folder("WIREDTIGER_INCLUDE", "includedir").unwrap_or_else(|| "/usr/include".into());
    let header = include.join("wiredtiger.h");
    // Where a package brings a header older than this build, `scripts/setup-engine-bench.sh` has it repeated.
    println!("cargo::rerun-if-changed={}", header.display());
    let Some(library) = folder("WIREDTIGER_LIB", "libdir").filter(|_| header.exists()) else {
        return;
    };
    cc::Build::new()
        .file("shim/wtshim.c")
        .include(&include)
        .warnings(true)
        .extra_warnings(true)
        .compile("wtshim");
    println!("cargo::rustc-link-search=native={}", library.display());
    println!("cargo::rustc-link-lib=dylib=wiredtiger");
    println!("cargo::rustc-env=WIREDTIGER_LIB={}", library.display());
    println!("cargo::rustc-cfg=wiredtiger");
}

/// The folder that the environment or pkg-config names, if it exists.
fn folder(variable: &str, pkg_config: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from).or_else(|| {
        let output = Command::new("pkg-config")
            .args([&format!("--variable={pkg_config}"), "wiredtiger"])
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().into())
    });
    named.filter(|path: &PathBuf| !path.as_os_str().is_empty() && Path::new(path).is_dir())
}
