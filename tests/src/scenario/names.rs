//! Names for ids, both ways: scripts never show a raw id.

use super::words::{Fault, number};
use std::collections::BTreeMap;
use tenure_core::coordinator::command::{Held, MessageKey};
use tenure_core::coordinator::event::Event;
use tenure_core::definition::Definition;
use tenure_core::id::*;
use tenure_core::value::{Place, Value};

/// Everything that has a name in a script.
#[derive(Debug, Default)]
pub(super) struct Names {
    runs: BTreeMap<String, RunId>,
    workers: Vec<String>,
    tenants: Vec<String>,
    /// Texts that core knows by hash or id: payloads, keys, message ids.
    texts: Vec<String>,
    definitions: Vec<Definition>,
    of_runs: BTreeMap<RunId, DefinitionId>,
    /// What the next run that is created will be called.
    pub(super) next_run: Option<String>,
}

fn intern(known: &mut Vec<String>, name: &str) -> u128 {
    let at = known.iter().position(|other| other == name).unwrap_or_else(|| {
        known.push(name.into());
        known.len() - 1
    });
    at as u128 + 1
}

impl Names {
    /// Learns definitions and what runs are of.
    pub(super) fn learn(&mut self, event: &Event) {
        match event {
            Event::DefinitionAdded(added) => self.definitions.push(added.definition.clone()),
            Event::RunCreated(created) => {
                self.of_runs.insert(created.run, created.definition);
                if let Some(name) = self.next_run.take() {
                    self.runs.insert(name, created.run);
                }
            }
            _ => {}
        }
    }

    /// Runs that are not there any more may be named anew.
    pub(super) fn forget_runs(&mut self, is_there: impl Fn(RunId) -> bool) {
        self.runs.retain(|_, run| is_there(*run));
    }

    /// The tenant of this name.
    pub(super) fn tenant(&mut self, name: &str) -> TenantId {
        TenantId::new(intern(&mut self.tenants, name))
    }

    /// The worker of this name; ids rise in the order of first mention.
    pub(super) fn worker(&mut self, name: &str) -> WorkerId {
        WorkerId::new(intern(&mut self.workers, name))
    }

    /// The name of a worker.
    pub(super) fn of_worker(&self, worker: WorkerId) -> String {
        let at = (worker.value() as usize).checked_sub(1);
        at.and_then(|at| self.workers.get(at)).cloned().unwrap_or_else(|| worker.to_string())
    }

    /// The number a text is known by.
    pub(super) fn text(&mut self, text: &str) -> u128 {
        intern(&mut self.texts, text)
    }

    fn of_text(&self, number: u128) -> String {
        let at = (number as usize).checked_sub(1);
        at.and_then(|at| self.texts.get(at)).cloned().unwrap_or_else(|| "?".into())
    }

    /// A payload with this text; `stored:` and `external:` say where its bytes are.
    pub(super) fn value(&mut self, text: &str) -> Value {
        if text.is_empty() {
            return Value::EMPTY;
        }
        let place = match text.split_once(':') {
            Some(("stored", _)) => Place::Stored,
            Some(("external", _)) => Place::External,
            _ => Place::Inline,
        };
        Value { hash: ContentHash::new(self.text(text)), len: text.len() as u64, place }
    }

    /// The text of a payload; a dash for none.
    pub(super) fn of_value(&self, value: &Value) -> String {
        if value.is_empty() { "-".into() } else { self.of_text(value.hash.value()) }
    }

    /// Gives a name to a run that does not exist.
    pub(super) fn invent_run(&mut self, name: &str, run: RunId) {
        self.runs.insert(name.into(), run);
    }

    /// The run of this name.
    pub(super) fn run(&self, name: &str) -> Result<RunId, Fault> {
        self.runs.get(name).copied().ok_or_else(|| format!("no run is named {name} yet"))
    }

    /// The name of a run.
    pub(super) fn of_run(&self, run: RunId) -> String {
        let known = self.runs.iter().find(|(_, id)| **id == run);
        known.map_or_else(|| run.to_string(), |(name, _)| name.clone())
    }

    fn definition_of(&self, run: RunId) -> Option<&Definition> {
        self.definitions.get(self.of_runs.get(&run)?.get() as usize)
    }

    /// Reads `r1` (the whole run), `r1.a`, or `r1.#7`.
    pub(super) fn work(&self, text: &str) -> Result<(RunId, NodeIx), Fault> {
        let Some((run, node)) = text.split_once('.') else {
            return Ok((self.run(text)?, NodeIx::WHOLE_RUN));
        };
        let run = self.run(run)?;
        let nodes = self.definition_of(run).map_or(&[][..], |definition| &definition.nodes);
        let at = place(node, nodes.iter().map(|node| &*node.name))?;
        Ok((run, NodeIx::new(at)))
    }

