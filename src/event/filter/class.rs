//! What can stand on the left of an operator, and what the kernel takes it for.

use crate::event::format::{Field, Format, type_of};

/// The fields that every tracepoint has without recording them, each by one of its names.
pub(super) const GENERIC: [&str; 3] = ["cpu", "comm", "stacktrace"];

/// What may be compared with a field (`FILTER_*` in `include/linux/trace_events.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// With text in quotes alone: `char[]` of every kind, `char *`, the name of the task.
    Text,
    /// With numbers and single CPUs. Arrays that are no text are taken for numbers of their size.
    Number,
    /// With numbers and sets of CPUs: the CPU that runs, or a field that is such a set.
    Cpus,
    /// With numbers, to no effect.
    Stack,
}

/// A field in a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject<'t> {
    pub(super) name: &'t str,
    pub(super) class: Class,
    /// Whether it can be compared with negative numbers.
    pub(super) signed: bool,
    /// In bytes; 0 for what is not recorded.
    pub(super) size: usize,
}

impl<'t> Subject<'t> {
    /// What a name stands for: a field of the tracepoint before one that all have.
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

/// As `filter_assign_type`, which goes by the letters of the type.
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
