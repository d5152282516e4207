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
        }
    }
}
