//! The kill switch: what may not begin at the moment, and why. Must not know who may throw it.
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::{Event, HaltEvent, Meta};
use crate::ids::{ActorId, IdError, RunId, ToolName};
use crate::time::Timestamp;

/// What a halt stops. Printed as `all`, `run:<run>`, `actor:<actor>`, `tool:<tool>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HaltScope {
    /// Every call.
    All,
    /// The calls of one run.
    Run(RunId),
    /// The calls of one actor.
    Actor(ActorId),
    /// The calls of one tool.
    Tool(ToolName),
}

impl fmt::Display for HaltScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Run(run) => write!(f, "run:{run}"),
            Self::Actor(actor) => write!(f, "actor:{actor}"),
            Self::Tool(tool) => write!(f, "tool:{tool}"),
        }
    }
}

impl FromStr for HaltScope {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.split_once(':') {
            None if text == "all" => Ok(Self::All),
            Some(("run", run)) => run.parse().map(Self::Run),
            Some(("actor", actor)) => actor.parse().map(Self::Actor),
            Some(("tool", tool)) => tool.parse().map(Self::Tool),
            None | Some(_) => Err(IdError {
                kind: "scope",
                got: text.chars().take(80).collect(),
                allowed: "all, run:<run>, actor:<actor>, tool:<tool>",
            }),
        }
    }
}

impl Serialize for HaltScope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HaltScope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// One halt that is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HaltInForce {
    /// What it stops.
    pub scope: HaltScope,
    /// Why.
    pub reason: String,
    /// Who threw it.
    pub by: ActorId,
    /// When.
    pub since: Timestamp,
}

/// Fold of the `halt` stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Halt {
    in_force: BTreeMap<HaltScope, HaltInForce>,
}

impl Halt {
    /// The widest halt that concerns such a call, if there is one.
    pub fn of(&self, run: &RunId, actor: &ActorId, tool: &ToolName) -> Option<&HaltInForce> {
        // The order of the scopes is from wide to narrow.
        self.in_force.values().find(|halt| match &halt.scope {
            HaltScope::All => true,
            HaltScope::Run(halted) => halted == run,
            HaltScope::Actor(halted) => halted == actor,
            HaltScope::Tool(halted) => halted == tool,
        })
    }

    /// The halt of exactly this scope.
    pub fn get(&self, scope: &HaltScope) -> Option<&HaltInForce> {
        self.in_force.get(scope)
    }

    /// All that are in force, the widest first.
    pub fn iter(&self) -> impl Iterator<Item = &HaltInForce> {
        self.in_force.values()
    }

    /// Folds one record of the stream.
    pub fn evolve(&mut self, meta: &Meta, event: &Event) {
        match event {
            Event::Halt(HaltEvent::Halted(body, ())) => {
                let (scope, reason) = (body.scope.clone(), body.reason.clone());
                let halt = HaltInForce { scope: scope.clone(), reason, by: meta.actor.id.clone(), since: meta.ts };
                self.in_force.insert(scope, halt);
            }
            Event::Halt(HaltEvent::Resumed(body, ())) => drop(self.in_force.remove(&body.scope)),
            Event::System(_)
            | Event::Access(_)
            | Event::Config(_)
            | Event::Run(_)
            | Event::Step(_)
            | Event::Approval(_)
            | Event::Rollback(_)
            | Event::Undo(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::v1::{Halted, Resumed};
    use crate::ids::Actor;

    fn thrown(halt: &mut Halt, scope: &str) {
        let meta =
            Meta { seq: 1, ts: Timestamp::default(), leaf: crate::hash::Hash::default(), actor: Actor::system() };
        let body = Halted { reason: format!("because of {scope}"), scope: scope.parse().unwrap() };
        halt.evolve(&meta, &HaltEvent::Halted(body, ()).into());
    }

    fn lifted(halt: &mut Halt, scope: &str) {
        let meta =
            Meta { seq: 2, ts: Timestamp::default(), leaf: crate::hash::Hash::default(), actor: Actor::system() };
        halt.evolve(&meta, &HaltEvent::Resumed(Resumed { reason: None, scope: scope.parse().unwrap() }, ()).into());
    }

    #[test]
    fn scopes_print_and_parse() {
        for text in ["all", "run:support:4821", "actor:bot@example.com", "tool:a/../b:c"] {
            assert_eq!(text.parse::<HaltScope>().unwrap().to_string(), text);
        }
        for text in ["", "everything", "run:", "run", "tool:a b", "group:x"] {
            assert!(text.parse::<HaltScope>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_halt_stops_its_scope_until_it_is_lifted() {
        let (run, actor, tool) = ("r1".parse().unwrap(), "bot".parse().unwrap(), "mail.send".parse().unwrap());
        for scope in ["all", "run:r1", "actor:bot", "tool:mail.send"] {
            let mut halt = Halt::default();
            thrown(&mut halt, scope);
            assert_eq!(halt.of(&run, &actor, &tool).unwrap().reason, format!("because of {scope}"));
            lifted(&mut halt, scope);
            assert_eq!(halt.of(&run, &actor, &tool), None, "{scope}");
        }
        let mut halt = Halt::default();
        for scope in ["run:r2", "actor:other", "tool:mail.read"] {
            thrown(&mut halt, scope);
        }
        assert_eq!(halt.of(&run, &actor, &tool), None);
        thrown(&mut halt, "run:r1");
        thrown(&mut halt, "all");
        lifted(&mut halt, "all");
        assert_eq!(halt.of(&run, &actor, &tool).unwrap().scope.to_string(), "run:r1", "each is lifted by itself");
    }
}
