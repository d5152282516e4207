//! The terminal of the interactive views `top` and `report`: its modes, its keys, and texts as wide as its columns.

mod keys;
mod screen;
#[cfg(test)]
pub(super) mod testing;
mod text;

#[cfg(test)]
pub(super) use keys::TYPED;
pub(super) use keys::{Reply, control, edit, moved, pressed};
pub(super) use screen::{Input, Screen};
pub(super) use text::{fit, fit_to, put_lines, without_columns};
