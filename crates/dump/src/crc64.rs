//! CRC-64 of ECMA-182 in its reflected form (CRC-64/XZ), which archives end each namespace with.

const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;

const TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
}

/// The checksum of what has been added so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crc64(u64);

impl Crc64 {
    pub(crate) fn new() -> Self {
        Self(u64::MAX)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = TABLE[usize::from(self.0 as u8 ^ byte)] ^ self.0 >> 8;
        }
    }

    pub(crate) fn sum(self) -> u64 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Crc64;

    /// The check value that catalogues of checksums give for CRC-64/XZ.
    #[test]
    fn published_check_value() {
        let mut crc = Crc64::new();
        crc.add(b"1234");
        crc.add(b"56789");
        assert_eq!(crc.sum(), 0x995D_C9BB_DF19_39FA);
        assert_eq!(Crc64::new().sum(), 0);
    }
}
