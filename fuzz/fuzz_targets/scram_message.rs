//! What clients send to prove who they are: no bytes break the parsers, and none prove anything without the password.

#![no_main]

use auth::{ClientFirst, Credentials, Mechanism, Verdict};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|messages: (&[u8], &[u8])| {
    let (first, last) = messages;
    let begun = ClientFirst::parse(first).or_else(|_| ClientFirst::parse(b"n,,n=a,r=x"));
    for mechanism in Mechanism::ALL {
        let credentials = Credentials::pretended(mechanism, "test.a", b"secret");
        if let Ok(first) = begun.clone() {
            let (_, exchange) = first.answer(credentials, &[7; 24]);
            assert!(!matches!(exchange.finish(last), Ok(Verdict::Proven(_))));
        }
    }
});
