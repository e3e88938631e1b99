//! Every byte of a segment; described in `docs/formats/log.md`.
//!
//! Encoding and decoding side by side. Knows no files. Decoding never panics: bytes that are no header yield `None` or
//! a [`Damage`].

use crate::Damage;
use crate::limits::{ENTRY_LENGTH_BYTES, FRAME_RAW_BYTES_MAX};
use codec::Codec;
use crypt::{Keys, SEAL_BYTES, Seal, SealError};
use engine::Seq;

/// First bytes of every segment.
pub(crate) const MAGIC: [u8; 8] = *b"TENONLOG";
/// The format this program writes.
pub(crate) const VERSION: u32 = 2;
/// The one before, which is still read: no terms, no states, no truncation.
const VERSION_1: u32 = 1;
/// Encoded length of a segment header.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 128;
const SEGMENT_HEADER_BYTES_1: usize = 64;
/// Where the first frame starts: the header has a block of its own, which frames never rewrite.
pub(crate) const FRAMES_START: u64 = 4096;
/// Encoded length of a frame header.
pub(crate) const FRAME_HEADER_BYTES: usize = 48;
const FRAME_HEADER_BYTES_1: usize = 40;
/// Length of a hard state, the payload of its frame.
pub(crate) const HARD_STATE_BYTES: usize = 24;
/// Frames start at multiples of this.
pub(crate) const FRAME_ALIGN: u64 = 8;
/// No position, number or length on disk exceeds this: sums of them do not overflow.
const POSITION_MAX: u64 = u64::MAX >> 2;

/// At the end of each segment header.
const CRC_BYTES: usize = 4;

const VERSION_AT: usize = 8;
const FLAGS_AT: usize = 12;
const NUMBER_AT: usize = 16;
const STAMP_AT: usize = 24;
const FIRST_AT: usize = 32;
const LENGTH_AT: usize = 40;
const MADE_AT: usize = 48;
const TERM_BEFORE_AT: usize = 56;
/// Of a sealed segment; in others it is reserved.
const SEAL_AT: usize = 64;
const RESERVED_AT: usize = 64;
const RESERVED_AT_1: usize = 48;

/// The flag of a segment that takes back the entries from its first one on that earlier segments hold.
const FLAG_TRUNCATES: u32 = 1;
/// The flag of a segment whose header and frames are sealed.
const FLAG_SEALED: u32 = 2;

const HEADER_CONTEXT: [u8; 8] = *b"logsegmt";
const FRAME_CONTEXT: [u8; 8] = *b"logframe";
/// What it is, the segment's number and stamp, the frame's offset, and its header without the checksums.
const FRAME_CONTEXT_BYTES: usize = 8 + 8 + 8 + 8 + FRAME_HEADER_BYTES - STORED_BYTES_AT;

const FRAME_CRC_AT: usize = 0;
const PAYLOAD_CRC_AT: usize = 4;
const STORED_BYTES_AT: usize = 8;
const RAW_BYTES_AT: usize = 12;
const ENTRIES_AT: usize = 16;
const CODEC_AT: usize = 20;
const KIND_AT: usize = 21;
const FRAME_RESERVED_AT: usize = 22;
const FRAME_FIRST_AT: usize = 24;
const GROUP_AT: usize = 32;
const TERM_AT: usize = 40;

/// The number of a segment; rises by one from segment to segment and is never used twice in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentNumber(pub u64);

/// A random number that tells one use of a file from another. It seeds the frames' checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(pub u64);

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub number: SegmentNumber,
    pub stamp: Stamp,
    /// Position of the first entry that this segment holds or will hold.
    pub first: Seq,
    /// Length of the file.
    pub file_bytes: u64,
    /// When it was made, in milliseconds since 1970; 0 when that is not known.
    pub made_ms: u64,
    /// The term of the entry before `first`.
    pub term_before: u64,
    /// Entries from `first` on in earlier segments are void.
    pub truncates: bool,
    /// The format it is written in.
    pub version: u32,
    /// The payloads of its frames are encrypted, and a seal stands before each.
    pub is_sealed: bool,
}

/// What the frame's payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Entries,
    /// A [`HardState`], in force from here on.
    State,
}

