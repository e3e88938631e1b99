//! Blocks whose bytes are compressed in *sections*, each for itself: who looks for little decompresses little.
//!
//! The stored bytes begin with a table, the raw and the stored length of each section, and the sections follow without
//! gaps. A section that compression does not shorten is stored as it is.

use crate::block::{BlockHeader, Mismatch, mismatch};
use crate::read::damaged;
use crate::volume::Volume;
use crate::{Result, limits};
use codec::{Codec, CodecError, Compressor, Decompressor};

/// A section's raw and its stored length, of sixteen bits each.
pub(crate) const ENTRY_BYTES: usize = 4;

type Entry = [u8; ENTRY_BYTES];

/// The lengths of the sections that `cuts` make of so many bytes; none for a block that is compressed as a whole, as
/// one is where a section would be too long for the table.
pub(crate) fn lengths(raw_bytes: usize, cuts: &[usize]) -> Vec<usize> {
    let ends = cuts.iter().copied().chain([raw_bytes]);
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let lengths: Vec<usize> = starts.zip(ends).map(|(start, end)| end - start).collect();
    let fits = |length: &usize| (1..=limits::SECTION_BYTES_MAX).contains(length);
    let is_cut = (2..=limits::SECTIONS_MAX).contains(&lengths.len()) && lengths.iter().all(fits);
    if is_cut { lengths } else { Vec::new() }
}

/// Appends table and sections of these lengths.
pub(crate) fn compress(
    compressor: &mut Compressor,
    raw: &[u8],
    lengths: &[usize],
    out: &mut Vec<u8>,
) -> std::result::Result<(), CodecError> {
    let table = out.len();
    out.resize(table + ENTRY_BYTES * lengths.len(), 0);
    let mut rest = raw;
    for (number, &length) in lengths.iter().enumerate() {
        let (section, after) = rest.split_at(length);
        rest = after;
        let start = out.len();
        let mut stored = compressor.compress(section, out)?;
        if stored >= length {
            out.truncate(start);
            out.extend_from_slice(section);
            stored = length;
        }
        let entry = [length as u16, stored as u16].map(u16::to_le_bytes);
        out[table + ENTRY_BYTES * number..][..ENTRY_BYTES].copy_from_slice(entry.as_flattened());
    }
    debug_assert!(rest.is_empty(), "the lengths add up");
    Ok(())
}

/// What is between the table and the end, and the table, which says no more than there is.
fn split<'b>(header: &BlockHeader, stored: &'b [u8]) -> std::result::Result<(&'b [Entry], &'b [u8]), Mismatch> {
    let table_bytes = ENTRY_BYTES * usize::from(header.sections);
    let Some((table, rest)) = stored.split_at_checked(table_bytes) else {
        return Err(mismatch(
            "sections' table",
            format!("{table_bytes} bytes"),
            stored.len(),
        ));
    };
    let (entries, _) = table.as_chunks::<ENTRY_BYTES>();
    let (mut raw_bytes, mut stored_bytes) = (0, 0);
    for (raw, stored) in entries.iter().map(lengths_of) {
        if stored == 0 || stored > raw {
            return Err(mismatch("a section's stored length", format!("1 to {raw}"), stored));
        }
        raw_bytes += raw;
        stored_bytes += stored;
    }
    if (raw_bytes, stored_bytes) != (header.raw_bytes as usize, rest.len()) {
        let expected = format!("{} and {}", header.raw_bytes, rest.len());
        let found = format!("{raw_bytes} and {stored_bytes}");
        return Err(mismatch("sections' lengths", expected, found));
    }
    Ok((entries, rest))
}

/// Raw and stored.
fn lengths_of(entry: &Entry) -> (usize, usize) {
    let [raw, stored] =
        [[entry[0], entry[1]], [entry[2], entry[3]]].map(|bytes| usize::from(u16::from_le_bytes(bytes)));
    (raw, stored)
}

/// How a section is stored: as it is where it is as long.
fn codec_of(codec: Codec, stored: &[u8], raw_bytes: usize) -> Codec {
    if stored.len() == raw_bytes { Codec::None } else { codec }
}

fn decompress_one(
    codec: Codec,
    stored: &[u8],
    decompressor: &mut Decompressor,
    raw: &mut [u8],
) -> std::result::Result<(), Mismatch> {
    decompressor
        .decompress_into(codec, stored, raw)
        .map_err(|error| mismatch("content", "compressed bytes", error))
}

