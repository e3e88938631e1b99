//! The directory: the volumes, and where the maps of their sectors lie. Described in `docs/formats/btree-blocks.md`.
//!
//! Three levels, each a block that is written anew when something below it changed: the directory lists for each volume
//! its index blocks, an index block lists map pages, a map page holds a bit for each of 32,768 sectors.

use crate::block::{Mismatch, mismatch, u32_at};
use crate::limits::VOLUME_NAME_BYTES_MAX;
use crate::superblock::encode_address;
use crate::{BlockAddr, VolumeId};

/// Length of a map page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Sectors that a map page describes.
pub(crate) const PAGE_SECTORS: u64 = PAGE_BYTES as u64 * 8;
/// Map pages that an index block lists.
pub(crate) const INDEX_PAGES: usize = 256;
pub(crate) const INDEX_BYTES: usize = INDEX_PAGES * BlockAddr::ENCODED_BYTES;
pub(crate) const DIRECTORY_HEADER_BYTES: usize = 8;
pub(crate) const DIRECTORY_VOLUME_BYTES: usize = 10;

/// A volume in the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DirectoryVolume {
    pub id: VolumeId,
    pub name: String,
    pub index: Vec<Option<BlockAddr>>,
}

/// All volumes, by rising id, the main one first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Directory {
    /// The id of the next new volume; ids are never used again.
    pub next_volume: u32,
    pub volumes: Vec<DirectoryVolume>,
}

impl Directory {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.next_volume.to_le_bytes());
        out.extend_from_slice(&(self.volumes.len() as u32).to_le_bytes());
        for volume in &self.volumes {
            out.extend_from_slice(&volume.id.0.to_le_bytes());
            out.extend_from_slice(&(volume.name.len() as u16).to_le_bytes());
            out.extend_from_slice(&(volume.index.len() as u32).to_le_bytes());
            out.extend_from_slice(volume.name.as_bytes());
            for address in &volume.index {
                encode_address(*address, &mut out);
            }
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Mismatch> {
        let mut rest = bytes;
        let header = take(&mut rest, DIRECTORY_HEADER_BYTES)?;
        let mut directory = Self {
            next_volume: u32_at(header, 0),
            volumes: Vec::new(),
        };
        for _ in 0..u32_at(header, 4) {
            let fields = take(&mut rest, DIRECTORY_VOLUME_BYTES)?;
            let id = VolumeId(u32_at(fields, 0));
            let name_bytes = usize::from(u16::from_le_bytes([fields[4], fields[5]]));
            let index_bytes = (u32_at(fields, 6) as usize).saturating_mul(BlockAddr::ENCODED_BYTES);
            let name = str::from_utf8(take(&mut rest, name_bytes)?)
                .map_err(|error| mismatch("volume's name", "UTF-8", error))?
                .to_owned();
            if let Err(reason) = check_name(&name) {
                return Err(mismatch("volume's name", "a directory's name", reason));
            }
            let previous = directory.volumes.last().map(|volume| volume.id);
            let in_order = match previous {
                None => id == VolumeId::MAIN && name.is_empty(),
                Some(previous) => previous < id && !name.is_empty(),
            };
            if !in_order || id.0 >= directory.next_volume {
                return Err(mismatch("volume's id", "in order", id.0));
            }
            let index = take(&mut rest, index_bytes)?;
            let index = index
                .chunks_exact(BlockAddr::ENCODED_BYTES)
                .map(BlockAddr::decode)
                .collect();
            directory.volumes.push(DirectoryVolume { id, name, index });
        }
        if !rest.is_empty() || directory.volumes.is_empty() {
            return Err(mismatch("directory's length", bytes.len() - rest.len(), bytes.len()));
        }
        Ok(directory)
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], Mismatch> {
    let (head, tail) = rest
        .split_at_checked(bytes)
        .ok_or_else(|| mismatch("directory's rest", format!("at least {bytes} bytes"), rest.len()))?;
    *rest = tail;
    Ok(head)
}

/// The name of a volume becomes that of a directory. The empty one is the main volume's.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if name.len() > VOLUME_NAME_BYTES_MAX {
        return Err(format!("{} bytes are more than {VOLUME_NAME_BYTES_MAX}", name.len()));
    }
    if name.contains(['/', '\\', '\0']) || name == "." || name == ".." {
        return Err(format!("{name:?} is no name of a directory"));
    }
    Ok(())
}
