//! What each call promises, one by one.

use crate::owner::{DIRECTORY, Held, Owner, content, disk, env, open};
use blocks::{
    BlockKind, BlockStore, Near, Purpose, ReadScratch, Referenced, SECTOR_BYTES, Sections, Source, StoreOptions,
    Urgency, VolumeId,
};
use codec::Codec;
use engine::ErrorKind;
use std::path::Path;
use vfs::{Fault, FaultKind, FileSystem};

fn length(fs: &vfs::SimulatedFs, name: &str) -> u64 {
    let path = Path::new(DIRECTORY).join(name);
    fs.open(&path, vfs::Access::Read).unwrap().len().unwrap()
}

#[test]
fn what_is_appended_is_read_with_every_codec() {
    let fs = disk(1);
    let (store, root) = open(&fs).unwrap();
    assert_eq!(root, None);
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
    let mut scratch = ReadScratch::default();
    for codec in Codec::ALL {
        for bytes in [0, 1, 471, 472, 473, 5_000, 40_000] {
            let flat = vec![3; bytes];
            for raw in [content(1, 1, bytes), flat] {
                let addr = writer.append(BlockKind::Large, 9, codec, None, &raw).unwrap();
                writer.flush().unwrap();
                let read = store
                    .read(VolumeId::MAIN, &addr, 9, BlockKind::Large, &mut scratch)
                    .unwrap();
                assert_eq!(read, raw);
                let plain_sectors = (bytes + 40).div_ceil(512) as u32;
                assert!(addr.sectors() <= plain_sectors);
                if codec != Codec::None && bytes == 40_000 && raw[0] == 3 && raw[1] == 3 {
                    assert!(addr.sectors() < 10, "{codec} compresses");
                }
            }
        }
    }
}

/// Bytes that compress, and in the last third some that do not.
fn mixed(length: usize) -> Vec<u8> {
    let mut number = 1u32;
    let byte = |at: usize| {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if at > length / 3 * 2 {
            (number >> 24) as u8
        } else {
            (at / 50) as u8
        }
    };
    (0..length).map(byte).collect()
}

