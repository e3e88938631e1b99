//! Makes data directories of MMAPv1 from a description, byte for byte as `docs/formats/mongodb-mmapv1.md` says, but for
//! the
//! crate's code.
//!
//! Extents of collections stand between each other, records in another order than their links, free records between
//! them, so that nothing is right by chance.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "tests and the fuzz target use different parts of it"
)]

use bson::{Document, doc};
use std::collections::BTreeMap;

pub const FILE_BYTES: usize = 48 << 10;
/// Entries of a catalog.
const ENTRIES: usize = 1669;
const ENTRY_BYTES: usize = 628;
const HEADER_BYTES: usize = 8192;
const NULL: (i32, i32) = (-1, 0);

pub type Files = BTreeMap<String, Vec<u8>>;

/// A small generator of numbers (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % below.max(1) as u64) as usize
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for n in (1..list.len()).rev() {
            list.swap(n, self.roll(n + 1));
        }
    }
}

pub fn put_i32(bytes: &mut [u8], at: usize, value: i32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn put_location(bytes: &mut [u8], at: usize, (file, offset): (i32, i32)) {
    put_i32(bytes, at, file);
    put_i32(bytes, at + 4, offset);
}

pub fn hash(name: &str) -> i32 {
    let mixed = name.bytes().fold(0u32, |hash, byte| {
        hash.wrapping_mul(131).wrapping_add(byte as i8 as u32)
    });
    ((mixed & 0x7FFF_FFFF) | 0x0800_0000) as i32
}

/// A collection to be made.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    pub name: String,
    /// The name that the extents have, after a renaming.
    pub old_name: Option<String>,
    pub options: Document,
    /// In the natural order.
    pub documents: Vec<Vec<u8>>,
    /// Of each extent.
    pub documents_per_extent: usize,
    /// For capped collections: so many of the documents are the oldest ones that stand in the extent which is being
    /// written anew, and how many new ones stand behind them.
    pub round: Option<(usize, usize)>,
    pub is_capped: bool,
    pub indexes: Vec<Document>,
}

impl Spec {
    pub fn new(name: &str, documents: Vec<Vec<u8>>) -> Self {
        Self {
            name: name.to_owned(),
            documents,
            documents_per_extent: 8,
            indexes: vec![doc! { "v": 1, "key": { "_id": 1 }, "name": "_id_" }],
            ..Self::default()
        }
    }
}

/// Where a record was put.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub file: usize,
    pub at: usize,
    pub extent: usize,
}

pub struct Made {
    pub files: Files,
    /// Places of records, by namespace, in the natural order.
    pub records: BTreeMap<String, Vec<Place>>,
    /// Places of extents, by namespace.
    pub extents: BTreeMap<String, Vec<(usize, usize)>>,
}

pub struct Generator {
    database: String,
    is_in_folder: bool,
    data: Vec<Vec<u8>>,
    used: usize,
    catalog: Vec<u8>,
    records: BTreeMap<String, Vec<Place>>,
    extents: BTreeMap<String, Vec<(usize, usize)>>,
    dice: Dice,
    free: Vec<(usize, usize)>,
    is_of_2_4: bool,
}

impl Generator {
    pub fn new(database: &str, seed: u64) -> Self {
        let mut made = Self {
            database: database.to_owned(),
            is_in_folder: false,
            data: Vec::new(),
            used: 0,
            catalog: vec![0; 1 << 20],
            records: BTreeMap::new(),
            extents: BTreeMap::new(),
            dice: Dice(seed),
            free: Vec::new(),
            is_of_2_4: false,
        };
        made.add_file();
        made
    }

    /// With a folder for each database.
    pub fn in_folder(mut self) -> Self {
        self.is_in_folder = true;
        self
    }

    /// Free extents stand in a namespace of their own.
    pub fn of_2_4(mut self) -> Self {
        self.is_of_2_4 = true;
        self
    }

    fn add_file(&mut self) {
        let number = self.data.len() as i32;
        let mut file = vec![0; FILE_BYTES];
        put_i32(&mut file, 0, 4);
        put_i32(&mut file, 4, if self.is_of_2_4 { 6 } else { 0x36 });
        put_i32(&mut file, 8, FILE_BYTES as i32);
        put_location(&mut file, 12, (number, HEADER_BYTES as i32));
        put_i32(&mut file, 20, (FILE_BYTES - HEADER_BYTES - 16) as i32);
        if !self.is_of_2_4 {
            put_location(&mut file, 24, NULL);
            put_location(&mut file, 32, NULL);
        }
        self.data.push(file);
        self.used = HEADER_BYTES;
    }

