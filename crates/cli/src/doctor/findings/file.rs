//! A file of this machine as the store.

use fencepost::diagnostics::{FileFacts, NodeSurvey};

use super::{Diagnosis, Examination, Finding, Severity};

/// Whether the node is a file, also if it is none that can be used.
pub(in crate::doctor) fn is_file(node: &str) -> bool {
    node.starts_with("file:")
}

impl Diagnosis {
    /// Adds that looking at these files has created them. Where the path is mistyped, nobody holds a lock there.
    pub(in crate::doctor) fn add_created(&mut self, surveys: &[NodeSurvey], missing: &[String]) {
        let created = surveys
            .iter()
            .enumerate()
            .filter(|(_, survey)| survey.facts.is_ok() && missing.contains(&survey.node));
        self.findings.extend(created.map(|(index, _)| Finding {
            node: Some(index),
            severity: Severity::Warning,
            what: "created",
            why: "the file was missing, and has been created: no lock was ever held in it".into(),
            fix: "nothing, if it is new; otherwise correct the path in --store file:PATH".into(),
        }));
    }
}

impl Examination {
    pub(super) fn file(&mut self, facts: &FileFacts) {
        if !facts.tells_processes {
            self.find(
                Severity::Warning,
                "processes",
                "/proc does not show the processes of this machine, so the lock of a dead holder is \
                 free only after its TTL",
                "mount /proc of this pid namespace, or keep the TTL short",
            );
        }
        if !facts.tells_boots {
            self.find(
                Severity::Note,
                "boots",
                "no boot id here, so a reboot may keep a lock for one TTL",
                "nothing, unless that is too long",
            );
        }
        if facts.writable_by_all {
            self.find(
                Severity::Warning,
                "permissions",
                "every user of this machine may write the file, and so acquire or release any lock",
                "chmod o-w the file and its directory",
            );
        }
    }
}
