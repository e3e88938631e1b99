//! What consensus knows of the members, beside what their configuration says: the field `consensus` of the document in
//! `local.system.replset` (see `storage::Membership`).

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};

/// The first number that a member gets which is not its first instance. First ones have their `_id` and one more.
const LATER_IDS_FROM: u64 = 1_000;
/// Numbers that a member which goes on alone has, for itself and those that it takes in, before those of one whose
/// forced configuration has the next version: far more than it gives until they have heard of each other.
const IDS_OF_VERSION: u64 = 1_024;

/// A member as consensus knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsensusMember {
    /// Its `_id` in the configuration.
    pub member: i32,
    /// Its number in consensus, never another's.
    pub id: u64,
    /// The data directory that has the number.
    pub instance: [u8; 16],
    /// It votes; before that it is sent the log only.
    pub votes: bool,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsensusMembers {
    /// Those there are.
    pub members: Vec<ConsensusMember>,
    next: u64,
}

impl ConsensusMembers {
    /// The first member of a set.
    pub fn of_one(member: i32, instance: [u8; 16]) -> Self {
        Self {
            members: vec![ConsensusMember {
                member,
                id: member as u64 + 1,
                instance,
                votes: true,
            }],
            next: LATER_IDS_FROM,
        }
    }

    /// A member that goes on without the others, as another than it was: what is on its way to that does not reach it.
    /// It passes over the numbers of configurations with lower versions than its own: another one may go on alone as
    /// well. A member that got the same number from both would keep the log of one and follow the other.
    pub fn alone(&self, member: i32, instance: [u8; 16], version: u64) -> Self {
        let next = self.next.max(LATER_IDS_FROM) + version * IDS_OF_VERSION + 1;
        Self {
            members: vec![ConsensusMember {
                member,
                id: next,
                instance,
                votes: true,
            }],
            next,
        }
    }

    /// Reads the field; `None` in the document of a set that has only had one member.
    pub fn read(document: &Document) -> Option<Self> {
        let consensus = document.get_document("consensus").ok()?;
        let member = |member: &Bson| {
            let member = member.as_document()?;
            Some(ConsensusMember {
                member: member.get_i32("_id").ok()?,
                id: u64::try_from(member.get_i64("id").ok()?).ok()?,
                instance: member.get_binary_generic("instance").ok()?.as_slice().try_into().ok()?,
                votes: member.get_bool("votes").ok()?,
            })
        };
        let members = consensus.get_array("members").ok()?;
        Some(Self {
            members: members.iter().map(member).collect::<Option<_>>()?,
            next: u64::try_from(consensus.get_i64("next").ok()?).ok()?,
        })
    }

    /// The field's value.
    pub fn to_document(&self) -> Document {
        let member = |member: &ConsensusMember| {
            let instance = Binary {
                subtype: BinarySubtype::Generic,
                bytes: member.instance.to_vec(),
            };
            doc! { "_id": member.member, "id": member.id as i64, "votes": member.votes, "instance": instance }
        };
        let members: Vec<_> = self.members.iter().map(member).collect();
        doc! { "next": self.next as i64, "members": members }
    }

    /// The one of a member of the configuration.
    pub fn of(&self, member: i32) -> Option<&ConsensusMember> {
        self.members.iter().find(|known| known.member == member)
    }

    /// The one that a data directory is.
    pub fn of_instance(&self, instance: &[u8; 16]) -> Option<&ConsensusMember> {
        self.members.iter().find(|known| known.instance == *instance)
    }

    /// The one with a number in consensus.
    pub fn by_id(&self, id: u64) -> Option<&ConsensusMember> {
        self.members.iter().find(|known| known.id == id)
    }

    /// Rises whenever a member gets another number than its first, or loses it.
    pub fn numbers_given(&self) -> u64 {
        self.next
    }

    /// Takes a data directory in as that of a member, in place of another one that it had. It does not vote yet.
    pub fn take_in(&mut self, member: i32, instance: [u8; 16]) {
        let first = member as u64 + 1;
        let is_first = self.by_id(first).is_none() && self.of(member).is_none() && self.next == LATER_IDS_FROM;
        self.members.retain(|known| known.member != member);
        let id = match is_first {
            true => first,
            false => {
                self.next += 1;
                self.next
            }
        };
        self.members.push(ConsensusMember {
            member,
            id,
            instance,
            votes: false,
        });
    }

    /// Drops those that the configuration no longer has.
    pub fn keep(&mut self, is_kept: impl Fn(i32) -> bool) {
        let before = self.members.len();
        self.members.retain(|known| is_kept(known.member));
        // The numbers of those that went are not given again.
        if self.members.len() < before {
            self.next += 1;
        }
    }

    /// Has a member vote, or not.
    pub fn set_votes(&mut self, member: i32, votes: bool) {
        for known in self.members.iter_mut().filter(|known| known.member == member) {
            known.votes = votes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_never_given_again() {
        let mut members = ConsensusMembers::of_one(0, [1; 16]);
        members.take_in(1, [2; 16]);
        assert_eq!(members.of(1).map(|member| (member.id, member.votes)), Some((2, false)));
        members.set_votes(1, true);
        members.take_in(1, [3; 16]);
        let second = members.of(1).copied().expect("there");
        assert!(second.id > LATER_IDS_FROM && !second.votes);
        members.keep(|member| member == 0);
        members.take_in(1, [2; 16]);
        let third = members.of(1).expect("there").id;
        assert!(third > second.id, "{third}");
        // Two that go on alone at the same time do not give the same ones either.
        let [one, other] = [10_001, 10_002].map(|version| {
            let mut alone = members.alone(0, [1; 16], version);
            alone.take_in(1, [2; 16]);
            alone.take_in(2, [3; 16]);
            alone.members.iter().map(|member| member.id).collect::<Vec<_>>()
        });
        assert!(one[0] > third && one.len() == 3, "{one:?}");
        assert!(one.iter().all(|id| !other.contains(id)), "{one:?} {other:?}");
        let mut document = Document::new();
        document.insert("consensus", members.to_document());
        assert_eq!(ConsensusMembers::read(&document), Some(members));
    }
}
