//! The rules of one call: those of its manifest and of every policy rule that matches, merged. Must not know where
//! they come from.
use crate::manifest::{ApprovalRules, OnTimeout};

/// Who must say yes, how many, until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// An approver must hold one of these roles or groups; empty: any approver.
    pub roles: Vec<String>,
    /// How many persons.
    pub quorum: u32,
    /// Milliseconds for each level; None: no deadline.
    pub timeout_ms: Option<u64>,
    /// Whose word counts too from each further level on; empty: nobody answers, it expires.
    pub escalate_to: Vec<String>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { roles: Vec::new(), quorum: 1, timeout_ms: None, escalate_to: Vec::new() }
    }
}

impl Rules {
    /// Whose word counts on a level. Where any approver may vote, no level widens that.
    pub fn listed(&self, level: u32) -> Vec<String> {
        if self.roles.is_empty() {
            return Vec::new();
        }
        let further = self.escalate_to.iter().take(level as usize).filter(|role| !self.roles.contains(role));
        self.roles.iter().chain(further).cloned().collect()
    }

    /// Whose word can count at last.
    pub fn listed_at_last(&self) -> Vec<String> {
        self.listed(u32::MAX)
    }
}

/// Any listed role may approve, the largest quorum wins, the shortest timeout wins (page "Approval"); `deny` beats
/// `escalate`, and the levels are joined in order (domain rules, "Approval"). A rule without a timeout has no say in
/// what happens at one.
pub fn merge<'r>(rules: impl IntoIterator<Item = &'r ApprovalRules>) -> Rules {
    let mut merged = Rules::default();
    let mut denied = false;
    for rule in rules {
        push_new(&mut merged.roles, &rule.roles);
        push_new(&mut merged.escalate_to, &rule.escalate_to);
        merged.quorum = merged.quorum.max(rule.quorum);
        merged.timeout_ms = merged.timeout_ms.into_iter().chain(rule.timeout_ms).min();
        denied |= rule.timeout_ms.is_some() && rule.on_timeout == OnTimeout::Deny;
    }
    // Levels that are named beside `deny` are never asked.
    if denied || merged.timeout_ms.is_none() {
        merged.escalate_to.clear();
    }
    merged
}

fn push_new(all: &mut Vec<String>, more: &[String]) {
    for name in more {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(roles: &[&str], quorum: u32, timeout_ms: Option<u64>, on_timeout: OnTimeout, to: &[&str]) -> ApprovalRules {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ApprovalRules { roles: texts(roles), quorum, timeout_ms, on_timeout, escalate_to: texts(to) }
    }

    // G6
    #[test]
    fn any_role_the_largest_quorum_the_shortest_timeout() {
        let manifest = rule(&["finance"], 2, Some(900_000), OnTimeout::Escalate, &["cfo"]);
        let policy = rule(&["security", "finance"], 1, Some(60_000), OnTimeout::Escalate, &["cfo", "ceo"]);
        let expected = Rules {
            roles: vec!["finance".to_owned(), "security".to_owned()],
            quorum: 2,
            timeout_ms: Some(60_000),
            escalate_to: vec!["cfo".to_owned(), "ceo".to_owned()],
        };
        assert_eq!(merge([&manifest, &policy]), expected);
    }

    #[test]
    fn deny_beats_escalate_and_silence_says_nothing() {
        let escalates = rule(&["finance"], 1, Some(900_000), OnTimeout::Escalate, &["cfo"]);
        let denies = rule(&[], 1, Some(1_000_000), OnTimeout::Deny, &[]);
        assert_eq!(merge([&escalates, &denies]).escalate_to, Vec::<String>::new());
        let silent = rule(&[], 3, None, OnTimeout::Deny, &[]);
        let merged = merge([&escalates, &silent]);
        assert_eq!((merged.escalate_to, merged.quorum), (vec!["cfo".to_owned()], 3));
        assert_eq!(merge([]), Rules::default());
    }

    #[test]
    fn each_level_adds_one_name_unless_anybody_may() {
        let rules = merge([&rule(&["finance"], 1, Some(1), OnTimeout::Escalate, &["cfo", "ceo"])]);
        assert_eq!(rules.listed(0), ["finance"]);
        assert_eq!(rules.listed(1), ["finance", "cfo"]);
        assert_eq!(rules.listed_at_last(), ["finance", "cfo", "ceo"]);
        let anybody = merge([&rule(&[], 1, Some(1), OnTimeout::Escalate, &["cfo"])]);
        assert_eq!(anybody.listed_at_last(), Vec::<String>::new());
    }
}
