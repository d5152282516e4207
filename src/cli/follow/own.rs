//! The processes of this program, which would otherwise trace their own work endlessly.

use crate::ring::Record;

/// Maximum number of helper processes. One runs at a time.
const MAX: usize = 16;

/// This process, and the processes that it starts during the measurement: helpers that read files.
#[derive(Debug)]
pub(in crate::cli) struct OwnProcesses {
    own: u32,
    helpers: Vec<u32>,
}

impl OwnProcesses {
    /// Creates the set with the process `own`.
    pub(in crate::cli) fn new(own: u32) -> Self {
        Self { own, helpers: Vec::new() }
    }

    /// Notes processes that start and end. A command is started before the measurement, therefore it is not a helper.
    pub(in crate::cli) fn apply_record(&mut self, record: &Record<'_>) {
        match record {
            Record::Fork(task)
                if task.parent_pid == self.own && task.pid != self.own && self.helpers.len() < MAX =>
            {
                self.helpers.push(task.pid);
            }
            Record::Exit(task) if task.pid == task.tid => self.helpers.retain(|&pid| pid != task.pid),
            _ => {}
        }
    }

    /// Reports whether a process belongs to this program.
    pub(in crate::cli) fn contains(&self, pid: u32) -> bool {
        pid == self.own || self.helpers.contains(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Task;

    #[test]
    fn processes_that_this_program_starts_belong_to_it_until_they_end() {
        let mut own = OwnProcesses::new(7);
        let task = Task { pid: 9, parent_pid: 7, tid: 9, parent_tid: 8, time: 0 };
        own.apply_record(&Record::Fork(task));
        own.apply_record(&Record::Fork(Task { pid: 11, parent_pid: 10, tid: 11, ..task }));
        assert_eq!([7, 9, 11].map(|pid| own.contains(pid)), [true, true, false]);
        own.apply_record(&Record::Exit(Task { tid: 12, ..task }));
        assert!(own.contains(9), "one thread of it has ended");
        own.apply_record(&Record::Exit(task));
        assert!(!own.contains(9));
    }
}