#[test]
fn sections_are_read_one_by_one_and_as_a_whole() {
    let store = open(&disk(1)).unwrap().0;
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
    let raw = mixed(90_000);
    // How many there are where the codec compresses.
    let cases: [(&[usize], usize); 8] = [
        (&[], 1),
        (&[1], 2),
        (&[89_999], 1),
        (&[100, 30_000, 60_000], 4),
        (&[30_000, 60_001], 3),
        (&[24_465], 2),
        (&[24_464], 1),
        (&[50_000, 50_000], 1),
    ];
    let mut written = Vec::new();
    for codec in Codec::ALL {
        for (cuts, sections) in cases {
            // A section too long for the table: the block is compressed as a whole.
            let is_long = cuts == [1];
            let expected = if codec == Codec::None || is_long { 1 } else { sections };
            let bytes = writer.block_bytes(codec, None, &raw, cuts).unwrap();
            let addr = writer.append_cut(BlockKind::Leaf, 9, codec, None, &raw, cuts).unwrap();
            assert_eq!(writer.last_block_bytes(), bytes);
            assert!(bytes <= raw.len() * 3 / 4 || codec == Codec::None, "{codec:?} {cuts:?}");
            written.push((addr, cuts, expected));
        }
    }
    // A section that is not compressed, beside one that is; and nothing that is worth it.
    let noise = mixed(90_000).split_off(70_000);
    let addr = writer
        .append_cut(BlockKind::Leaf, 9, Codec::Lz4, None, &noise, &[5000])
        .unwrap();
    writer.flush().unwrap();
    let mut scratch = ReadScratch::default();
    assert_eq!(
        store
            .read(VolumeId::MAIN, &addr, 9, BlockKind::Leaf, &mut scratch)
            .unwrap(),
        noise
    );
    let mut into = Vec::new();
    for (addr, cuts, expected) in written {
        assert_eq!(
            store
                .read(VolumeId::MAIN, &addr, 9, BlockKind::Leaf, &mut scratch)
                .unwrap(),
            raw
        );
        let disk = Source::Disk(Near::Nothing);
        let (volume, kind) = (VolumeId::MAIN, BlockKind::Leaf);
        let check = |sections: &mut Sections<'_>| {
            assert_eq!(sections.len(), expected, "{cuts:?}");
            let mut starts = vec![0];
            if expected > 1 {
                starts.extend(cuts);
            }
            for number in (0..expected).rev() {
                let end = starts.get(number + 1).copied().unwrap_or(raw.len());
                assert_eq!(sections.get(number).unwrap(), &raw[starts[number]..end]);
            }
            assert_eq!(sections.get_all().unwrap(), raw);
        };
        store
            .read_sections_with(volume, &addr, 9, kind, disk, &mut scratch, check)
            .unwrap();
        let block = scratch.last_block(&addr).unwrap().to_vec();
        let (first, rest) = block.split_at(block.len() / 3);
        for pieces in [[&block[..], &[]], [first, rest]] {
            let memory = Source::Memory(pieces);
            store
                .read_sections_with(volume, &addr, 9, kind, memory, &mut scratch, check)
                .unwrap();
            store
                .read_into(volume, &addr, 9, kind, memory, &mut scratch, &mut into)
                .unwrap();
            assert_eq!(into, raw);
        }
        let short = Source::Memory([first, &[]]);
        let refused = store.read_sections_with(volume, &addr, 9, kind, short, &mut scratch, |_| ());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn what_was_decompressed_last_is_there_until_another_block_is() {
    let store = open(&disk(1)).unwrap().0;
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
    let (volume, kind) = (VolumeId::MAIN, BlockKind::Leaf);
    let raw = mixed(30_000);
    let mut append = |codec, cuts: &[usize]| writer.append_cut(kind, 9, codec, None, &raw, cuts).unwrap();
    let [whole, other] = [(); 2].map(|()| append(Codec::Lz4, &[]));
    let (cut, plain) = (append(Codec::Lz4, &[10_000]), append(Codec::None, &[]));
    writer.flush().unwrap();
    let mut scratch = ReadScratch::default();
    let read = |scratch: &mut ReadScratch, addr| {
        let take = |sections: &mut Sections<'_>| sections.get(0).map(<[u8]>::len);
        let disk = Source::Disk(Near::Nothing);
        let taken = store.read_sections_with(volume, addr, 9, kind, disk, scratch, take);
        assert!(taken.unwrap().is_ok());
    };
    assert_eq!(scratch.last_whole(volume, &whole), None);
    for turn in 0..5 {
        read(&mut scratch, &whole);
        assert_eq!(scratch.last_whole(volume, &whole), Some(&raw[..]));
        assert_eq!(scratch.last_whole(volume, &other), None);
        assert_eq!(scratch.last_whole(VolumeId(7), &whole), None);
        match turn {
            0 => read(&mut scratch, &other),
            1 => read(&mut scratch, &cut),
            2 => read(&mut scratch, &plain),
            3 => drop(store.read(volume, &other, 9, kind, &mut scratch).unwrap()),
            _ => {
                let of_another = 8;
                let disk = Source::Disk(Near::Nothing);
                let refused = store.read_sections_with(volume, &whole, of_another, kind, disk, &mut scratch, |_| ());
                assert!(refused.is_err());
            }
        }
        assert_eq!(scratch.last_whole(volume, &whole), None, "turn {turn}");
    }
    // Of one in sections all of them, as long as no other was decompressed behind that.
    for then_one in [false, true] {
        let take = |sections: &mut Sections<'_>| {
            assert_eq!(sections.get_all().unwrap(), raw);
            if then_one {
                sections.get(0).unwrap();
            }
        };
        let disk = Source::Disk(Near::Nothing);
        store
            .read_sections_with(volume, &cut, 9, kind, disk, &mut scratch, take)
            .unwrap();
        let expected = (!then_one).then_some(&raw[..]);
        assert_eq!(scratch.last_whole(volume, &cut), expected);
    }
    // Who asks for no section has decompressed nothing.
    let disk = Source::Disk(Near::Nothing);
    store
        .read_sections_with(volume, &whole, 9, kind, disk, &mut scratch, |_| ())
        .unwrap();
    assert_eq!(scratch.last_whole(volume, &whole), None);
}

