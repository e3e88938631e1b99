//! Geometries of clients: whatever a document holds is a geometry or is refused, and one that is has keys that find it.
#![no_main]

use bson::RawDocument;
use geometry::read;
use libfuzzer_sys::fuzz_target;

/// Work that one input may be, so that none takes long.
const STEPS_MAX: usize = 2_000_000;

fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = RawDocument::from_bytes(bytes) else {
        return;
    };
    let mut left = STEPS_MAX;
    let mut steps = |count: usize| {
        left = left.saturating_sub(count);
        if left == 0 { Err(()) } else { Ok(()) }
    };
    for field in document.iter() {
        let Ok((_, value)) = field else {
            return;
        };
        let _ = read::plane_point(value);
        let Ok(Ok(geometry)) = read::sphere(value, &mut steps) else {
            continue;
        };
        let (Ok(keys), Ok(intervals)) = (geometry.keys(&mut steps), geometry.key_intervals(&mut steps)) else {
            return;
        };
        let is_found = keys.iter().any(|key| intervals.iter().any(|(low, high)| (low..=high).contains(&key)));
        assert!(is_found || geometry.is_as_wound, "a geometry finds itself");
        if let Ok(meets) = geometry.meets(&geometry, &mut steps) {
            assert!(meets, "a geometry meets itself");
        }
        let _ = geometry.contains(&geometry, &mut steps);
    }
});
