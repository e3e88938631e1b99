//! What changed between two versions of a document, as BSON, and the way back from it.
//!
//! A difference of documents is `{d: {…}, u: {…}, i: {…}, s<field>: {…}}`: fields deleted, fields with a new value in
//! their old place, fields appended at the end, and differences inside nested documents and arrays. Of arrays it is
//! `{a: true, l: <length>, u<index>: <value>, s<index>: {…}}`: cut to a length, elements set or appended, differences
//! inside elements. Sections that are empty are left out. `docs/formats/log-entries.md` is the whole description.
//!
//! Invariant: `apply(diff(old, new), old)` is `new`, byte for byte, whatever the types, the order of fields, or fields
//! of one name. Where the form cannot say it, [`diff`] answers false.
//!
//! 1. Walk both versions side by side. A field of the same name in the next place is kept, or set, or differs inside;
//!    any other field of the old version is deleted. What is left of the new version then is appended: it comes out in
//!    its own order, so a changed order costs bytes and is never wrong.
//! 2. A section lists its fields in the order in which the old version has them, and [`apply`] takes them in that order
//!    while it walks the old version once. A name must therefore not occur earlier in the same document.
//! 3. Bytes that both versions begin or end with are compared as such: of the elements among them only the names in
//!    front of the first change are looked at. What lies behind the last change is not walked, here or by [`apply`].
//!
//! Bytes are compared, not values: `1` and `1.0` differ, and so do two NaNs of other bits.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Deeper differences replace the whole value instead.
const DEPTH_MAX: usize = 100;

const DOUBLE: u8 = 0x01;
const STRING: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;
const BINARY: u8 = 0x05;
const UNDEFINED: u8 = 0x06;
const OBJECT_ID: u8 = 0x07;
const BOOLEAN: u8 = 0x08;
const DATE: u8 = 0x09;
const NULL: u8 = 0x0A;
const REGEX: u8 = 0x0B;
const DB_POINTER: u8 = 0x0C;
const CODE: u8 = 0x0D;
const SYMBOL: u8 = 0x0E;
const CODE_WITH_SCOPE: u8 = 0x0F;
const INT32: u8 = 0x10;
const TIMESTAMP: u8 = 0x11;
const INT64: u8 = 0x12;
const DECIMAL: u8 = 0x13;
const MAX_KEY: u8 = 0x7F;
const MIN_KEY: u8 = 0xFF;

/// The bytes are not BSON, or the difference does not fit the document. Says where, for the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit(pub(crate) &'static str);

/// One element: its bytes, and its parts.
#[derive(Clone, Copy)]
struct Element<'d> {
    whole: &'d [u8],
    kind: u8,
    name: &'d [u8],
    value: &'d [u8],
}

/// Walks the elements of a document, trusting nothing.
#[derive(Clone, Copy)]
struct Elements<'d> {
    rest: &'d [u8],
}

impl<'d> Elements<'d> {
    fn of(document: &'d [u8]) -> Result<Self, Misfit> {
        match document {
            [a, b, c, d, rest @ .., 0] if u32::from_le_bytes([*a, *b, *c, *d]) as usize == document.len() => {
                Ok(Self { rest })
            }
            _ => Err(Misfit("a document's length or end is wrong")),
        }
    }

    #[inline(always)]
    fn next(&mut self) -> Result<Option<Element<'d>>, Misfit> {
        let Some((&kind, after_kind)) = self.rest.split_first() else {
            return Ok(None);
        };
        let name_bytes = name_bytes(after_kind).ok_or(Misfit("a field's name does not end"))?;
        let (name, after_name) = (&after_kind[..name_bytes], &after_kind[name_bytes + 1..]);
        let length = value_bytes(kind, after_name).ok_or(Misfit("a value's type or length is wrong"))?;
        let value = after_name
            .get(..length)
            .ok_or(Misfit("a value is longer than its document"))?;
        let whole = &self.rest[..1 + name_bytes + 1 + length];
        self.rest = &self.rest[whole.len()..];
        Ok(Some(Element {
            whole,
            kind,
            name,
            value,
        }))
    }
}

