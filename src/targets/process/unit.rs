//! The systemd unit of a process, derived from the path of its cgroup.

/// Suffixes of unit names, except `slice`.
const TYPES: [&str; 10] =
    ["automount", "device", "mount", "path", "scope", "service", "socket", "swap", "target", "timer"];

/// Maximum length of a unit name, in bytes (systemd's `UNIT_NAME_MAX` without its NUL).
const NAME_LENGTH: usize = 255;

/// Returns the systemd unit of the cgroup at `path`, a [`Cgroup::path`](crate::targets::Cgroup::path); `None` if it is in none.
///
/// Slices only contain other units, so the unit is the first component that is not a slice, if that is a valid unit name. For a cgroup in
/// slices only, the innermost slice is returned. This is like systemd's `cg_path_get_unit()`, which however does not return slices.
/// Processes of a user's service manager belong to the unit of the system, `user@1000.service`.
#[doc(alias = "cg_path_get_unit")]
pub fn unit_of(path: &str) -> Option<&str> {
    let mut slice = None;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        // systemd escapes names with an underscore to avoid conflicts with the kernel's files (`_cpu.service`).
        let name = name.strip_prefix('_').unwrap_or(name);
        match unit_type(name)? {
            // Slices have no instances.
            "slice" if !name.contains('@') => slice = Some(name),
            "slice" => return None,
            _ => return Some(name),
        }
    }
    slice
}

/// Returns the type of the unit with this name; `None` if the name is not valid for systemd. See `unit_name_is_valid()`.
fn unit_type(name: &str) -> Option<&str> {
    let (stem, suffix) = name.rsplit_once('.')?;
    let known = suffix == "slice" || TYPES.contains(&suffix);
    let is_char = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    let whole = match stem.split_once('@') {
        // Without an instance it is a template, which never runs.
        Some((first, instance)) => !first.is_empty() && !instance.is_empty(),
        None => !stem.is_empty(),
    };
    (known && whole && stem.bytes().all(is_char) && name.len() <= NAME_LENGTH).then_some(suffix)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_unit_is_the_first_name_behind_the_slices() {
        for (path, unit) in [
            ("/system.slice/nginx.service", "nginx.service"),
            ("/system.slice/nginx.service/worker/7", "nginx.service"),
            ("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service"),
            ("/user.slice/user-1000.slice/session-2.scope", "session-2.scope"),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/a.service", "user@1000.service"),
            (
                "/kubepods.slice/kubepods-burstable.slice/cri-containerd-0a1b.scope",
                "cri-containerd-0a1b.scope",
            ),
            (r"/system.slice/dev-disk-by\x2dlabel.swap", r"dev-disk-by\x2dlabel.swap"),
            ("/system.slice/a.b:c.mount", "a.b:c.mount"),
            ("/init.scope", "init.scope"),
            ("/ssh.socket", "ssh.socket"),
            ("//system.slice//a.service/", "a.service"),
        ] {
            assert_eq!(unit_of(path), Some(unit), "{path}");
        }
    }

    #[test]
    fn every_type_of_unit_is_known() {
        for kind in TYPES {
            let unit = format!("a.{kind}");
            assert_eq!(unit_of(&format!("/system.slice/{unit}/below")), Some(&*unit));
        }
    }

    #[test]
    fn an_escape_is_no_part_of_the_name() {
        assert_eq!(unit_of("/_cpu.slice/_cpu.service"), Some("cpu.service"));
        assert_eq!(unit_of("/system.slice/__a.service"), Some("_a.service"));
        assert_eq!(unit_of("/_cpu.slice"), Some("cpu.slice"));
    }

    #[test]
    fn in_slices_alone_it_is_the_innermost() {
        assert_eq!(unit_of("/user.slice/user-1000.slice"), Some("user-1000.slice"));
        assert_eq!(unit_of("/system.slice"), Some("system.slice"));
    }

    #[test]
    fn what_systemd_did_not_name_is_in_no_unit() {
        for path in [
            "",
            "/",
            "/docker/0a1b",
            "/kubepods/burstable/pod7/0a1b",
            "/kubepods.slice/pod7",
            "/docker/a.service",
            "/.service",
            "/_.service",
            "/.slice",
            "/service",
            "/a.servic",
            "/a.service.d",
            "/a.SERVICE",
            "/a@.service",
            "/@b.service",
            "/system.slice/a@b.slice/c.service",
            "/a b.service",
            "/a\nb.service",
            "/é.service",
            "/a\u{fffd}.service",
        ] {
            assert_eq!(unit_of(path), None, "{path:?}");
        }
    }

    #[test]
    fn names_end_at_255_bytes() {
        let (fits, long) = ("a".repeat(247) + ".service", "a".repeat(248) + ".service");
        assert_eq!(unit_of(&format!("/{fits}")), Some(&*fits));
        assert_eq!(unit_of(&format!("/{long}")), None);
    }

    proptest! {
        #[test]
        fn the_unit_of_any_path_is_one_of_its_names(path in r"(/[_.@a-z\\\n]{0,8}(\.slice|\.service)?){0,4}") {
            if let Some(unit) = unit_of(&path) {
                prop_assert!(path.split('/').any(|name| name.strip_prefix('_').unwrap_or(name) == unit));
                prop_assert!(!unit.contains('\n'));
            }
        }
    }
}
