//! Parser for the required fields of `/proc/PID/stat`. The format is that of `proc_pid_stat(5)`: `PID (COMM) STATE …`. COMM may contain any
//! bytes, including parentheses and newlines; only numbers follow it.

use std::sync::Arc;

use super::ProcessKey;

/// `PF_WQ_WORKER` of the kernel's `include/linux/sched.h`.
const PF_WQ_WORKER: u64 = 0x20;
/// `PF_KTHREAD`.
const PF_KTHREAD: u64 = 0x0020_0000;
/// `TASK_COMM_LEN` without its NUL.
const COMM_LENGTH: usize = 15;

/// The parsed fields of one `stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) key: ProcessKey,
    pub(super) comm: Arc<str>,
    pub(super) kernel_thread: bool,
    /// Whether all its threads have ended and it has not been reaped yet.
    pub(super) zombie: bool,
}

impl Stat {
    /// Parses the content of the file; `None` if it is malformed.
    pub(super) fn parse(content: &[u8]) -> Option<Self> {
        let open = content.iter().position(|&byte| byte == b'(')?;
        let close = content.iter().rposition(|&byte| byte == b')')?;
        let pid = str::from_utf8(content.get(..open)?).ok()?.trim_end().parse().ok()?;
        let comm = content.get(open + 1..close)?;
        let mut fields = str::from_utf8(content.get(close + 1..)?).ok()?.split_ascii_whitespace();

        let state = fields.next()?;
        // nth() skips from the last field taken: these are fields 9, 20 and 22 of the manual page.
        let flags: u64 = fields.nth(5)?.parse().ok()?;
        let threads: i64 = fields.nth(10)?.parse().ok()?;
        let start_time = fields.nth(1)?.parse().ok()?;
        Some(Self {
            key: ProcessKey { pid, start_time },
            comm: command_name(comm, flags).into(),
            kernel_thread: flags & PF_KTHREAD != 0,
            // The main thread may end before the others; the process then continues.
            zombie: matches!(state, "Z" | "X") && threads <= 1,
        })
    }
}

/// Returns the name as in `task_struct.comm`. `stat` contains the names of kernel threads at full length, and appends the current work to a
/// worker's name (`kworker/0:1-events`). The appended work would create a series for every work item. See `proc_task_name()` and
/// `wq_worker_comm()`.
fn command_name(comm: &[u8], flags: u64) -> String {
    let mut name = comm;
    // A rescuer (`kworker/R-NAME`) is named after its queue; the dash there is not followed by work.
    if flags & PF_WQ_WORKER != 0 && !comm.starts_with(b"kworker/R-") {
        name = comm.split(|byte| matches!(byte, b'+' | b'-')).next().unwrap_or(comm);
    }
    String::from_utf8_lossy(name.get(..COMM_LENGTH).unwrap_or(name)).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(comm: &[u8], state: &str, flags: u64, threads: u32) -> Vec<u8> {
        let tail =
            format!(") {state} 1 2 3 4 -1 {flags} 6 7 8 9 10 11 12 13 20 0 {threads} 0 4711 99 98 97\n");
        [b"42 (", comm, tail.as_bytes()].concat()
    }

    fn comm_of(comm: &[u8], flags: u64) -> String {
        Stat::parse(&line(comm, "S", flags, 1)).unwrap().comm.to_string()
    }

    #[test]
    fn the_fields_are_those_of_the_manual_page() {
        let stat = Stat::parse(&line(b"bash", "S", 0x0040_0000, 1)).unwrap();
        assert_eq!(stat.key, ProcessKey { pid: 42, start_time: 4711 });
        assert_eq!(&*stat.comm, "bash");
        assert!(!stat.kernel_thread && !stat.zombie);
        assert!(Stat::parse(&line(b"kthreadd", "S", PF_KTHREAD, 1)).unwrap().kernel_thread);
    }

    #[test]
    fn a_comm_may_look_like_the_rest_of_the_line() {
        assert_eq!(comm_of(b"a) S 1 (b", 0), "a) S 1 (b");
        assert_eq!(comm_of(b"x)\nS 1", 0), "x)\nS 1");
        assert_eq!(comm_of(b"", 0), "");
        assert_eq!(comm_of(b"(((", 0), "(((");
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced() {
        assert_eq!(comm_of(b"a\xff\x01b", 0), "a\u{fffd}\u{1}b");
    }

    #[test]
    fn a_worker_is_named_without_its_work() {
        let worker = PF_KTHREAD | PF_WQ_WORKER;
        assert_eq!(comm_of(b"kworker/0:1-events", worker), "kworker/0:1");
        assert_eq!(comm_of(b"kworker/u8:2+flush-259:0", worker), "kworker/u8:2");
        assert_eq!(comm_of(b"kworker/0:0H-kblockd", worker), "kworker/0:0H");
        assert_eq!(comm_of(b"kworker/R-slub_flushwq", worker), "kworker/R-slub_");
        assert_eq!(comm_of(b"rcu_exp_par_gp_kthread_worker/0", PF_KTHREAD), "rcu_exp_par_gp_");
        assert_eq!(comm_of(b"not-a-worker", 0), "not-a-worker");
    }

    #[test]
    fn a_process_whose_first_thread_ended_is_no_zombie() {
        assert!(Stat::parse(&line(b"x", "Z", 0, 1)).unwrap().zombie);
        assert!(!Stat::parse(&line(b"x", "Z", 0, 3)).unwrap().zombie);
    }

    #[test]
    fn what_is_not_a_stat_is_none() {
        for bad in ["", "42", "42 (x", "42 x)", ")(", "42 )x(", "x (x) S 1", "42 (x) S 1 2 3", "-1 (x) S"] {
            assert_eq!(Stat::parse(bad.as_bytes()), None, "{bad:?}");
        }
        let cut = line(b"x", "S", 0, 1);
        assert_eq!(Stat::parse(&cut[..cut.len() - 14]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            prop_assert!(Stat::parse(&bytes).is_none_or(|stat| stat.comm.len() <= 3 * COMM_LENGTH));
        }

        #[test]
        fn every_comm_that_the_kernel_can_have_comes_through(
            comm in prop::collection::vec(1u8.., 0..=COMM_LENGTH), flags in any::<u32>(),
        ) {
            let flags = u64::from(flags) & !PF_WQ_WORKER;
            let stat = Stat::parse(&line(&comm, "R", flags, 1)).unwrap();
            prop_assert_eq!(&*stat.comm, String::from_utf8_lossy(&comm));
            prop_assert_eq!(stat.key, ProcessKey { pid: 42, start_time: 4711 });
        }
    }
}
