//! Mounting of tracefs, for machines on which it is not mounted.

use rustix::mount::{MountFlags, mount as attach};

use crate::error::Errno;
use crate::host::Roots;

/// Mounts tracefs at its default mount point, unless it is mounted. Returns whether this call mounted it. Requires `CAP_SYS_ADMIN`.
///
/// # Errors
/// The kernel's errno: `ENODEV` if the kernel has no tracing, `ENOENT` if the mount point is missing.
pub fn mount(roots: &Roots) -> Result<bool, Errno> {
    if roots.tracing.join("events").is_dir() {
        return Ok(false);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    attach("tracefs", &roots.tracing, "tracefs", flags, None)?;
    Ok(true)
}