/// What a member of a replica set must not forget, kept beside the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The newest term it has seen.
    pub term: u64,
    /// Whom it voted for in that term; 0: nobody.
    pub vote: u64,
    /// The last entry it knows to be committed.
    pub commit: Seq,
}

/// What a frame says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub payload_crc: u32,
    /// Bytes of the payload as stored, with the seal before it if there is one.
    pub stored_bytes: u32,
    /// Bytes of the payload decompressed.
    pub raw_bytes: u32,
    pub kind: FrameKind,
    /// Number of entries: at least 1, and 0 of other kinds.
    pub entries: u32,
    pub codec: Codec,
    /// Position of the first entry; of other kinds that of the entry to come.
    pub first: Seq,
    /// The term of the entries.
    pub term: u64,
    /// Offset of the first frame of the group this frame was written with. All before it had been synced by then.
    pub group_start: u64,
}

/// A version this program does not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Damage(Damage),
    Version(u32),
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

impl HardState {
    pub(crate) fn encode(&self) -> [u8; HARD_STATE_BYTES] {
        let mut bytes = [0; HARD_STATE_BYTES];
        put(&mut bytes, 0, &self.term.to_le_bytes());
        put(&mut bytes, 8, &self.vote.to_le_bytes());
        put(&mut bytes, 16, &self.commit.0.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        (bytes.len() == HARD_STATE_BYTES).then(|| Self {
            term: u64_at(bytes, 0),
            vote: u64_at(bytes, 8),
            commit: Seq(u64_at(bytes, 16)),
        })
    }
}

impl SegmentHeader {
    /// Always in the newest format; of a sealed segment `keys` are those of the log.
    pub fn encode(&self, keys: Option<&Keys>) -> [u8; SEGMENT_HEADER_BYTES] {
        debug_assert_eq!(self.version, VERSION, "nothing older is written");
        debug_assert_eq!(self.is_sealed, keys.is_some(), "all of a log is sealed or nothing");
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, VERSION_AT, &VERSION.to_le_bytes());
        let truncates = if self.truncates { FLAG_TRUNCATES } else { 0 };
        let flags = truncates | if keys.is_some() { FLAG_SEALED } else { 0 };
        put(&mut bytes, FLAGS_AT, &flags.to_le_bytes());
        put(&mut bytes, NUMBER_AT, &self.number.0.to_le_bytes());
        put(&mut bytes, STAMP_AT, &self.stamp.0.to_le_bytes());
        put(&mut bytes, FIRST_AT, &self.first.0.to_le_bytes());
        put(&mut bytes, LENGTH_AT, &self.file_bytes.to_le_bytes());
        put(&mut bytes, MADE_AT, &self.made_ms.to_le_bytes());
        put(&mut bytes, TERM_BEFORE_AT, &self.term_before.to_le_bytes());
        if let Some(keys) = keys {
            let seal = keys.seal(&header_context(&bytes), &mut []);
            put(&mut bytes, SEAL_AT, &seal);
        }
        let crc_at = SEGMENT_HEADER_BYTES - CRC_BYTES;
        let crc = crc32c::crc32c(&bytes[..crc_at]);
        put(&mut bytes, crc_at, &crc.to_le_bytes());
        bytes
    }