/// How many bytes stand before the first zero.
#[inline]
fn name_bytes(bytes: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // Most names end within eight bytes: the lowest high bit of `zeros` is that of the first zero byte.
    if let Some(head) = bytes.first_chunk::<8>() {
        let word = u64::from_le_bytes(*head);
        let zeros = word.wrapping_sub(LOW) & !word & HIGH;
        if zeros != 0 {
            return Some(zeros.trailing_zeros() as usize / 8);
        }
    }
    bytes.iter().position(|&byte| byte == 0)
}

/// Type, name and value of a document's first element; `None` when it has none or is damaged.
pub(crate) fn first_element(document: &[u8]) -> Option<&[u8]> {
    let first = Elements::of(document).and_then(|mut elements| elements.next());
    first.ok().flatten().map(|element| element.whole)
}

/// How many of the bytes a value of this type takes; `None` when that cannot be told.
#[inline]
fn value_bytes(kind: u8, bytes: &[u8]) -> Option<usize> {
    let length = || {
        let length = bytes.first_chunk::<4>()?;
        usize::try_from(i32::from_le_bytes(*length)).ok()
    };
    Some(match kind {
        UNDEFINED | NULL | MIN_KEY | MAX_KEY => 0,
        BOOLEAN => 1,
        INT32 => 4,
        DOUBLE | DATE | TIMESTAMP | INT64 => 8,
        OBJECT_ID => 12,
        DECIMAL => 16,
        STRING | CODE | SYMBOL => 4 + length()?,
        DB_POINTER => 4 + length()? + 12,
        BINARY => 5 + length()?,
        DOCUMENT | ARRAY | CODE_WITH_SCOPE => length().filter(|length| *length >= 5)?,
        REGEX => {
            let pattern = bytes.iter().position(|&byte| byte == 0)? + 1;
            pattern + bytes[pattern..].iter().position(|&byte| byte == 0)? + 1
        }
        _ => return None,
    })
}

fn begin_document(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

fn end_document(out: &mut Vec<u8>, start: usize) {
    out.push(0);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// An element's type and name, up to its value.
fn begin_element(out: &mut Vec<u8>, kind: u8, name: &[&[u8]]) {
    out.push(kind);
    name.iter().for_each(|part| out.extend_from_slice(part));
    out.push(0);
}

/// Where an update's operators change a document: its difference tells it as they do.
pub trait Targets {
    /// What an operator does at a path, whose parts are names of fields and indexes of elements.
    fn at(&self, path: &[&[u8]]) -> Target;
}

/// See [`Targets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// It changes the value as a whole.
    Whole,
    /// It adds to an array.
    Extended,
    /// It changes something inside.
    Inside,
    /// Nothing is known of it.
    Unknown,
}

/// How much a difference tells.
#[derive(Clone, Copy)]
pub(crate) enum Detail<'t> {
    /// What takes the fewest bytes.
    Compact,
    /// Which fields changed, though the new version may be shorter: for those who follow the log.
    Told,
    /// As these operators changed it.
    ToldAs(&'t dyn Targets),
}

/// Differences below these are told even where the new version is shorter: those of operators up to a whole document.
const TOLD_BYTES_FREE: usize = 64 << 10;
const OPERATORS_BYTES_FREE: usize = 16 << 20;
/// What the end of a short array may take beyond the array.
const EXTENDED_BYTES_FREE: usize = 64;

/// A difference in the making: what it is to tell, and the place that is looked at.
struct Teller<'t, 'd> {
    targets: Option<&'t dyn Targets>,
    path: Vec<&'d [u8]>,
}

impl<'d> Teller<'_, 'd> {
    /// What is done at the place inside the one that is looked at, which it is moved to until [`Teller::leave`].
    fn enter(&mut self, name: &'d [u8]) -> Target {
        let Some(targets) = self.targets else {
            return Target::Unknown;
        };
        self.path.push(name);
        targets.at(&self.path)
    }

    fn leave(&mut self) {
        self.path.pop();
    }
}

