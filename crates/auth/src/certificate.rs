//! The subject's name of an X.509 certificate, as users and members of a cluster are known by it.
//!
//! Reads the part of RFC 5280 (4.1) and of DER (X.690) that leads to the subject, and writes the name as RFC 4514 (its
//! predecessor is RFC 2253) does. Whether the certificate is to be believed is not asked here: TLS has verified it.

use std::fmt;
use thiserror::Error;

/// Why a certificate has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// It is not DER as RFC 5280 has it.
    #[error("the certificate's {0} cannot be read")]
    Malformed(&'static str),
}

use CertificateError::Malformed;

/// A distinguished name: pairs of type and value. Pairs that stand together, which is rare, are one *relative* name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectName {
    /// In the order of the certificate, which is the opposite of that of the text.
    relative: Vec<Vec<Attribute>>,
}

/// A pair of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Attribute {
    /// The type, `2.5.4.3`.
    kind: String,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Text(String),
    /// DER of what is no text.
    Other(Vec<u8>),
}

/// Types that have a short name: those of RFC 4514 first, then those that OpenSSL and MongoDB write.
const NAMES: [(&str, &str); 17] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
];

/// Types by which members of one cluster know each other: O, OU, DC.
const OF_CLUSTER: [&str; 3] = ["2.5.4.10", "2.5.4.11", "0.9.2342.19200300.100.1.25"];

impl SubjectName {
    /// The subject of a certificate in DER.
    ///
    /// # Errors
    /// `Malformed` names the part that cannot be read.
    pub fn of_certificate(der: &[u8]) -> Result<Self, CertificateError> {
        let mut outer = Reader(der);
        let mut certificate = Reader(outer.expect(SEQUENCE, "frame")?);
        let mut signed = Reader(certificate.expect(SEQUENCE, "signed part")?);
        if signed.peek() == Some(VERSION) {
            signed.next("version")?;
        }
        signed.expect(INTEGER, "serial number")?;
        signed.expect(SEQUENCE, "algorithm")?;
        signed.expect(SEQUENCE, "issuer")?;
        signed.expect(SEQUENCE, "validity")?;
        Self::of_name(signed.expect(SEQUENCE, "subject")?)
    }

    /// Reads the inside of a `Name`.
    fn of_name(name: &[u8]) -> Result<Self, CertificateError> {
        let (mut name, mut relative) = (Reader(name), Vec::new());
        while !name.0.is_empty() {
            let mut set = Reader(name.expect(SET, "subject")?);
            let mut attributes = Vec::new();
            while !set.0.is_empty() {
                let mut pair = Reader(set.expect(SEQUENCE, "subject")?);
                let kind = object_identifier(pair.expect(OBJECT_IDENTIFIER, "subject")?)?;
                let whole = pair.0;
                let (tag, content) = pair.next("subject")?;
                let value = match text(tag, content)? {
                    Some(text) => Value::Text(text),
                    None => Value::Other(whole[..whole.len() - pair.0.len()].to_vec()),
                };
                attributes.push(Attribute { kind, value });
            }
            relative.push(attributes);
        }
        Ok(Self { relative })
    }

    /// Has it nothing in it?
    pub fn is_empty(&self) -> bool {
        self.relative.iter().all(Vec::is_empty)
    }

    /// Is this the name of a member of the cluster that `own`'s holder is a member of? Its O, OU and DC are the same,
    /// in any order, and there is at least one of them.
    pub fn is_of_cluster(&self, own: &Self) -> bool {
        let (mine, others) = (self.of_cluster(), own.of_cluster());
        !mine.is_empty() && mine == others
    }

    fn of_cluster(&self) -> Vec<&Attribute> {
        let is_one = |attribute: &&Attribute| OF_CLUSTER.contains(&attribute.kind.as_str());
        let mut found: Vec<_> = self.relative.iter().flatten().filter(is_one).collect();
        found.sort_unstable();
        found
    }
}

/// As RFC 4514 writes it: the last pair of the certificate first. Pairs that stand together have no order there; this
/// one is that of `openssl x509 -nameopt RFC2253`, where users' names come from.
impl fmt::Display for SubjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, attributes) in self.relative.iter().rev().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            for (at, attribute) in attributes.iter().rev().enumerate() {
                f.write_str(if at == 0 { "" } else { "+" })?;
                attribute.fmt(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(kind, _)| *kind == self.kind);
        match (name, &self.value) {
            (Some((_, name)), Value::Text(text)) => write!(f, "{name}={}", escaped(text)),
            (_, value) => {
                write!(f, "{}=#", name.map_or(self.kind.as_str(), |(_, name)| name))?;
                let der = match value {
                    Value::Other(der) => der.clone(),
                    Value::Text(text) => utf8_string(text),
                };
                der.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
            }
        }
    }
}