    /// The version is looked at before the checksum, so that a later format may move the rest.
    pub fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES], keys: Option<&Keys>) -> Result<Self, HeaderError> {
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(HeaderError::Damage(Damage::Magic));
        }
        let version = u32_at(bytes, VERSION_AT);
        let (length, reserved_at) = match version {
            VERSION_1 => (SEGMENT_HEADER_BYTES_1, RESERVED_AT_1),
            _ if version > VERSION => return Err(HeaderError::Version(version)),
            _ => (SEGMENT_HEADER_BYTES, RESERVED_AT),
        };
        let crc_at = length - CRC_BYTES;
        let expected = crc32c::crc32c(&bytes[..crc_at]);
        let found = u32_at(bytes, crc_at);
        if expected != found {
            return Err(HeaderError::Damage(Damage::HeaderChecksum { expected, found }));
        }
        let field = |field, expected, found| HeaderError::Damage(Damage::HeaderField { field, expected, found });
        if version == 0 {
            return Err(field("version", u64::from(VERSION), u64::from(version)));
        }
        let flags = u32_at(bytes, FLAGS_AT);
        let known_flags = if version == VERSION_1 {
            0
        } else {
            FLAG_TRUNCATES | FLAG_SEALED
        };
        let is_sealed = flags & FLAG_SEALED & known_flags != 0;
        let reserved_at = if is_sealed { SEAL_AT + SEAL_BYTES } else { reserved_at };
        if flags & !known_flags != 0 || bytes[reserved_at..crc_at].iter().any(|&byte| byte != 0) {
            return Err(field("reserved", 0, 1));
        }
        match keys {
            Some(keys) if is_sealed => check_header_seal(bytes, keys).map_err(HeaderError::Damage)?,
            None if !is_sealed => {}
            _ => return Err(HeaderError::Damage(Damage::Sealing { is_sealed })),
        }
        let (number, first) = (u64_at(bytes, NUMBER_AT), u64_at(bytes, FIRST_AT));
        let file_bytes = u64_at(bytes, LENGTH_AT);
        for (name, value, min) in [
            ("number", number, 1),
            ("first_seq", first, 1),
            ("file_bytes", file_bytes, FRAMES_START),
        ] {
            if !(min..=POSITION_MAX).contains(&value) {
                return Err(field(name, min, value));
            }
        }
        let since_2 = |at| if version == VERSION_1 { 0 } else { u64_at(bytes, at) };
        Ok(Self {
            number: SegmentNumber(number),
            stamp: Stamp(u64_at(bytes, STAMP_AT)),
            first: Seq(first),
            file_bytes,
            made_ms: since_2(MADE_AT),
            term_before: since_2(TERM_BEFORE_AT),
            truncates: flags & FLAG_TRUNCATES != 0,
            version,
            is_sealed,
        })
    }

    /// Bytes of the seal before each payload.
    pub fn seal_bytes(&self) -> usize {
        if self.is_sealed { SEAL_BYTES } else { 0 }
    }

    /// Frames can be appended to it: it is of the newest format.
    pub fn is_current(&self) -> bool {
        self.version == VERSION
    }

    /// Length of the headers of its frames.
    pub fn frame_header_bytes(&self) -> usize {
        match self.version {
            VERSION_1 => FRAME_HEADER_BYTES_1,
            _ => FRAME_HEADER_BYTES,
        }
    }
}

fn header_context(header: &[u8]) -> Vec<u8> {
    [&HEADER_CONTEXT, &header[..SEAL_AT]].concat()
}

fn check_header_seal(header: &[u8; SEGMENT_HEADER_BYTES], keys: &Keys) -> Result<(), Damage> {
    let seal = header[SEAL_AT..].first_chunk().expect("the header has room for it");
    keys.open(&header_context(header), seal, &mut []).map_err(Damage::Seal)
}

/// The checksum of a frame header: also of where the frame stands and of the segment's stamp, so that neither a frame
/// of the file's earlier life nor one written to a wrong place is taken for a frame.
fn frame_crc(header: &[u8], stamp: Stamp, offset: u64) -> u32 {
    let crc = crc32c::crc32c(&stamp.0.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &offset.to_le_bytes());
    crc32c::crc32c_append(crc, &header[PAYLOAD_CRC_AT..])
}

