//! Columns that distinguish entries.

use crate::named_enum::named_enum;

named_enum! {
    /// A column, by the word that selects it. The words are those of perf, except `pod`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Key {
        /// The name of the thread.
        Comm = "comm",
        /// The module: the file of the code, or `[kernel.kallsyms]`.
        Dso = "dso",
        /// The function.
        Symbol = "symbol",
        /// The thread, by its ID and name, as `pid` of perf.
        Pid = "pid",
        /// The CPU.
        Cpu = "cpu",
        /// The path of the cgroup.
        Cgroup = "cgroup",
        /// The namespace and the name of the pod.
        Pod = "pod",
        /// The file and the line of the source.
        Srcline = "srcline",
        /// The file of the source.
        Srcfile = "srcfile",
        /// The first function of the call chain that matches an expression.
        Parent = "parent",
        /// The weight of the memory access, which is its latency for loads.
        LocalWeight = "local_weight",
        /// The place in the memory hierarchy.
        Mem = "mem",
        /// The accessed variable.
        DataSymbol = "symbol_daddr",
        /// The file or the kind of memory that contains the data.
        DataObject = "dso_daddr",
        /// The state of the cache line in other caches.
        Snoop = "snoop",
        /// The outcome of the address translation.
        Tlb = "tlb",
        /// Whether the instruction was locked.
        Locked = "locked",
        /// Why the load was blocked.
        Blocked = "blocked",
        /// The latency of the instruction.
        LocalLatency = "local_ins_lat",
        /// The physical address of the data.
        PhysicalAddress = "phys_daddr",
    }
}

impl Key {
    /// Returns the column that a word selects: its name, or the abbreviation that perf knows.
    pub fn parse(word: &str) -> Option<Self> {
        let word = match word {
            "sym" => "symbol",
            "dso_name" => "dso",
            word => word,
        };
        Self::ALL.into_iter().find(|key| key.as_str() == word)
    }

    /// Reports whether the column describes a memory access, which profiles do not contain.
    pub const fn is_of_access(self) -> bool {
        matches!(
            self,
            Self::LocalWeight
                | Self::Mem
                | Self::DataSymbol
                | Self::DataObject
                | Self::Snoop
                | Self::Tlb
                | Self::Locked
                | Self::Blocked
                | Self::LocalLatency
                | Self::PhysicalAddress
        )
    }

    /// Returns the heading.
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Comm => "Command",
            Self::Dso => "Shared Object",
            Self::Symbol => "Symbol",
            Self::Pid => "    Pid:Command",
            Self::Cpu => "CPU",
            Self::Cgroup => "Cgroup",
            Self::Pod => "Pod",
            Self::Srcline => "Source:Line",
            Self::Srcfile => "Source File",
            Self::Parent => "Parent symbol",
            Self::LocalWeight => "Local Weight",
            Self::Mem => "Memory access",
            Self::DataSymbol => "Data Symbol",
            Self::DataObject => "Data Object",
            Self::Snoop => "Snoop",
            Self::Tlb => "TLB access",
            Self::Locked => "Locked",
            Self::Blocked => "Blocked",
            Self::LocalLatency => "Local INSTR Latency",
            Self::PhysicalAddress => "Data Physical Address",
        }
    }
}
