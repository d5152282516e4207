//! Mounting tracefs, for machines on which nobody has.

use rustix::mount::{MountFlags, mount as attach};

use crate::error::Errno;
use crate::host::Roots;

/// Mounts tracefs where it belongs, unless it is there. Gives whether it was not. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// The kernel's errno: `ENODEV` on a kernel without tracing, `ENOENT` where the directory is missing.
pub fn mount(roots: &Roots) -> Result<bool, Errno> {
    if roots.tracing.join("events").is_dir() {
        return Ok(false);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    attach("tracefs", &roots.tracing, "tracefs", flags, None)?;
    Ok(true)
}
