//! Opens a subject by its kind.

use super::subject::Subject;
use super::tenon;
#[cfg(wiredtiger)]
use super::{ffi, wiredtiger};
use crate::spec::RunSpec;
use anyhow::{Result, bail};
use std::sync::Arc;

/// Opens the subject of a run in its directory, with the run's cache and compressor; replays its log.
pub fn open(spec: &RunSpec) -> Result<Arc<dyn Subject>> {
    let layout = spec.subject.layout(&spec.directory);
    if !spec.subject.has_codec(spec.codec) {
        bail!("{} has no compressor {}", spec.subject, spec.codec.name());
    }
    match spec.subject.engine() {
        Some(engine) => Ok(Arc::new(tenon::TenonSubject::open(engine, &layout, spec)?)),
        #[cfg(wiredtiger)]
        None => Ok(Arc::new(wiredtiger::WiredTigerSubject::open(&layout, spec)?)),
        #[cfg(not(wiredtiger))]
        None => bail!(
            "this build has no WiredTiger: run scripts/setup-engine-bench.sh, which installs libwiredtiger-dev, and build again"
        ),
    }
}

/// Version of the WiredTiger library, when it is in the build.
pub fn wiredtiger_version() -> Option<String> {
    #[cfg(wiredtiger)]
    return Some(ffi::version());
    #[cfg(not(wiredtiger))]
    None
}