/// Fills `raw`, which is as long as the header says, with a block's raw bytes, in sections or not.
pub(crate) fn decompress(
    header: &BlockHeader,
    stored: &[u8],
    decompressor: &mut Decompressor,
    raw: &mut [u8],
) -> std::result::Result<(), Mismatch> {
    if header.sections == 0 {
        return decompress_one(header.codec, stored, decompressor, raw);
    }
    let (entries, stored) = split(header, stored)?;
    decompress_each(header.codec, entries, stored, decompressor, raw)
}

/// Fills `raw` with what the sections of these lengths decompress to.
fn decompress_each(
    codec: Codec,
    entries: &[Entry],
    mut stored: &[u8],
    decompressor: &mut Decompressor,
    mut raw: &mut [u8],
) -> std::result::Result<(), Mismatch> {
    for (raw_bytes, stored_bytes) in entries.iter().map(lengths_of) {
        let (section, raw_after) = raw.split_at_mut(raw_bytes);
        let (bytes, stored_after) = stored.split_at(stored_bytes);
        decompress_one(codec_of(codec, bytes, raw_bytes), bytes, decompressor, section)?;
        (raw, stored) = (raw_after, stored_after);
    }
    Ok(())
}

/// The sections of a block whose checksum is right, decompressed when they are asked for. A block that was compressed
/// as a whole is one section.
pub struct Sections<'b> {
    volume: &'b Volume,
    header: BlockHeader,
    /// None for one that was compressed as a whole.
    entries: &'b [Entry],
    stored: &'b [u8],
    buffer: &'b mut Vec<u8>,
    /// So many bytes of it are all raw bytes of the block.
    whole_bytes: Option<usize>,
    decompressor: &'b mut Decompressor,
}

impl<'b> Sections<'b> {
    pub(crate) fn new(
        volume: &'b Volume,
        header: BlockHeader,
        stored: &'b [u8],
        buffer: &'b mut Vec<u8>,
        decompressor: &'b mut Decompressor,
    ) -> std::result::Result<Self, Mismatch> {
        let (entries, stored) = match header.sections {
            0 => (&[][..], stored),
            _ => split(&header, stored)?,
        };
        Ok(Self {
            volume,
            header,
            entries,
            stored,
            buffer,
            whole_bytes: None,
            decompressor,
        })
    }

    /// So many bytes of the buffer are all raw bytes of the block, if they are.
    pub(crate) fn whole_bytes(&self) -> Option<usize> {
        self.whole_bytes
    }

