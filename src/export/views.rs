//! Views of folded stacks: inverted, and the callees and callers of one function (the sandwich view).
//!
//! Recursion: a stack counts once for a function, however often it contains it. The stack is divided at the outermost call of the function.
//! So recursive calls are callees, and callers are functions that call it from outside of the recursion.

use super::folded::{Folded, name};

/// Returns the stacks with the innermost function first. Functions are merged with all their callers below, and the root frame last.
pub(super) fn inverted(folded: &Folded) -> Folded {
    folded.with(folded.stacks().map(|(stack, values)| (stack.iter().rev().copied().collect(), values)))
}

/// The stacks that contain a function, divided at its outermost call. The sum of each part is the total of the function.
#[derive(Debug)]
pub(super) struct Sandwich {
    /// The function, its callers outwards, and the root frame last.
    pub(super) callers: Folded,
    /// The function and its callees inwards.
    pub(super) callees: Folded,
}

impl Sandwich {
    /// Divides the stacks that contain `function`: a name as it is shown, of any module and kind of code.
    pub(super) fn new(folded: &Folded, function: &str) -> Self {
        let function = name(function);
        let names = folded.names().iter();
        let is_it: Vec<bool> = names.map(|name| name.origin.is_some() && name.shown() == function).collect();
        let first = is_it.iter().position(|&is_it| is_it).and_then(|first| u32::try_from(first).ok());
        let divided = folded.stacks().filter_map(|(stack, values)| {
            let place = stack.iter().position(|&name| is_it.get(name as usize) == Some(&true))?;
            let (outside, rest) = stack.split_at_checked(place)?;
            // The kernel and a program can have functions of the same name. They have one root.
            Some((outside, rest.get(1..)?, first?, values))
        });
        let divided: Vec<_> = divided.collect();
        let callers = divided.iter().map(|&(outside, _, root, values)| {
            ([root].into_iter().chain(outside.iter().rev().copied()).collect(), values)
        });
        let callees = divided.iter().map(|&(_, inside, root, values)| {
            ([root].into_iter().chain(inside.iter().copied()).collect(), values)
        });
        Self { callers: folded.with(callers), callees: folded.with(callees) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::folded::{Options, Values};
    use crate::export::top::Top;
    use crate::profile::Mode;
    use crate::profile::sample_profiles::{Builder, any_profile, example, hostile, native, task};

    fn plain() -> Options {
        Options { annotated: false, ..Options::default() }
    }

    fn sum(folded: &Folded) -> u64 {
        folded.stacks().map(|(_, values)| values.this).sum()
    }

    #[test]
    fn callees_begin_at_the_outermost_call_and_callers_end_there() {
        let folded = Folded::new(&example(), plain());
        let Sandwich { callers, callees } = Sandwich::new(&folded, "ExecProcNode");
        let callees = callees.text(true);
        assert!(callees.lines().all(|line| line.starts_with("ExecProcNode;")), "{callees}");
        assert!(callees.contains("ExecProcNode;ExecProcNode;ExecProcNode;hash_search "), "{callees}");
        assert_eq!(
            callers.text(true),
            format!("ExecProcNode;PostgresMain;postgres {}\n", 45 * 52_631_578_u64)
        );
    }

    #[test]
    fn inverted_stacks_begin_with_the_innermost_function() {
        let text = inverted(&Folded::new(&example(), plain())).text(true);
        assert!(text.contains("tcp_write_xmit;tcp_sendmsg;do_syscall_64;"), "{text}");
        assert!(text.lines().any(|line| line.contains(";_start;nginx ")), "{text}");
    }

    #[test]
    fn a_function_that_no_stack_has_is_in_no_part() {
        let folded = Folded::new(&example(), plain());
        for function in ["missing", "nginx", ""] {
            let sandwich = Sandwich::new(&folded, function);
            assert_eq!((sum(&sandwich.callers), sum(&sandwich.callees)), (0, 0), "{function}");
        }
    }

    #[test]
    fn a_function_that_has_the_name_of_its_thread_is_found() {
        let mut builder = Builder::default();
        builder.add(
            &task(1, "main", "/"),
            Mode::User,
            3,
            &[native("/bin/a", "_start"), native("/bin/a", "main")],
        );
        let Sandwich { callers, .. } = Sandwich::new(&Folded::new(&builder.0, plain()), "main");
        assert_eq!(callers.text(true), "main;_start;main 3000000\n");
    }

    #[test]
    fn every_hostile_name_of_the_table_can_be_focused() {
        let folded = Folded::new(&hostile(), Options::default());
        for row in Top::new(&hostile(), 1000).rows {
            assert!(sum(&Sandwich::new(&folded, &row.name).callees) > 0, "{:?}", row.name);
        }
    }

    proptest! {
        #[test]
        fn both_parts_have_the_total_of_the_function(base in any_profile(), this in any_profile()) {
            let folded = Folded::difference(&base, &this, plain());
            let totals = |name: &str, profile| {
                let rows = Top::new(profile, usize::MAX).rows.into_iter();
                rows.filter(|row| row.name == name).map(|row| row.total).max().unwrap_or(0)
            };
            for function in ["main", "a", "malloc"] {
                let Sandwich { callers, callees } = Sandwich::new(&folded, function);
                let sums = |folded: &Folded| {
                    let mut sums = Values::default();
                    folded.stacks().for_each(|(_, values)| sums.add(values));
                    sums
                };
                prop_assert_eq!(sums(&callers), sums(&callees));
                // Functions of one name in several modules have a row each, and stacks may contain several of them.
                prop_assert!(sums(&callees).this >= totals(function, &this));
                prop_assert!(sums(&callees).base >= totals(function, &base));
            }
        }

        #[test]
        fn inverting_twice_changes_nothing(profile in any_profile()) {
            let folded = Folded::new(&profile, plain());
            prop_assert_eq!(inverted(&inverted(&folded)).text(true), folded.text(true));
        }
    }
}
