//! The one place where approvals are taken out of a case's way. What a case tests is the manifest, not the patience of
//! its approvers, so the harness says yes for them, in the names of as many invented people as a quorum can ask for, all of
//! whom hold every role that is listed. Where the case expects a refusal, nobody says anything.
use std::collections::BTreeSet;
use std::sync::Arc;

use reversi_proto::access::Principal;
use reversi_proto::event::v1::{Finding, Role};
use reversi_proto::ids::{ActorKind, ApprovalId};
use reversi_proto::manifest::{Approval, Manifest};

use super::play::{PlayError, Table, principal};
use crate::service::{ApprovalFilter, NewKey, Service, Word};

/// The code of the finding that only people can lift.
const NEEDS_APPROVAL: &str = "approval.required";
/// Most requests that one undo can wait for.
const REQUESTS_MAX: usize = 10;

/// The invented people: none where no manifest asks for any.
pub(super) async fn approvers(service: &Service, manifests: &[&Arc<Manifest>]) -> Result<Vec<Principal>, PlayError> {
    let (mut quorum, mut groups) = (0, BTreeSet::new());
    for manifest in manifests {
        if manifest.compensation.as_ref().is_some_and(|compensation| compensation.requires_approval) {
            quorum = quorum.max(1);
        }
        if let Approval::Always(rules) = &manifest.approval {
            quorum = quorum.max(rules.quorum);
            groups.extend(rules.roles.iter().chain(&rules.escalate_to).cloned());
        }
    }
    let admin = principal("admin", ActorKind::Human, Role::Admin)?;
    let mut people = Vec::new();
    for number in 1..=quorum {
        let name = format!("approver-{number}");
        let key = NewKey {
            actor: name.parse().map_err(|_| PlayError::Defect("the harness's own names are no names"))?,
            roles: vec![Role::Approver],
            person: Some(name),
            groups: groups.iter().cloned().collect(),
            allow_observe: false,
            expires_at: None,
        };
        let (_, text) = service.create_key(&admin, key).await?;
        people.push(service.authenticate(&text)?);
    }
    Ok(people)
}

/// What speaks against a call beside the approval that people would give.
pub(super) fn beside_approval(findings: Vec<Finding>) -> Vec<Finding> {
    findings.into_iter().filter(|finding| finding.code != NEEDS_APPROVAL).collect()
}

impl Table {
    /// As many people as it takes say yes.
    pub(super) async fn grant(&self, approval: &ApprovalId) -> Result<(), PlayError> {
        for person in &self.approvers {
            let view = self.service.say(person, approval, Word::Approve, (None, None)).await?;
            if view.status == "approved" {
                return Ok(());
            }
        }
        Err(PlayError::Defect("the harness's own people do not make a quorum"))
    }

    /// Says yes to every undo that waits for it; whether there was one.
    pub(super) async fn grant_undos(&self) -> Result<bool, PlayError> {
        let Some(person) = self.approvers.first() else { return Ok(false) };
        let pending = self.service.approvals(person, (ApprovalFilter::Pending, false), None, REQUESTS_MAX).await?;
        for view in &pending {
            self.grant(&view.approval_id).await?;
        }
        Ok(!pending.is_empty())
    }
}