    fn extent(&mut self, namespace: &str, bytes: usize) -> (usize, usize) {
        let bytes = bytes.next_multiple_of(4096);
        assert!(bytes + HEADER_BYTES <= FILE_BYTES, "an extent is larger than a file");
        if self.used + bytes > FILE_BYTES {
            self.add_file();
        }
        let (file, at) = (self.data.len() - 1, self.used);
        self.used += bytes;
        let extent = &mut self.data[file][at..at + bytes];
        extent[..4].copy_from_slice(&0x4142_4344u32.to_le_bytes());
        put_location(extent, 4, (file as i32, at as i32));
        put_location(extent, 12, NULL);
        put_location(extent, 20, NULL);
        extent[28..28 + namespace.len()].copy_from_slice(namespace.as_bytes());
        put_i32(extent, 156, bytes as i32);
        put_location(extent, 160, NULL);
        put_location(extent, 168, NULL);
        (file, at)
    }

    /// A free record; its list is `next`.
    fn free_record(&mut self, (file, extent): (usize, usize), at: usize, bytes: usize, next: (i32, i32)) {
        let record = &mut self.data[file][at..at + bytes];
        put_i32(record, 0, bytes as i32);
        put_i32(record, 4, extent as i32);
        put_location(record, 8, next);
        // What was there stays, but for the mark over its length.
        for (n, byte) in record[20..].iter_mut().enumerate() {
            *byte = n as u8;
        }
        record[16..20].copy_from_slice(&0xEEEE_EEEEu32.to_le_bytes());
    }

    /// Fills an extent: records in any order on the disk, linked in the order given.
    fn fill(
        &mut self,
        namespace: &str,
        documents: &[Vec<u8>],
        free: &mut (i32, i32),
        old_name: &str,
    ) -> (usize, usize) {
        let mut sizes = Vec::new();
        for document in documents {
            let padding = 4 * self.dice.roll(12);
            let gap = if self.dice.roll(3) == 0 {
                32 + 4 * self.dice.roll(10)
            } else {
                0
            };
            sizes.push(((16 + document.len() + padding).next_multiple_of(4), gap));
        }
        let sum: usize = sizes.iter().map(|(record, gap)| record + gap).sum();
        let spare = 4 * self.dice.roll(100);
        let (file, extent) = self.extent(old_name, 176 + sum + 64 + spare);
        let end = extent + i32_at(&self.data[file], extent + 156) as usize;
        let mut order: Vec<usize> = (0..documents.len()).collect();
        self.dice.shuffle(&mut order);
        let mut places = vec![0; documents.len()];
        let mut at = extent + 176;
        for n in order {
            let (bytes, gap) = sizes[n];
            if gap > 0 {
                self.free_record((file, extent), at, gap, *free);
                *free = (file as i32, at as i32);
                at += gap;
            }
            put_i32(&mut self.data[file], at, bytes as i32);
            put_i32(&mut self.data[file], at + 4, extent as i32);
            self.data[file][at + 16..at + 16 + documents[n].len()].copy_from_slice(&documents[n]);
            places[n] = at;
            at += bytes;
        }
        self.free_record((file, extent), at, end - at, *free);
        *free = (file as i32, at as i32);
        for (n, &at) in places.iter().enumerate() {
            let next = places.get(n + 1).map_or(-1, |&next| next as i32);
            let previous = n.checked_sub(1).map_or(-1, |before| places[before] as i32);
            put_i32(&mut self.data[file], at + 8, next);
            put_i32(&mut self.data[file], at + 12, previous);
        }
        if let (Some(&first), Some(&last)) = (places.first(), places.last()) {
            put_location(&mut self.data[file], extent + 160, (file as i32, first as i32));
            put_location(&mut self.data[file], extent + 168, (file as i32, last as i32));
        }
        let records = self.records.entry(namespace.to_owned()).or_default();
        records.extend(places.iter().map(|&at| Place { file, at, extent }));
        (file, extent)
    }

