//! Expressions of derived metrics: the tree, its evaluation and its text.

use std::fmt;
use std::sync::Arc;

use super::super::generic;
use super::super::known;
use super::super::syntax::{Event, Name};
use super::key::event_key;
use crate::named_enum::named_enum;

/// An expression over counts: `instructions / cycles`.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression(pub(super) Node);

/// One node of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// A number; finite and not negative.
    Number(f64),
    /// `#slots`: a property of the host.
    Constant(Constant),
    /// `duration_time`: the duration of the measurement, in seconds.
    Elapsed,
    /// The count of an event, in its base unit.
    Event(Box<Counted>),
    /// `-x`.
    Negated(Box<Self>),
    /// `a + b`.
    Binary(Operator, Box<[Self; 2]>),
    /// `min(a, b)`.
    Call(Function, Box<[Self; 2]>),
    /// `value if condition else other`: condition, value, other.
    If(Box<[Self; 3]>),
}

/// An event, and its key among the operands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counted {
    pub(super) event: Event,
    key: Arc<str>,
}

named_enum! {
    /// Operators between two values.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Operator {
        /// 1 if one of both is not zero.
        Or = "|",
        /// 1 if none of both is zero.
        And = "&",
        /// 1 or 0.
        AtMost = "<=",
        /// 1 or 0.
        AtLeast = ">=",
        /// 1 or 0.
        Equal = "==",
        /// 1 or 0.
        Different = "!=",
        /// 1 or 0.
        Less = "<",
        /// 1 or 0.
        More = ">",
        /// Sum.
        Add = "+",
        /// Difference.
        Subtract = "-",
        /// Product.
        Multiply = "*",
        /// Quotient; no value for a divisor of zero.
        Divide = "/",
        /// Remainder; no value for a divisor of zero.
        Remainder = "%",
    }
}

named_enum! {
    /// Functions of two values.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Function {
        /// The smaller of both.
        Min = "min",
        /// The larger of both.
        Max = "max",
        /// The quotient, or 0 for a divisor of zero.
        Ratio = "d_ratio",
    }
}

named_enum! {
    /// Properties of the host, by their names in perf (`tools/perf/util/expr.c`), which follow `#`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Constant {
        /// Issue slots per cycle of an Arm core (`caps/slots` of its PMU, from `PMMIR_EL1`).
        Slots = "slots",
        /// CPUs that are present.
        Cpus = "num_cpus",
        /// CPUs that are online.
        OnlineCpus = "num_cpus_online",
        /// Cores.
        Cores = "num_cores",
        /// Dies.
        Dies = "num_dies",
        /// Sockets.
        Packages = "num_packages",
        /// 1 if a core has several online CPUs.
        SmtOn = "smt_on",
        /// Frequency of the time stamp counter, in Hz.
        TscFrequency = "system_tsc_freq",
    }
}

/// A value that an expression needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operand<'e> {
    /// The count of an event, in its base unit: seconds for clocks, bytes or joules for events with a unit.
    Event {
        /// The event.
        event: &'e Event,
        /// Its [key](super::event_key).
        key: &'e Arc<str>,
    },
    /// The duration of the measurement, in seconds.
    Elapsed,
    /// A property of the host.
    Constant(Constant),
}

impl Operator {
    /// Returns the precedence: a higher one binds more tightly. As in perf (`tools/perf/util/expr.y`).
    pub(super) const fn precedence(self) -> u8 {
        match self {
            Self::Or => 1,
            Self::And => 2,
            Self::AtMost | Self::AtLeast | Self::Equal | Self::Different | Self::Less | Self::More => 3,
            Self::Add | Self::Subtract => 4,
            Self::Multiply | Self::Divide | Self::Remainder => 5,
        }
    }

    /// All precedences, ascending.
    pub(super) const LEVELS: u8 = 5;

    /// Returns the operators of a precedence, longer words first.
    pub(super) fn of_level(level: u8) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |operator| operator.precedence() == level)
    }

    #[allow(clippy::float_cmp, reason = "an expression compares exactly, as perf does")]
    fn apply(self, a: f64, b: f64) -> Option<f64> {
        let truth = |holds: bool| if holds { 1.0 } else { 0.0 };
        Some(match self {
            Self::Or => truth(a != 0.0 || b != 0.0),
            Self::And => truth(a != 0.0 && b != 0.0),
            Self::AtMost => truth(a <= b),
            Self::AtLeast => truth(a >= b),
            Self::Equal => truth(a == b),
            Self::Different => truth(a != b),
            Self::Less => truth(a < b),
            Self::More => truth(a > b),
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Multiply => a * b,
            Self::Divide | Self::Remainder if b == 0.0 => return None,
            Self::Divide => a / b,
            Self::Remainder => a % b,
        })
    }
}

