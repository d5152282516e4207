//! An argument as it is told to the kernel.

use super::{Arch, Argument, ArgumentError, Element, Fetch, Register};
use crate::event::{Parsed, fault, nearest};

/// The longest fetch with its type, in bytes (`MAX_ARGSTR_LEN` of the kernel).
const TEXT_LIMIT: usize = 63;

/// Where a probe is, as far as its arguments go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// In the kernel.
    Kernel,
    /// In a program.
    User,
}

/// The definition of an argument without variables, `NAME=FETCH[:TYPE]`, for `kprobe_events` or `uprobe_events`.
///
/// In a program the kernel knows no `$arg1`: what is written is the register, or the place on the stack, that the
/// calling convention has for it.
///
/// # Errors
/// What cannot be taken there: a register that the machine does not have, a symbol of the kernel in a program, a
/// variable that nobody resolved, a text that is longer than the kernel reads.
pub fn fetch_text(argument: &Argument, site: Site, machine: Arch) -> Result<String, ArgumentError> {
    definition(argument, site, machine).map_err(|fault| fault.of(&argument.text))
}

fn definition(argument: &Argument, site: Site, machine: Arch) -> Parsed<String> {
    let mut text = told(&argument.fetch, site, machine)?.to_string();
    if let Some(kind) = argument.kind {
        if site == Site::User && matches!(kind.element, Element::Symbol | Element::SymbolString) {
            let message = format!("{kind} names addresses of the kernel, and the probe is in a program");
            return fault(0, message, "take it as x64");
        }
        text = format!("{text}:{kind}");
    }
    if text.len() > TEXT_LIMIT {
        let message = format!("{text} is longer than the {TEXT_LIMIT} bytes that the kernel reads");
        return fault(0, message, "take something nearer to a parameter");
    }
    Ok(format!("{}={text}", argument.name))
}

/// The fetch in the words that the kernel knows there.
fn told(fetch: &Fetch, site: Site, machine: Arch) -> Parsed<Fetch> {
    match fetch {
        Fetch::Register(register) => check_register(register, machine)?,
        Fetch::Argument(number) if site == Site::User => return parameter(*number, machine),
        Fetch::Symbol { name, .. } if site == Site::User => {
            let message = format!("@{name} is a symbol of the kernel, and the probe is in a program");
            return fault(0, message, "give the offset in the program's file, as in @+0x4010");
        }
        Fetch::FileOffset(_) if site == Site::Kernel => {
            let message =
                "an offset in a file can be taken in a program only, and the probe is in the kernel";
            return fault(0, message, "name a symbol, as in @jiffies");
        }
        Fetch::Variable(variable) => {
            let remedy = match site {
                Site::Kernel => {
                    "it takes the types of the kernel: /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)"
                }
                Site::User => "in programs write where it is, as in $arg1, $retval, %di or +8($arg1)",
            };
            return fault(0, format!("nothing here tells where {variable} is"), remedy);
        }
        Fetch::Deref { user, offset, of } => {
            let of = Box::new(told(of, site, machine)?);
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
            format!("the kernel knows whole registers only: write %{whole} with a type such as :u32")
        }
        (None, Some(near)) => format!("did you mean %{near}?"),
        (None, None) => format!("expected %{example} or another of the kernel's names"),
    };
    fault(0, format!("the kernel knows no register %{name} on {machine}"), remedy)
}

/// Where a function finds its argument when it begins. Those that found no register lie on the stack in order, on
/// x86-64 above the return address. That is so for integers and pointers.
fn parameter(number: u8, machine: Arch) -> Parsed<Fetch> {
    let carrying = machine.parameters();
    if carrying == 0 {
        let message = format!("where a program has $arg{number} is not known on {machine}");
        return fault(0, message, "name the register that carries it, as in %r3");
    }
    let index = number.saturating_sub(1);
    if let Some(register) = machine.registers()[..usize::from(carrying)].get(usize::from(index)) {
        return Ok(Fetch::Register(Register::known(register)));
    }
    let return_address = u16::from(machine == Arch::X86_64);
    Ok(Fetch::Stack(Some(u16::from(index - carrying) + return_address)))
}
