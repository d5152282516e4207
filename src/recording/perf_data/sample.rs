//! The fields of samples, and of the identity at the end of all other records.
//!
//! The order is that of `perf_output_sample` and `perf_event__output_id_sample` in the kernel (`perf_event_open(2)`).

use perf_event_open_sys::bindings as abi;

use super::cursor::Cursor;
use super::header::Attribute;

/// Bits of `branch_sample_type` that add fields: the index of the hardware, and counters of each branch.
const BRANCH_HW_INDEX: u64 = 1 << 17;
const BRANCH_COUNTERS: u64 = 1 << 19;

/// The fields of a record, as far as they are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fields<'a> {
    pub(super) id: Option<u64>,
    pub(super) ip: Option<u64>,
    /// Process and thread.
    pub(super) task: Option<(u32, u32)>,
    pub(super) time: Option<u64>,
    /// The address of the data, or of the fault.
    pub(super) address: Option<u64>,
    pub(super) cpu: Option<u32>,
    pub(super) period: Option<u64>,
    /// The call chain: 8 bytes for each address or marker.
    pub(super) chain: Option<&'a [u8]>,
    pub(super) raw: Option<&'a [u8]>,
    pub(super) cgroup: Option<u64>,
    /// The registers of the program, if it is a 64-bit one: 8 bytes each.
    pub(super) registers: Option<&'a [u8]>,
    /// The copy of its stack, and whether the stack may continue.
    pub(super) stack: Option<(&'a [u8], bool)>,
    /// The weight, which has 64 bits or three parts.
    pub(super) weight: Option<u64>,
    pub(super) source: Option<u64>,
    pub(super) physical: Option<u64>,
}

/// Returns the id of a sample, before its event is known. All events have it at the same place.
pub(super) fn id(body: &[u8], first: &Attribute, big: bool) -> Option<u64> {
    let before = match first.has(abi::PERF_SAMPLE_IDENTIFIER) {
        true => 0,
        false if first.has(abi::PERF_SAMPLE_ID) => {
            let fields =
                [abi::PERF_SAMPLE_IP, abi::PERF_SAMPLE_TID, abi::PERF_SAMPLE_TIME, abi::PERF_SAMPLE_ADDR];
            fields.into_iter().filter(|&field| first.has(field)).count()
        }
        false => return None,
    };
    Cursor::new(body.get(8 * before..)?, big).u64()
}

/// Returns the time of a sample without its other fields.
pub(super) fn time(body: &[u8], attribute: &Attribute, big: bool) -> Option<u64> {
    if !attribute.has(abi::PERF_SAMPLE_TIME) {
        return None;
    }
    let before = [abi::PERF_SAMPLE_IDENTIFIER, abi::PERF_SAMPLE_IP, abi::PERF_SAMPLE_TID];
    let before = before.into_iter().filter(|&field| attribute.has(field)).count();
    Cursor::new(body.get(8 * before..)?, big).u64()
}

/// Parses a sample. Returns `None` if it is shorter than its fields.
pub(super) fn sample<'a>(body: &'a [u8], attribute: &Attribute, big: bool) -> Option<Fields<'a>> {
    let mut cursor = Cursor::new(body, big);
    let cursor = &mut cursor;
    let has = |field| attribute.has(field);
    let mut fields = Fields::default();
    if has(abi::PERF_SAMPLE_IDENTIFIER) {
        fields.id = Some(cursor.u64()?);
    }
    if has(abi::PERF_SAMPLE_IP) {
        fields.ip = Some(cursor.u64()?);
    }
    if has(abi::PERF_SAMPLE_TID) {
        fields.task = Some((cursor.u32()?, cursor.u32()?));
    }
    if has(abi::PERF_SAMPLE_TIME) {
        fields.time = Some(cursor.u64()?);
    }
    if has(abi::PERF_SAMPLE_ADDR) {
        fields.address = Some(cursor.u64()?);
    }
    if has(abi::PERF_SAMPLE_ID) {
        fields.id = Some(cursor.u64()?);
    }
    if has(abi::PERF_SAMPLE_STREAM_ID) {
        cursor.u64()?;
    }
    if has(abi::PERF_SAMPLE_CPU) {
        fields.cpu = Some(cursor.u32()?);
        cursor.u32()?;
    }
    if has(abi::PERF_SAMPLE_PERIOD) {
        fields.period = Some(cursor.u64()?);
    }
    if has(abi::PERF_SAMPLE_READ) {
        skip_counts(cursor, attribute.read)?;
    }
    if has(abi::PERF_SAMPLE_CALLCHAIN) {
        let number = usize::try_from(cursor.u64()?).ok()?;
        fields.chain = Some(cursor.take(number.checked_mul(8)?)?);
    }
    if has(abi::PERF_SAMPLE_RAW) {
        let size = cursor.u32()?;
        fields.raw = Some(cursor.take(size as usize)?);
    }
    rest(cursor, attribute, &mut fields)?;
    Some(fields)
}