/// Puts the difference of two versions of a document into `out`, which is emptied first. False, and `out` empty, when
/// the new version takes fewer bytes than its key and the difference (which is not compared while it is small, where it
/// is to be told), or when the form cannot say it.
pub(crate) fn between(old: &[u8], new: &[u8], detail: Detail<'_>, out: &mut Vec<u8>) -> bool {
    out.clear();
    let key_bytes = first_element(new).map_or(new.len(), |first| first.len() + 5);
    let shorter = new.len().saturating_sub(key_bytes);
    let free = match detail {
        Detail::Compact => 0,
        Detail::Told => TOLD_BYTES_FREE,
        Detail::ToldAs(_) => OPERATORS_BYTES_FREE,
    };
    diff(old, new, detail, shorter.max(free), out)
}

/// Appends the difference to `out`. False, and `out` as it was, when it has `limit` bytes or the form cannot say it.
pub(crate) fn diff(old: &[u8], new: &[u8], detail: Detail<'_>, limit: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut teller = Teller {
        targets: match detail {
            Detail::ToldAs(targets) => Some(targets),
            Detail::Compact | Detail::Told => None,
        },
        path: Vec::new(),
    };
    let done = document_diff(old, new, &mut teller, out, 0).is_some() && out.len() - start < limit;
    if !done {
        out.truncate(start);
    }
    done
}

/// Moves both behind the elements that lie wholly within the bytes they have in common from here on.
fn skip_common<'d>(old: &mut Elements<'d>, new: &mut Elements<'d>, mut each: impl FnMut(&Element<'d>)) -> Option<()> {
    let start = old.rest.len();
    let left_min = start - common_prefix(old.rest, new.rest);
    loop {
        let mut ahead = *old;
        match ahead.next().ok()? {
            Some(element) if ahead.rest.len() >= left_min => each(&element),
            _ => break,
        }
        *old = ahead;
    }
    new.rest = &new.rest[start - old.rest.len()..];
    Some(())
}

/// Bytes compared at a time.
const STRIDE: usize = 32;

fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let mut equal = 0;
    while let (Some(a), Some(b)) = (
        one[equal..].first_chunk::<STRIDE>(),
        other[equal..].first_chunk::<STRIDE>(),
    ) && a == b
    {
        equal += STRIDE;
    }
    let rest = one[equal..].iter().zip(&other[equal..]);
    equal + rest.take_while(|(one, other)| one == other).count()
}

fn common_suffix(one: &[u8], other: &[u8]) -> usize {
    let (mut one_left, mut other_left) = (one, other);
    while let (Some((a, b)), Some((c, d))) = (
        one_left.split_last_chunk::<STRIDE>(),
        other_left.split_last_chunk::<STRIDE>(),
    ) && b == d
    {
        (one_left, other_left) = (a, c);
    }
    let rest = one_left.iter().rev().zip(other_left.iter().rev());
    one.len() - one_left.len() + rest.take_while(|(one, other)| one == other).count()
}