impl FrameHeader {
    /// Always in the newest format.
    pub fn encode(&self, stamp: Stamp, offset: u64) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        put(&mut bytes, PAYLOAD_CRC_AT, &self.payload_crc.to_le_bytes());
        put(&mut bytes, STORED_BYTES_AT, &self.stored_bytes.to_le_bytes());
        put(&mut bytes, RAW_BYTES_AT, &self.raw_bytes.to_le_bytes());
        put(&mut bytes, ENTRIES_AT, &self.entries.to_le_bytes());
        bytes[CODEC_AT] = self.codec.tag();
        bytes[KIND_AT] = self.kind.tag();
        put(&mut bytes, FRAME_FIRST_AT, &self.first.0.to_le_bytes());
        put(&mut bytes, GROUP_AT, &self.group_start.to_le_bytes());
        put(&mut bytes, TERM_AT, &self.term.to_le_bytes());
        let crc = frame_crc(&bytes, stamp, offset);
        put(&mut bytes, FRAME_CRC_AT, &crc.to_le_bytes());
        bytes
    }

    /// What the frame is, and where it stands.
    fn context(&self, segment: &SegmentHeader, offset: u64) -> [u8; FRAME_CONTEXT_BYTES] {
        let mut context = [0; FRAME_CONTEXT_BYTES];
        put(&mut context, 0, &FRAME_CONTEXT);
        put(&mut context, 8, &segment.number.0.to_le_bytes());
        put(&mut context, 16, &segment.stamp.0.to_le_bytes());
        put(&mut context, 24, &offset.to_le_bytes());
        put(&mut context, 32, &self.encode(segment.stamp, offset)[STORED_BYTES_AT..]);
        context
    }

    /// Encrypts the payload, in front of which there is room for the seal.
    pub fn seal(&self, segment: &SegmentHeader, offset: u64, payload: &mut [u8], keys: &Keys) {
        let (seal, text) = payload.split_at_mut(SEAL_BYTES);
        seal.copy_from_slice(&keys.seal(&self.context(segment, offset), text));
    }

    /// Puts the payload, decrypted, into `plain`.
    pub fn open(
        &self,
        segment: &SegmentHeader,
        offset: u64,
        payload: &[u8],
        keys: &Keys,
        plain: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        let (seal, text): (&Seal, _) = payload.split_first_chunk().ok_or(SealError::Tag)?;
        plain.clear();
        plain.extend_from_slice(text);
        keys.open(&self.context(segment, offset), seal, plain)
    }

    /// The header at `offset` of that segment; `None` when the bytes are none. Cheap tests come first, since a scan
    /// tries every eighth byte.
    pub fn decode(bytes: &[u8], segment: &SegmentHeader, offset: u64) -> Option<Self> {
        let bytes = bytes.get(..segment.frame_header_bytes())?;
        if bytes[FRAME_RESERVED_AT..FRAME_FIRST_AT] != [0; FRAME_FIRST_AT - FRAME_RESERVED_AT] {
            return None;
        }
        let header = Self {
            payload_crc: u32_at(bytes, PAYLOAD_CRC_AT),
            stored_bytes: u32_at(bytes, STORED_BYTES_AT),
            raw_bytes: u32_at(bytes, RAW_BYTES_AT),
            kind: match bytes[KIND_AT] {
                0 => FrameKind::Entries,
                1 if segment.version > VERSION_1 => FrameKind::State,
                _ => return None,
            },
            entries: u32_at(bytes, ENTRIES_AT),
            codec: Codec::from_tag(bytes[CODEC_AT]).ok()?,
            first: Seq(u64_at(bytes, FRAME_FIRST_AT)),
            group_start: u64_at(bytes, GROUP_AT),
            term: if segment.version == VERSION_1 {
                0
            } else {
                u64_at(bytes, TERM_AT)
            },
        };
        let raw_bytes = header.raw_bytes as usize;
        let fits_kind = match header.kind {
            FrameKind::Entries => {
                header.entries > 0
                    && raw_bytes <= FRAME_RAW_BYTES_MAX
                    && header.entries as usize <= raw_bytes / ENTRY_LENGTH_BYTES
            }
            FrameKind::State => header.entries == 0 && raw_bytes == HARD_STATE_BYTES && header.codec == Codec::None,
        };
        let plausible = fits_kind
            && header.stored_bytes as usize > segment.seal_bytes()
            && header.stored_bytes as usize <= raw_bytes + segment.seal_bytes()
            && (FRAMES_START..=offset).contains(&header.group_start)
            && header.first.0 <= POSITION_MAX;
        (plausible && u32_at(bytes, FRAME_CRC_AT) == frame_crc(bytes, segment.stamp, offset)).then_some(header)
    }

    /// Offset behind the frame that stands at `offset` of the segment, padding included.
    pub fn end(&self, segment: &SegmentHeader, offset: u64) -> u64 {
        padded(offset + segment.frame_header_bytes() as u64 + u64::from(self.stored_bytes))
    }

    /// The position after the frame's last entry.
    pub fn next_seq(&self) -> Seq {
        Seq(self.first.0 + u64::from(self.entries))
    }
}

impl FrameKind {
    fn tag(self) -> u8 {
        match self {
            FrameKind::Entries => 0,
            FrameKind::State => 1,
        }
    }
}

/// The next multiple of [`FRAME_ALIGN`].
pub(crate) fn padded(offset: u64) -> u64 {
    offset.next_multiple_of(FRAME_ALIGN)
}

