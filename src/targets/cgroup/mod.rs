//! Cgroups: the hierarchy of `perf_event` ([`CgroupMount`]), its cgroups ([`Cgroups`]), and the selected ones ([`CgroupSelection`]).

mod container;
mod mount;
mod walk;

pub use container::{ContainerPath, pod_uid};
pub use mount::{CgroupAbsent, CgroupMount};
pub use walk::Cgroups;

use std::sync::Arc;

use super::attribution::FEW_TARGETS;
use super::{Attribution, Glob, Identity, PodRule, PodSelection};

/// The kernel's ID of a cgroup: the inode number of its directory, and the value in `PERF_SAMPLE_CGROUP` and `PERF_RECORD_CGROUP`. The
/// kernel does not reuse it until reboot (64-bit kernels since 5.5; older kernels reuse it after some time).
#[doc(alias = "cgroup_id")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u64);

/// One cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Its ID.
    pub id: CgroupId,
    /// Its path below the mount: `/` for the root, `/a/b` for others. Bytes of a name that are not UTF-8 are replaced by U+FFFD. All other
    /// characters are kept, including control characters.
    pub path: Arc<str>,
    /// Depth below the root: 0 is the root, `/a` is 1.
    pub depth: usize,
    /// Metadata of its container or pod. `None` if it is unknown, was not requested, or the cgroup belongs to no container.
    pub container: Option<Arc<Identity>>,
}

impl Cgroup {
    /// Returns the cgroup at a path, with the ID 0.
    pub fn at(path: &str) -> Self {
        let depth = path.split('/').filter(|name| !name.is_empty()).count();
        Self { id: CgroupId(0), path: path.into(), depth, container: None }
    }
}

/// Returns the path of the parent cgroup; `None` for the root.
pub fn parent_of(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (parent, _) => Some(parent),
    }
}

/// Selection of the cgroups to count: by their paths, and by the metadata of their containers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupSelection {
    /// Paths to include; one matching pattern suffices. `/` selects the root cgroup, which no other pattern matches.
    pub include: Vec<Glob>,
    /// Paths to exclude; takes precedence over `include`. Only `/` matches the root cgroup.
    pub exclude: Vec<Glob>,
    /// Containers and pods to include, in addition to `include`, and to exclude.
    pub pods: PodSelection,
    /// Maximum depth below the root (`/a` is 1); `None` = any depth.
    pub depth: Option<usize>,
    /// Whether a cgroup's counts include those of the cgroups below it. If not, each count is in one series, and sums over cgroups count
    /// nothing twice.
    pub descendants: bool,
    /// Method of attributing counts to cgroups.
    pub attribution: Attribution,
}

impl CgroupSelection {
    /// Reports whether this cgroup is selected, independently of its parent: `/a/b` may be selected without `/a`.
    pub fn matches(&self, cgroup: &Cgroup) -> bool {
        let path = &*cgroup.path;
        let named = |pattern: &Glob| match path {
            "/" => pattern.as_str() == "/",
            _ => pattern.matches(path),
        };
        let described =
            |rule: &PodRule| cgroup.container.as_ref().is_some_and(|container| rule.matches(container));
        self.depth.is_none_or(|depth| cgroup.depth <= depth)
            && (self.include.iter().any(named) || self.pods.include.iter().any(described))
            && !self.exclude.iter().any(named)
            && !self.pods.exclude.iter().any(described)
    }

    /// Reports whether at most a few cgroups are selected, each by its plain name, so that dedicated descriptors are cheap. Ignores
    /// `exclude`, which can only reduce the number.
    pub fn names_few(&self) -> bool {
        let plain = |pattern: &Glob| !pattern.as_str().contains(['*', '?', '[', '{']);
        self.pods.include.is_empty() && self.include.len() <= FEW_TARGETS && self.include.iter().all(plain)
    }

    /// Reports whether the root cgroup, `/`, is selected.
    pub fn names_root(&self) -> bool {
        let root = |pattern: &Glob| pattern.as_str() == "/";
        self.include.iter().any(root) && !self.exclude.iter().any(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::Pod;

    fn cgroup(path: &str) -> Cgroup {
        let depth = path.split('/').filter(|name| !name.is_empty()).count();
        Cgroup { id: CgroupId(1), path: path.into(), depth, container: None }
    }

    fn selection(include: &[&str], exclude: &[&str], depth: Option<usize>) -> CgroupSelection {
        let globs = |patterns: &[&str]| patterns.iter().map(|text| Glob::new(text).unwrap()).collect();
        CgroupSelection {
            include: globs(include),
            exclude: globs(exclude),
            pods: PodSelection::default(),
            depth,
            descendants: false,
            attribution: Attribution::Auto,
        }
    }

    #[test]
    fn a_cgroup_is_selected_by_its_path_or_by_the_metadata_of_its_container() {
        let rule =
            |namespace| PodRule { namespace: Some(Glob::new(namespace).unwrap()), ..PodRule::default() };
        let of = |path, namespace: &str| {
            let pod = Pod { namespace: namespace.into(), name: "web-0".into(), uid: "u".into() };
            let identity = Identity { pod: Some(pod), ..Identity::default() };
            Cgroup { container: Some(Arc::new(identity)), ..cgroup(path) }
        };
        let mut selection = selection(&["/a/*"], &["/b/out"], Some(2));
        selection.pods.include = vec![rule("shop*")];
        selection.pods.exclude = vec![rule("shop-test")];
        assert!(selection.matches(&cgroup("/a/b")), "the path");
        assert!(selection.matches(&of("/b/c", "shop")), "the metadata");
        assert!(!selection.matches(&of("/b/c", "other")));
        assert!(!selection.matches(&cgroup("/b/c")), "metadata is unknown");
        assert!(
            !selection.matches(&of("/b/out", "shop")) && !selection.matches(&of("/a/b", "shop-test")),
            "excluded"
        );
        assert!(!selection.matches(&of("/b/c/d", "shop")), "too deep");
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