/// `None`: it cannot be said. The lists are in the old version's order.
fn document_diff<'d>(
    old: &'d [u8],
    new: &'d [u8],
    teller: &mut Teller<'_, 'd>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Option<()> {
    let (mut old, mut new) = (Elements::of(old).ok()?, Elements::of(new).ok()?);
    let start = begin_document(out);
    // The section of the fields deleted stands before that of those set.
    let (mut deleted, mut section_of_set) = (Vec::<&[u8]>::new(), None);
    let (mut inside, mut names) = (Vec::new(), Names::before(old));
    match new.rest.strip_prefix(old.rest) {
        // Nothing has to be looked at but what was appended, however long the document is.
        Some(appended) => (old.rest, new.rest) = (&[], appended),
        None => skip_common(&mut old, &mut new, |_| {})?,
    }
    let tail = common_suffix(old.rest, new.rest);
    let mut upcoming = new.next().ok()?;
    loop {
        // Bytes of the new version from the element that is looked at on.
        let new_left = new.rest.len() + upcoming.map_or(0, |is| is.whole.len());
        if old.rest.len() == new_left && new_left <= tail {
            upcoming = None;
            new.rest = &[];
            break;
        }
        let here = old;
        let Some(was) = old.next().ok()? else { break };
        match upcoming {
            Some(is) if is.name == was.name => {
                if is.whole != was.whole {
                    names.is_first(was.name, here).then_some(())?;
                    if !value_diff((&was, &is), &[b"s", is.name], teller, &mut inside, depth) {
                        section_of_set.get_or_insert_with(|| {
                            begin_element(out, DOCUMENT, &[b"u"]);
                            begin_document(out)
                        });
                        out.extend_from_slice(is.whole);
                    }
                }
                upcoming = new.next().ok()?;
            }
            _ => {
                names.is_first(was.name, here).then_some(())?;
                deleted.push(was.name);
            }
        }
    }
    if let Some(section) = section_of_set {
        end_document(out, section);
    }
    if !deleted.is_empty() {
        let mut before = Vec::new();
        begin_element(&mut before, DOCUMENT, &[b"d"]);
        let section = begin_document(&mut before);
        for name in deleted {
            begin_element(&mut before, BOOLEAN, &[name]);
            before.push(0);
        }
        end_document(&mut before, section);
        out.splice(start + 4..start + 4, before);
    }
    if let Some(first) = upcoming {
        begin_element(out, DOCUMENT, &[b"i"]);
        let section = begin_document(out);
        out.extend_from_slice(first.whole);
        // Looked at one by one: a difference must not carry what cannot be walked again.
        while let Some(element) = new.next().ok()? {
            out.extend_from_slice(element.whole);
        }
        end_document(out, section);
    }
    out.extend_from_slice(&inside);
    end_document(out, start);
    Some(())
}

/// The names in front of a place of a document, as hashes: a name that seems to be there is treated as if it were.
/// Learnt when first asked for: fields in front of the first change are walked twice, those behind the last one are
/// not.
struct Names<'d> {
    passed: Vec<u32>,
    walk: Elements<'d>,
    asked: usize,
    /// The same as `passed`, up to `looked_up`, once it has been asked often.
    known: HashSet<u32, BuildHasherDefault<SameHash>>,
    looked_up: usize,
}

/// Questions answered by looking through the list.
const ASKED_LIST_MAX: usize = 32;

impl<'d> Names<'d> {
    fn before(start: Elements<'d>) -> Self {
        Self {
            passed: Vec::new(),
            walk: start,
            asked: 0,
            known: HashSet::default(),
            looked_up: 0,
        }
    }

    fn is_first(&mut self, name: &[u8], here: Elements<'d>) -> bool {
        self.asked += 1;
        if self.asked == 1 {
            return self.is_first_without_list(hash(name), here);
        }
        while self.walk.rest.len() > here.rest.len() {
            let Ok(Some(element)) = self.walk.next() else {
                return false;
            };
            self.passed.push(hash(element.name));
        }
        let hash = hash(name);
        if self.asked <= ASKED_LIST_MAX {
            return !self.passed.contains(&hash);
        }
        self.known.extend(&self.passed[self.looked_up..]);
        self.looked_up = self.passed.len();
        !self.known.contains(&hash)
    }

    /// Most documents that change do so in one place.
    fn is_first_without_list(&self, wanted: u32, here: Elements<'d>) -> bool {
        let mut walk = self.walk;
        while walk.rest.len() > here.rest.len() {
            match walk.next() {
                Ok(Some(element)) if hash(element.name) != wanted => {}
                _ => return false,
            }
        }
        true
    }
}

/// What is hashed is a hash.
#[derive(Default)]
struct SameHash(u64);