impl Function {
    fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            Self::Ratio if b == 0.0 => 0.0,
            Self::Ratio => a / b,
        }
    }
}

impl Expression {
    /// Returns the value. `None` if a value that it needs is missing, a divisor is zero, or the result is too large. Never infinite.
    pub fn evaluate(&self, value: &dyn Fn(Operand<'_>) -> Option<f64>) -> Option<f64> {
        self.0.evaluate(value)
    }

    /// Returns the expression with the known properties of the host in place of their names. A condition that depends on them alone is
    /// decided, so the events of the other branch are not needed.
    #[must_use]
    pub fn on_host(&self, value: &dyn Fn(Constant) -> Option<f64>) -> Self {
        Self(self.0.on_host(value))
    }

    /// Returns the events, each once, in the order of the text.
    pub fn events(&self) -> Vec<&Event> {
        let mut events: Vec<&Event> = Vec::new();
        self.0.visit(&mut |node| {
            if let Node::Event(counted) = node
                && !events.contains(&&counted.event)
            {
                events.push(&counted.event);
            }
        });
        events
    }

    /// Returns the [keys](super::event_key) of the events, in the order of the text.
    pub fn keys(&self) -> Vec<&Arc<str>> {
        let mut keys = Vec::new();
        self.0.visit(&mut |node| {
            if let Node::Event(counted) = node {
                keys.push(&counted.key);
            }
        });
        keys
    }

    /// Returns the constants without a value on this host.
    pub fn constants(&self) -> Vec<Constant> {
        let mut constants = Vec::new();
        self.0.visit(&mut |node| {
            if let Node::Constant(constant) = node
                && !constants.contains(constant)
            {
                constants.push(*constant);
            }
        });
        constants
    }

    /// Returns the expression with other events in place of its own.
    #[must_use]
    pub fn with_events(&self, other: &dyn Fn(&Event) -> Event) -> Self {
        Self(self.0.map(&|node| match node {
            Node::Event(counted) => Some(Node::event(other(&counted.event))),
            _ => None,
        }))
    }
}

impl Node {
    /// Returns the node of an event.
    pub(super) fn event(event: Event) -> Self {
        let key = event_key(&event.name);
        Self::Event(Box::new(Counted { event, key }))
    }

    fn evaluate(&self, value: &dyn Fn(Operand<'_>) -> Option<f64>) -> Option<f64> {
        let both = |[a, b]: &[Self; 2]| Some((a.evaluate(value)?, b.evaluate(value)?));
        let result = match self {
            Self::Number(number) => *number,
            Self::Constant(constant) => value(Operand::Constant(*constant))?,
            Self::Elapsed => value(Operand::Elapsed)?,
            Self::Event(counted) => value(Operand::Event { event: &counted.event, key: &counted.key })?,
            Self::Negated(of) => -of.evaluate(value)?,
            Self::Binary(operator, operands) => both(operands).and_then(|(a, b)| operator.apply(a, b))?,
            Self::Call(function, operands) => both(operands).map(|(a, b)| function.apply(a, b))?,
            Self::If(parts) => {
                let [condition, then, other] = &**parts;
                let chosen = if condition.evaluate(value)? != 0.0 { then } else { other };
                chosen.evaluate(value)?
            }
        };
        result.is_finite().then_some(result)
    }

    fn on_host(&self, value: &dyn Fn(Constant) -> Option<f64>) -> Self {
        self.map(&|node| match node {
            Self::Constant(constant) => {
                value(*constant).filter(|value| value.is_finite() && *value >= 0.0).map(Self::Number)
            }
            Self::If(parts) => {
                let [condition, then, other] = &**parts;
                let of_constants = |operand: Operand<'_>| match operand {
                    Operand::Constant(constant) => value(constant),
                    Operand::Event { .. } | Operand::Elapsed => None,
                };
                let holds = condition.evaluate(&of_constants)? != 0.0;
                Some(if holds { then } else { other }.on_host(value))
            }
            _ => None,
        })
    }

