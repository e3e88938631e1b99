//! Rows of a leaf on disk for a walk that wants few of them: those of the sections of its block that have them. As when
//! one row is read, the leaf does not come into memory, and its block stays there compressed
//! ([`Pages::read_in_block`]).

use crate::leaf::{Base, LeafView};
use crate::page::{LeafFront, LeafImage, PageDamage, SectionRows};
use crate::pages::Pages;
use crate::raw_leaf::WalkMemory;
use crate::read_ahead::left_for_walks;
use crate::tree::Tree;
use blocks::{BlockAddr, Sections};
use engine::Direction;
use std::ops::Bound;

/// See the module.
pub(crate) struct LeafPart {
    address: BlockAddr,
    /// It has all of the leaf's rows from here, or from the leaf's beginning, ...
    low: Option<Vec<u8>>,
    /// ... up to here, this excluded, or to the leaf's end.
    high: Option<Vec<u8>>,
    /// These rows, and no changes.
    view: LeafView,
    _memory: WalkMemory,
}

/// Where a walk stands and what it wants next.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'w> {
    pub(crate) direction: Direction,
    pub(crate) position: Bound<&'w [u8]>,
    /// Where it ends.
    pub(crate) far: Bound<&'w [u8]>,
    pub(crate) rows_max: usize,
}

impl LeafPart {
    pub(crate) fn is_of(&self, address: BlockAddr) -> bool {
        self.address == address
    }

    /// Whether it is of the leaf at `address`, and has what comes next behind a walk's position there.
    pub(crate) fn has(&self, address: BlockAddr, direction: Direction, position: Bound<&[u8]>) -> bool {
        let is_from_low = |key: &[u8]| self.low.as_deref().is_none_or(|low| low <= key);
        let is_below_high = |key: &[u8]| self.high.as_deref().is_none_or(|high| key < high);
        let is_inside = match (direction, position) {
            (Direction::Forward, Bound::Unbounded) => self.low.is_none(),
            (Direction::Reverse, Bound::Unbounded) => self.high.is_none(),
            (Direction::Reverse, Bound::Excluded(key)) => {
                self.low.as_deref().is_none_or(|low| low < key) && self.high.as_deref().is_none_or(|high| key <= high)
            }
            (_, Bound::Included(key) | Bound::Excluded(key)) => is_from_low(key) && is_below_high(key),
        };
        self.is_of(address) && is_inside
    }

    /// Its end that a walk comes to; `None` where that is the leaf's.
    pub(crate) fn fence(&self, direction: Direction) -> Option<&[u8]> {
        match direction {
            Direction::Forward => self.high.as_deref(),
            Direction::Reverse => self.low.as_deref(),
        }
    }

    /// Where a walk to `far` ends in it.
    pub(crate) fn far_end<'w>(&'w self, direction: Direction, far: Bound<&'w [u8]>) -> Bound<&'w [u8]> {
        match (direction, far) {
            (Direction::Forward, Bound::Included(end)) => match self.high.as_deref() {
                Some(high) if high <= end => Bound::Excluded(high),
                _ => far,
            },
            (Direction::Forward, Bound::Excluded(end)) => match self.high.as_deref() {
                Some(high) if high < end => Bound::Excluded(high),
                _ => far,
            },
            (Direction::Forward, Bound::Unbounded) => self.high.as_deref().map_or(far, Bound::Excluded),
            (Direction::Reverse, Bound::Included(start) | Bound::Excluded(start)) => match self.low.as_deref() {
                Some(low) if low > start => Bound::Included(low),
                _ => far,
            },
            (Direction::Reverse, Bound::Unbounded) => self.low.as_deref().map_or(far, Bound::Included),
        }
    }

    /// Its rows as a leaf's that has no others and no changes.
    pub(crate) fn view(&self) -> &LeafView {
        &self.view
    }

    pub(crate) fn image(&self) -> &LeafImage {
        match &self.view.base {
            Base::Image(image) => image,
            Base::Empty | Base::OnDisk(_) => unreachable!("it was made with its rows"),
        }
    }
}

impl Pages {
    /// The first of the rows that a walk wants of a leaf on disk; `is_next`: it had a part of the leaf just before.
    /// `None` where the leaf shall come into memory, or walks have taken their share of it.
    pub(crate) fn read_part(
        &self,
        tree: &Tree,
        address: BlockAddr,
        wanted: Wanted<'_>,
        is_next: bool,
    ) -> Option<LeafPart> {
        if left_for_walks(self) == 0 {
            return None;
        }
        let part = self.read_in_block(tree, address, is_next, |sections| open_part(sections, wanted).ok()?)?;
        if !part.is_whole {
            self.note_read_in_part();
        }
        debug_assert!(
            part.is_between_its_ends(),
            "rows that a walk would take twice, or in another order"
        );
        Some(LeafPart {
            address,
            low: part.low,
            high: part.high,
            _memory: WalkMemory::new(self.cache(), part.image.memory_bytes()),
            view: LeafView::new(Base::Image(part.image)),
        })
    }
}

/// What [`open_part`] finds.
struct Opened {
    image: LeafImage,
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
    is_whole: bool,
}

impl Opened {
    fn is_between_its_ends(&self) -> bool {
        let Some(last) = self.image.len().checked_sub(1) else {
            return true;
        };
        let is_from_low = |low: &[u8]| self.image.key(0).cmp(low).is_ge();
        let is_below_high = |high: &[u8]| self.image.key(last).cmp(high).is_lt();
        self.low.as_deref().is_none_or(is_from_low) && self.high.as_deref().is_none_or(is_below_high)
    }
}

/// `None` when something is wrong with the block.
fn open_part(sections: &mut Sections<'_>, wanted: Wanted<'_>) -> Result<Option<Opened>, PageDamage> {
    let block_sections = sections.len();
    let Ok(raw) = sections.get(0) else { return Ok(None) };
    if block_sections == 1 {
        return Ok(Some(Opened {
            image: LeafImage::decode(raw)?,
            low: None,
            high: None,
            is_whole: true,
        }));
    }
    let (front, front_bytes) = (LeafFront::read(raw)?, raw.len());
    if block_sections != 1 + front.sections() || front_bytes != front.bytes() {
        return Ok(None);
    }
    let part = front.sections_of(wanted.direction, wanted.position, wanted.far, wanted.rows_max);
    let mut rows = SectionRows::new(&front);
    for section in part.clone() {
        let Ok(raw) = sections.get(1 + section) else {
            return Ok(None);
        };
        rows.push(section, raw)?;
    }
    Ok(Some(Opened {
        image: rows.finish(),
        low: front.low(part.start),
        high: front.high(part.end - 1),
        is_whole: part.len() == front.sections(),
    }))
}