#[test]
fn a_label_comes_back_to_who_moves_the_block_and_to_nobody_else() {
    let mut owner = Owner::new(open(&disk(1)).unwrap().0);
    let store = owner.store.clone();
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
    // What goes leaves room at the front.
    for id in 0..100 {
        owner.put(&mut writer, VolumeId::MAIN, id, 5000).unwrap();
    }
    let mut scratch = ReadScratch::default();
    let longest = vec![7; BlockStore::LABEL_BYTES_MAX];
    let labels: [&[u8]; 4] = [b"", b"k", b"a key", &longest];
    let mut written = Vec::new();
    for codec in Codec::ALL {
        for (number, label) in labels.into_iter().enumerate() {
            let raw = vec![number as u8; 700 * number];
            let addr = writer.append_labelled(BlockKind::Large, 9, codec, None, &raw, label);
            written.push((addr.unwrap(), raw, label.to_vec()));
        }
    }
    let too_long = [&longest[..], &[7]].concat();
    let refused = writer.append_labelled(BlockKind::Large, 9, Codec::None, None, b"x", &too_long);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    writer.flush().unwrap();
    for (addr, raw, _) in &written {
        let mut read = |store: &BlockStore| store.read(VolumeId::MAIN, addr, 9, BlockKind::Large, &mut scratch);
        assert_eq!(&read(&store).unwrap(), raw);
    }
    // Into memory that something longer, or shorter, lay in.
    let mut into = vec![1; 1000];
    for (addr, raw, _) in &written {
        let (volume, kind, disk) = (VolumeId::MAIN, BlockKind::Large, Source::Disk(Near::Others));
        store
            .read_into(volume, addr, 9, kind, disk, &mut scratch, &mut into)
            .unwrap();
        assert_eq!(&into, raw);
        let block = scratch.last_block(addr).unwrap().to_vec();
        let (first, rest) = block.split_at(block.len() / 3);
        let mut open = |pieces: [&[u8]; 2], into: &mut Vec<u8>| {
            store.read_into(volume, addr, 9, kind, Source::Memory(pieces), &mut scratch, into)
        };
        into.clear();
        open([first, rest], &mut into).unwrap();
        assert_eq!(&into, raw);
        let refused = open([first, &[]], &mut into).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt);
    }
    let addresses: Vec<_> = written.iter().map(|(addr, ..)| *addr).collect();
    store.read_run(
        VolumeId::MAIN,
        &addresses,
        9,
        BlockKind::Large,
        &mut scratch,
        |index, read| {
            assert_eq!(read.unwrap(), written[index].1);
        },
    );
    owner.checkpoint().unwrap();
    (0..100).for_each(|id| owner.forget(id));
    owner.checkpoint().unwrap();
    owner.checkpoint().unwrap();
    store.plan_relocation(Urgency::Compact);
    let mut found = Vec::new();
    for (volume, segment) in store.segments_to_empty() {
        let moving = store.read_segment_to_empty(volume, segment).unwrap();
        assert!(!moving.is_damaged);
        let labelled = moving.blocks.into_iter().filter(|block| block.kind == BlockKind::Large);
        found.extend(labelled.map(|block| (block.addr, block.raw, block.label)));
    }
    // The first ones may lie in a segment that stays.
    assert!(found.len() > written.len() / 2, "{} of {}", found.len(), written.len());
    assert!(found.iter().all(|block| written.contains(block)));
}

