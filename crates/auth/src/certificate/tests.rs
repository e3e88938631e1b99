use super::*;
use proptest::prelude::*;

/// A value in DER.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut value = utf8_string(&"x".repeat(content.len()));
    value.truncate(value.len() - content.len());
    value[0] = tag;
    value.extend_from_slice(content);
    value
}

/// An identifier's content, from small arcs and one of two bytes.
fn pair(identifier: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
    der(
        SEQUENCE,
        &[der(OBJECT_IDENTIFIER, identifier), der(tag, value)].concat(),
    )
}

const CN: &[u8] = &[0x55, 4, 3];
const O: &[u8] = &[0x55, 4, 10];
const OU: &[u8] = &[0x55, 4, 11];
const DC: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 25];
const ODD: &[u8] = &[0x2A, 0x83, 0x37, 9];

fn name(pairs: &[&[(&[u8], u8, &str)]]) -> Vec<u8> {
    let relative = |pairs: &&[(&[u8], u8, &str)]| {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(kind, tag, text)| pair(kind, *tag, text.as_bytes()))
            .collect();
        der(SET, &pairs.concat())
    };
    pairs.iter().map(relative).collect::<Vec<_>>().concat()
}

fn certificate(subject: &[u8], version: bool) -> Vec<u8> {
    let signed = [
        if version {
            der(VERSION, &der(INTEGER, &[2]))
        } else {
            Vec::new()
        },
        der(INTEGER, &[1; 20]),
        der(SEQUENCE, &[]),
        der(SEQUENCE, &name(&[&[(CN, UTF8_STRING, "issuer")]])),
        der(SEQUENCE, &[]),
        der(SEQUENCE, subject),
        der(SEQUENCE, &[5; 300]),
    ];
    der(
        SEQUENCE,
        &[der(SEQUENCE, &signed.concat()), der(SEQUENCE, &[])].concat(),
    )
}

fn shown(pairs: &[&[(&[u8], u8, &str)]]) -> String {
    let subject = name(pairs);
    let read = SubjectName::of_certificate(&certificate(&subject, true)).unwrap();
    assert_eq!(
        SubjectName::of_certificate(&certificate(&subject, false)).unwrap(),
        read
    );
    read.to_string()
}

#[test]
fn names_are_written_as_the_rfc_does() {
    const U: u8 = UTF8_STRING;
    assert_eq!(
        shown(&[&[(DC, 0x16, "org")], &[(O, 0x13, "Shop")], &[(CN, U, "amy")]]),
        "CN=amy,O=Shop,DC=org"
    );
    assert_eq!(
        shown(&[&[(OU, U, "Sales"), (CN, U, "J.  Smith")]]),
        "CN=J.  Smith+OU=Sales"
    );
    assert_eq!(
        shown(&[&[(O, U, "a,b+c\"d\\e<f>g;h=i")]]),
        r#"O=a\,b\+c\"d\\e\<f\>g\;h=i"#
    );
    assert_eq!(
        shown(&[&[(CN, U, " # ")], &[(CN, U, "#1")], &[(CN, U, " ")]]),
        r"CN=\ ,CN=\#1,CN=\ #\ "
    );
    assert_eq!(
        shown(&[&[(CN, U, "grün")], &[(CN, 0x1E, "\0g\0o")], &[(CN, U, "\0")]]),
        r"CN=\00,CN=go,CN=grün"
    );
    assert_eq!(shown(&[&[(ODD, U, "hi")]]), "1.2.439.9=#0C026869");
    // A number is no text.
    let subject = der(SET, &pair(CN, INTEGER, &[7]));
    let read = SubjectName::of_certificate(&certificate(&subject, true)).unwrap();
    assert_eq!(read.to_string(), "CN=#020107");
    assert!(SubjectName::of_certificate(&certificate(&[], true)).unwrap().is_empty());
}

#[test]
fn members_have_the_same_organisation() {
    let of = |pairs: &[(&[u8], &str)]| {
        let pairs: Vec<_> = pairs.iter().map(|(kind, text)| [(*kind, UTF8_STRING, *text)]).collect();
        let pairs: Vec<_> = pairs.iter().map(<[_; 1]>::as_slice).collect();
        SubjectName::of_certificate(&certificate(&name(&pairs), true)).unwrap()
    };
    let own = of(&[(O, "Shop"), (OU, "db"), (CN, "one")]);
    assert!(of(&[(CN, "two"), (OU, "db"), (O, "Shop")]).is_of_cluster(&own));
    for other in [
        vec![(O, "Shop"), (CN, "one")],
        vec![(O, "Shop"), (OU, "web")],
        vec![(O, "Shop"), (OU, "db"), (OU, "db")],
        vec![(O, "Shop"), (OU, "db"), (DC, "org")],
        vec![(O, "db"), (OU, "Shop")],
        vec![(CN, "one")],
    ] {
        assert!(!of(&other).is_of_cluster(&own), "{other:?}");
    }
    let bare = of(&[(CN, "one")]);
    assert!(!bare.is_of_cluster(&bare), "without an organisation nobody is a member");
}

#[test]
fn cut_and_changed_certificates_are_refused_and_no_panic() {
    let whole = certificate(&name(&[&[(O, UTF8_STRING, "Shop")], &[(CN, 0x1E, "\0a")]]), true);
    for length in 0..whole.len() {
        assert!(SubjectName::of_certificate(&whole[..length]).is_err(), "{length}");
    }
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            let _ = SubjectName::of_certificate(&changed);
        }
    }
    for (tag, value) in [(0x13, "é"), (0x1E, "abc"), (0x1C, "abcd")] {
        assert!(SubjectName::of_certificate(&certificate(&name(&[&[(CN, tag, value)]]), true)).is_err());
    }
    let latin = der(SET, &pair(CN, 0x14, &[0xE9]));
    assert_eq!(
        SubjectName::of_certificate(&certificate(&latin, true))
            .unwrap()
            .to_string(),
        "CN=é"
    );
    let bad = der(SET, &pair(CN, UTF8_STRING, &[0xFF]));
    assert!(SubjectName::of_certificate(&certificate(&bad, true)).is_err());
    let endless = der(SET, &pair(&[0xFF; 12], UTF8_STRING, b"a"));
    assert!(SubjectName::of_certificate(&certificate(&endless, true)).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = SubjectName::of_certificate(&bytes);
        let _ = SubjectName::of_certificate(&certificate(&bytes, true));
    }
}
