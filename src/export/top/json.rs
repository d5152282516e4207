//! A table as JSON. The list is `functions`, or `groups` with the key of the grouping: `{"cgroup": "/system.slice", "self": …}`.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::{Grouping, Row, Top};

impl Serialize for Top {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { kind, unit, start, seconds, total, samples, lost, by, base, distinct, rows } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", kind)?;
        map.serialize_entry("unit", unit)?;
        map.serialize_entry("start", start)?;
        map.serialize_entry("seconds", seconds)?;
        map.serialize_entry("total", total)?;
        map.serialize_entry("samples", samples)?;
        map.serialize_entry("lost", &Reasons(lost))?;
        if let Some(base) = base {
            map.serialize_entry("base_total", &base.total)?;
            map.serialize_entry("base_samples", &base.samples)?;
        }
        map.serialize_entry("by", by.as_str())?;
        map.serialize_entry("distinct", distinct)?;
        let list = if *by == Grouping::Function { "functions" } else { "groups" };
        let rows: Vec<_> = rows.iter().map(|row| RowOf(*by, row)).collect();
        map.serialize_entry(list, &rows)?;
        map.end()
    }
}

/// Numbers by reason, as an object.
struct Reasons<'t>(&'t [(&'static str, u64)]);

impl Serialize for Reasons<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// A row of a table with this grouping.
struct RowOf<'t>(Grouping, &'t Row);

impl Serialize for RowOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(by, row) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(by.as_str(), &row.name)?;
        if *by == Grouping::Function {
            map.serialize_entry("module", &row.module)?;
            map.serialize_entry("origin", row.origin)?;
        }
        map.serialize_entry("self", &row.own)?;
        map.serialize_entry("self_percent", &row.self_percent)?;
        map.serialize_entry("total", &row.total)?;
        map.serialize_entry("total_percent", &row.total_percent)?;
        if let Some(change) = &row.change {
            map.serialize_entry("base_self", &change.base_own)?;
            map.serialize_entry("base_total", &change.base_total)?;
            map.serialize_entry("self_points", &change.self_points)?;
            map.serialize_entry("total_points", &change.total_points)?;
        }
        map.end()
    }
}