    /// Number of sections, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.entries.len().max(1)
    }

    /// The raw bytes of all, without the label.
    pub fn get_all(&mut self) -> Result<&[u8]> {
        if self.entries.is_empty() {
            return self.get(0);
        }
        let raw_bytes = self.header.raw_bytes as usize;
        if self.buffer.len() < raw_bytes {
            self.buffer.resize(raw_bytes, 0);
        }
        self.whole_bytes = None;
        let raw = &mut self.buffer[..raw_bytes];
        decompress_each(self.header.codec, self.entries, self.stored, self.decompressor, raw)
            .map_err(|mismatch| damaged(self.volume, self.header.sector, mismatch))?;
        let bytes = self.header.content_bytes();
        self.whole_bytes = Some(bytes);
        Ok(&self.buffer[..bytes])
    }

    /// The raw bytes of one; of the last one of all without the label. Panics past the end.
    pub fn get(&mut self, number: usize) -> Result<&[u8]> {
        let content_bytes = self.header.content_bytes();
        let (stored, raw_bytes, codec) = match self.entries {
            [] => {
                assert_eq!(number, 0, "a block of one section");
                (self.stored, self.header.raw_bytes as usize, self.header.codec)
            }
            entries => {
                let before: usize = entries[..number].iter().map(|entry| lengths_of(entry).1).sum();
                let (raw_bytes, stored_bytes) = lengths_of(&entries[number]);
                let stored = &self.stored[before..before + stored_bytes];
                (stored, raw_bytes, codec_of(self.header.codec, stored, raw_bytes))
            }
        };
        if codec == Codec::None && stored.len() == raw_bytes {
            // The buffer is as it was.
            return Ok(&stored[..raw_bytes.min(content_bytes)]);
        }
        if self.buffer.len() < raw_bytes {
            self.buffer.resize(raw_bytes, 0);
        }
        // What was there goes, whatever comes of it.
        self.whole_bytes = None;
        let raw = &mut self.buffer[..raw_bytes];
        decompress_one(codec, stored, self.decompressor, raw)
            .map_err(|mismatch| damaged(self.volume, self.header.sector, mismatch))?;
        let bytes = raw_bytes.min(content_bytes);
        self.whole_bytes = self.entries.is_empty().then_some(bytes);
        Ok(&raw[..bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockKind, VolumeId};

    const RAW: [usize; 3] = [300, 20, 400];

    /// A block of three sections, of which the second does not compress, and its raw bytes.
    fn block() -> (BlockHeader, Vec<u8>, Vec<u8>) {
        let noise = (0..20).map(|number| number * 11);
        let raw: Vec<u8> = [7; 300].into_iter().chain(noise).chain([8; 400]).collect();
        let mut stored = Vec::new();
        let mut compressor = Compressor::new(Codec::Lz4).unwrap();
        compress(&mut compressor, &raw, &RAW, &mut stored).unwrap();
        let header = BlockHeader {
            kind: BlockKind::Leaf,
            codec: Codec::Lz4,
            owner: 1,
            volume: VolumeId::MAIN,
            label_bytes: 0,
            sections: 3,
            raw_bytes: raw.len() as u32,
            stored_bytes: stored.len() as u32,
            sector: 1,
            checkpoint: 1,
            is_sealed: false,
        };
        (header, stored, raw)
    }

    fn decompressed(header: &BlockHeader, stored: &[u8]) -> std::result::Result<Vec<u8>, Mismatch> {
        let mut raw = vec![1; header.raw_bytes as usize];
        decompress(header, stored, &mut Decompressor::new(), &mut raw).map(|()| raw)
    }

    #[test]
    fn the_table_tells_lengths() {
        let (header, stored, raw) = block();
        assert_eq!(decompressed(&header, &stored), Ok(raw));
        let (entries, rest) = split(&header, &stored).unwrap();
        let lengths: Vec<_> = entries.iter().map(lengths_of).collect();
        assert_eq!(lengths[1], (20, 20));
        assert_eq!(lengths.iter().map(|(raw, _)| *raw).collect::<Vec<_>>(), RAW);
        assert_eq!(lengths.iter().map(|(_, stored)| stored).sum::<usize>(), rest.len());
    }

    #[test]
    fn a_table_that_lies_is_damage() {
        let (header, stored, raw) = block();
        for at in 0..stored.len() {
            for byte in 0..=255 {
                let mut other = stored.clone();
                other[at] = byte;
                let in_table = at < 3 * ENTRY_BYTES && byte != stored[at];
                match decompressed(&header, &other) {
                    Ok(found) => assert!(found.len() == raw.len() && !in_table, "byte {at} is {byte}"),
                    Err((what, ..)) => assert!(in_table || what == "content", "{what}: byte {at} is {byte}"),
                }
            }
        }
        for sections in [2, 4, 200, u16::MAX] {
            assert!(
                decompressed(&BlockHeader { sections, ..header }, &stored).is_err(),
                "{sections}"
            );
        }
        for length in 0..stored.len() {
            assert!(decompressed(&header, &stored[..length]).is_err(), "{length} bytes");
        }
        for raw_bytes in [0, header.raw_bytes - 1, header.raw_bytes + 1] {
            assert!(
                decompressed(&BlockHeader { raw_bytes, ..header }, &stored).is_err(),
                "{raw_bytes}"
            );
        }
    }

    #[test]
    fn what_the_table_cannot_tell_is_not_cut() {
        let max = limits::SECTION_BYTES_MAX;
        assert_eq!(lengths(10, &[]), Vec::<usize>::new());
        assert_eq!(lengths(10, &[4, 9]), [4, 5, 1]);
        for (raw_bytes, cuts) in [
            (max + 2, vec![1]),
            (max + 2, vec![max + 1]),
            (10, vec![0, 4]),
            (10, vec![10]),
            (10, vec![4, 4]),
        ] {
            assert_eq!(lengths(raw_bytes, &cuts), Vec::<usize>::new(), "{cuts:?}");
        }
        assert_eq!(lengths(2 * max, &[max]), [max, max]);
    }
}
