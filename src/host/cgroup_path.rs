//! Paths of cgroups.

/// Reports whether a cgroup is `outer` or below it. Slashes at the end of `outer` have no meaning, so the empty path is the root.
pub fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_within_itself_and_the_cgroups_above_it() {
        for (path, outer, expected) in [
            ("/a/b", "/a", true),
            ("/a", "/a", true),
            ("/a", "/a/", true),
            ("/a", "/", true),
            ("/", "/", true),
            ("/ab", "/a", false),
            ("/a", "/a/b", false),
        ] {
            assert_eq!(is_within(path, outer), expected, "{path} {outer}");
        }
    }
}
