//! Reading and writing of numbers and byte strings in units. Little endian; lengths are LEB128.

/// What is wrong with bytes that were read: the field.
pub(crate) type Damage = &'static str;

pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads from the front; everything is checked against the end.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Damage> {
        let byte = *self.bytes.get(self.at).ok_or("an end that comes too early")?;
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Damage> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four were taken")))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Damage> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight were taken")))
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Damage> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number of more than 64 bits")
    }

    #[inline]
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Damage> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or("a length that passes the end")?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Damage> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| "a length that passes the end")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_come_back_and_short_input_is_damage() {
        let mut out = Vec::new();
        for number in [0, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            out.clear();
            put_varint(&mut out, number);
            assert_eq!(Reader::new(&out).varint(), Ok(number));
            assert!(Reader::new(&out[..out.len() - 1]).varint().is_err());
        }
        out.clear();
        put_bytes(&mut out, b"abc");
        assert_eq!(Reader::new(&out).bytes(), Ok(&b"abc"[..]));
        assert!(Reader::new(&out[..3]).bytes().is_err());
        assert!(Reader::new(&[0xff; 11]).varint().is_err());
    }
}
