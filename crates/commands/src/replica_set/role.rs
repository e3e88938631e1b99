//! What a member is: the states of MongoDB's members, by their numbers and names.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The set has not been initiated, or this server has not heard of it.
    Startup = 0,
    /// Takes writes.
    Primary = 1,
    /// Follows the primary, and answers reads.
    Secondary = 2,
    /// Takes part and answers no reads: maintenance, or data that fell behind the primary's log.
    Recovering = 3,
    /// Copies all data of another member.
    Startup2 = 5,
    /// Nobody has heard of it yet.
    Unknown = 6,
    /// Votes and keeps no data.
    Arbiter = 7,
    /// Does not answer.
    Down = 8,
    /// The configuration has it no more.
    Removed = 10,
}

impl Role {
    const ALL: [Self; 9] = [
        Self::Startup,
        Self::Primary,
        Self::Secondary,
        Self::Recovering,
        Self::Startup2,
        Self::Unknown,
        Self::Arbiter,
        Self::Down,
        Self::Removed,
    ];

    /// That of a number which another member said.
    pub fn of_number(number: i32) -> Self {
        let found = Self::ALL.into_iter().find(|role| *role as i32 == number);
        found.unwrap_or(Self::Unknown)
    }

    /// The name that `replSetGetStatus` shows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "STARTUP",
            Self::Primary => "PRIMARY",
            Self::Secondary => "SECONDARY",
            Self::Recovering => "RECOVERING",
            Self::Startup2 => "STARTUP2",
            Self::Unknown => "UNKNOWN",
            Self::Arbiter => "ARBITER",
            Self::Down => "(not reachable/healthy)",
            Self::Removed => "REMOVED",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Role;

    #[test]
    fn numbers_name_roles() {
        for role in Role::ALL {
            assert_eq!(Role::of_number(role as i32), role);
        }
        assert_eq!(Role::of_number(9), Role::Unknown);
    }
}
