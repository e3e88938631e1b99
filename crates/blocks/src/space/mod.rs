//! The sectors of one volume: which are taken, by what, and until when. In memory, no I/O.
//!
//! A volume is a row of segments of one length. [`segment`] has the maps of one, with what each sector is; [`index`]
//! finds the one to write to; [`map`] is the volume's, with the sums. What is done with them: [`reserve`] for writers,
//! [`lifetime`] for blocks and checkpoints, [`evacuate`] where room is wanted.
//!
//! A block lies in one segment; one that is longer than a segment starts where a segment does and fills whole ones, but
//! for what the last one has left.

mod evacuate;
mod index;
mod lifetime;
mod map;
mod reserve;
mod segment;
#[cfg(test)]
mod tests;

pub(crate) use lifetime::{Mark, Phase};
pub(crate) use map::{HEAD_SECTORS, SpaceMap};
