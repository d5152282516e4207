//! The arguments of system calls, as the kernel describes them in `events/syscalls/sys_enter_*/format`.

use rustc_hash::FxHashMap;

use super::words::Words;
use crate::event::Catalog;
use crate::event::format::{FieldKind, Format};
use crate::syscall::Call;

/// Maximum number of argument registers of a call.
pub(super) const REGISTERS: usize = 6;

/// `AT_FDCWD`: paths are relative to the working directory of the process.
const AT_FDCWD: i32 = -100;

/// Format of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// A descriptor of the process, with its path if that is known.
    Descriptor,
    /// Signed: `int` and similar types.
    Signed,
    /// Signed with 64 bits: an offset in a file.
    Offset,
    /// Unsigned: decimal, or hexadecimal above 32 bits.
    Number,
    /// Hexadecimal: an address or flags.
    Hex,
    /// Octal: a file mode.
    Octal,
    /// Words for flags or a constant.
    Words(&'static Words),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Argument {
    name: String,
    shown: Shown,
}

/// Arguments of system calls, read when a call first occurs.
#[derive(Debug)]
pub(super) struct Arguments<'c> {
    catalog: &'c Catalog,
    known: FxHashMap<Call, Option<Vec<Argument>>>,
}

impl<'c> Arguments<'c> {
    pub(super) fn new(catalog: &'c Catalog) -> Self {
        Self { catalog, known: FxHashMap::default() }
    }

    /// Returns the arguments that the kernel describes.
    fn known(&mut self, call: Call) -> Option<&[Argument]> {
        let catalog = self.catalog;
        // Numbers of unknown calls are not cached, because a program can use arbitrary numbers.
        let name = call.name()?;
        let known = self.known.entry(call).or_insert_with(|| {
            let format = catalog.format("syscalls", &format!("sys_enter_{}", in_kernel(name))).ok();
            format.map(|format| arguments(name, &format))
        });
        known.as_deref()
    }

    /// Returns the arguments of a call that are descriptors.
    pub(super) fn descriptors(&mut self, call: Call, registers: &[u64; REGISTERS]) -> Vec<i32> {
        let known = self.known(call).unwrap_or_default().iter().zip(registers);
        known.filter(|(known, _)| known.shown == Shown::Descriptor).map(|(_, value)| *value as i32).collect()
    }

    /// Writes the arguments of a call, or all six registers if the kernel does not describe the call. `path` returns the path of a
    /// descriptor.
    pub(super) fn write<'p>(
        &mut self,
        text: &mut String,
        call: Call,
        registers: &[u64; REGISTERS],
        path: impl Fn(i32) -> Option<&'p str>,
    ) {
        let written: Vec<String> = match self.known(call) {
            Some(known) => {
                known.iter().zip(registers).map(|(known, &value)| known.written(value, &path)).collect()
            }
            None => registers.iter().map(|value| format!("{value:#x}")).collect(),
        };
        text.push_str(&written.join(", "));
    }
}

impl Argument {
    fn written<'p>(&self, value: u64, path: impl Fn(i32) -> Option<&'p str>) -> String {
        let Self { name, shown } = self;
        match shown {
            Shown::Descriptor if value as i32 == AT_FDCWD => format!("{name}: CWD"),
            Shown::Descriptor => match path(value as i32) {
                Some(path) => format!("{name}: {}<{path}>", value as i32),
                None => format!("{name}: {}", value as i32),
            },
            // The upper half of the register is not part of the argument.
            Shown::Signed => format!("{name}: {}", value as i32),
            Shown::Offset => format!("{name}: {}", value.cast_signed()),
            Shown::Number if value <= u64::from(u32::MAX) => format!("{name}: {value}"),
            Shown::Number | Shown::Hex => format!("{name}: {value:#x}"),
            Shown::Octal => format!("{name}: {:#o}", value & 0o177_777),
            Shown::Words(words) => format!("{name}: {}", words.written(value)),
        }
    }
}

/// Returns the name of a call in the names of tracepoints: that of its function in the kernel.
fn in_kernel(call: &str) -> &str {
    match call {
        "stat" => "newstat",
        "lstat" => "newlstat",
        "fstat" => "newfstat",
        "uname" => "newuname",
        "umount2" => "umount",
        "sendfile" => "sendfile64",
        _ => call,
    }
}

fn arguments(call: &str, format: &Format) -> Vec<Argument> {
    let own = format.fields().iter().filter(|field| !field.common && &*field.name != "__syscall_nr");
    let argument = |field: &crate::event::format::Field| {
        let (name, declaration) = (&*field.name, &*field.declaration);
        let is_bits = ["flags", "prot", "addr", "mask", "arg"].iter().any(|word| name.contains(word));
        let is_small = ["int ", "pid_t ", "clockid_t ", "const clockid_t ", "key_t ", "timer_t "];
        let words = Words::of(call, name).map(Shown::Words);
        let shown = words.unwrap_or_else(|| match field.kind {
            // Of any type of number: an unsigned long in the format of mmap.
            FieldKind::Integer { .. } if name.ends_with("fd") || name == "fildes" => Shown::Descriptor,
            FieldKind::Pointer => Shown::Hex,
            _ if ["off_t ", "loff_t "].iter().any(|kind| declaration.starts_with(kind)) => Shown::Offset,
            _ if declaration.contains('*') || is_bits => Shown::Hex,
            _ if name == "mode" || declaration.starts_with("umode_t") => Shown::Octal,
            _ if is_small.iter().any(|kind| declaration.starts_with(kind)) => Shown::Signed,
            _ => Shown::Number,
        });
        Argument { name: name.to_owned(), shown }
    };
    own.take(REGISTERS).map(argument).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Facts, Roots};
    use crate::syscall::Abi;

    const FORMAT: &str = "name: sys_enter_openat\nID: 7\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:umode_t mode;\toffset:40;\tsize:8;\tsigned:0;\n";

    fn written(call: u32, registers: [u64; REGISTERS]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let events = roots.tracing.join("events/syscalls/sys_enter_openat");
        std::fs::create_dir_all(&events).unwrap();
        std::fs::write(events.join("format"), FORMAT).unwrap();
        let catalog = Catalog::load(&roots, &Facts::default());
        let mut text = String::new();
        let path = |number| (number == 5).then_some("/tmp");
        Arguments::new(&catalog).write(&mut text, Call { abi: Abi::X86_64, number: call }, &registers, path);
        text
    }

    #[test]
    fn a_call_that_the_kernel_describes_has_the_arguments_that_it_takes() {
        let cwd = u64::from((-100i32) as u32);
        let text = written(257, [cwd, 0x7ffd_0000_1234, 0x8_0000, 0o644, 0, 0]);
        assert_eq!(text, "dfd: CWD, filename: 0x7ffd00001234, flags: RDONLY|CLOEXEC, mode: 0o644");
        assert_eq!(
            written(257, [u64::MAX, 0, 0, 0, 0, 0]),
            "dfd: -1, filename: 0x0, flags: RDONLY, mode: 0o0"
        );
        assert!(written(257, [5, 0, 0, 0, 0, 0]).starts_with("dfd: 5</tmp>, "));
    }

    #[test]
    fn of_others_all_registers_are_shown() {
        assert_eq!(written(0, [1, 2, 0xff, 4, 5, 6]), "0x1, 0x2, 0xff, 0x4, 0x5, 0x6");
        assert_eq!(written(4000, [0; 6]), "0x0, 0x0, 0x0, 0x0, 0x0, 0x0");
    }
}
