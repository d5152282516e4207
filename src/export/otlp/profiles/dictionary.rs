//! The tables of a request, with unique entries. The first entry of each table is the empty one.
//!
//! Tables are kept in encoded form. Equal entries are found by their bytes, with a randomly keyed hash: a program could choose names that
//! collide in a simpler one.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use rustc_hash::FxHashMap;

use super::frame;
use super::message::{Attribute, Places};
use crate::clean::clean;
use crate::export::numbered::Numbered;
use crate::export::otlp::attribute::Any;
use crate::export::otlp::identity;
use crate::export::protobuf::wire::{Each, Numbers, Sink};
use crate::profile::{self, Mode, Profile, Sample, Task};

/// Maximum length of a string in bytes. Names of templates reach some thousands.
const TEXT: usize = 16 << 10;
/// Marks an entry that is in no table yet.
const NONE: u32 = u32::MAX;
/// Field numbers of the tables in `ProfilesDictionary`.
const FIELDS: [u32; 6] = [MAPPINGS, LOCATIONS, FUNCTIONS, STRINGS, ATTRIBUTES, STACKS];
const MAPPINGS: u32 = 1;
const LOCATIONS: u32 = 2;
const FUNCTIONS: u32 = 3;
/// Field number of links. The table has only the empty entry.
const LINKS: u32 = 4;
const STRINGS: u32 = 5;
const ATTRIBUTES: u32 = 6;
const STACKS: u32 = 7;

/// A table in encoded form.
struct Table {
    field: u32,
    bytes: Vec<u8>,
    /// End position of each entry.
    ends: Vec<u32>,
    /// Index of entries by hash. Of entries with equal hashes, later ones are stored under the following hashes.
    places: FxHashMap<u64, u32>,
}

impl Table {
    /// Creates a table with the empty entry.
    fn new(field: u32, hasher: &RandomState) -> Self {
        let mut table = Self { field, bytes: Vec::new(), ends: Vec::new(), places: FxHashMap::default() };
        let mut nothing = Vec::new();
        nothing.string(field, "");
        table.place(&nothing, hasher);
        table
    }

    /// Returns the index of an entry, which is given with its key and length.
    fn place(&mut self, entry: &[u8], hasher: &RandomState) -> u32 {
        let mut hash = hasher.hash_one(entry);
        while let Some(&place) = self.places.get(&hash) {
            if self.get(place) == entry {
                return place;
            }
            hash = hash.wrapping_add(1);
        }
        let place = self.ends.len() as u32;
        self.bytes.extend_from_slice(entry);
        self.ends.push(self.bytes.len() as u32);
        self.places.insert(hash, place);
        place
    }

    fn get(&self, place: u32) -> &[u8] {
        let end = |place: usize| self.ends.get(place).map_or(0, |&end| end as usize);
        let start = (place as usize).checked_sub(1).map_or(0, end);
        self.bytes.get(start..end(place as usize)).unwrap_or_default()
    }

    fn cut(&mut self, length: usize) {
        self.ends.truncate(length);
        self.bytes.truncate(self.ends.last().map_or(0, |&end| end as usize));
    }
}

/// Lengths of the tables at some point.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableLengths([usize; FIELDS.len()]);

/// Identity of a sample within a profile: indexes in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) stack: u32,
    /// Index of the attributes of its task.
    set: u32,
    /// Attributes of its mode and its CPU; 0 if absent.
    marks: [u32; 2],
}

/// Attributes of a task; 0 if absent.
type Set = [u32; 7];

/// A table of a profile.
#[derive(Clone, Copy)]
enum TableKind {
    Stacks,
    Locations,
    Functions,
    Mappings,
    Tasks,
}

impl TableKind {
    /// Returns the lengths of the tables of a profile, in the order of the variants.
    fn lengths(profile: &Profile) -> [usize; 5] {
        let Profile { stacks, locations, functions, mappings, tasks, .. } = profile;
        [stacks.len(), locations.len(), functions.len(), mappings.len(), tasks.len()]
    }
}

/// The tables and the known entries.
pub(super) struct Dictionary<'p> {
    profiles: &'p [Profile],
    hasher: RandomState,
    /// Tables in the order of [`FIELDS`].
    tables: [Table; FIELDS.len()],
    /// Indexes of the entries of each profile's tables.
    known: Vec<[Vec<u32>; 5]>,
    sets: Numbered<Set>,
    marks: FxHashMap<(Mode, Option<u16>), [u32; 2]>,
    entry: Vec<u8>,
}

