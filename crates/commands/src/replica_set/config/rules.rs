//! Which configurations a set can have, which it can begin with, and which may follow another.

use super::{MEMBERS_MAX, MemberConfig, SetConfig, invalid, recoded, wrong_member_count};
use crate::error::{CommandError, Result};
use std::collections::HashSet;
use wire::ErrorCode;

/// Most members that have a vote.
const VOTERS_MAX: usize = 7;

impl SetConfig {
    /// Whether it is that of the set `name`.
    pub(super) fn check_name(&self, name: &str) -> Result<()> {
        if self.name == name {
            return Ok(());
        }
        Err(invalid(format!(
            "Attempting to initiate a replica set with name {}, but command line reports {name}; rejecting",
            self.name
        )))
    }

    /// Whether the members and the settings go together.
    ///
    /// # Errors
    /// `InvalidReplicaSetConfig` (93) names what does not.
    pub fn check(&self) -> Result<()> {
        let count = self.members.len();
        if !(1..=MEMBERS_MAX).contains(&count) {
            return Err(wrong_member_count(count));
        }
        if self.name.is_empty() {
            return Err(invalid("Replica set configuration must have non-empty _id field"));
        }
        for (position, member) in self.members.iter().enumerate() {
            member.check()?;
            self.check_is_another(position, member)?;
        }
        let local = self.members.iter().filter(|member| member.is_local()).count();
        if local != 0 && local != count {
            return Err(invalid(format!(
                "Either all host names in a replica set configuration must be localhost references, or none must be; \
                 found {local} out of {count}"
            )));
        }
        let voters = self.voters().count();
        if !(1..=VOTERS_MAX).contains(&voters) {
            return Err(invalid(format!(
                "Replica set configuration contains {voters} voting members, \
                 but must be at least 1 and no more than {VOTERS_MAX}"
            )));
        }
        if !self.members.iter().any(MemberConfig::is_electable) {
            return Err(invalid(
                "Replica set configuration must contain at least one non-arbiter member with priority > 0",
            ));
        }
        if self.members.iter().filter(|member| member.arbiter_only).count() > 1 {
            return Err(invalid("Multiple arbiters are not allowed"));
        }
        self.check_modes()
    }

    /// No member before it has its number or its host.
    fn check_is_another(&self, position: usize, member: &MemberConfig) -> Result<()> {
        for (other_position, other) in self.members.iter().take(position).enumerate() {
            let (field, value) = if other.id == member.id {
                ("_id", member.id.to_string())
            } else if other.host == member.host {
                ("host", member.host.clone())
            } else {
                continue;
            };
            return Err(invalid(format!(
                "Found two member configurations with same {field} field, \
                 members.{other_position}.{field} == members.{position}.{field} == {value}"
            )));
        }
        Ok(())
    }

    fn check_modes(&self) -> Result<()> {
        let tags: HashSet<&str> = self
            .members
            .iter()
            .flat_map(|member| member.tags.keys())
            .map(String::as_str)
            .collect();
        for (mode, constraints) in &self.settings.modes {
            if let Some((tag, _)) = constraints.iter().find(|(tag, _)| !tags.contains(&**tag)) {
                return Err(invalid(format!(
                    "settings.getLastErrorModes.{mode} asks for the tag {tag}, which no member has"
                )));
            }
        }
        Ok(())
    }

    /// Whether the set `name` can begin with it on this server, and the member that this server is then.
    ///
    /// # Errors
    /// `InvalidReplicaSetConfig` (93), also when this server is no member or cannot become the primary.
    pub fn check_initial(&self, name: &str, is_me: &dyn Fn(&str) -> bool) -> Result<&MemberConfig> {
        if self.version != 1 {
            return Err(invalid(format!(
                "Configuration used to initiate a replica set must have version 1, but found {}",
                self.version
            )));
        }
        self.check_alone(name, is_me)
    }

    /// Whether this server can lead the set `name` under it, whatever was before.
    ///
    /// # Errors
    /// As for [`SetConfig::check_initial`].
    pub fn check_alone(&self, name: &str, is_me: &dyn Fn(&str) -> bool) -> Result<&MemberConfig> {
        let check = || {
            self.check_name(name)?;
            self.check()?;
            let me = self.me(is_me)?;
            self.check_electable(me)?;
            Ok(me)
        };
        check().map_err(|error| recoded(ErrorCode::InvalidReplicaSetConfig, error))
    }

