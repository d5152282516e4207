//! Expressions in PromQL, over the rates of the counters of their events.

use super::super::syntax::Event;
use super::expression::{Expression, Function, Node, Operator};

impl Expression {
    /// Returns the expression in PromQL. `rate` returns the rate per second of an event's counter, a vector. `None` if PromQL has no short
    /// equivalent: comparisons, conditions, remainders, properties of the host, `d_ratio`, and the larger or smaller one of two vectors.
    ///
    /// A rate is per second already, so `duration_time` is 1. A series has no value where its divisor is zero.
    pub fn promql(&self, rate: &dyn Fn(&Event) -> Option<String>) -> Option<String> {
        self.0.promql(rate)
    }
}

impl Node {
    fn promql(&self, rate: &dyn Fn(&Event) -> Option<String>) -> Option<String> {
        Some(match self {
            Self::Number(_) => self.number()?,
            Self::Elapsed => "1".to_owned(),
            Self::Event(counted) => rate(&counted.event)?,
            Self::Negated(of) => format!("-{}", of.in_parentheses(rate)?),
            Self::Binary(operator, operands) => {
                let [a, b] = &**operands;
                match operator {
                    // Division by the duration of a rate.
                    Operator::Divide if *b == Self::Elapsed => a.promql(rate)?,
                    Operator::Divide => format!("{} / {}", a.operand(5, rate)?, b.divisor(rate)?),
                    Operator::Multiply => format!("{} * {}", a.operand(5, rate)?, b.operand(6, rate)?),
                    Operator::Add => format!("{} + {}", a.operand(4, rate)?, b.operand(5, rate)?),
                    Operator::Subtract => format!("{} - {}", a.operand(4, rate)?, b.operand(5, rate)?),
                    _ => return None,
                }
            }
            Self::Call(function, operands) => {
                let [a, b] = &**operands;
                let clamp = match function {
                    Function::Max => "clamp_min",
                    Function::Min => "clamp_max",
                    Function::Ratio => return None,
                };
                match (a.number(), b.number()) {
                    (Some(number), None) => format!("{clamp}({}, {number})", b.promql(rate)?),
                    (None, Some(number)) => format!("{clamp}({}, {number})", a.promql(rate)?),
                    _ => return None,
                }
            }
            Self::Constant(_) | Self::If(_) => return None,
        })
    }

    fn number(&self) -> Option<String> {
        matches!(self, Self::Number(_)).then(|| Expression(self.clone()).to_string())
    }

    fn in_parentheses(&self, rate: &dyn Fn(&Event) -> Option<String>) -> Option<String> {
        Some(format!("({})", self.promql(rate)?))
    }

    /// Returns an operand, in parentheses if its operator binds less tightly than `least`.
    fn operand(&self, least: u8, rate: &dyn Fn(&Event) -> Option<String>) -> Option<String> {
        match self {
            Self::Binary(Operator::Divide, operands) if operands[1] == Self::Elapsed => {
                operands[0].operand(least, rate)
            }
            Self::Binary(operator, _) if operator.precedence() < least => self.in_parentheses(rate),
            Self::Negated(_) => self.in_parentheses(rate),
            _ => self.promql(rate),
        }
    }

    /// Returns a divisor without the series that are zero.
    fn divisor(&self, rate: &dyn Fn(&Event) -> Option<String>) -> Option<String> {
        match self {
            Self::Number(_) => self.number(),
            _ => Some(format!("({} > 0)", self.operand(4, rate)?)),
        }
    }
}
