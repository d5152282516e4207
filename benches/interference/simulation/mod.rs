//! Simulated machines, the methods that judge their pods, and the score of each method.

mod methods;
mod node;
pub(crate) mod parameters;
mod prometheus;
#[path = "../../../tests/support/random.rs"]
mod random;
mod run;
mod score;

pub(crate) use methods::Contender;
pub(crate) use node::{Form, World};
pub(crate) use run::{Naming, Outcome, all};
pub(crate) use score::{Score, proportion, rate};
