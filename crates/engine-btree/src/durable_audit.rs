//! Reading the durable checkpoint as a start after a crash would: from its root down, nothing taken from memory.
//!
//! What is checked: every block that something refers to is there (checksum, place, owner and kind, which are in the
//! address and the block's header), lies in one place of one tree only, and is recorded as used; nothing else is
//! recorded as used; and pages hold keys of their own range.

use crate::directory::{self, DIRECTORY, Root, decode_root};
use crate::maintain::outside;
use crate::page::{CellValue, LeafImage, PageDamage, decode_inner};
use crate::saved_deltas::{SavedPage, decode_index};
use crate::tree::Child;
use blocks::{BlockAddr, BlockKind, BlockStore, Near, ReadScratch, Source, VolumeId};
use engine::{EngineError, ErrorKind, Result, TableId};

/// A debug build reads every checkpoint of a store with no more bytes of blocks than this.
#[cfg(debug_assertions)]
const CHECKED_BYTES_MAX: u64 = 64 << 10;

/// What was read of the durable checkpoint so far.
struct DurableWalk<'c> {
    store: &'c BlockStore,
    scratch: ReadScratch,
    /// The table that is being read.
    table: String,
    owner: TableId,
    volume: VolumeId,
    /// Rows of the directory of tables.
    rows: Vec<(TableId, Vec<u8>)>,
    blocks: Vec<(VolumeId, BlockAddr)>,
    problems: Vec<String>,
}

/// A sentence for each thing wrong with the durable checkpoint. No checkpoint may run meanwhile.
pub(crate) fn check_durable(store: &BlockStore) -> Result<Vec<String>> {
    let Some(root) = store.durable_root() else {
        return Ok(Vec::new());
    };
    let mut walk = DurableWalk {
        store,
        scratch: ReadScratch::default(),
        table: "the directory of tables".to_owned(),
        owner: DIRECTORY,
        volume: VolumeId::MAIN,
        rows: Vec::new(),
        blocks: Vec::new(),
        problems: Vec::new(),
    };
    let Some(Root { directory, saved }) = decode_root(&root.root) else {
        return Ok(vec!["a root that cannot be".to_owned()]);
    };
    if let Child::OnDisk { address, level } = directory {
        walk.page(address, level, None, None)?;
    }
    if let Some(index) = saved {
        walk.saved_deltas(index)?;
    }
    for (id, row) in std::mem::take(&mut walk.rows) {
        let Some(row) = directory::decode(&row) else {
            walk.problems.push(format!("the directory's row of {id:?} cannot be"));
            continue;
        };
        (walk.owner, walk.volume) = (id, row.volume);
        walk.table = format!("{} ({id:?})", row.spec.name);
        if let Some(root) = row.root {
            walk.page(root.address, root.level, None, None)?;
        }
    }
    let DurableWalk {
        blocks, mut problems, ..
    } = walk;
    problems.extend(store.verify_durable(blocks.into_iter()));
    problems
        .iter_mut()
        .for_each(|problem| *problem = format!("checkpoint {}: {problem}", root.number));
    Ok(problems)
}

/// Whether a debug build found a small store whole when it was opened.
#[cfg(debug_assertions)]
pub(crate) fn was_whole(store: &BlockStore) -> bool {
    store.stats().total.used_bytes <= CHECKED_BYTES_MAX
        && check_durable(store).is_ok_and(|problems| problems.is_empty())
}

