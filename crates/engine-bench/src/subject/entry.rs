//! Log entries of the harness: the parts of the storage layer's, and 4 bytes more per value, because a BSON document
//! has its length inside and these values do not.
//!
//! A header of 8 bytes (version, three zeros, number of operations) and operations: tag, table, then by tag. `Create`
//! names the use of a table, `Put` has a record id, a length and a value, `Add` a record id and a number of 8 bytes,
//! `Delete` a record id. Index entries are not logged. Decoding checks every length.

use super::subject::{Table, TableUse};
use anyhow::{Context, Result, bail};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 8;
const COUNT_OFFSET: usize = 4;
const TAG_PUT: u8 = 1;
const TAG_DELETE: u8 = 3;
const TAG_ADD: u8 = 4;
const TAG_CREATE: u8 = 6;

/// An operation of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EntryOp<'e> {
    Create(Table, TableUse),
    Put(Table, &'e [u8; 8], &'e [u8]),
    Add(Table, &'e [u8; 8], i64),
    Delete(Table, &'e [u8; 8]),
}

/// Gathers an entry; reused.
#[derive(Default)]
pub(super) struct EntryWriter {
    bytes: Vec<u8>,
    count: u32,
}

impl EntryWriter {
    fn begin(&mut self, tag: u8, table: Table) {
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&[VERSION, 0, 0, 0, 0, 0, 0, 0]);
        }
        self.count += 1;
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&table.to_le_bytes());
    }

    pub fn create(&mut self, table: Table, table_use: TableUse) {
        self.begin(TAG_CREATE, table);
        self.bytes.push(match table_use {
            TableUse::Records => 0,
            TableUse::Index => 1,
        });
    }

    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.begin(TAG_PUT, table);
        self.bytes.extend_from_slice(key);
        let length = u32::try_from(value.len()).expect("values have at most 16 MiB");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(value);
    }

    pub fn add(&mut self, table: Table, key: &[u8], amount: i64) {
        self.begin(TAG_ADD, table);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(&amount.to_le_bytes());
    }

    pub fn delete(&mut self, table: Table, key: &[u8]) {
        self.begin(TAG_DELETE, table);
        self.bytes.extend_from_slice(key);
    }

    /// The finished entry; empty without operations.
    pub fn finish(&mut self) -> &[u8] {
        if let Some(count) = self.bytes.get_mut(COUNT_OFFSET..HEADER_BYTES) {
            count.copy_from_slice(&self.count.to_le_bytes());
        }
        &self.bytes
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }
}

/// Hands each operation of an entry to `visit`.
pub(super) fn read_entry<'e>(entry: &'e [u8], visit: &mut dyn FnMut(EntryOp<'e>) -> Result<()>) -> Result<()> {
    let (header, mut rest) = entry.split_first_chunk::<HEADER_BYTES>().context("entry header")?;
    if header[0] != VERSION {
        bail!("entry version {}, {VERSION} expected", header[0]);
    }
    let count = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    for _ in 0..count {
        let [tag] = *take(&mut rest)?;
        let table = u32::from_le_bytes(*take(&mut rest)?);
        let op = match tag {
            TAG_CREATE => match take(&mut rest)? {
                [0] => EntryOp::Create(table, TableUse::Records),
                [1] => EntryOp::Create(table, TableUse::Index),
                [other] => bail!("table use {other}"),
            },
            TAG_PUT => {
                let key = take(&mut rest)?;
                let length = u32::from_le_bytes(*take(&mut rest)?) as usize;
                let (value, after) = rest.split_at_checked(length).context("entry value")?;
                rest = after;
                EntryOp::Put(table, key, value)
            }
            TAG_ADD => {
                let key = take(&mut rest)?;
                EntryOp::Add(table, key, i64::from_le_bytes(*take(&mut rest)?))
            }
            TAG_DELETE => EntryOp::Delete(table, take(&mut rest)?),
            other => bail!("entry tag {other}"),
        };
        visit(op)?;
    }
    if !rest.is_empty() {
        bail!("{} bytes after the last operation", rest.len());
    }
    Ok(())
}

fn take<'e, const N: usize>(rest: &mut &'e [u8]) -> Result<&'e [u8; N]> {
    let (taken, after) = rest.split_first_chunk().context("entry ends early")?;
    *rest = after;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_damage_is_an_error() {
        let mut writer = EntryWriter::default();
        writer.create(0, TableUse::Records);
        writer.create(1, TableUse::Index);
        writer.put(0, &7u64.to_be_bytes(), b"value");
        writer.add(0, &9u64.to_be_bytes(), -3);
        writer.delete(0, &8u64.to_be_bytes());
        let entry = writer.finish().to_vec();
        let mut seen = Vec::new();
        read_entry(&entry, &mut |op| {
            seen.push(format!("{op:?}"));
            Ok(())
        })
        .unwrap();
        assert_eq!(seen.len(), 5);
        assert_eq!(seen[3], "Add(0, [0, 0, 0, 0, 0, 0, 0, 9], -3)");
        assert!(
            seen[2].starts_with("Put(0, [0, 0, 0, 0, 0, 0, 0, 7], [118"),
            "{}",
            seen[2]
        );
        for length in 0..entry.len() {
            assert!(
                read_entry(&entry[..length], &mut |_| Ok(())).is_err(),
                "cut to {length}"
            );
        }
        writer.clear();
        assert!(writer.finish().is_empty());
    }

    /// The storage layer's 277 bytes, and 4 for the length that BSON has inside.
    #[test]
    fn an_insert_is_little_longer_than_the_storage_layers() {
        let mut writer = EntryWriter::default();
        writer.put(0, &1u64.to_be_bytes(), &[0; 256]);
        assert_eq!(writer.finish().len(), 8 + 1 + 4 + 8 + 4 + 256);
    }
}
