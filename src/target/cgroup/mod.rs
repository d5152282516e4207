//! Cgroups: which hierarchy `perf_event` is on ([`CgroupMount`]), what is in it ([`Cgroups`]), and what is selected
//! ([`CgroupSelection`]).

mod container;
mod mount;
mod walk;

pub use container::{ContainerPath, pod_uid};
pub use mount::{CgroupAbsent, CgroupMount};
pub use walk::Cgroups;

use std::sync::Arc;

use super::attribution::FEW_TARGETS;
use super::{Attribution, Glob};

/// The kernel's number of a cgroup: the inode number of its directory, and what `PERF_SAMPLE_CGROUP` and
/// `PERF_RECORD_CGROUP` carry. No other cgroup has it while the machine is up (64-bit kernels since 5.5; before
/// that it is reused in time).
#[doc(alias = "cgroup_id")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u64);

/// One cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Its number.
    pub id: CgroupId,
    /// Its path below the mount, `/` for the root, `/a/b` for others. Bytes of a name that are not UTF-8 stand here
    /// as U+FFFD; anything else stands as it is, control characters included.
    pub path: Arc<str>,
    /// How deep below the root it lies; 0 is the root, `/a` is 1.
    pub depth: usize,
}

impl Cgroup {
    /// The one at a path, whatever its number.
    pub fn at(path: &str) -> Self {
        let depth = path.split('/').filter(|name| !name.is_empty()).count();
        Self { id: CgroupId(0), path: path.into(), depth }
    }
}

/// The path of the cgroup that holds this one; `None` for the root.
pub fn parent_of(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (parent, _) => Some(parent),
    }
}

/// Which cgroups to count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupSelection {
    /// Paths to take; one pattern that matches is enough. `/` is the root cgroup, which only its own name selects.
    pub include: Vec<Glob>,
    /// Paths to leave out, stronger than `include`. The root, again, only by its own name.
    pub exclude: Vec<Glob>,
    /// How deep below the root a cgroup may lie (`/a` is 1); `None` = any depth.
    pub depth: Option<usize>,
    /// Whether a cgroup's counts include those of the cgroups below it. If not, each count has one place, and sums
    /// over cgroups count nothing twice.
    pub descendants: bool,
    /// How the counts of one cgroup are told from those of others.
    pub attribution: Attribution,
}

impl CgroupSelection {
    /// Whether this cgroup is to be counted. Nothing follows from its parent: `/a/b` may be selected without `/a`.
    pub fn matches(&self, cgroup: &Cgroup) -> bool {
        let path = &*cgroup.path;
        let named = |pattern: &Glob| match path {
            "/" => pattern.as_str() == "/",
            _ => pattern.matches(path),
        };
        self.depth.is_none_or(|depth| cgroup.depth <= depth)
            && self.include.iter().any(named)
            && !self.exclude.iter().any(named)
    }

    /// Whether it takes at most a few cgroups, each by its plain name, so that descriptors of their own are cheap. What
    /// is excluded makes no difference: it can only make them fewer.
    pub fn names_few(&self) -> bool {
        let plain = |pattern: &Glob| !pattern.as_str().contains(['*', '?', '[', '{']);
        self.include.len() <= FEW_TARGETS && self.include.iter().all(plain)
    }

    /// Whether it takes the root cgroup, `/`.
    pub fn names_root(&self) -> bool {
        let root = |pattern: &Glob| pattern.as_str() == "/";
        self.include.iter().any(root) && !self.exclude.iter().any(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(path: &str) -> Cgroup {
        let depth = path.split('/').filter(|name| !name.is_empty()).count();
        Cgroup { id: CgroupId(1), path: path.into(), depth }
    }

    fn selection(include: &[&str], exclude: &[&str], depth: Option<usize>) -> CgroupSelection {
        let globs = |patterns: &[&str]| patterns.iter().map(|text| Glob::new(text).unwrap()).collect();
        CgroupSelection {
            include: globs(include),
            exclude: globs(exclude),
            depth,
            descendants: false,
            attribution: Attribution::Auto,
        }
    }

    #[test]
    fn every_path_but_the_root_has_a_parent() {
        assert_eq!(parent_of("/a/b/c"), Some("/a/b"));
        assert_eq!(parent_of("/a"), Some("/"));
        assert_eq!(parent_of("/"), None);
        assert_eq!(parent_of(""), None);
    }

    #[test]
    fn the_root_is_selected_by_its_own_name_only() {
        for pattern in ["**", "/**", "*", "/*", "?", "{/,/a}"] {
            assert!(!selection(&[pattern], &[], None).matches(&cgroup("/")), "{pattern}");
        }
        assert!(selection(&["/"], &[], None).matches(&cgroup("/")));
        assert!(selection(&["/", "/a"], &["/**"], None).matches(&cgroup("/")));
        assert!(!selection(&["/"], &["/"], None).matches(&cgroup("/")));
        assert!(!selection(&["/"], &[], None).matches(&cgroup("/a")));
    }

    #[test]
    fn the_root_is_named_where_it_is_selected() {
        for (include, exclude) in [
            (&["/"][..], &[][..]),
            (&["/a", "/"], &["/**"]),
            (&["/**", "**", "{/,/a}"], &[]),
            (&["/"], &["/"]),
            (&[], &[]),
        ] {
            let selection = selection(include, exclude, Some(1));
            assert_eq!(selection.names_root(), selection.matches(&cgroup("/")), "{selection:?}");
        }
        assert!(selection(&["/"], &[], None).names_root());
    }

    #[test]
    fn few_cgroups_are_named_where_there_are_no_patterns() {
        for few in [&["/a"][..], &["/a", "/b", "/c", "/"], &[r"/a\x2db.service"], &["/a]"], &[]] {
            assert!(selection(few, &["/**"], None).names_few(), "{few:?}");
        }
        for many in [&["/a", "/b", "/c", "/d", "/e"][..], &["/a", "/b/*"], &["/?"], &["/[ab]"], &["{/a,/b}"]]
        {
            assert!(!selection(many, &[], None).names_few(), "{many:?}");
        }
    }

    #[test]
    fn what_is_excluded_is_out_whatever_includes_it() {
        let services = selection(&["/system.slice/*", "/user.slice/**"], &["**/session-*.scope"], None);
        assert!(services.matches(&cgroup("/system.slice/ssh.service")));
        assert!(services.matches(&cgroup("/user.slice/user-0.slice")));
        assert!(!services.matches(&cgroup("/user.slice/user-0.slice/session-1.scope")));
        assert!(!services.matches(&cgroup("/init.scope")));
    }

    #[test]
    fn depth_is_counted_from_the_root() {
        let shallow = selection(&["/**"], &[], Some(2));
        assert!(shallow.matches(&cgroup("/a/b")));
        assert!(!shallow.matches(&cgroup("/a/b/c")));
    }

    #[test]
    fn nothing_is_selected_where_nothing_is_included() {
        assert!(!selection(&[], &[], None).matches(&cgroup("/a")));
    }

    #[test]
    fn a_name_with_a_newline_or_an_escape_is_matched_as_it_is() {
        let odd = selection(&["/a\nb", r"/a\x2db"], &[], None);
        assert!(odd.matches(&cgroup("/a\nb")));
        assert!(odd.matches(&cgroup(r"/a\x2db")));
        assert!(selection(&["/*"], &[], None).matches(&cgroup("/a\nb")));
    }
}