impl Hasher for SameHash {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed")
    }

    fn write_u32(&mut self, hash: u32) {
        self.0 = u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn hash(name: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: u64, word: u64| {
        let product = (hash ^ word).wrapping_mul(FACTOR);
        product ^ product >> 29
    };
    let mut words = name.chunks_exact(8);
    let mut hash = name.len() as u64;
    for word in words.by_ref() {
        hash = mix(hash, u64::from_le_bytes(word.try_into().expect("8 bytes")));
    }
    let rest = words.remainder();
    let last = match (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        (Some(first), Some(last)) => u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32,
        _ => rest.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    (mix(hash, last) >> 16) as u32
}

/// False when the difference says nothing of a path, given as its parts: what the path leads to is then the same in
/// both versions, and so is what lies on the way to it. Of arrays on the way it tells no more than that they differ.
pub(crate) fn touches<'p>(diff: &[u8], path: impl Iterator<Item = &'p [u8]>) -> bool {
    let mut inside = diff;
    for part in path {
        match about(inside, part) {
            Ok(About::Nothing) => return false,
            Ok(About::Inside(difference)) => inside = difference,
            Ok(About::Value) | Err(_) => return true,
        }
    }
    true
}

/// What a difference says of a field.
enum About<'d> {
    Nothing,
    /// It is deleted, set, or appended, or it is an array that differs inside.
    Value,
    /// It is a document that differs by this.
    Inside(&'d [u8]),
}

fn about<'d>(diff: &'d [u8], name: &[u8]) -> Result<About<'d>, Misfit> {
    let mut sections = Elements::of(diff)?;
    while let Some(section) = sections.next()? {
        if let [b's', field @ ..] = section.name {
            if field == name {
                let is_array = Elements::of(section.value)?
                    .next()?
                    .is_some_and(|first| first.kind == BOOLEAN);
                return Ok(if is_array {
                    About::Value
                } else {
                    About::Inside(section.value)
                });
            }
            continue;
        }
        let mut fields = Elements::of(section.value)?;
        while let Some(field) = fields.next()? {
            if field.name == name {
                return Ok(About::Value);
            }
        }
    }
    Ok(About::Nothing)
}

/// Appends an element with the difference inside a document or an array, if there is one and it is shorter than the
/// value, or tells better what was done.
fn value_diff<'d>(
    (was, is): (&Element<'d>, &Element<'d>),
    name: &[&[u8]],
    teller: &mut Teller<'_, 'd>,
    out: &mut Vec<u8>,
    depth: usize,
) -> bool {
    if was.kind != is.kind || !matches!(is.kind, DOCUMENT | ARRAY) || depth >= DEPTH_MAX {
        return false;
    }
    let target = teller.enter(is.name);
    let said = target != Target::Whole && inside_diff((was, is), name, target, teller, out, depth);
    if teller.targets.is_some() {
        teller.leave();
    }
    said
}

fn inside_diff<'d>(
    (was, is): (&Element<'d>, &Element<'d>),
    name: &[&[u8]],
    target: Target,
    teller: &mut Teller<'_, 'd>,
    out: &mut Vec<u8>,
    depth: usize,
) -> bool {
    let start = out.len();
    begin_element(out, DOCUMENT, name);
    let said = match is.kind {
        DOCUMENT => document_diff(was.value, is.value, teller, out, depth + 1),
        _ => array_diff((was.value, is.value), target, teller, out, depth + 1),
    };
    // Set as a whole it takes its name as well.
    let limit = match target {
        Target::Inside => usize::MAX,
        Target::Extended => is.whole.len() + EXTENDED_BYTES_FREE,
        Target::Whole | Target::Unknown => is.whole.len(),
    };
    let is_told = said.is_some() && out.len() - start < limit;
    if !is_told {
        out.truncate(start);
    }
    is_told
}

