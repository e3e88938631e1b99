//! From where a user may come and at which of the server's addresses: `authenticationRestrictions`.

use std::net::IpAddr;
use std::str::FromStr;

/// Addresses with the same beginning: `10.1.0.0/16`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    bits: u128,
    mask: u128,
    version_6: bool,
}

impl FromStr for AddressRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let (bits, version_6) = bits(address);
        let most = if version_6 { 128 } else { 32 };
        let length: u32 = match length {
            // No sign, no blanks, no leading zeros.
            Some(length) if length.bytes().all(|byte| byte.is_ascii_digit()) => length.parse().map_err(|_| ())?,
            Some(_) => return Err(()),
            None => most,
        };
        if length > most {
            return Err(());
        }
        let mask = match length {
            0 => 0,
            length => u128::MAX << (128 - length),
        };
        Ok(Self {
            bits: bits & mask,
            mask,
            version_6,
        })
    }
}

impl AddressRange {
    fn has(&self, address: IpAddr) -> bool {
        // A version 4 address on a version 6 socket is still one of version 4.
        let (bits, version_6) = bits(address.to_canonical());
        version_6 == self.version_6 && bits & self.mask == self.bits
    }
}

/// The bits of an address from the highest on, and whether it is one of version 6.
fn bits(address: IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, false),
        IpAddr::V6(address) => (u128::from(address), true),
    }
}

/// One restriction: all that it has must hold. Without addresses it holds always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restriction {
    /// `clientSource`: the client must come from one of these.
    pub client_source: Option<Vec<AddressRange>>,
    /// `serverAddress`: it must have connected to one of these.
    pub server_address: Option<Vec<AddressRange>>,
}

/// The two ends of a connection; none for a Unix-domain socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Where the client is.
    pub client: Option<IpAddr>,
    /// The server's end.
    pub server: Option<IpAddr>,
}

impl Restriction {
    fn holds(&self, ends: Ends) -> bool {
        let one_of = |ranges: &Option<Vec<AddressRange>>, address: Option<IpAddr>| {
            let has = |ranges: &Vec<AddressRange>| {
                address.is_some_and(|address| ranges.iter().any(|range| range.has(address)))
            };
            ranges.as_ref().is_none_or(has)
        };
        one_of(&self.client_source, ends.client) && one_of(&self.server_address, ends.server)
    }
}

/// The restrictions of one user or role: one of them must hold, or there is none.
pub fn restrictions_allow(restrictions: &[Restriction], ends: Ends) -> bool {
    restrictions.is_empty() || restrictions.iter().any(|restriction| restriction.holds(ends))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn within(range: &str, address: &str) -> bool {
        range.parse::<AddressRange>().unwrap().has(address.parse().unwrap())
    }

    #[test]
    fn a_range_has_the_addresses_of_its_beginning() {
        assert!(within("10.1.0.0/16", "10.1.255.3") && !within("10.1.0.0/16", "10.2.0.1"));
        assert!(within("127.0.0.1", "127.0.0.1") && !within("127.0.0.1", "127.0.0.2"));
        assert!(within("0.0.0.0/0", "8.8.8.8") && !within("0.0.0.0/0", "::1"));
        assert!(within("2001:db8::/32", "2001:db8:1::5") && within("10.0.0.0/8", "::ffff:10.0.0.1"));
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "localhost",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "::1/129",
            "10.0.0.0/8/8",
        ] {
            assert!(bad.parse::<AddressRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn one_restriction_must_hold_with_all_it_has() {
        let ends = Ends {
            client: Some("10.0.0.1".parse().unwrap()),
            server: Some("10.0.0.9".parse().unwrap()),
        };
        let of = |client: &str, server: Option<&str>| Restriction {
            client_source: Some(vec![client.parse().unwrap()]),
            server_address: server.map(|server| vec![server.parse().unwrap()]),
        };
        assert!(restrictions_allow(&[], Ends::default()));
        assert!(
            restrictions_allow(&[of("10.0.0.0/8", None)], ends) && !restrictions_allow(&[of("11.0.0.0/8", None)], ends)
        );
        assert!(!restrictions_allow(&[of("10.0.0.0/8", Some("10.0.0.8"))], ends));
        assert!(restrictions_allow(
            &[of("11.0.0.0/8", None), of("10.0.0.1", Some("10.0.0.9"))],
            ends
        ));
        // A socket without addresses is in no range.
        assert!(!restrictions_allow(&[of("0.0.0.0/0", None)], Ends::default()));
    }
}