/// What lies behind damage in a segment moves all the same, and the damage is told: else the segment would be chosen,
/// read and kept from use again and again.
#[test]
fn blocks_behind_a_damaged_one_are_found() {
    let fs = disk(1);
    let mut owner = Owner::new(open(&fs).unwrap().0);
    let store = owner.store.clone();
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
    for id in 0..100 {
        owner.put(&mut writer, VolumeId::MAIN, id, 5000).unwrap();
    }
    let mut written = Vec::new();
    for number in 0..8_u8 {
        let addr = writer.append(BlockKind::Large, 9, Codec::None, None, &[number; 2000]);
        written.push(addr.unwrap());
    }
    writer.flush().unwrap();
    drop(writer);
    owner.checkpoint().unwrap();
    (0..100).for_each(|id| owner.forget(id));
    owner.checkpoint().unwrap();
    owner.checkpoint().unwrap();
    store.plan_relocation(Urgency::Compact);
    let read = || {
        let segments = store.segments_to_empty().into_iter();
        let of_each = segments.map(|(volume, segment)| store.read_segment_to_empty(volume, segment).unwrap());
        let (mut found, mut is_damaged) = (Vec::new(), false);
        for segment in of_each {
            is_damaged |= segment.is_damaged;
            let large = segment
                .blocks
                .into_iter()
                .filter(|block| block.kind == BlockKind::Large);
            found.extend(large.map(|block| block.addr));
        }
        (found, is_damaged)
    };
    let (whole, is_damaged) = read();
    assert!(whole.len() > 2 && !is_damaged, "{} of {}", whole.len(), written.len());
    let damaged = whole[whole.len() / 2];
    let at = damaged.sector() * SECTOR_BYTES as u64 + 1000;
    fs.flip_bit(&Path::new(DIRECTORY).join("main.blocks"), at, 3).unwrap();
    let (found, is_damaged) = read();
    let others: Vec<_> = whole.into_iter().filter(|addr| *addr != damaged).collect();
    assert!(is_damaged);
    assert_eq!(found, others);
}

#[test]
fn a_block_is_only_read_as_what_it_is() {
    let (store, _) = open(&disk(1)).unwrap();
    let other = store.volume("other").unwrap();
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
    let addr = writer.append(BlockKind::Leaf, 9, Codec::None, None, b"abc").unwrap();
    writer.flush().unwrap();
    let mut scratch = ReadScratch::default();
    let mut kind_of = |volume, owner, kind| {
        let result = store.read(volume, &addr, owner, kind, &mut scratch);
        result.map_err(|error| error.kind())
    };
    assert_eq!(kind_of(VolumeId::MAIN, 9, BlockKind::Leaf), Ok(b"abc".to_vec()));
    assert_eq!(kind_of(VolumeId::MAIN, 8, BlockKind::Leaf), Err(ErrorKind::Corrupt));
    assert_eq!(kind_of(VolumeId::MAIN, 9, BlockKind::Inner), Err(ErrorKind::Corrupt));
    assert_eq!(kind_of(other, 9, BlockKind::Leaf), Err(ErrorKind::Corrupt));
    assert_eq!(kind_of(VolumeId(77), 9, BlockKind::Leaf), Err(ErrorKind::Invalid));
}

#[test]
fn many_are_read_with_few_calls() {
    let (store, _) = open(&disk(1)).unwrap();
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
    let addrs: Vec<_> = (0..200)
        .map(|id| {
            let raw = content(id, 1, 700 * (id as usize % 9));
            writer.append(BlockKind::Leaf, 9, Codec::None, None, &raw).unwrap()
        })
        .collect();
    writer.flush().unwrap();
    // Backwards, with one of a wrong checksum.
    let mut wanted: Vec<_> = addrs.iter().rev().copied().collect();
    let mut encoded = Vec::new();
    wanted[50].encode(&mut encoded);
    encoded[11] ^= 1;
    wanted[50] = blocks::BlockAddr::decode(&encoded).unwrap();
    let mut seen = [false; 200];
    let mut scratch = ReadScratch::default();
    store.read_run(
        VolumeId::MAIN,
        &wanted,
        9,
        BlockKind::Leaf,
        &mut scratch,
        |index, result| {
            assert!(!std::mem::replace(&mut seen[index], true));
            let id = 199 - index as u64;
            match result {
                Ok(raw) => assert_eq!(raw, content(id, 1, 700 * (id as usize % 9))),
                Err(error) => assert_eq!((index, error.kind()), (50, ErrorKind::Corrupt)),
            }
        },
    );
    assert_eq!(seen, [true; 200]);
}