    fn entry(&mut self, name: &str) -> usize {
        let mut slot = hash(name) as usize % ENTRIES;
        while i32_at(&self.catalog, slot * ENTRY_BYTES) != 0 {
            slot = (slot + 1) % ENTRIES;
        }
        let at = slot * ENTRY_BYTES;
        put_i32(&mut self.catalog, at, hash(name));
        self.catalog[at + 4..at + 4 + name.len()].copy_from_slice(name.as_bytes());
        at + 132
    }

    /// Makes the collections, their extents mixed, and the system's collections of definitions.
    pub fn make(mut self, specs: &[Spec]) -> Made {
        let mut namespaces = Vec::new();
        let mut indexes = Vec::new();
        for spec in specs {
            let name = format!("{}.{}", self.database, spec.name);
            let mut entry = doc! { "name": &name };
            if !spec.options.is_empty() {
                entry.insert("options", spec.options.clone());
            }
            namespaces.push(entry.to_vec().unwrap());
            for index in &spec.indexes {
                let mut index = index.clone();
                index.insert("ns", &name);
                namespaces.push(
                    doc! { "name": format!("{name}.${}", index.get_str("name").unwrap()) }
                        .to_vec()
                        .unwrap(),
                );
                indexes.push(index.to_vec().unwrap());
            }
        }
        let mut all = vec![
            Spec::new("system.namespaces", namespaces),
            Spec::new("system.indexes", indexes),
        ];
        all.iter_mut().for_each(|spec| spec.indexes.clear());
        all.extend(specs.iter().cloned());
        // One extent of each in turn.
        let mut chains: Vec<Vec<(usize, usize)>> = vec![Vec::new(); all.len()];
        let mut frees = vec![NULL; all.len()];
        let mut rest: Vec<Vec<Vec<Vec<u8>>>> = all.iter().map(pieces).collect();
        while rest.iter().any(|pieces| !pieces.is_empty()) {
            for (n, spec) in all.iter().enumerate() {
                if rest[n].is_empty() {
                    continue;
                }
                let documents = rest[n].remove(0);
                let name = format!("{}.{}", self.database, spec.name);
                let old_name = spec
                    .old_name
                    .clone()
                    .map_or(name.clone(), |old| format!("{}.{old}", self.database));
                let mut free = frees[n];
                let extent = self.fill(&name, &documents, &mut free, &old_name);
                frees[n] = free;
                chains[n].push(extent);
            }
        }
        for (n, spec) in all.iter().enumerate() {
            self.link(spec, &chains[n], frees[n]);
        }
        self.free_list();
        self.finish()
    }

    /// Links extents, and makes the catalog's entry.
    fn link(&mut self, spec: &Spec, chain: &[(usize, usize)], free: (i32, i32)) {
        let name = format!("{}.{}", self.database, spec.name);
        let location = |(file, at): (usize, usize)| (file as i32, at as i32);
        for (n, &(file, at)) in chain.iter().enumerate() {
            if let Some(&next) = chain.get(n + 1) {
                put_location(&mut self.data[file], at + 12, location(next));
            }
            if n > 0 {
                put_location(&mut self.data[file], at + 20, location(chain[n - 1]));
            }
        }
        let at = self.entry(&name);
        let details = &mut self.catalog[at..at + 496];
        put_location(details, 0, chain.first().map_or(NULL, |&extent| location(extent)));
        put_location(details, 8, chain.last().map_or(NULL, |&extent| location(extent)));
        for n in 0..19 {
            put_location(details, 16 + 8 * n, NULL);
        }
        put_location(details, 16, free);
        details[176..184].copy_from_slice(&(spec.documents.len() as i64).to_le_bytes());
        put_i32(details, 188, spec.indexes.len() as i32);
        put_i32(details, 352, i32::from(spec.is_capped));
        put_i32(details, 356, i32::MAX);
        put_location(details, 372, chain.first().map_or(NULL, |&extent| location(extent)));
        put_location(details, 380, (-2, 0));
        self.extents.insert(name.clone(), chain.to_vec());
        self.turn_round(spec, at, chain);
        self.index_entries(spec, &name, at);
    }