/// Parses the fields after the record of a tracepoint, up to the cgroup.
fn rest<'a>(cursor: &mut Cursor<'a>, attribute: &Attribute, fields: &mut Fields<'a>) -> Option<()> {
    let has = |field| attribute.has(field);
    if has(abi::PERF_SAMPLE_BRANCH_STACK) {
        let number = cursor.u64()?;
        let index = u64::from(attribute.branches & BRANCH_HW_INDEX != 0);
        let each = if attribute.branches & BRANCH_COUNTERS != 0 { 4 } else { 3 };
        cursor.skip_words(number.checked_mul(each)?.checked_add(index)?)?;
    }
    if has(abi::PERF_SAMPLE_REGS_USER) {
        fields.registers = registers(cursor, attribute.registers)?;
    }
    if has(abi::PERF_SAMPLE_STACK_USER) {
        let size = usize::try_from(cursor.u64()?).ok()?;
        if size > 0 {
            let room = cursor.take(size)?;
            let filled = usize::try_from(cursor.u64()?).ok()?;
            fields.stack = Some((room.get(..filled)?, filled == size));
        }
    }
    if has(abi::PERF_SAMPLE_WEIGHT) || has(abi::PERF_SAMPLE_WEIGHT_STRUCT) {
        fields.weight = Some(cursor.u64()?);
    }
    if has(abi::PERF_SAMPLE_DATA_SRC) {
        fields.source = Some(cursor.u64()?);
    }
    if has(abi::PERF_SAMPLE_TRANSACTION) {
        cursor.u64()?;
    }
    if has(abi::PERF_SAMPLE_REGS_INTR) {
        registers(cursor, attribute.interrupt_registers)?;
    }
    if has(abi::PERF_SAMPLE_PHYS_ADDR) {
        fields.physical = Some(cursor.u64()?);
    }
    if has(abi::PERF_SAMPLE_CGROUP) {
        fields.cgroup = Some(cursor.u64()?);
    }
    Some(())
}

/// Skips the counts of an event or a group (`read_format`).
fn skip_counts(cursor: &mut Cursor<'_>, format: u64) -> Option<()> {
    let has = |flag: abi::perf_event_read_format| u64::from(format & u64::from(flag) != 0);
    let times = has(abi::PERF_FORMAT_TOTAL_TIME_ENABLED) + has(abi::PERF_FORMAT_TOTAL_TIME_RUNNING);
    let each = 1 + has(abi::PERF_FORMAT_ID) + has(abi::PERF_FORMAT_LOST);
    match has(abi::PERF_FORMAT_GROUP) {
        0 => cursor.skip_words(times + each),
        _ => {
            let members = cursor.u64()?;
            cursor.skip_words(members.checked_mul(each)?.checked_add(times)?)
        }
    }
}

/// Parses registers: 8 bytes for each bit of the mask. `None` in them for a program that is not a 64-bit one.
fn registers<'a>(cursor: &mut Cursor<'a>, mask: u64) -> Option<Option<&'a [u8]>> {
    // Without registers, only the width of the program is there: 0.
    let width = cursor.u64()?;
    if width == u64::from(abi::PERF_SAMPLE_REGS_ABI_NONE) {
        return Some(None);
    }
    let numbers = cursor.take(8 * mask.count_ones() as usize)?;
    Some((width == u64::from(abi::PERF_SAMPLE_REGS_ABI_64)).then_some(numbers))
}

/// Parses the identity at the end of a record that is not a sample.
pub(super) fn identity(body: &[u8], attribute: &Attribute, big: bool) -> Fields<'static> {
    let fields = [
        abi::PERF_SAMPLE_TID,
        abi::PERF_SAMPLE_TIME,
        abi::PERF_SAMPLE_ID,
        abi::PERF_SAMPLE_STREAM_ID,
        abi::PERF_SAMPLE_CPU,
        abi::PERF_SAMPLE_IDENTIFIER,
    ];
    let mut found = Fields::default();
    if !attribute.identified {
        return found;
    }
    let present = fields.into_iter().filter(|&field| attribute.has(field));
    let size = 8 * present.clone().count();
    let Some(start) = body.len().checked_sub(size) else { return found };
    let mut cursor = Cursor::new(&body[start..], big);
    for field in present {
        match field {
            abi::PERF_SAMPLE_TIME => found.time = cursor.u64(),
            abi::PERF_SAMPLE_ID | abi::PERF_SAMPLE_IDENTIFIER => found.id = cursor.u64(),
            _ => drop(cursor.u64()),
        }
    }
    found
}