#[test]
fn blocks_and_levels_out_of_bounds_change_nothing() {
    let (store, _) = open(&disk(1)).unwrap();
    let before = store.stats().total;
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
    let mut append = |codec, level, bytes: usize| {
        let result = writer.append(BlockKind::Leaf, 9, codec, level, &content(1, 1, bytes));
        result.map(|addr| addr.bytes()).map_err(|error| error.kind())
    };
    let longest = BlockStore::RAW_BYTES_MAX;
    assert_eq!(append(Codec::None, None, longest + 1), Err(ErrorKind::Invalid));
    assert_eq!(append(Codec::Zstd, Some(99), 10), Err(ErrorKind::Invalid));
    assert_eq!(append(Codec::Lz4, None, longest), Ok(65_535 * 512));
    assert_eq!(append(Codec::Zlib, None, (64 << 10) - 40), Ok(64 << 10));
    drop(writer);
    assert_eq!(
        store.stats().total.used_bytes,
        before.used_bytes,
        "what is not flushed is given back"
    );
    assert!(
        store
            .writer(VolumeId(5), Purpose::Later)
            .append(BlockKind::Leaf, 9, Codec::None, None, b"")
            .is_err()
    );
    for bytes in [0, 1000, 16 << 10, 32 << 20] {
        let options = StoreOptions {
            segment_bytes: bytes,
            ..StoreOptions::default()
        };
        let error = BlockStore::open(&env(&disk(2)), Path::new(DIRECTORY), options)
            .err()
            .unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{bytes}");
    }
}

#[test]
fn blocks_longer_than_a_segment_are_kept() {
    let fs = disk(1);
    let mut owner = Owner::new(open(&fs).unwrap().0);
    let segment = 64 << 10;
    let side = owner.store.volume("side").unwrap();
    let sizes = [segment - 40, segment - 39, segment, 5 * segment / 2, 1 << 20, 700];
    for (id, bytes) in (0..).zip(sizes) {
        for volume in [VolumeId::MAIN, side] {
            let mut writer = owner.store.writer(volume, Purpose::Later);
            owner
                .put(&mut writer, volume, 2 * id + u64::from(volume == side), bytes)
                .unwrap();
            let addr = owner.blocks[&(2 * id)].addr;
            let is_long = addr.bytes() > segment as u64;
            assert_eq!(is_long, bytes >= segment - 39 && bytes > 700);
            assert!(!is_long || (addr.sector() * 512).is_multiple_of(segment as u64));
        }
    }
    owner.checkpoint().unwrap();
    owner.check();
    let (mut owner, _) = Owner::recover(&fs);
    assert_eq!(owner.blocks.len(), 12);
    // Freed, their place is taken again: else there would be seven times as much.
    let before = owner.store.stats().total.file_bytes;
    for round in 0..6 {
        for id in 0..12 {
            let Held { volume, bytes, .. } = owner.blocks[&id];
            owner.forget(id);
            owner.checkpoint().unwrap();
            let mut writer = owner.store.writer(volume, Purpose::Later);
            owner.put(&mut writer, volume, id, bytes + round).unwrap();
        }
        owner.checkpoint().unwrap();
        owner.store.plan_relocation(Urgency::Background);
        owner.relocate().unwrap();
    }
    let after = owner.store.stats().total.file_bytes;
    assert!(after < before * 3 / 2, "{before} bytes became {after}");
    owner.check();
    let (found, _) = Owner::recover(&fs);
    assert!(found.blocks.len() == 12);
}

#[test]
fn an_empty_store_is_small_and_checkpoints_sync_twice() {
    let fs = disk(1);
    let options = StoreOptions::default();
    let (store, _) = BlockStore::open(&env(&fs), Path::new(DIRECTORY), options.clone()).unwrap();
    let mut owner = Owner::new(store);
    owner.checkpoint().unwrap();
    assert!(length(&fs, "main.blocks") < 256 << 10);
    let before = owner.store.stats();
    let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
    owner.put(&mut writer, VolumeId::MAIN, 0, 5000).unwrap();
    owner.checkpoint().unwrap();
    assert_eq!(owner.store.stats().syncs - before.syncs, 2);
    let (store, root) = BlockStore::open(&env(&fs), Path::new(DIRECTORY), options).unwrap();
    assert_eq!(root.map(|root| (root.number, root.seq)), Some((2, 10)));
    assert_eq!(store.segment_bytes(), 1 << 20);
}

