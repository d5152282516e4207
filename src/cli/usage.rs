//! Errors of the command line: what is wrong, with which word, why, and what to write instead. One line for each wrong word.

use std::ffi::{OsStr, OsString};

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::error::printable;

/// Maximum number of errors that are reported. Each costs another parse of the arguments.
const ERRORS: usize = 10;

/// Returns the text for standard error: a line for each error, and the command that describes the options. `parse` parses arguments.
pub(super) fn text(
    error: clap::Error,
    grammar: &Command,
    mut arguments: Vec<OsString>,
    parse: impl Fn(&[OsString]) -> Result<(), clap::Error>,
) -> String {
    let path = path(grammar, &arguments);
    let mut lines = vec![line(&error, &path)];
    let mut last = error;
    let mut value = value_of_unknown(&arguments, &last);
    // Without the wrong word, the next error is found.
    while lines.len() < ERRORS && remove(&mut arguments, &last, grammar) {
        last = match parse(&arguments) {
            Err(error) if hides_nothing(error.kind()) => error,
            _ => break,
        };
        let is_value = last.kind() == ErrorKind::UnknownArgument
            && value.take().is_some_and(|value| value == string(&last, ContextKind::InvalidArg));
        if !is_value {
            lines.push(line(&last, &path));
        }
        value = value_of_unknown(&arguments, &last);
    }
    let command: String = path.iter().map(|word| format!(" {word}")).collect();
    lines.push(format!("Options and arguments: perf-exporter{command} --help\n"));
    lines.join("\n")
}

/// Reports whether an error is not the consequence of a removed word.
fn hides_nothing(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnknownArgument
            | ErrorKind::InvalidValue
            | ErrorKind::ValueValidation
            | ErrorKind::ArgumentConflict
    )
}

/// Returns the names of the command and its subcommands.
fn path(grammar: &Command, arguments: &[OsString]) -> Vec<String> {
    let (mut path, mut at) = (Vec::new(), grammar);
    for word in arguments.iter().skip(1).map_while(|word| word.to_str()).take_while(|word| *word != "--") {
        if let Some(inner) = at.find_subcommand(word) {
            path.push(inner.get_name().to_owned());
            at = inner;
        }
    }
    path
}

fn line(error: &clap::Error, path: &[String]) -> String {
    let command: String = path.iter().map(|word| format!("{word} ")).collect();
    match words(error) {
        Some((what, why)) => format!("perf-exporter: {command}{}: {why}", printable(&what)),
        None => {
            let text = error.to_string();
            let text = text.lines().next().unwrap_or_default();
            format!("perf-exporter: {}", text.trim_start_matches("error: "))
        }
    }
}

/// Returns the wrong words, and what is wrong with them. `None` for an error without context.
fn words(error: &clap::Error) -> Option<(String, String)> {
    let argument = shown(&string(error, ContextKind::InvalidArg));
    let name = argument.split(' ').next().unwrap_or_default().to_owned();
    let value = string(error, ContextKind::InvalidValue);
    let said = match error.kind() {
        ErrorKind::UnknownArgument if name.starts_with('-') => {
            let meant = string(error, ContextKind::SuggestedArg);
            let meant = shown(&meant);
            (name, format!("there is no such option{}", did_you_mean(&meant)))
        }
        ErrorKind::UnknownArgument => (name, "unexpected argument; remove it".to_owned()),
        ErrorKind::InvalidSubcommand => {
            // The most similar one is the last.
            let meant = strings(error, ContextKind::SuggestedSubcommand);
            let meant = meant.last().map(String::as_str).unwrap_or_default();
            let name = string(error, ContextKind::InvalidSubcommand);
            (name, format!("there is no such command{}", did_you_mean(meant)))
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            let of = strings(error, ContextKind::ValidValue);
            let of = if of.is_empty() { String::new() } else { format!(", with {}", one_of(&of)) };
            (name, format!("the value is missing; write {argument}{of}"))
        }
        ErrorKind::InvalidValue => {
            let of = one_of(&strings(error, ContextKind::ValidValue));
            let meant = did_you_mean(&string(error, ContextKind::SuggestedValue));
            (format!("{name} {value}"), format!("expected {of}{meant}"))
        }
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            (format!("{name} {value}"), expected(&why))
        }
        ErrorKind::ArgumentConflict if !argument.is_empty() => {
            let others = [vec![string(error, ContextKind::PriorArg)], strings(error, ContextKind::PriorArg)];
            let others = others.concat().into_iter().filter(|other| !other.is_empty());
            let others: Vec<String> = others.map(|other| shown(&other)).collect();
            match &others[..] {
                [same] if *same == argument => (name, "it is given twice; remove one of them".to_owned()),
                _ => (argument, format!("it cannot be used with {}; remove one of them", others.join(", "))),
            }
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = strings(error, ContextKind::InvalidArg);
            let missing: Vec<String> = missing.iter().map(|word| shown(word)).collect();
            (missing.join(" "), "this argument is missing; add it".to_owned())
        }
        ErrorKind::NoEquals => {
            (name, format!("write the value after `=`: {}", argument.replacen(' ', "=", 1)))
        }
        ErrorKind::TooManyValues => {
            (format!("{name} {value}"), "it is one value too many; remove it".to_owned())
        }
        ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            (name, format!("values are missing; write {argument}"))
        }
        _ => return None,
    };
    Some(said).filter(|(what, _)| !what.trim().is_empty())
}

fn string(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}