fn array_diff<'d>(
    (old, new): (&'d [u8], &'d [u8]),
    target: Target,
    teller: &mut Teller<'_, 'd>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Option<()> {
    let (mut old, mut new) = (Elements::of(old).ok()?, Elements::of(new).ok()?);
    let start = begin_document(out);
    begin_element(out, BOOLEAN, &[b"a"]);
    out.push(1);
    // The length stands before the elements, and is known after them.
    let at_length = out.len();
    let mut index = 0u32;
    skip_common(&mut old, &mut new, |_| index += 1)?;
    let tail = common_suffix(old.rest, new.rest);
    loop {
        if old.rest.len() == new.rest.len() && new.rest.len() <= tail {
            break;
        }
        let (was, is) = (old.next().ok()?, new.next().ok()?);
        let mut digits = [0; 10];
        let digits = decimal(index, &mut digits);
        match (was, is) {
            (None, None) => break,
            // Most who follow the log know no shortened arrays but those of pipelines.
            (Some(_), None) if target == Target::Extended => return None,
            (Some(_), None) => {
                let mut length = Vec::with_capacity(7);
                begin_element(&mut length, INT32, &[b"l"]);
                length.extend_from_slice(&index.to_le_bytes());
                out.splice(at_length..at_length, length);
                break;
            }
            (Some(was), Some(is)) => {
                // Names of elements are not said, so they have to be the same.
                (was.name == is.name).then_some(())?;
                if was.whole != is.whole && !value_diff((&was, &is), &[b"s", digits], teller, out, depth) {
                    begin_element(out, is.kind, &[b"u", digits]);
                    out.extend_from_slice(is.value);
                }
            }
            (None, Some(is)) => {
                (is.name == digits).then_some(())?;
                begin_element(out, is.kind, &[b"u", digits]);
                out.extend_from_slice(is.value);
            }
        }
        index += 1;
    }
    end_document(out, start);
    Some(())
}

fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// The new version of a document. An error when the difference was made from another one.
pub(crate) fn apply(diff: &[u8], old: &[u8]) -> Result<Vec<u8>, Misfit> {
    let mut new = Vec::with_capacity(old.len() + diff.len());
    apply_document(diff, old, &mut new, 0)?;
    Ok(new)
}

/// The elements of a section, in turn.
#[derive(Clone, Copy, Default)]
struct Section<'d> {
    elements: Option<Elements<'d>>,
    upcoming: Option<Element<'d>>,
}

impl<'d> Section<'d> {
    fn of(elements: Elements<'d>) -> Result<Self, Misfit> {
        let mut section = Self {
            elements: Some(elements),
            upcoming: None,
        };
        section.advance()?;
        Ok(section)
    }

    fn advance(&mut self) -> Result<(), Misfit> {
        self.upcoming = match &mut self.elements {
            Some(elements) => elements.next()?,
            None => None,
        };
        Ok(())
    }

    /// The next element, if it has that name behind a prefix.
    fn take(&mut self, prefix: &[u8], name: &[u8]) -> Result<Option<Element<'d>>, Misfit> {
        match self.upcoming {
            Some(element) if element.name.strip_prefix(prefix) == Some(name) => {
                self.advance()?;
                Ok(Some(element))
            }
            _ => Ok(None),
        }
    }
}