/// Escapes what has a meaning in a name (RFC 4514, 2.4).
fn escaped(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let mut escaped = String::with_capacity(text.len());
    for (at, character) in text.chars().enumerate() {
        let is_edge = match character {
            '#' => at == 0,
            ' ' => at == 0 || at == last,
            _ => false,
        };
        match character {
            '\0' => escaped.push_str("\\00"),
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => escaped.extend(['\\', character]),
            _ if is_edge => escaped.extend(['\\', character]),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// DER of a text, for types without a name, whose values RFC 4514 shows so.
fn utf8_string(text: &str) -> Vec<u8> {
    let length = text.len().to_be_bytes();
    let length = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut der = vec![UTF8_STRING];
    match length {
        [] => der.push(0),
        [short] if *short < 0x80 => der.push(*short),
        long => {
            der.push(0x80 | long.len() as u8);
            der.extend_from_slice(long);
        }
    }
    der.extend_from_slice(text.as_bytes());
    der
}

const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0C;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// `[0]`, the version of a certificate.
const VERSION: u8 = 0xA0;

/// What is left of a row of DER values.
struct Reader<'d>(&'d [u8]);

impl<'d> Reader<'d> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next value's tag and content. Tags of more than a byte, and lengths of more than three, are in no
    /// certificate.
    fn next(&mut self, part: &'static str) -> Result<(u8, &'d [u8]), CertificateError> {
        let (&[tag, first], rest) = self.0.split_first_chunk().ok_or(Malformed(part))?;
        let (length, rest) = match first {
            short @ 0..=0x7F => (usize::from(short), rest),
            long @ 0x81..=0x83 => {
                let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7F)).ok_or(Malformed(part))?;
                (
                    digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)),
                    rest,
                )
            }
            _ => return Err(Malformed(part)),
        };
        let (content, rest) = rest.split_at_checked(length).ok_or(Malformed(part))?;
        self.0 = rest;
        Ok((tag, content))
    }

    /// The content of the next value, which has this tag.
    fn expect(&mut self, tag: u8, part: &'static str) -> Result<&'d [u8], CertificateError> {
        match self.next(part)? {
            (found, content) if found == tag => Ok(content),
            _ => Err(Malformed(part)),
        }
    }
}

/// The dotted form of an identifier's content (X.690, 8.19).
fn object_identifier(content: &[u8]) -> Result<String, CertificateError> {
    const BAD: CertificateError = Malformed("subject");
    let (mut text, mut arc, mut is_first) = (String::new(), 0u64, true);
    for byte in content {
        arc = arc.checked_mul(128).ok_or(BAD)? | u64::from(byte & 0x7F);
        if byte & 0x80 != 0 {
            continue;
        }
        if is_first {
            let root = (arc / 40).min(2);
            text = format!("{root}.{}", arc - root * 40);
            is_first = false;
        } else {
            text.push_str(&format!(".{arc}"));
        }
        arc = 0;
    }
    match content.last() {
        Some(last) if last & 0x80 == 0 => Ok(text),
        _ => Err(BAD),
    }
}

/// The text of a value; `None` for what is no text.
fn text(tag: u8, content: &[u8]) -> Result<Option<String>, CertificateError> {
    const BAD: CertificateError = Malformed("subject");
    let utf8 = || String::from_utf8(content.to_vec()).map_err(|_| BAD);
    let latin1 = || content.iter().copied().map(char::from).collect();
    Ok(match tag {
        // UTF8String, NumericString, PrintableString, IA5String, VisibleString: the last four are ASCII.
        UTF8_STRING => Some(utf8()?),
        0x12 | 0x13 | 0x16 | 0x1A if content.is_ascii() => Some(utf8()?),
        0x12 | 0x13 | 0x16 | 0x1A => return Err(BAD),
        // TeletexString, which has been Latin 1 for all who wrote it.
        0x14 => Some(latin1()),
        // UniversalString and BMPString.
        0x1C if content.len().is_multiple_of(4) => {
            let point = |bytes: &[u8]| char::from_u32(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            Some(content.chunks_exact(4).map(point).collect::<Option<_>>().ok_or(BAD)?)
        }
        0x1E if content.len().is_multiple_of(2) => {
            let units = content
                .chunks_exact(2)
                .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
            let text: Result<String, _> = char::decode_utf16(units).collect();
            Some(text.map_err(|_| BAD)?)
        }
        0x1C | 0x1E => return Err(BAD),
        _ => None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
