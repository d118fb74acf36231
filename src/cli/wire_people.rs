//! The daemon's answers about approvals and people, as far as they are shown. Members that a version lacks have their
//! defaults. Must not know how they are shown.
use serde::Deserialize;

/// A page of requests.
#[derive(Debug, Deserialize)]
pub(super) struct ApprovalPage {
    pub(super) items: Vec<Approval>,
    #[serde(default)]
    pub(super) next_cursor: Option<String>,
}

/// A request for a person's yes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Approval {
    #[serde(rename = "approval_id")]
    pub(super) id: String,
    pub(super) run_id: String,
    pub(super) step: Option<u32>,
    pub(super) target: String,
    pub(super) status: String,
    pub(super) tool: String,
    pub(super) requested_by: String,
    pub(super) requested_at: String,
    pub(super) roles: Vec<String>,
    pub(super) quorum: u32,
    pub(super) votes: Vec<Vote>,
    pub(super) level: u32,
    pub(super) deadline: Option<String>,
    pub(super) at_deadline: Option<String>,
    pub(super) ended_by: Option<String>,
    pub(super) end_note: Option<String>,
    pub(super) break_glass: Option<Glass>,
    pub(super) fingerprint: Option<String>,
    /// None for an agent's key, which is told the status only.
    pub(super) preview: Option<Preview>,
}

/// A yes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Vote {
    pub(super) person: String,
    pub(super) on_behalf_of: Option<String>,
    pub(super) note: Option<String>,
    pub(super) at: String,
}

/// An emergency grant.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Glass {
    pub(super) person: String,
    pub(super) at: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) review_by: Option<String>,
    pub(super) overdue: bool,
    pub(super) reviewed_by: Option<String>,
    pub(super) review: Option<String>,
}

/// What would happen.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Preview {
    pub(super) sentence: String,
    pub(super) description: Option<String>,
    pub(super) effect: Option<String>,
    pub(super) undo: Option<String>,
    pub(super) residue: Vec<String>,
    pub(super) data_class: Option<String>,
    pub(super) blast_radius: Option<String>,
    pub(super) agents_reason: String,
    pub(super) arguments: Option<String>,
    pub(super) redacted_values: u64,
    pub(super) hidden_characters: u64,
    pub(super) asked_by: Vec<String>,
}

/// The reviews that are owed.
#[derive(Debug, Deserialize)]
pub(super) struct Reviews {
    pub(super) items: Vec<Review>,
}

/// One of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Review {
    pub(super) approval: String,
    pub(super) run_id: Option<String>,
    pub(super) person: String,
    pub(super) reason: String,
    #[serde(rename = "review_by")]
    pub(super) due: String,
    pub(super) overdue: bool,
}

/// All of some kind.
#[derive(Debug, Deserialize)]
pub(super) struct List<T> {
    pub(super) items: Vec<T>,
}

/// A key without its secret.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Key {
    #[serde(rename = "key")]
    pub(super) id: String,
    pub(super) actor: String,
    pub(super) person: Option<String>,
    pub(super) roles: Vec<String>,
    pub(super) groups: Vec<String>,
    pub(super) allow_observe: bool,
    pub(super) expires_at: Option<String>,
    pub(super) revoked: bool,
}

/// A group.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Group {
    #[serde(rename = "group")]
    pub(super) name: String,
    pub(super) members: Vec<String>,
}

/// A lent vote.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delegation {
    #[serde(rename = "delegation")]
    pub(super) id: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) roles: Vec<String>,
    pub(super) start: String,
    pub(super) end: String,
}

/// What may not begin.
#[derive(Debug, Deserialize)]
pub(super) struct Halts {
    pub(super) items: Vec<Halt>,
}

/// One halt in force.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Halt {
    pub(super) scope: String,
    pub(super) reason: String,
    pub(super) by: String,
    pub(super) since: String,
}

/// Whose key it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Me {
    pub(super) key_id: String,
    pub(super) actor: String,
    pub(super) kind: String,
    pub(super) person: Option<String>,
    pub(super) roles: Vec<String>,
    pub(super) groups: Vec<String>,
}

impl Me {
    /// Who, in a few words.
    pub(super) fn sentence(&self) -> String {
        let person = self.person.as_ref().filter(|person| **person != self.actor);
        let person = person.map_or(String::new(), |person| format!(" ({person})"));
        format!("{}{person}, {}", self.actor, self.roles.join(", "))
    }
}