impl<'p> Dictionary<'p> {
    pub(super) fn new(profiles: &'p [Profile]) -> Self {
        let hasher = RandomState::new();
        Self {
            profiles,
            tables: FIELDS.map(|field| Table::new(field, &hasher)),
            hasher,
            known: profiles
                .iter()
                .map(|of| TableKind::lengths(of).map(|length| vec![NONE; length]))
                .collect(),
            sets: Numbered::default(),
            marks: FxHashMap::default(),
            entry: Vec::new(),
        }
    }

    /// Returns the size of all tables in bytes.
    pub(super) fn bytes(&self) -> usize {
        // The table of links has two bytes.
        self.tables.iter().map(|table| table.bytes.len()).sum::<usize>() + 2
    }

    pub(super) fn mark(&self) -> TableLengths {
        TableLengths(self.tables.each_ref().map(|table| table.ends.len()))
    }

    /// Removes the entries added since the mark. If there were any, no further entries can be added.
    pub(super) fn cut(&mut self, TableLengths(lengths): TableLengths) {
        self.tables.iter_mut().zip(lengths).for_each(|(table, length)| table.cut(length));
    }

    /// Returns the tables as fields of `ProfilesDictionary`.
    pub(super) fn into_tables(self) -> Vec<Vec<u8>> {
        let mut links = Vec::new();
        links.string(LINKS, "");
        self.tables.into_iter().map(|table| table.bytes).chain([links]).collect()
    }

    fn place(&mut self, field: u32, write: impl FnOnce(&mut Vec<u8>)) -> u32 {
        self.entry.clear();
        write(&mut self.entry);
        let table = self.tables.iter_mut().find(|table| table.field == field);
        table.map_or(0, |table| table.place(&self.entry, &self.hasher))
    }

    /// Returns the index of a string, cleaned and truncated.
    pub(super) fn string(&mut self, text: &str) -> u32 {
        let text = clean(text, TEXT);
        self.place(STRINGS, |to| to.string(STRINGS, &text))
    }

    /// Returns the index of an attribute with a number.
    pub(super) fn number(&mut self, key: &str, value: i64) -> u32 {
        let key = self.string(key);
        self.place(ATTRIBUTES, |to| to.message(ATTRIBUTES, &Attribute(key, Any::Integer(value))))
    }

    /// Returns the index of an attribute with a string; 0 if the string is empty.
    pub(super) fn text(&mut self, key: &str, text: &str) -> u32 {
        let text = clean(text, TEXT);
        if text.is_empty() {
            return 0;
        }
        let key = self.string(key);
        self.place(ATTRIBUTES, |to| to.message(ATTRIBUTES, &Attribute(key, Any::Text(&text))))
    }

    /// Returns the identity of a sample.
    pub(super) fn identity(&mut self, profile: usize, sample: &Sample) -> Identity {
        Identity {
            stack: self.stack(profile, sample.stack),
            set: self.set(profile, sample.task),
            marks: self.marks(sample.mode, sample.cpu),
        }
    }

    /// Returns the attributes of a sample.
    pub(super) fn attributes(&self, identity: &Identity) -> impl Iterator<Item = u64> + Clone {
        let set = self.sets.values.get(identity.set as usize).copied().unwrap_or_default();
        let all = set.into_iter().chain(identity.marks);
        all.filter(|&place| place != 0).map(u64::from)
    }

    fn marks(&mut self, mode: Mode, cpu: Option<u16>) -> [u32; 2] {
        if let Some(&marks) = self.marks.get(&(mode, cpu)) {
            return marks;
        }
        let key = match mode {
            Mode::User | Mode::Kernel => "cpu.mode",
            Mode::Sleeping | Mode::Uninterruptible | Mode::Preempted => "thread.state",
        };
        let mark = self.text(key, mode.as_str());
        let marks = [mark, cpu.map_or(0, |cpu| self.number(identity::CPU, cpu.into()))];
        self.marks.insert((mode, cpu), marks);
        marks
    }

    /// Returns the attributes of the task of a sample.
    fn set(&mut self, profile: usize, task: u32) -> u32 {
        self.once(TableKind::Tasks, profile, task, |all| {
            let found = all.profiles.get(profile).and_then(|profile| profile.tasks.get(task as usize));
            let set = found.map(|task| all.of_task(task)).unwrap_or_default();
            all.sets.place(set)
        })
    }

    fn of_task(&mut self, task: &Task) -> Set {
        let path = task.exe.as_deref().unwrap_or_default();
        [
            self.number(identity::PID, task.pid.into()),
            self.text(identity::COMM, &task.program),
            self.text(identity::EXECUTABLE_NAME, identity::file_name(path)),
            self.text(identity::EXECUTABLE_PATH, path),
            self.text(identity::CGROUP, task.cgroup.as_deref().unwrap_or_default()),
            self.number(identity::TID, task.tid.into()),
            self.text("thread.name", &task.comm),
        ]
    }

