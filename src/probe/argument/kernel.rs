//! Probe arguments in the kernel's syntax.

use super::{Arch, Argument, ArgumentError, Element, Fetch, Register};
use crate::event::{Parsed, fault, nearest};

/// Maximum length of a fetch with its type, in bytes (`MAX_ARGSTR_LEN` of the kernel).
const TEXT_LIMIT: usize = 63;

/// Address space of a probe, which determines its available arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// In the kernel.
    Kernel,
    /// In a program.
    User,
}

/// Returns the definition of an argument without variables, `NAME=FETCH[:TYPE]`, for `kprobe_events` or `uprobe_events`.
///
/// For a program, the kernel does not support `$arg1`. It is replaced by the register or the stack word of the calling convention.
///
/// # Errors
/// The argument is not available there: an unsupported register, a kernel symbol in a program, an unresolved variable, or a text that
/// exceeds the kernel's limit.
pub fn fetch_text(argument: &Argument, site: Site, machine: Arch) -> Result<String, ArgumentError> {
    definition(argument, site, machine).map_err(|fault| fault.of(&argument.text))
}

fn definition(argument: &Argument, site: Site, machine: Arch) -> Parsed<String> {
    let mut text = resolved(&argument.fetch, site, machine)?.to_string();
    if let Some(kind) = argument.kind {
        if site == Site::User && matches!(kind.element, Element::Symbol | Element::SymbolString) {
            let message = format!("{kind} symbolizes kernel addresses, but the probe is in a program");
            return fault(0, message, "use x64 instead");
        }
        text = format!("{text}:{kind}");
    }
    if text.len() > TEXT_LIMIT {
        let message = format!("{text} exceeds the kernel's limit of {TEXT_LIMIT} bytes");
        return fault(0, message, "use fewer levels of indirection");
    }
    Ok(format!("{}={text}", argument.name))
}

/// Returns the fetch in the kernel's syntax for this address space.
fn resolved(fetch: &Fetch, site: Site, machine: Arch) -> Parsed<Fetch> {
    match fetch {
        Fetch::Register(register) => check_register(register, machine)?,
        Fetch::Argument(number) if site == Site::User => return parameter(*number, machine),
        Fetch::Symbol { name, .. } if site == Site::User => {
            let message = format!("@{name} is a kernel symbol, but the probe is in a program");
            return fault(0, message, "use an offset in the program's file, as in @+0x4010");
        }
        Fetch::FileOffset(_) if site == Site::Kernel => {
            let message =
                "a file offset is valid only for a probe in a program, but this one is in the kernel";
            return fault(0, message, "use a symbol, as in @jiffies");
        }
        Fetch::Variable(variable) => {
            let remedy = match site {
                Site::Kernel => {
                    "variables require the kernel's types: /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)"
                }
                Site::User => "for a program, write the location, as in $arg1, $retval, %di or +8($arg1)",
            };
            return fault(0, format!("the location of {variable} is unknown"), remedy);
        }
        Fetch::Deref { user, offset, of } => {
            let of = Box::new(resolved(of, site, machine)?);
            return Ok(Fetch::Deref { user: *user, offset: *offset, of });
        }
        _ => {}
    }
    Ok(fetch.clone())
}

fn check_register(register: &Register, machine: Arch) -> Parsed<()> {
    let name = register.as_str();
    let known = machine.registers();
    let Some(example) = known.first().filter(|_| !known.contains(&name)) else { return Ok(()) };
    let remedy = match (Register::containing(name, machine), nearest(name, known.iter().copied())) {
        (Some(whole), _) => {
            format!("the kernel supports whole registers only: write %{whole} with a type such as :u32")
        }
        (None, Some(near)) => format!("did you mean %{near}?"),
        (None, None) => format!("expected %{example} or another register name of the kernel"),
    };
    fault(0, format!("the kernel has no register %{name} on {machine}"), remedy)
}

/// Returns the location of a function's argument at entry. Arguments without a register are on the stack in order, on x86-64 above the
/// return address. Valid for integers and pointers.
fn parameter(number: u8, machine: Arch) -> Parsed<Fetch> {
    let carrying = machine.parameters();
    if carrying == 0 {
        let message = format!("the location of $arg{number} in a program is unknown on {machine}");
        return fault(0, message, "write the register that holds it, as in %r3");
    }
    let index = number.saturating_sub(1);
    if let Some(register) = machine.registers()[..usize::from(carrying)].get(usize::from(index)) {
        return Ok(Fetch::Register(Register::known(register)));
    }
    let return_address = u16::from(machine == Arch::X86_64);
    Ok(Fetch::Stack(Some(u16::from(index - carrying) + return_address)))
}