    /// A capped collection that has gone round: the second extent is being written anew.
    fn turn_round(&mut self, spec: &Spec, at: usize, chain: &[(usize, usize)]) {
        let Some((old, new)) = spec.round else { return };
        let name = format!("{}.{}", self.database, spec.name);
        let of_extent: Vec<Place> = self.records[&name]
            .iter()
            .copied()
            .filter(|place| (place.file, place.extent) == chain[1])
            .collect();
        assert_eq!(of_extent.len(), old + new);
        let details = &mut self.catalog[at..at + 496];
        put_location(details, 372, (chain[1].0 as i32, chain[1].1 as i32));
        put_location(details, 380, (of_extent[old].file as i32, of_extent[old].at as i32));
    }

    /// Where the documents of indexes are; those after the tenth in entries of their own.
    fn index_entries(&mut self, spec: &Spec, name: &str, at: usize) {
        let key = format!("{}.system.indexes", self.database);
        let places = self.records.get(&key).cloned().unwrap_or_default();
        let mut mine = Vec::new();
        for place in places {
            let start = place.at + 16;
            let length = i32_at(&self.data[place.file], start) as usize;
            let document = Document::from_reader(&self.data[place.file][start..start + length]).unwrap();
            if document.get_str("ns").unwrap() == name {
                mine.push((place.file as i32, place.at as i32));
            }
        }
        assert_eq!(mine.len(), spec.indexes.len());
        for (n, &place) in mine.iter().take(10).enumerate() {
            put_location(&mut self.catalog[at..], 192 + 16 * n + 8, place);
        }
        if mine.len() > 10 {
            let extra = self.entry(&format!("{name}$extra"));
            for (n, &place) in mine[10..].iter().enumerate() {
                put_location(&mut self.catalog[extra..], 8 + 16 * n + 8, place);
            }
        }
        for index in &spec.indexes {
            let index = self.entry(&format!("{name}.${}", index.get_str("name").unwrap()));
            put_location(&mut self.catalog[index..], 0, NULL);
        }
    }

    /// An extent of a dropped collection, whose bytes are still there.
    pub fn add_dropped(&mut self, name: &str, documents: &[Vec<u8>]) {
        let name = format!("{}.{name}", self.database);
        let mut free = NULL;
        let (file, at) = self.fill(&name, documents, &mut free, &name);
        self.records.remove(&name);
        put_location(&mut self.data[file], at + 160, NULL);
        put_location(&mut self.data[file], at + 168, NULL);
        self.free.push((file, at));
    }

    fn free_list(&mut self) {
        let free = self.free.clone();
        for (n, &(file, at)) in free.iter().enumerate() {
            if let Some(&(next, place)) = free.get(n + 1) {
                put_location(&mut self.data[file], at + 12, (next as i32, place as i32));
            }
        }
        let Some(&(file, at)) = free.first() else { return };
        if self.is_of_2_4 {
            let entry = self.entry(&format!("{}.$freelist", self.database));
            put_location(&mut self.catalog[entry..], 0, (file as i32, at as i32));
        } else {
            put_location(&mut self.data[0], 24, (file as i32, at as i32));
        }
    }

    fn finish(self) -> Made {
        let folder = if self.is_in_folder {
            format!("{}/", self.database)
        } else {
            String::new()
        };
        let mut files = Files::new();
        files.insert(format!("{folder}{}.ns", self.database), self.catalog);
        for (n, data) in self.data.into_iter().enumerate() {
            files.insert(format!("{folder}{}.{n}", self.database), data);
        }
        Made {
            files,
            records: self.records,
            extents: self.extents,
        }
    }
}

/// Documents by extents, in the order of links: for a capped collection that has gone round the newest stand in the
/// second extent.
fn pieces(spec: &Spec) -> Vec<Vec<Vec<u8>>> {
    let Some((old, new)) = spec.round else {
        let pieces: Vec<_> = spec
            .documents
            .chunks(spec.documents_per_extent.max(1))
            .map(<[_]>::to_vec)
            .collect();
        return if pieces.is_empty() { vec![Vec::new()] } else { pieces };
    };
    let (oldest, rest) = spec.documents.split_at(old);
    let (middle, newest) = rest.split_at(rest.len() - new);
    let half = middle.len() / 2;
    // Behind the second extent comes the third, then the first.
    vec![
        middle[half..].to_vec(),
        [oldest, newest].concat(),
        middle[..half].to_vec(),
    ]
}