/// Panics when the checkpoint that has just become durable is not whole, in a debug build and a small store. A file
/// that cannot be read tells nothing.
#[cfg(debug_assertions)]
pub(crate) fn assert_durable_is_whole(store: &BlockStore) {
    if store.stats().total.used_bytes <= CHECKED_BYTES_MAX
        && let Ok(problems) = check_durable(store)
    {
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

impl DurableWalk<'_> {
    /// What `take` makes of a block; `None` when something is wrong with it.
    fn read<T>(
        &mut self,
        address: BlockAddr,
        kind: BlockKind,
        take: impl FnOnce(&[u8]) -> std::result::Result<T, PageDamage>,
    ) -> Result<Option<T>> {
        self.blocks.push((self.volume, address));
        let (owner, scratch) = (self.owner.0, &mut self.scratch);
        let read = self.store.read_with(
            self.volume,
            &address,
            owner,
            kind,
            Source::Disk(Near::Others),
            scratch,
            take,
        );
        let what = match read.map_err(EngineError::from) {
            Ok(Ok(page)) => return Ok(Some(page)),
            Ok(Err(damage)) => damage.to_string(),
            Err(error) if error.kind() == ErrorKind::Corrupt => error.to_string(),
            Err(error) => return Err(error),
        };
        self.problem(address, &what);
        Ok(None)
    }

    fn problem(&mut self, address: BlockAddr, what: &str) {
        self.problems.push(format!("{}: {address:?}: {what}", self.table));
    }

    /// The pages of saved deltas, whose owner is the directory's.
    fn saved_deltas(&mut self, index: BlockAddr) -> Result<()> {
        let Some(pages) = self.read(index, BlockKind::Large, |raw| Ok(decode_index(raw)))? else {
            return Ok(());
        };
        for address in pages.iter().flatten() {
            if let Some(None) = self.read(*address, BlockKind::Large, |raw| Ok(SavedPage::decode(raw)))? {
                self.problem(*address, "a page of saved deltas that cannot be");
            }
        }
        if pages.is_none() {
            self.problem(index, "an index of saved deltas that cannot be");
        }
        Ok(())
    }

    /// A page and all below it, whose range is from `low` to `high`, exclusive.
    fn page(&mut self, address: BlockAddr, level: u8, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<()> {
        if level == 0 {
            return match self.read(address, BlockKind::Leaf, LeafImage::decode)? {
                Some(image) => self.leaf(address, &image, low, high),
                None => Ok(()),
            };
        }
        let Some(page) = self.read(address, BlockKind::Inner, decode_inner)? else {
            return Ok(());
        };
        let (separators, children) = (&page.separators, &page.children);
        let is_below = |low: &[u8]| separators.len() > 0 && !separators.get(0).cmp(low).is_gt();
        let is_above = |high: &[u8]| {
            separators
                .iter()
                .next_back()
                .is_some_and(|last| !last.cmp(high).is_lt())
        };
        if page.level != level {
            self.problem(address, &format!("a page of level {}, {level} expected", page.level));
        } else if low.is_some_and(is_below) || high.is_some_and(is_above) {
            self.problem(address, "an inner page has separators outside its range");
        }
        for (index, child) in children.iter().enumerate() {
            let low_here = (index > 0).then(|| separators.get(index - 1).to_vec());
            let high_here = (index < separators.len()).then(|| separators.get(index).to_vec());
            self.page(
                *child,
                level - 1,
                low_here.as_deref().or(low),
                high_here.as_deref().or(high),
            )?;
        }
        Ok(())
    }

    fn leaf(&mut self, address: BlockAddr, image: &LeafImage, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<()> {
        if let Some(what) = outside(image, low, high) {
            self.problem(address, &what);
        }
        for index in 0..image.len() {
            match image.value(index) {
                CellValue::Large(large) => {
                    for address in large.addresses() {
                        self.read(address, BlockKind::Large, |_| Ok(()))?;
                    }
                }
                CellValue::Inline(range) if self.owner == DIRECTORY => match image.key(index).to_vec().try_into() {
                    Ok(id) => {
                        let row = image.data()[range].to_vec();
                        self.rows.push((TableId(u32::from_be_bytes(id)), row));
                    }
                    Err(_) => self.problem(address, "a key of the directory that cannot be"),
                },
                CellValue::Inline(_) => {}
            }
        }
        Ok(())
    }
}
