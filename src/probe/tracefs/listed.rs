//! Defined probes, as listed by `kprobe_events` and `uprobe_events`.

use std::sync::Arc;

use super::{Site, events_file};
use crate::error::FileError;
use crate::host::{self, Roots};
use crate::probe::ProbeKind;

/// A defined probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Kind of the probe. The kernel lists a USDT probe as a uprobe.
    pub kind: ProbeKind,
    /// System of its tracepoint.
    pub system: Arc<str>,
    /// The event name.
    pub event: Arc<str>,
    /// Location in the kernel's notation: `tcp_sendmsg+16`, `/usr/bin/bash:0x0000000000001234`.
    pub place: Arc<str>,
    /// Arguments, `NAME=FETCH[:TYPE]`.
    pub arguments: Vec<Arc<str>>,
}

impl Listed {
    /// Returns whether the probe is in the kernel or in a program.
    pub fn site(&self) -> Site {
        self.kind.site()
    }

    /// Parses a line such as `r10:GROUP/EVENT PLACE NAME=FETCH…`. `None` if it is not a kprobe or uprobe.
    fn parse(line: &str, site: Site) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (letter, name) = words.next()?.split_once(':')?;
        let (system, event) = name.split_once('/')?;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let returns = match letter.split_at_checked(1)? {
            ("p", "") => false,
            ("r", active) if is_number(active) => true,
            _ => return None,
        };
        Some(Self {
            kind: ProbeKind::at(site, returns),
            system: system.into(),
            event: event.into(),
            place: words.next()?.into(),
            arguments: words.map(Arc::from).collect(),
        })
    }
}

/// Returns all probes, those in the kernel first.
pub(super) fn list(roots: &Roots) -> Result<Vec<Listed>, FileError> {
    let mut listed = Vec::new();
    for site in [Site::Kernel, Site::User] {
        match host::read_text(&events_file(roots, site)) {
            Ok(text) => listed.extend(text.lines().filter_map(|line| Listed::parse(line, site))),
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_the_kernel_lists_is_read() {
        for (line, site, kind, place, arguments) in [
            ("p:zz/big tcp_sendmsg+629145", Site::Kernel, ProbeKind::Kprobe, "tcp_sendmsg+629145", &[][..]),
            (
                "r10:zz/okr nf_nat:f r=$retval",
                Site::Kernel,
                ProbeKind::Kretprobe,
                "nf_nat:f",
                &["r=$retval"][..],
            ),
            (
                "r:zz/ret /usr/bin/true:0x0000000000002000(0x10) a=$retval b=%ax",
                Site::User,
                ProbeKind::Uretprobe,
                "/usr/bin/true:0x0000000000002000(0x10)",
                &["a=$retval", "b=%ax"][..],
            ),
        ] {
            let listed = Listed::parse(line, site).unwrap();
            assert_eq!((listed.kind, &*listed.system, &*listed.place), (kind, "zz", place));
            assert_eq!(listed.arguments.iter().map(|text| &**text).collect::<Vec<_>>(), arguments);
        }
    }

    #[test]
    fn what_is_no_kprobe_or_uprobe_is_left_out() {
        for line in
            ["", "p", "p:x", "p:x/y", "f:fprobes/x vfs_read", "e:x/y sched.z", "s:x y", "é:x/y z", "rx:a/b c"]
        {
            assert_eq!(Listed::parse(line, Site::Kernel), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_left_out(line in "\\PC{0,60}|[pr0-9:/ a-z=]{0,60}") {
            if let Some(listed) = Listed::parse(&line, Site::User) {
                prop_assert!(line.contains(&*listed.place));
            }
        }
    }
}
