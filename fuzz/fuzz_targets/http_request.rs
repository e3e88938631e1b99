//! What comes to the monitoring page's port: read or refused, never a panic, and the same however it is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/server/src/http/request.rs"]
mod request;

fuzz_target!(|data: &[u8]| {
    let whole = request::parse(data);
    if let Ok(Some((request, length))) = &whole {
        assert!(*length <= data.len() && *length <= request::HEAD_BYTES_MAX);
        assert!(request.path.len() <= *length);
        let _ = request.credentials();
        // What follows is the next request's.
        assert_eq!(request::parse(&data[..*length]), whole);
        // Less of it is no request yet, or was never going to be one.
        for end in 0..*length {
            assert!(!matches!(request::parse(&data[..end]), Ok(Some(_))));
        }
    }
});