fn strings(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// Returns an argument as the manual writes it: `--freq HZ` instead of `--freq <HZ>`.
fn shown(argument: &str) -> String {
    argument.replace(['<', '>'], "")
}

fn did_you_mean(word: &str) -> String {
    if word.is_empty() { String::new() } else { format!("; did you mean {word}?") }
}

/// `a, b or c`.
fn one_of(words: &[String]) -> String {
    match words {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => words.concat(),
    }
}

/// Returns what is expected instead of a value, for the error of its parser.
fn expected(why: &str) -> String {
    const WHOLE: &str = "expected a whole number, such as 10";
    match why {
        "invalid digit found in string" => WHOLE.to_owned(),
        "cannot parse integer from empty string" => format!("the value is empty; {WHOLE}"),
        "number too large to fit in target type" => "the number is too large; write a smaller one".to_owned(),
        "number too small to fit in target type" => "the number is too small; write a larger one".to_owned(),
        "invalid float literal" | "cannot parse float from empty string" => {
            "expected a number, such as 1.5".to_owned()
        }
        _ => range(why).unwrap_or_else(|| why.to_owned()),
    }
}

/// Rewrites the parser's message about a number outside of its range: `0 is not in 1..=9`.
fn range(why: &str) -> Option<String> {
    let (_, range) = why.split_once(" is not in ")?;
    let (least, most) = range.split_once("..")?;
    let number = |text: &str| text.parse::<i128>().ok();
    let most = most.strip_prefix('=').and_then(number).or_else(|| Some(number(most)? - 1));
    // A range without an end has the largest number of its type.
    Some(match (number(least), most.filter(|&most| most < i128::from(u32::MAX))) {
        (Some(least), Some(most)) => format!("expected a whole number from {least} to {most}"),
        (Some(least), None) => format!("expected a whole number of at least {least}"),
        (None, Some(most)) => format!("expected a whole number of at most {most}"),
        (None, None) => return None,
    })
}

/// Returns the word after an unknown option, which may be its value.
fn value_of_unknown(arguments: &[OsString], error: &clap::Error) -> Option<String> {
    let name = string(error, ContextKind::InvalidArg);
    let at = arguments.iter().position(|word| word.to_str() == Some(&*name))?;
    let value = arguments.get(at + 1)?.to_str().filter(|value| !value.starts_with('-'))?;
    (error.kind() == ErrorKind::UnknownArgument && name.starts_with('-')).then(|| value.to_owned())
}

/// Removes the words that an error is about. Returns whether there are any.
fn remove(arguments: &mut Vec<OsString>, error: &clap::Error, grammar: &Command) -> bool {
    let argument = string(error, ContextKind::InvalidArg);
    let value = string(error, ContextKind::InvalidValue);
    let before = arguments.len();
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let name = argument.split(' ').next().unwrap_or_default();
            let is_it = |word: &OsStr| {
                let word = word.to_str().unwrap_or_default();
                word == name || word.split('=').next() == Some(name)
            };
            cut(arguments, is_it);
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation if !value.is_empty() => {
            let names = names(grammar, arguments, &argument);
            let text = |word: &OsStr| word.to_str().unwrap_or_default().to_owned();
            let attached = |word: &OsStr| {
                let rest = |name: &String| text(word).strip_prefix(name.as_str()).map(str::to_owned);
                names.iter().filter_map(rest).any(|rest| !rest.is_empty() && rest.contains(&value))
            };
            let apart = arguments
                .windows(2)
                .position(|pair| names.contains(&text(&pair[0])) && text(&pair[1]).contains(&value));
            match apart {
                Some(at) => drop(arguments.drain(at..at + 2)),
                None if names.is_empty() => cut(arguments, |word| text(word) == value),
                None => cut(arguments, attached),
            }
        }
        _ => {}
    }
    arguments.len() < before
}

/// Removes the first argument that matches.
fn cut(arguments: &mut Vec<OsString>, is_it: impl Fn(&OsStr) -> bool) {
    if let Some(at) = arguments.iter().skip(1).position(|word| is_it(word)) {
        arguments.remove(at + 1);
    }
}

/// Returns the names of an option of the command: `--freq`, `-F`. None for a positional argument.
fn names(grammar: &Command, arguments: &[OsString], argument: &str) -> Vec<String> {
    let mut at = grammar;
    for name in path(grammar, arguments) {
        at = at.find_subcommand(name).unwrap_or(at);
    }
    let arg = at.get_arguments().chain(grammar.get_arguments()).find(|arg| arg.to_string() == argument);
    let long = arg.and_then(clap::Arg::get_long_and_visible_aliases).unwrap_or_default();
    let short = arg.and_then(clap::Arg::get_short_and_visible_aliases).unwrap_or_default();
    let long = long.into_iter().map(|name| format!("--{name}"));
    long.chain(short.into_iter().map(|name| format!("-{name}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_parsers_say_what_is_expected() {
        for (why, said) in [
            ("invalid digit found in string", "expected a whole number, such as 10"),
            ("0 is not in 1..=3600", "expected a whole number from 1 to 3600"),
            ("0 is not in 1..", "expected a whole number of at least 1"),
            ("0 is not in 1..18446744073709551615", "expected a whole number of at least 1"),
            ("expected att or intel", "expected att or intel"),
        ] {
            assert_eq!(expected(why), said);
        }
    }

    #[test]
    fn values_are_listed_as_in_a_sentence() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(one_of(&words("a b c")), "a, b or c");
        assert_eq!(one_of(&words("a")), "a");
    }
}
