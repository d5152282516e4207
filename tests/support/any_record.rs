//! Invariants for a record of arbitrary bytes. Called by a fuzz target and by a test that keeps the target working.

use perf_exporter::ring::{Group, Record};
use perf_exporter::sys::{Fields, ReadFormat};

/// Returns the record fields that the bits select.
fn fields(bits: u16) -> Fields {
    let bit = |place: u8| bits >> place & 1 == 1;
    Fields {
        identifier: bit(0),
        tid: bit(1),
        time: bit(2),
        read: bit(3).then_some(ReadFormat { untimed: bit(4) }),
        cgroup: bit(6),
        raw: bit(7),
        // One bit for both, as tracepoints request them together.
        period: bit(7),
        // One bit for these, as profiles request them together.
        ip: bit(8),
        callchain: bit(8),
        user_stack: if bit(9) { 1024 } else { 0 },
        width: bit(10),
        address: bit(13),
        cpu: bit(11),
        // Changes the addresses, not the layout.
        kernel_only: false,
        all_registers: bit(12),
        // Only in records that are stored.
        access: false,
        split_weight: false,
        physical: false,
    }
}

/// Checks a record. The first two bytes select the fields of the event; the others are the record.
pub(crate) fn holds(bytes: &[u8]) {
    let Some((bits, bytes)) = bytes.split_first_chunk() else { return };
    let fields = fields(u16::from_le_bytes(*bits));
    match Record::parse(bytes, &fields) {
        Ok(Record::Sample(sample)) => {
            let members = sample.group.members();
            assert!(members <= bytes.len() / 8);
            assert_eq!(sample.group.values().count(), members);
            assert!(fields.cgroup || sample.cgroup == 0);
            let copied = sample.user.map_or(0, |user| user.bytes.len());
            assert!(8 * sample.callchain.len() + sample.raw.len() + copied <= bytes.len());
            assert!(fields.callchain || sample.callchain.is_empty());
            assert!(fields.user_stack > 0 || sample.user.is_none());
        }
        Ok(Record::Comm(comm)) => assert!(comm.name.len() <= bytes.len() && !comm.name.contains(&0)),
        Ok(Record::Cgroup(cgroup)) => assert!(cgroup.path.len() <= bytes.len() && !cgroup.path.contains(&0)),
        // All parts of a parsed record have been read by now.
        Ok(_) | Err(_) => {}
    }
    if let Ok(group) = Group::parse_read(bytes, ReadFormat::default()) {
        assert_eq!(bytes.len(), 24 + 8 * group.members());
    }
}
