//! Names of system calls by number and architecture.

use std::fmt;

use syscalls::{Errno, aarch64, arm, x86, x86_64};

/// System call numbering of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Abi {
    /// 64-bit programs.
    X86_64,
    /// 32-bit programs on x86-64.
    I386,
    /// 64-bit programs.
    Aarch64,
    /// 32-bit programs on arm64.
    Arm,
}

impl Abi {
    /// Returns the ABI of 64-bit or 32-bit programs on this machine; `None` for architectures without a table. A 64-bit program that uses
    /// `int $0x80` uses the 32-bit numbers, which records do not indicate.
    pub const fn here(bits_64: bool) -> Option<Self> {
        match (cfg!(target_arch = "x86_64"), cfg!(target_arch = "aarch64"), bits_64) {
            (true, _, true) => Some(Self::X86_64),
            (true, _, false) => Some(Self::I386),
            (_, true, true) => Some(Self::Aarch64),
            (_, true, false) => Some(Self::Arm),
            _ => None,
        }
    }
}

/// System call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    /// ABI of the number.
    pub abi: Abi,
    /// Number.
    pub number: u32,
}

/// Bit that is set in the numbers of the x32 ABI, which are otherwise those of x86-64 (`__X32_SYSCALL_BIT`).
const X32: u32 = 0x4000_0000;
/// First number of calls that are private to arm (`__ARM_NR_BASE`).
const ARM: u32 = 0x0f_0000;

impl Call {
    /// Returns the name; `None` for an unused number, or a call added after Linux 6.17.
    pub fn name(self) -> Option<&'static str> {
        let number = usize::try_from(self.number).ok()?;
        match self.abi {
            Abi::X86_64 => x86_64::Sysno::new(number & !(X32 as usize)).map(|call| call.name()),
            Abi::I386 => x86::Sysno::new(number).map(|call| call.name()),
            Abi::Aarch64 => aarch64::Sysno::new(number).map(|call| call.name()),
            Abi::Arm => match self.number.checked_sub(ARM) {
                Some(1) => Some("breakpoint"),
                Some(2) => Some("cacheflush"),
                Some(5) => Some("set_tls"),
                Some(6) => Some("get_tls"),
                Some(_) => None,
                None => arm::Sysno::new(number).map(|call| call.name()),
            },
        }
    }

    /// Returns the calls whose names match.
    pub fn matching(abi: Abi, matches: impl Fn(&str) -> bool) -> Vec<Self> {
        // No architecture has more numbers, and lookups by number are cheap.
        let all = (0..1024).map(|number| Self { abi, number });
        all.filter(|call| call.name().is_some_and(&matches)).collect()
    }
}

/// Formats the name, or `syscall_600` without one.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "syscall_{}", self.number),
        }
    }
}

/// Internal error numbers of the kernel: it restarts the call, and programs do not see them.
const RESTARTS: [(u16, &str); 4] =
    [(512, "ERESTARTSYS"), (513, "ERESTARTNOINTR"), (514, "ERESTARTNOHAND"), (516, "ERESTART_RESTARTBLOCK")];

/// Returns the name of an error, such as `ENOENT`, or `errno_600` without one.
pub fn errno(number: u16) -> std::borrow::Cow<'static, str> {
    let own = RESTARTS.iter().find(|&&(restart, _)| restart == number).map(|&(_, name)| name);
    match own.or_else(|| Errno::new(number.into()).name()) {
        Some(name) => name.into(),
        None => format!("errno_{number}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_architecture_has_numbers_of_its_own() {
        let name = |abi, number| Call { abi, number }.to_string();
        assert_eq!(name(Abi::X86_64, 202), "futex");
        assert_eq!(name(Abi::X86_64, X32 | 202), "futex");
        assert_eq!(name(Abi::I386, 240), "futex");
        assert_eq!(name(Abi::Aarch64, 98), "futex");
        assert_eq!(name(Abi::Arm, 240), "futex");
        assert_eq!(name(Abi::Arm, ARM + 2), "cacheflush");
        assert_eq!(name(Abi::X86_64, 400), "syscall_400");
        assert_eq!(name(Abi::Aarch64, u32::MAX), "syscall_4294967295");
        assert!(Abi::here(true).is_some_and(|abi| !Call::matching(abi, |name| name == "openat").is_empty()));
    }

    #[test]
    fn a_pattern_stands_for_the_calls_of_its_names() {
        let names = |abi| {
            let calls = Call::matching(abi, |name| name.starts_with("epoll_p"));
            calls.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names(Abi::X86_64), ["epoll_pwait", "epoll_pwait2"]);
        assert_eq!(names(Abi::Aarch64), ["epoll_pwait", "epoll_pwait2"]);
    }

    #[test]
    fn errors_have_their_names_and_so_have_those_that_no_program_sees() {
        let cases =
            [(2, "ENOENT"), (11, "EAGAIN"), (110, "ETIMEDOUT"), (512, "ERESTARTSYS"), (4000, "errno_4000")];
        for (number, expected) in cases {
            assert_eq!(errno(number), expected);
        }
    }
}