#[test]
fn space_comes_back_when_the_last_checkpoint_that_needs_it_is_gone() {
    let (store, _) = open(&disk(1)).unwrap();
    let block = |purpose| {
        let mut writer = store.writer(VolumeId::MAIN, purpose);
        let addr = writer
            .append(BlockKind::Leaf, 9, Codec::None, None, &[1; 3000])
            .unwrap();
        writer.flush().unwrap();
        addr
    };
    let free_bytes = || {
        let stats = store.stats().total;
        stats.free_bytes
    };
    let freed = |addr, referenced| {
        let before = free_bytes();
        store.free(VolumeId::MAIN, addr, referenced);
        free_bytes() - before
    };
    let commit = || {
        let before = free_bytes();
        store.commit_checkpoint(0, &[]).unwrap();
        free_bytes() as i64 - before as i64
    };
    // Maps and directory take the same space each time but the first.
    store.begin_checkpoint();
    commit();
    // It keeps the map from becoming empty.
    let anchor = block(Purpose::Later);
    let durable = block(Purpose::Later);
    let both = block(Purpose::Later);
    store.begin_checkpoint();
    commit();
    store.begin_checkpoint();
    let usual = commit();
    let size = durable.bytes();
    assert_eq!(
        freed(block(Purpose::Later), Referenced::No),
        size,
        "never durable, none runs"
    );
    assert_eq!(freed(durable, Referenced::No), 0, "the durable checkpoint refers to it");
    let born = block(Purpose::Checkpoint);
    store.begin_checkpoint();
    let running = block(Purpose::Checkpoint);
    let later = block(Purpose::Later);
    assert_eq!(freed(later, Referenced::No), size, "no checkpoint refers to it");
    assert_eq!(freed(born, Referenced::No), size, "nor to this one");
    assert_eq!(freed(running, Referenced::ByRunningCheckpoint), 0);
    assert_eq!(freed(both, Referenced::ByRunningCheckpoint), 0);
    assert_eq!(commit(), usual + size as i64, "what only the one before needed");
    store.begin_checkpoint();
    assert_eq!(
        commit(),
        usual + 2 * size as i64,
        "what the one before needed, and no later one"
    );
    assert_eq!(store.stats().ignored_frees, 0);
    store.free(VolumeId::MAIN, both, Referenced::No);
    assert_eq!(store.stats().ignored_frees, 1, "freed twice");
    let referenced = std::iter::once((VolumeId::MAIN, anchor));
    assert_eq!(store.verify(referenced), Vec::<String>::new());
}

#[test]
fn an_abandoned_checkpoint_leaves_its_blocks_to_the_next() {
    let fs = disk(1);
    let mut owner = Owner::new(open(&fs).unwrap().0);
    let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
    for id in 0..20 {
        owner.put(&mut writer, VolumeId::MAIN, id, 2000).unwrap();
    }
    owner.checkpoint().unwrap();
    owner.put(&mut writer, VolumeId::MAIN, 3, 500).unwrap();
    owner.begin();
    let kept = [0, 1, 2].map(|id| {
        owner.rewrite_for_cut(id).unwrap();
        owner.blocks[&id]
    });
    for id in 2..10 {
        owner.put(&mut writer, VolumeId::MAIN, id, 3000).unwrap();
    }
    owner.forget(19);
    // One that nobody wants afterwards, one that its writer gives up, one that is flushed afterwards.
    let block = |flushes: bool| {
        let mut only = owner.store.writer(VolumeId::MAIN, Purpose::Checkpoint);
        let addr = only.append(BlockKind::Leaf, 7, Codec::None, None, &[1; 9000]).unwrap();
        if flushes {
            only.flush().unwrap();
        }
        (only, addr)
    };
    let (_, unwanted) = block(true);
    let (dropped, _) = block(false);
    let (mut late, late_addr) = block(false);
    owner.store.abandon_checkpoint();
    owner.cut = None;
    drop(dropped);
    assert_eq!(owner.store.verify(owner.referenced().into_iter()).len(), 2);
    owner.store.free(VolumeId::MAIN, unwanted, Referenced::No);
    late.flush().unwrap();
    owner.store.free(VolumeId::MAIN, late_addr, Referenced::No);
    owner.check();
    assert_eq!((owner.blocks[&0], owner.blocks[&1]), (kept[0], kept[1]));
    let (old, root) = Owner::recover(&fs.after_crash(1));
    assert_eq!(
        (old.blocks.len(), root.unwrap().number),
        (20, 1),
        "the durable one is whole"
    );
    let number = owner.store.begin_checkpoint();
    assert_eq!(number, 3, "a number is not used again");
    owner.cut = Some(owner.blocks.clone());
    owner.commit(owner.next_id).unwrap();
    owner.check();
    let (new, root) = Owner::recover(&fs);
    assert_eq!((new.blocks, root.unwrap().number), (owner.blocks, 3));
}

