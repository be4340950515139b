//! Definitions: the same content again is the same version, new content the next one.

use super::Decision;
use crate::coordinator::effect::Answer;
use crate::coordinator::event::{DefinitionAdded, Event};
use crate::coordinator::rejection::Rejection;
use crate::definition::{Definition, Name};
use crate::graph::{self, is_name};
use crate::id::{ContentHash, DefinitionId, DefinitionVersion};
use crate::limits::LimitName;
use alloc::boxed::Box;

impl Decision<'_> {
    pub(crate) fn define(&mut self, definition: Definition, hash: ContentHash) -> Result<Answer, Rejection> {
        let state = self.state;
        let entry = state.name(self.tenant, &definition.name);
        let versions = entry.map_or(&[][..], |entry| &entry.versions);
        let known = |id: &&DefinitionId| state.definition(**id).row.hash == hash;
        if let Some(id) = versions.iter().find(known) {
            return Ok(Answer::Defined { id: *id, version: state.definition(*id).row.version });
        }
        let problems = graph::check(&definition, &state.limits).err();
        if let Some(problems) = problems {
            return Err(Rejection::BadGraph { problems });
        }
        self.limit(LimitName::Definitions, state.definitions.len() as u64 + 1)?;
        let (id, tenant) = (state.meta.next_definition, self.tenant);
        let version = DefinitionVersion::new(versions.len() as u32 + 1);
        let added = DefinitionAdded { id, tenant, version, hash, definition };
        self.events.push_back(Event::DefinitionAdded(Box::new(added)));
        Ok(Answer::Defined { id, version })
    }

    pub(crate) fn set_alias(
        &mut self,
        definition: Name,
        alias: Name,
        version: DefinitionVersion,
    ) -> Result<Answer, Rejection> {
        let Some(entry) = self.state.name(self.tenant, &definition) else {
            return Err(Rejection::UnknownDefinition { name: definition });
        };
        if !is_name(&alias, &self.state.limits) {
            return Err(Rejection::BadName { name: alias });
        }
        let at = (version.get() as usize).checked_sub(1);
        let Some(id) = at.and_then(|at| entry.versions.get(at)).copied() else {
            return Err(Rejection::UnknownVersion { name: definition, version });
        };
        if !entry.aliases.contains_key(&alias) {
            self.limit(LimitName::Aliases, entry.aliases.len() as u64 + 1)?;
        }
        if entry.aliases.get(&alias) != Some(&id) {
            self.events.push_back(Event::AliasSet { tenant: self.tenant, definition, alias, id });
        }
        Ok(Answer::Done)
    }
}
