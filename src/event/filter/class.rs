//! Left-hand sides of filter predicates and their types.

use crate::event::format::{Field, Format, type_of};

/// Implicit fields that every tracepoint has without recording them, one name for each.
pub(super) const GENERIC: [&str; 3] = ["cpu", "comm", "stacktrace"];

/// Type of values that a field can be compared with (`FILTER_*` in `include/linux/trace_events.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Quoted text only: every kind of `char[]`, `char *`, the task name.
    Text,
    /// Numbers and single CPUs. The kernel treats arrays other than text as numbers of the array's size.
    Number,
    /// Numbers and CPU sets: the current CPU, or a field that is a CPU set.
    Cpus,
    /// Numbers, without effect.
    Stack,
}

/// A field in a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject<'t> {
    pub(super) name: &'t str,
    pub(super) class: Class,
    /// Whether the field can be compared with negative numbers.
    pub(super) signed: bool,
    /// Size in bytes; 0 for a field that is not recorded.
    pub(super) size: usize,
}

impl<'t> Subject<'t> {
    /// Returns the field of this name. Fields of the tracepoint take precedence over implicit fields.
    pub(super) fn find(format: &Format, name: &'t str) -> Option<Self> {
        if let Some(field) = format.field(name) {
            return Some(Self { name, class: class(field), signed: field.is_signed(), size: field.size() });
        }
        let (class, signed) = match name {
            "CPU" | "cpu" | "common_cpu" => (Class::Cpus, true),
            "COMM" | "comm" => (Class::Text, false),
            "stacktrace" | "STACKTRACE" => (Class::Stack, false),
            _ => return None,
        };
        Some(Self { name, class, signed, size: 0 })
    }
}

/// Classifies a field like the kernel's `filter_assign_type`, by the text of its type.
fn class(field: &Field) -> Class {
    let kind = type_of(&field.declaration);
    let has = |word| kind.contains(word);
    if has("char") && (has("__data_loc") || has("__rel_loc") || has("[") || has(" *")) {
        Class::Text
    } else if has("__data_loc") && has("cpumask_t") {
        Class::Cpus
    } else {
        Class::Number
    }
}