fn apply_document(diff: &[u8], old: &[u8], out: &mut Vec<u8>, depth: usize) -> Result<(), Misfit> {
    let (mut deleted, mut set, mut appended) = (Section::default(), Section::default(), Elements { rest: &[] });
    let mut inside = Section::of(Elements::of(diff)?)?;
    while let Some(section) = inside.upcoming {
        match (section.name, section.kind) {
            (b"d", DOCUMENT) => deleted = Section::of(Elements::of(section.value)?)?,
            (b"u", DOCUMENT) => set = Section::of(Elements::of(section.value)?)?,
            (b"i", DOCUMENT) => appended = Elements::of(section.value)?,
            ([b's', ..], DOCUMENT) => break,
            _ => return Err(Misfit("a difference has an unknown section")),
        }
        inside.advance()?;
    }
    let start = begin_document(out);
    let mut fields = Elements::of(old)?;
    // What stays is copied in runs: from here up to the field looked at.
    let mut run = fields.rest;
    loop {
        if deleted.upcoming.is_none() && set.upcoming.is_none() && inside.upcoming.is_none() {
            break;
        }
        let here = fields.rest;
        let Some(was) = fields.next()? else { break };
        let is_deleted = deleted.take(b"", was.name)?.is_some();
        let replaced = if is_deleted { None } else { set.take(b"", was.name)? };
        let differing = if is_deleted || replaced.is_some() {
            None
        } else {
            inside.take(b"s", was.name)?
        };
        if !is_deleted && replaced.is_none() && differing.is_none() {
            continue;
        }
        out.extend_from_slice(&run[..run.len() - here.len()]);
        run = fields.rest;
        if let Some(is) = replaced {
            out.extend_from_slice(is.whole);
        } else if let Some(difference) = differing {
            begin_element(out, was.kind, &[was.name]);
            apply_value(&difference, &was, out, depth)?;
        }
    }
    out.extend_from_slice(run);
    if deleted.upcoming.is_some() || set.upcoming.is_some() || inside.upcoming.is_some() {
        return Err(Misfit("a difference names a field that the document lacks"));
    }
    out.extend_from_slice(appended.rest);
    end_document(out, start);
    Ok(())
}

fn apply_value(difference: &Element<'_>, was: &Element<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), Misfit> {
    if depth >= DEPTH_MAX || difference.kind != DOCUMENT {
        return Err(Misfit("a difference is nested too deeply, or is no document"));
    }
    match was.kind {
        DOCUMENT => apply_document(difference.value, was.value, out, depth + 1),
        ARRAY => apply_array(difference.value, was.value, out, depth + 1),
        _ => Err(Misfit("a difference lies inside a value that has no inside")),
    }
}

fn apply_array(diff: &[u8], old: &[u8], out: &mut Vec<u8>, depth: usize) -> Result<(), Misfit> {
    let mut changes = Section::of(Elements::of(diff)?)?;
    let is_array = changes.take(b"", b"a")?;
    is_array.ok_or(Misfit("a difference inside an array is one of a document"))?;
    let length = match changes.take(b"", b"l")? {
        None => u32::MAX,
        Some(length) => match length.value.try_into() {
            Ok(length) => u32::from_le_bytes(length),
            Err(_) => return Err(Misfit("an array's length is no 32-bit integer")),
        },
    };
    let start = begin_document(out);
    let (mut elements, mut index) = (Elements::of(old)?, 0u32);
    while index < length {
        if changes.upcoming.is_none() && length == u32::MAX {
            out.extend_from_slice(elements.rest);
            break;
        }
        let was = elements.next()?;
        let mut digits = [0; 10];
        let digits = decimal(index, &mut digits);
        let name = was.map_or(digits, |was| was.name);
        if let Some(is) = changes.take(b"u", digits)? {
            begin_element(out, is.kind, &[name]);
            out.extend_from_slice(is.value);
        } else if let Some(was) = was {
            match changes.take(b"s", digits)? {
                Some(difference) => {
                    begin_element(out, was.kind, &[was.name]);
                    apply_value(&difference, &was, out, depth)?;
                }
                None => out.extend_from_slice(was.whole),
            }
        } else {
            break;
        }
        index += 1;
    }
    if changes.upcoming.is_some() || (length != u32::MAX && index != length) {
        return Err(Misfit("a difference names an element that the array lacks"));
    }
    end_document(out, start);
    Ok(())
}

/// The document key: `{_id: …}` of a document, from its first field. `None` when that is not `_id`.
pub(crate) fn append_key(document: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let first = Elements::of(document).ok()?.next().ok()??;
    (first.name == b"_id").then_some(())?;
    let start = begin_document(out);
    out.extend_from_slice(first.whole);
    end_document(out, start);
    Some(())
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