    /// Reads a handle of a node: its name, or `#` and its number.
    pub(super) fn handle(&self, run: RunId, node: NodeIx, text: &str) -> Result<HandleIx, Fault> {
        let spec = self.definition_of(run).and_then(|definition| definition.nodes.get(node.get() as usize));
        let handles = spec.map_or(&[][..], |node| &node.handles);
        Ok(HandleIx::new(place(text, handles.iter().map(|handle| &*handle.name))?))
    }

    /// Reads `r1.a.in`.
    pub(super) fn inbox(&self, text: &str) -> Result<(RunId, NodeIx, HandleIx), Fault> {
        let (work, handle) =
            text.rsplit_once('.').ok_or_else(|| format!("{text:?} is not run.node.handle"))?;
        let (run, node) = self.work(work)?;
        Ok((run, node, self.handle(run, node, handle)?))
    }

    /// Reads a source of a handle: its name, or `#` and its number.
    pub(super) fn source(
        &self,
        (run, node, handle): (RunId, NodeIx, HandleIx),
        text: &str,
    ) -> Result<u16, Fault> {
        let spec = self.definition_of(run).and_then(|definition| definition.nodes.get(node.get() as usize));
        let spec = spec.and_then(|spec| spec.handles.get(usize::from(handle.get())));
        place(text, spec.map_or(&[][..], |spec| &spec.sources).iter().map(|name| &**name))
    }

    /// Reads a stream edge out of a node: where it leads, `b.in`, or `#` and its number.
    pub(super) fn edge(&self, run: RunId, node: NodeIx, text: &str) -> Result<u16, Fault> {
        let Some(definition) = self.definition_of(run) else { return place(text, [].into_iter()) };
        let from = definition.nodes.get(node.get() as usize).map(|node| node.name.clone());
        let mut targets = Vec::new();
        for edge in definition.edges.iter().filter(|edge| Some(&edge.from) == from.as_ref()) {
            if let tenure_core::definition::EdgeKind::Stream { handle } = &edge.kind {
                targets.push(format!("{}.{handle}", edge.to));
            }
        }
        place(text, targets.iter().map(|target| &**target))
    }

    /// A piece of work by name.
    pub(super) fn of_work(&self, run: RunId, node: NodeIx) -> String {
        if node.is_whole_run() {
            return self.of_run(run);
        }
        let spec = self.definition_of(run).and_then(|definition| definition.nodes.get(node.get() as usize));
        let name = spec.map_or_else(|| format!("#{node}"), |spec| spec.name.to_string());
        format!("{}.{name}", self.of_run(run))
    }

    /// A grant by name.
    pub(super) fn of_held(&self, held: Held) -> String {
        format!("{} e{}", self.of_work(held.run, held.node), held.epoch)
    }

    /// An inbox by name.
    pub(super) fn of_inbox(&self, run: RunId, node: NodeIx, handle: HandleIx) -> String {
        let spec = self.definition_of(run).and_then(|definition| definition.nodes.get(node.get() as usize));
        let spec = spec.and_then(|spec| spec.handles.get(usize::from(handle.get())));
        let name = spec.map_or_else(|| format!("#{handle}"), |spec| spec.name.to_string());
        format!("{}.{name}", self.of_work(run, node))
    }

    /// What makes a message unique.
    pub(super) fn of_message(&self, id: MessageKey) -> String {
        match id {
            MessageKey::Own(id) => self.of_text(id.value()),
            MessageKey::Stream { source, n } => format!("source {source} n {n}"),
        }
    }

    /// Puts names in place of the raw ids in a sentence.
    pub(super) fn in_sentence(&self, sentence: &str) -> String {
        let mut text = sentence.to_string();
        for (name, run) in &self.runs {
            text = text.replace(&run.to_string(), name);
        }
        for (at, name) in self.workers.iter().enumerate() {
            text = text.replace(&WorkerId::new(at as u128 + 1).to_string(), name);
        }
        text
    }
}

/// The place of a name in a list, or the number after `#`.
fn place<'a, T>(text: &str, names: impl Iterator<Item = &'a str>) -> Result<T, Fault>
where
    T: std::str::FromStr + TryFrom<usize>,
{
    if let Some(raw) = text.strip_prefix('#') {
        return number(raw);
    }
    let found = names.enumerate().find(|(_, name)| *name == text);
    let found = found.and_then(|(at, _)| T::try_from(at).ok());
    found.ok_or_else(|| format!("nothing is named {text:?} there; # and a number means what is not there"))
}
