//! Names that are not in the symbol table: of stubs, and from the compressed symbols of a stripped file.

use super::*;

/// Reports whether a tool is installed. Prints a message if not.
fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: {tool} is not installed");
    }
    found
}

/// Builds a program that calls functions of other files and exports one of its own.
fn calling(machine: &Machine, options: &[&str]) -> PathBuf {
    let source = r#"
        #include <stdlib.h>
        #include <stdio.h>
        __attribute__((noinline)) static int hidden(int n) { return n * 3 + getchar(); }
        __attribute__((noinline, visibility("default"))) int exported(int n) { return hidden(n) + 1; }
        int main(int argc, char **argv) { return exported(argc) + atoi(argv[0]) + (&rand == (void *)0); }
    "#;
    machine.write("calling.c", source);
    machine.write("proc/7/root/bin/.keep", "");
    let path = machine.path("proc/7/root/bin/calling");
    let (flags, source) = (["-O1", "-rdynamic", "-o"].map(Path::new), machine.path("calling.c"));
    let options: Vec<&Path> = options.iter().map(Path::new).collect();
    run("gcc", &[&flags[..], &[&path, &source], &options].concat());
    path
}

/// Returns the stubs according to `objdump`: the address of each, and its name.
fn stubs(path: &Path) -> Vec<(u64, String)> {
    let objdump = Command::new("objdump").arg("-d").arg(path).output().unwrap();
    let text = String::from_utf8(objdump.stdout).unwrap();
    let stubs = text.lines().filter_map(|line| {
        let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
        name.ends_with("@plt").then(|| (u64::from_str_radix(address, 16).unwrap(), name.to_owned()))
    });
    stubs.collect()
}

#[test]
fn a_stub_is_called_after_the_function_that_it_calls() {
    let kinds: [&[&str]; 6] = [
        &["-Wl,-z,lazy"],
        &["-Wl,-z,now"],
        &["-no-pie", "-Wl,-z,lazy"],
        &["-fcf-protection=full", "-Wl,-z,ibtplt"],
        &["-Wl,-z,lazy", "-s"],
        &["-Wl,-z,now", "-s"],
    ];
    let kinds = kinds.iter().filter(|options| {
        cfg!(target_arch = "x86_64") || !options.iter().any(|option| option.contains("ibtplt"))
    });
    for options in kinds {
        let mut machine = Machine::new();
        let path = calling(&machine, options);
        let stubs = stubs(&path);
        let module = machine.module("/bin/calling");
        let binary = crate::probe::binary::Binary::read(fs::File::open(&path).unwrap(), &path).unwrap();
        let mut symbolizer = machine.symbolizer();
        for (address, name) in &stubs {
            let segments = binary.segments();
            let segment = segments.iter().find(|segment| (segment.start..segment.limit).contains(address));
            let segment = segment.unwrap();
            for into in [0, 7] {
                let offset = address - segment.start + segment.offset + into;
                let shown = ask(&mut symbolizer, &machine.code, Frame::File { module, offset });
                assert_eq!(shown, *name, "{options:?}: {stubs:x?}");
            }
        }
        assert!(stubs.iter().any(|(_, name)| name == "getc@plt"), "{options:?}: {stubs:x?}");
    }
}

#[test]
fn a_stripped_program_gets_its_names_from_what_it_brings_along() {
    if !has("xz") {
        return;
    }
    let mut machine = Machine::new();
    let path = calling(&machine, &[]);
    let (hidden, ..) = place(&path, "hidden");
    let (exported, ..) = place(&path, "exported");
    let mini = machine.path("mini");
    // Exported symbols are left out, as in Fedora.
    run(
        "objcopy",
        &[Path::new("-S"), Path::new("--keep-symbol=hidden"), Path::new("--keep-symbol=main"), &path, &mini],
    );
    run("objcopy", &[Path::new("--only-keep-debug"), &mini]);
    run("xz", &[Path::new("--force"), &mini]);
    let add = format!("--add-section=.gnu_debugdata={}.xz", mini.display());
    run("objcopy", &[Path::new("-S"), Path::new(&add), &path]);
    let module = machine.module("/bin/calling");
    let frame = |offset| Frame::File { module, offset: offset + 1 };
    let mut symbolizer = machine.symbolizer();
    let name = |symbolizer: &mut Symbolizer, offset| ask(symbolizer, &machine.code, frame(offset));
    assert_eq!([name(&mut symbolizer, hidden), name(&mut symbolizer, exported)], ["hidden", "exported"]);
    assert_eq!(symbolizer.accounts().named, 2);
    // If they exceed the memory limit, compressed symbols are ignored.
    let mut small = machine.symbolizer_with(Options { memory: 20_000, ..Options::default() });
    assert!(name(&mut small, hidden).starts_with("calling+0x"));
    assert_eq!(name(&mut small, exported), "exported");
}