#[test]
fn a_block_can_be_postponed() {
    let fs = disk(1);
    let mut owner = Owner::new(open(&fs).unwrap().0);
    let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
    let addr = writer.append(BlockKind::Leaf, 7, Codec::None, None, b"late").unwrap();
    assert_eq!(
        owner.store.commit_checkpoint(0, &[]).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    owner.begin();
    assert_eq!(
        owner.store.commit_checkpoint(0, &[]).unwrap_err().kind(),
        ErrorKind::Invalid,
        "a block of the checkpoint is not flushed"
    );
    writer.flush().unwrap();
    owner.store.postpone(VolumeId::MAIN, addr);
    owner.commit(0).unwrap();
    // A crash finds a checkpoint that does not know the block.
    Owner::recover(&fs.after_crash(3));
    owner.checkpoint().unwrap();
    let (store, _) = open(&fs).unwrap();
    let mut scratch = ReadScratch::default();
    let read = store.read(VolumeId::MAIN, &addr, 7, BlockKind::Leaf, &mut scratch);
    assert_eq!(read.unwrap(), b"late");
    assert_eq!(
        store.verify(std::iter::once((VolumeId::MAIN, addr))).len(),
        1,
        "the catalog is left over"
    );
}

#[test]
fn volumes_come_and_go() {
    let fs = disk(1);
    let mut owner = Owner::new(open(&fs).unwrap().0);
    let store = owner.store.clone();
    assert_eq!(store.volume("").unwrap(), VolumeId::MAIN);
    let (a, b) = (store.volume("a").unwrap(), store.volume("b").unwrap());
    assert_eq!(store.volume("a").unwrap(), a);
    assert_ne!(a, b);
    for name in ["..", ".", "x/y", "\0", &"n".repeat(256)] {
        assert_eq!(store.volume(name).unwrap_err().kind(), ErrorKind::Invalid, "{name:?}");
    }
    let mut writer = store.writer(a, Purpose::Later);
    owner.put(&mut writer, a, 0, 3000).unwrap();
    drop(writer);
    owner.checkpoint().unwrap();
    assert!(!store.remove_volume_if_empty(a));
    assert!(!store.remove_volume_if_empty(VolumeId::MAIN));
    assert!(store.remove_volume_if_empty(b));
    owner.forget(0);
    assert!(store.remove_volume_if_empty(a));
    assert_eq!(store.volume("b").unwrap(), b, "back to life");
    let path = |name: &str| Path::new(DIRECTORY).join(name).join("data.blocks");
    assert!(fs.exists(&path("a")).unwrap());
    owner.checkpoint().unwrap();
    assert!(!fs.exists(&path("a")).unwrap());
    assert!(fs.exists(&path("b")).unwrap());
    let moving = store.read_segment_to_empty(a, 0).unwrap();
    assert!(
        moving.blocks.is_empty() && !moving.is_damaged,
        "who empties a segment may come when its volume has gone"
    );
    let again = store.volume("a").unwrap();
    assert!(again != a && again != b, "ids are not used again");
    drop(store);
    // No checkpoint knows the new one. Opening alone removes nothing: the superblock may be an older one, out of a
    // restore that went wrong, and then the file is in use.
    let (mut owner, _) = Owner::recover(&fs);
    assert!(fs.exists(&path("a")).unwrap());
    owner.checkpoint().unwrap();
    assert!(!fs.exists(&path("a")).unwrap());
    assert_eq!(owner.store.volume("b").unwrap(), b);
    assert_eq!(owner.store.volume_name(b), Some("b".to_owned()));
}

/// The sync of a superblock fails, and with it, as Linux has it, the system takes the pages for clean: the next process
/// reads the superblock, no sync brings it to disk any more, and a power failure takes it away. What an opened store
/// says is durable must be.
#[test]
fn a_superblock_that_is_found_unsynced_is_made_durable() {
    let mut found_newer = 0;
    for seed in 0..20 {
        println!("seed {seed}");
        let fs = disk(seed);
        let mut owner = Owner::new(open(&fs).unwrap().0);
        let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
        owner.put(&mut writer, VolumeId::MAIN, 0, 3000).unwrap();
        owner.checkpoint().unwrap();
        owner.put(&mut writer, VolumeId::MAIN, 1, 3000).unwrap();
        drop(writer);
        // The first sync is that of the blocks.
        fs.inject(Fault::new(FaultKind::SyncError).after(1));
        assert_eq!(owner.checkpoint().unwrap_err().kind(), ErrorKind::Io);
        drop(owner);
        let told = Owner::recover(&fs).1.unwrap().number;
        found_newer += u64::from(told == 2);
        fs.crash();
        fs.restart();
        let found = Owner::recover(&fs).1.unwrap().number;
        assert_eq!(found, told, "what was told to be durable is found again");
    }
    assert!(found_newer > 5, "the case arises: {found_newer}");
}

#[test]
fn a_failed_sync_closes_the_store() {
    for skip in 0..2 {
        let fs = disk(1);
        let mut owner = Owner::new(open(&fs).unwrap().0);
        let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
        owner.put(&mut writer, VolumeId::MAIN, 0, 3000).unwrap();
        owner.checkpoint().unwrap();
        owner.put(&mut writer, VolumeId::MAIN, 1, 3000).unwrap();
        fs.inject(Fault::new(FaultKind::SyncError).after(skip));
        assert_eq!(owner.checkpoint().unwrap_err().kind(), ErrorKind::Io);
        let held = owner.blocks[&0];
        assert_eq!(held.read(&owner.store, 0).unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(writer.flush().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(
            owner.store.commit_checkpoint(0, &[]).unwrap_err().kind(),
            ErrorKind::Closed
        );
        assert_eq!(owner.store.volume("x").unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(owner.store.pin().err().unwrap().kind(), ErrorKind::Closed);
        let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
        assert_eq!(
            owner.put(&mut writer, VolumeId::MAIN, 2, 10).unwrap_err().kind(),
            ErrorKind::Closed
        );
        fs.restart();
        let (found, root) = Owner::recover(&fs);
        assert!(found.blocks.contains_key(&0), "skip {skip}");
        assert!([1, 2].contains(&root.unwrap().number));
    }
}

/// A directory of a file for each database whose main file was lost got a new one, which removed the others.
#[test]
fn a_store_whose_main_file_is_lost_is_not_made_anew() {
    let fs = disk(1);
    let mut owner = Owner::new(open(&fs).unwrap().0);
    let volume = owner.store.volume("db").unwrap();
    let mut writer = owner.store.writer(volume, Purpose::Later);
    owner.put(&mut writer, volume, 0, 3000).unwrap();
    owner.checkpoint().unwrap();
    drop(writer);
    drop(owner);
    fs.remove_file(&Path::new(DIRECTORY).join("main.blocks")).unwrap();
    let refusal = open(&fs).err().unwrap();
    assert_eq!(refusal.kind(), ErrorKind::Corrupt, "{refusal}");
    assert!(fs.exists(&Path::new(DIRECTORY).join("db/data.blocks")).unwrap());
}