    fn stack(&mut self, profile: usize, place: u32) -> u32 {
        self.once(TableKind::Stacks, profile, place, |all| {
            let stack = all.profiles.get(profile).and_then(|profile| profile.stacks.get(place as usize));
            let locations = stack.iter().flat_map(|stack| stack.iter());
            let locations: Vec<u32> =
                locations.filter_map(|&location| all.location(profile, location)).collect();
            all.place(STACKS, |to| to.message(STACKS, &Places(1, &locations)))
        })
    }

    /// Returns the index of a location of a profile, if it exists.
    fn location(&mut self, profile: usize, place: u32) -> Option<u32> {
        let whole = self.profiles.get(profile)?;
        let location = whole.locations.get(place as usize)?;
        Some(self.once(TableKind::Locations, profile, place, |all| {
            let mut lines: Vec<_> = (location.lines.iter())
                .filter_map(|line| Some([all.function(profile, line.function)?, line.line]))
                .map(|line| Numbers(line.map(u64::from)))
                .collect();
            if lines.is_empty() {
                let name = whole.names(location).first().copied().unwrap_or_default();
                lines.push(Numbers([all.named(name, "", "").into(), 0]));
            }
            let mapping = location.mapping.map_or(0, |mapping| all.mapping(profile, mapping));
            let kind = frame::kind(whole, location).map(|kind| all.text("profile.frame.type", kind));
            let numbers = Numbers([mapping.into(), location.address]);
            let entry = (numbers, (Each(3, &lines), Places(4, kind.as_slice())));
            all.place(LOCATIONS, |to| to.message(LOCATIONS, &entry))
        }))
    }

    fn function(&mut self, profile: usize, place: u32) -> Option<u32> {
        let function = self.profiles.get(profile)?.functions.get(place as usize)?;
        Some(self.once(TableKind::Functions, profile, place, |all| {
            let linkage = if function.linkage == function.name { "" } else { &*function.linkage };
            all.named(&function.name, linkage, function.file.as_deref().unwrap_or_default())
        }))
    }

    fn named(&mut self, name: &str, linkage: &str, file: &str) -> u32 {
        // A location without a name still needs a function.
        let name = if name.is_empty() { "[unknown]" } else { name };
        let entry = Numbers([name, linkage, file].map(|text| self.string(text).into()));
        self.place(FUNCTIONS, |to| to.message(FUNCTIONS, &entry))
    }

    fn mapping(&mut self, profile: usize, place: u32) -> u32 {
        let found = self.profiles.get(profile).and_then(|profile| profile.mappings.get(place as usize));
        let Some(mapping) = found else { return 0 };
        self.once(TableKind::Mappings, profile, place, |all| {
            let ids: Vec<u32> = build_ids(mapping)
                .into_iter()
                .filter_map(|(key, id)| Some((key, id?)))
                .map(|(key, id)| all.text(key, &id))
                .collect();
            let is_range = mapping.start < mapping.limit;
            let (start, limit) = if is_range { (mapping.start, mapping.limit) } else { (0, 0) };
            let file = all.string(&mapping.path);
            let entry = (Numbers([start, limit, mapping.offset, file.into()]), Places(5, &ids));
            all.place(MAPPINGS, |to| to.message(MAPPINGS, &entry))
        })
    }

    /// Returns the index of an entry of a profile's table, which `make` adds on the first call.
    fn once(
        &mut self,
        of: TableKind,
        profile: usize,
        place: u32,
        make: impl FnOnce(&mut Self) -> u32,
    ) -> u32 {
        let known = self.known.get(profile).and_then(|known| known[of as usize].get(place as usize));
        if let Some(&found) = known.filter(|&&found| found != NONE) {
            return found;
        }
        let made = make(self);
        let known = self.known.get_mut(profile).and_then(|known| known[of as usize].get_mut(place as usize));
        if let Some(known) = known {
            *known = made;
        }
        made
    }
}

/// Returns the build IDs of a file; at least one is present.
fn build_ids(mapping: &profile::Mapping) -> [(&'static str, Option<Cow<'_, str>>); 3] {
    let gnu = mapping.build_id.as_ref().map(|id| id.to_string().into());
    let go = mapping.go_build_id.as_deref().map(Cow::from);
    let hash = mapping.hash.or_else(|| {
        let is_known = gnu.is_some() || go.is_some();
        if is_known { None } else { profile::FileHash::of_words(&mapping.path) }
    });
    [
        ("process.executable.build_id.gnu", gnu),
        ("process.executable.build_id.go", go),
        ("process.executable.build_id.htlhash", hash.map(|hash| hash.to_string().into())),
    ]
}