/// A journal: sections of entries, as the server writes them.
#[derive(Default)]
pub struct Journal {
    bytes: Vec<u8>,
}

pub const FILE_ID: u64 = 0x1234_5678_9ABC_DEF0;

pub enum Entry<'e> {
    Create(&'e str, u64),
    Drop(&'e str),
    Context(&'e str),
    Write { file: u32, at: u32, bytes: &'e [u8] },
}

impl Journal {
    pub fn new() -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..4].copy_from_slice(b"j\nIA");
        bytes[156..164].copy_from_slice(&FILE_ID.to_le_bytes());
        bytes[HEADER_BYTES - 2..].copy_from_slice(b"\n\n");
        Self { bytes }
    }

    pub fn section(&mut self, time_ms: u64, entries: &[Entry<'_>]) {
        let mut raw = Vec::new();
        for entry in entries {
            match entry {
                Entry::Create(path, bytes) => {
                    raw.extend_from_slice(&0xFFFF_FFFDu32.to_le_bytes());
                    raw.extend_from_slice(&[0; 16]);
                    raw.extend_from_slice(&bytes.to_le_bytes());
                    raw.extend_from_slice(path.as_bytes());
                    raw.push(0);
                }
                Entry::Drop(database) => {
                    raw.extend_from_slice(&0xFFFF_FFFCu32.to_le_bytes());
                    raw.extend_from_slice(&[0; 16]);
                    raw.extend_from_slice(database.as_bytes());
                    raw.extend_from_slice(&[0, 0]);
                }
                Entry::Context(database) => {
                    raw.extend_from_slice(&0xFFFF_FFFEu32.to_le_bytes());
                    raw.extend_from_slice(database.as_bytes());
                    raw.push(0);
                }
                Entry::Write { file, at, bytes } => {
                    for field in [bytes.len() as u32, *at, *file] {
                        raw.extend_from_slice(&field.to_le_bytes());
                    }
                    raw.extend_from_slice(bytes);
                }
            }
        }
        let stored = snap::raw::Encoder::new().compress_vec(&raw).unwrap();
        let mut section = ((stored.len() + 52) as u32).to_le_bytes().to_vec();
        section.extend_from_slice(&time_ms.to_le_bytes());
        section.extend_from_slice(&FILE_ID.to_le_bytes());
        section.extend_from_slice(&stored);
        let sums = checksum(&section);
        section.extend_from_slice(&[0xFF; 4]);
        for sum in sums {
            section.extend_from_slice(&sum.to_le_bytes());
        }
        section.extend_from_slice(&[0; 8]);
        section.extend_from_slice(b"\n\n\n\n");
        section.resize(section.len().next_multiple_of(HEADER_BYTES), 0);
        self.bytes.extend_from_slice(&section);
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.clone()
    }
}

fn checksum(bytes: &[u8]) -> [u64; 2] {
    let words = bytes.len() / 16;
    let word = |n: usize| u64::from_le_bytes(bytes[8 * n..8 * n + 8].try_into().unwrap());
    let (mut first, mut second, mut rest) = (0u64, 0u64, 0u64);
    for n in 0..words {
        first = first.wrapping_add(word(n) ^ n as u64);
        second = second.wrapping_add(word(words + n) ^ n as u64);
    }
    for &byte in &bytes[16 * words..] {
        rest = (rest << 8) | (byte as i8 as i64 as u64);
    }
    [first ^ bytes.len() as u64, second ^ rest]
}

/// The file that says up to when the data files are on the disk.
pub fn lsn(time_ms: u64) -> Vec<u8> {
    let mut bytes = vec![0; 88];
    bytes[8..16].copy_from_slice(&time_ms.to_le_bytes());
    bytes[16..24].copy_from_slice(&(!time_ms).to_le_bytes());
    bytes
}

/// Documents that differ in everything.
pub fn documents(count: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut dice = Dice(seed);
    (0..count)
        .map(|n| {
            let text = "x".repeat(dice.roll(300));
            let document =
                doc! { "_id": n as i32, "seed": seed as i64, "text": text, "inner": { "list": [1, 2.5, true, "y"] } };
            document.to_vec().unwrap()
        })
        .collect()
}