    /// Takes from the configuration before what a new one need not say: the set's id, and with force a version.
    pub fn inherit(&mut self, old: &Self, force: bool) {
        if self.settings.replica_set_id.is_none() {
            self.settings.replica_set_id = old.settings.replica_set_id;
        }
        if force {
            self.version = self.version.max(old.version.saturating_add(1));
        }
    }

    /// Whether it can follow `old` on this server, and the member that this server is then. It must have inherited.
    ///
    /// # Errors
    /// `InvalidReplicaSetConfig` (93): it is another set's; `NewReplicaSetConfigurationIncompatible` (103): it does not
    /// go together, or not with `old`; `NodeNotFound` (74): this server is no member; `NodeNotElectable` (104): it
    /// could not be the primary.
    pub fn check_successor(&self, old: &Self, force: bool, is_me: &dyn Fn(&str) -> bool) -> Result<&MemberConfig> {
        if self.name != old.name {
            return Err(invalid(format!(
                "Rejecting reconfig where the new configuration is that of the set {}, and this member is of {}",
                self.name, old.name
            )));
        }
        self.check()
            .and_then(|()| Self::check_change(old, self, force))
            .map_err(|error| recoded(ErrorCode::NewReplicaSetConfigurationIncompatible, error))?;
        let me = self.me(is_me)?;
        if !force {
            self.check_electable(me)?;
        }
        Ok(me)
    }

    /// Whether `new` can follow `old`, both being right in themselves.
    ///
    /// # Errors
    /// `NewReplicaSetConfigurationIncompatible` (103).
    pub fn check_change(old: &Self, new: &Self, force: bool) -> Result<()> {
        if old.settings.replica_set_id.is_some() && new.settings.replica_set_id != old.settings.replica_set_id {
            let text = |config: &Self| {
                config
                    .settings
                    .replica_set_id
                    .map_or_else(|| "none".to_owned(), |id| id.to_hex())
            };
            return Err(incompatible(format!(
                "New and old configurations differ in replica set ID; old was {}, and new is {}",
                text(old),
                text(new)
            )));
        }
        if new.version <= old.version {
            return Err(incompatible(format!(
                "New replica set configuration version must be greater than old, \
                 but {} is not greater than {} for replica set {}",
                new.version, old.version, new.name
            )));
        }
        for member in &new.members {
            for before in &old.members {
                member.check_change(before, &new.name)?;
            }
        }
        let votes = |config: &Self| config.voters().map(|member| member.id).collect::<HashSet<_>>();
        if !force && votes(old).symmetric_difference(&votes(new)).count() > 1 {
            return Err(incompatible(
                "Non force replica set reconfig can only add or remove at most 1 voting member",
            ));
        }
        Ok(())
    }

    /// Only who can become the primary under a configuration may ask for it.
    fn check_electable(&self, me: &MemberConfig) -> Result<()> {
        if me.is_electable() {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorCode::NodeNotElectable,
            format!(
                "This node, {}, with _id {} is not electable under the new configuration with {} for replica set {}",
                me.host,
                me.id,
                self.identity(),
                self.name
            ),
        ))
    }
}

impl MemberConfig {
    /// A member keeps its number and may get another host; what it is made of is decided when it is added.
    fn check_change(&self, before: &Self, set: &str) -> Result<()> {
        if self.id != before.id && self.host != before.host {
            return Ok(());
        }
        if self.id != before.id {
            return Err(incompatible(format!(
                "New and old configurations both have members with host of {} but in the new configuration the _id \
                 field is {} and in the old configuration it is {} for replica set {set}",
                self.host, self.id, before.id
            )));
        }
        for (field, is_same) in [
            ("buildIndexes", self.build_indexes == before.build_indexes),
            ("arbiterOnly", self.arbiter_only == before.arbiter_only),
        ] {
            if !is_same {
                return Err(incompatible(format!(
                    "New and old configurations differ in the setting of the {field} field for member {}; \
                     to make this change, remove then re-add the member",
                    self.host
                )));
            }
        }
        Ok(())
    }
}

fn incompatible(reason: impl Into<String>) -> CommandError {
    CommandError::new(ErrorCode::NewReplicaSetConfigurationIncompatible, reason)
}