/// Cuts the next entry off a raw frame: its length, or `None` when the bytes end too soon.
pub(crate) fn entry_length(raw: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(raw.get(..ENTRY_LENGTH_BYTES)?.try_into().ok()?) as usize;
    (raw.len() - ENTRY_LENGTH_BYTES >= length).then_some(length)
}

/// Every size, offset, tag and limit of the format, one per line. A test compares it with a checked-in file, so that no
/// change of format goes unseen.
pub fn layout_description() -> String {
    use crate::limits;
    use std::fmt::Write;
    let mut text = format!(
        "magic {:?} version {VERSION} little endian\n",
        String::from_utf8_lossy(&MAGIC)
    );
    let mut line = |name: &str, value: u64| {
        writeln!(text, "{name} {value}").expect("writing to a string");
    };
    line("segment_header.bytes", SEGMENT_HEADER_BYTES as u64);
    line("segment_header.magic.at", 0);
    line("segment_header.version.at", VERSION_AT as u64);
    line("segment_header.flags.at", FLAGS_AT as u64);
    line("segment_header.number.at", NUMBER_AT as u64);
    line("segment_header.stamp.at", STAMP_AT as u64);
    line("segment_header.first_seq.at", FIRST_AT as u64);
    line("segment_header.file_bytes.at", LENGTH_AT as u64);
    line("segment_header.made_ms.at", MADE_AT as u64);
    line("segment_header.term_before.at", TERM_BEFORE_AT as u64);
    line("segment_header.reserved.at", RESERVED_AT as u64);
    line("segment_header.crc32c.at", (SEGMENT_HEADER_BYTES - CRC_BYTES) as u64);
    line("segment_header.flag.truncates", u64::from(FLAG_TRUNCATES));
    line("segment_header.flag.sealed", u64::from(FLAG_SEALED));
    line("segment_header.seal.at", SEAL_AT as u64);
    line("seal.bytes", SEAL_BYTES as u64);
    line("frames.start", FRAMES_START);
    line("frames.align", FRAME_ALIGN);
    line("frame_header.bytes", FRAME_HEADER_BYTES as u64);
    line("frame_header.header_crc32c.at", FRAME_CRC_AT as u64);
    line("frame_header.payload_crc32c.at", PAYLOAD_CRC_AT as u64);
    line("frame_header.stored_bytes.at", STORED_BYTES_AT as u64);
    line("frame_header.raw_bytes.at", RAW_BYTES_AT as u64);
    line("frame_header.entries.at", ENTRIES_AT as u64);
    line("frame_header.codec.at", CODEC_AT as u64);
    line("frame_header.kind.at", KIND_AT as u64);
    line("frame_header.reserved.at", FRAME_RESERVED_AT as u64);
    line("frame_header.first_seq.at", FRAME_FIRST_AT as u64);
    line("frame_header.group_start.at", GROUP_AT as u64);
    line("frame_header.term.at", TERM_AT as u64);
    line("frame_kind.entries.tag", u64::from(FrameKind::Entries.tag()));
    line("frame_kind.state.tag", u64::from(FrameKind::State.tag()));
    line("hard_state.bytes", HARD_STATE_BYTES as u64);
    line("version_1.segment_header.bytes", SEGMENT_HEADER_BYTES_1 as u64);
    line("version_1.segment_header.reserved.at", RESERVED_AT_1 as u64);
    line("version_1.frame_header.bytes", FRAME_HEADER_BYTES_1 as u64);
    line("position.max", POSITION_MAX);
    line("entry.length.bytes", ENTRY_LENGTH_BYTES as u64);
    line("entry.bytes.max", limits::ENTRY_BYTES_MAX as u64);
    line("frame.raw_bytes.max", FRAME_RAW_BYTES_MAX as u64);
    line("frame.raw_bytes.target", limits::FRAME_RAW_BYTES_TARGET as u64);
    line("frame.compress_from_raw_bytes", limits::COMPRESS_RAW_BYTES_MIN as u64);
    line("segment.bytes.min", limits::SEGMENT_BYTES_MIN);
    line("segment.bytes.max", limits::SEGMENT_BYTES_MAX);
    for codec in Codec::ALL {
        line(&format!("codec.{codec}.tag"), u64::from(codec.tag()));
    }
    text
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