    /// Returns the tree with the nodes for which `change` has a replacement.
    fn map(&self, change: &dyn Fn(&Self) -> Option<Self>) -> Self {
        if let Some(changed) = change(self) {
            return changed;
        }
        let two = |[a, b]: &[Self; 2]| Box::new([a.map(change), b.map(change)]);
        match self {
            Self::Negated(of) => Self::Negated(Box::new(of.map(change))),
            Self::Binary(operator, operands) => Self::Binary(*operator, two(operands)),
            Self::Call(function, operands) => Self::Call(*function, two(operands)),
            Self::If(parts) => {
                let [condition, then, other] = &**parts;
                Self::If(Box::new([condition.map(change), then.map(change), other.map(change)]))
            }
            Self::Number(_) | Self::Constant(_) | Self::Elapsed | Self::Event(_) => self.clone(),
        }
    }

    fn visit<'n>(&'n self, see: &mut dyn FnMut(&'n Self)) {
        match self {
            Self::Negated(of) => of.visit(see),
            Self::Binary(_, operands) | Self::Call(_, operands) => {
                operands.iter().for_each(|node| node.visit(see));
            }
            // In the order of the text: the condition follows the value.
            Self::If(parts) => {
                let [condition, then, other] = &**parts;
                [then, condition, other].into_iter().for_each(|node| node.visit(see));
            }
            Self::Number(_) | Self::Constant(_) | Self::Elapsed | Self::Event(_) => see(self),
        }
    }

    /// Returns the precedence of the outermost operator.
    const fn precedence(&self) -> u8 {
        match self {
            Self::If(_) => 0,
            Self::Binary(operator, _) => operator.precedence(),
            Self::Negated(_) => Operator::LEVELS + 1,
            _ => Operator::LEVELS + 2,
        }
    }

    /// Writes the node, in parentheses if its operator binds less tightly than `least`.
    fn write(&self, f: &mut fmt::Formatter<'_>, least: u8) -> fmt::Result {
        if self.precedence() < least {
            f.write_str("(")?;
            self.write(f, 0)?;
            return f.write_str(")");
        }
        match self {
            Self::Number(number) if *number >= 1e6 => write!(f, "{number:e}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Constant(constant) => write!(f, "#{constant}"),
            Self::Elapsed => f.write_str(ELAPSED),
            Self::Event(counted) => write_event(f, &counted.event),
            Self::Negated(of) => {
                f.write_str("-")?;
                of.write(f, Operator::LEVELS + 1)
            }
            Self::Binary(operator, operands) => {
                let [a, b] = &**operands;
                let own = operator.precedence();
                a.write(f, own)?;
                write!(f, " {operator} ")?;
                b.write(f, own + 1)
            }
            Self::Call(function, operands) => {
                let [a, b] = &**operands;
                write!(f, "{function}(")?;
                a.write(f, 0)?;
                f.write_str(", ")?;
                b.write(f, 0)?;
                f.write_str(")")
            }
            Self::If(parts) => {
                let [condition, then, other] = &**parts;
                then.write(f, 1)?;
                f.write_str(" if ")?;
                condition.write(f, 1)?;
                f.write_str(" else ")?;
                other.write(f, 0)
            }
        }
    }
}

/// perf's name for the duration of the measurement.
pub(super) const ELAPSED: &str = "duration_time";

/// Reports whether a word with hyphens is the name of an event, which needs no backslashes.
pub(super) fn is_known_name(word: &str) -> bool {
    generic::find(word).is_some() || known::pmu_of(word).is_some()
}

impl fmt::Display for Expression {
    /// Formats the expression in the input syntax.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, 0)
    }
}

/// Writes an event. Hyphens of unknown names need a backslash, because they are operators otherwise.
fn write_event(f: &mut fmt::Formatter<'_>, event: &Event) -> fmt::Result {
    match &event.name {
        Name::Symbol(name) if name.contains('-') && !is_known_name(name) => {
            let colon = if event.modifiers.is_empty() { "" } else { ":" };
            write!(f, "{}{colon}{}", name.replace('-', "\\-"), event.modifiers)
        }
        _ => write!(f, "{event}"),
    }
}
