//! Parser for perf's event language: text to [`syntax`](super::syntax). The result does not depend on the host. Only the generic names
//! determine whether `a:b` is a tracepoint or an event with modifiers.
//!
//! ```text
//! list   = item {"," item}
//! item   = event | [name] "{" event {"," event} "}" [":" modifiers]
//! event  = symbol | "r" HEX | NUMBER ":" NUMBER | system ":" event | "mem:" NUMBER ["/" NUMBER] [":" rwx]
//!        | pmu "/" [term {"," term}] "/"               each with [":" modifiers]; after a slash the colon is optional
//! term   = name ["=" (NUMBER | text | "'" text "'")]
//! ```
//!
//! Grammar: `tools/perf/util/parse-events.{l,y}` of the kernel, `Documentation/perf-list.txt`.

use std::sync::Arc;

use super::cursor::{Cursor, Fault, ParseError, Parsed, TEXT_LIMIT, fault};
use super::generic;
use super::number::{digits, hexadecimal};
use super::syntax::{Event, Group, Name, Term, TermValue};

/// Maximum number of events in one text.
const EVENT_LIMIT: usize = 512;
/// Maximum number of terms of one event. The kernel's richest PMU formats have about 30 fields.
const TERM_LIMIT: usize = 64;

/// perf's modifier letters, including the unsupported ones.
const MODIFIERS: &str = "ukhIGHpPSDWebRX";

/// Parses a list of events in the syntax of perf's `-e`. An event outside braces is a group of one.
///
/// At most 16 KiB of text and 512 events.
///
/// # Errors
/// The first position that does not conform to the grammar, or that requests something useless for counting.
pub fn parse(text: &str) -> Result<Vec<Group>, ParseError> {
    Parser::new(text, Events(0)).list().map_err(|fault| fault.of(text))
}

/// Parses the terms in a file of a PMU's `events/`: the text between the slashes of a PMU event.
///
/// # Errors
/// As [`parse`].
pub(super) fn parse_terms(text: &str) -> Result<Vec<Term>, ParseError> {
    let mut parser = Parser::new(text, Events(0));
    parser.term_list("").map(|(terms, _)| terms).map_err(|fault| fault.of(text))
}

/// A cursor over the text.
type Parser<'t> = Cursor<'t, Events>;

/// Number of events parsed so far.
struct Events(usize);

impl<'t> Parser<'t> {
    fn list(&mut self) -> Parsed<Vec<Group>> {
        if self.text.len() > TEXT_LIMIT {
            return fault(TEXT_LIMIT, "the text is longer than 16 KiB", "split it over several entries");
        }
        let mut groups = Vec::new();
        loop {
            groups.push(self.item()?);
            self.skip_space();
            if self.is_at_end() {
                return Ok(groups);
            }
            self.expect(",", "expected a comma after the event", "put a comma between two events")?;
        }
    }

    fn item(&mut self) -> Parsed<Group> {
        self.skip_space();
        let start = self.at;
        self.take_while(is_word);
        self.skip_space();
        if self.take("{") {
            return self.group();
        }
        self.at = start;
        Ok(Group { events: vec![self.event()?] })
    }

    /// Parses the events of a group and its modifiers, after the opening brace.
    fn group(&mut self) -> Parsed<Group> {
        let mut events = Vec::new();
        loop {
            self.skip_space();
            if self.peek() == Some('{') {
                return fault(self.at, "groups cannot be nested", "close the first group before this one");
            }
            let at = self.at;
            let event = self.event()?;
            if !events.is_empty() && event.modifiers.contains(['D', 'e']) {
                let message = "only the first event of a group can be pinned (D) or exclusive (e)";
                return fault(at, message, "write the letter after the closing brace");
            }
            events.push(event);
            self.skip_space();
            if self.take("}") {
                break;
            }
            self.expect(",", "the group is not closed", "expected ',' or '}'")?;
        }
        let at = self.at;
        if self.take(":") {
            let modifiers = self.modifiers()?;
            for (i, event) in events.iter_mut().enumerate() {
                let both = add_modifiers(&event.modifiers, modifiers, i == 0);
                event.modifiers = both.ok_or_else(|| Fault::new(at, TOO_PRECISE.0, TOO_PRECISE.1))?.into();
            }
        }
        Ok(Group { events })
    }

    fn event(&mut self) -> Parsed<Event> {
        self.skip_space();
        self.state.0 += 1;
        let at = self.at;
        if self.state.0 > EVENT_LIMIT {
            return fault(at, format!("more than {EVENT_LIMIT} events"), "split them over several entries");
        }
        if self.take("mem:") {
            return self.breakpoint();
        }
        let word = self.take_while(is_word);
        if word.is_empty() {
            return match self.peek() {
                Some(c) => fault(at, format!("an event cannot begin with {c:?}"), EXPECTED_EVENT),
                None => fault(at, "an event is missing", EXPECTED_EVENT),
            };
        }
        if let Some(kind) = number(word) {
            return self.numeric(at, kind);
        }
        if let Some(config) = word.strip_prefix('r').and_then(|hex| digits(hex, 16)) {
            let remedy = "write rNNN with the event's encoding";
            let too_long = || Fault::new(at, "a raw event has at most 16 digits", remedy);
            return self.with_terms(Name::Raw(config.ok_or_else(too_long)?));
        }
        match self.peek() {
            Some('/') if generic::find(word).is_none() => {
                let (terms, alias) = self.terms()?;
                self.event_end(Name::Pmu { pmu: word.into(), terms }, alias)
            }
            Some(':') if !self.modifiers_follow(word) => self.tracepoint(word),
            _ => self.with_terms(Name::Symbol(word.into())),
        }
    }

    /// Reports whether the colon at the cursor begins modifiers. As in perf's lexer, a word of modifier letters only is never a tracepoint
    /// name, and a generic name is never a tracepoint system.
    fn modifiers_follow(&self, word: &str) -> bool {
        let letters = first_word(self.rest().trim_start_matches(':'));
        letters.chars().all(|c| MODIFIERS.contains(c)) || generic::find(word).is_some()
    }

    /// Parses the text after `mem:`.
    fn breakpoint(&mut self) -> Parsed<Event> {
        let address = self.number("the address of the breakpoint")?;
        let has_length =
            self.rest().strip_prefix('/').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let length =
            if has_length && self.take("/") { Some(self.number("the length in bytes")?) } else { None };
        let mut access = "rw";
        let letters = first_word(self.rest().strip_prefix(':').unwrap_or_default());
        if !letters.is_empty() && letters.chars().all(|c| "rwx".contains(c)) {
            if letters.chars().any(|c| letters.matches(c).count() > 1) {
                let remedy = "write r, w, x or a combination of them";
                return fault(self.at + 1, "an access letter is given twice", remedy);
            }
            access = letters;
            self.at += 1 + letters.len();
        }
        self.with_terms(Name::Breakpoint { address, length, access: access.into() })
    }

    /// Parses `:CONFIG` after a type.
    fn numeric(&mut self, at: usize, kind: Option<u64>) -> Parsed<Event> {
        let too_large =
            || Fault::new(at, "the type does not fit 32 bits", "write TYPE:CONFIG, such as 4:0x3c");
        let kind = kind.and_then(|kind| u32::try_from(kind).ok()).ok_or_else(too_large)?;
        self.expect(":", "a number alone is not an event", "write TYPE:CONFIG (4:0x3c) or rNNN (r003c)")?;
        let config = self.number("the config of the event")?;
        self.with_terms(Name::Numeric { kind, config })
    }

    /// Parses `:event` after a system.
    fn tracepoint(&mut self, system: &str) -> Parsed<Event> {
        self.take(":");
        let event = self.take_while(is_word);
        if event.is_empty() {
            let remedy = "write modifiers (cycles:u) or the name of a tracepoint (sched:sched_switch)";
            return fault(
                self.at,
                format!("expected modifiers or a tracepoint name after {system:?} and the colon"),
                remedy,
            );
        }
        self.with_terms(Name::Tracepoint { system: system.into(), event: event.into() })
    }

    /// Parses the end of an event without a PMU. Only the term `name=` is valid between its slashes.
    fn with_terms(&mut self, name: Name) -> Parsed<Event> {
        let at = self.at;
        if self.peek() != Some('/') {
            return self.event_end(name, None);
        }
        let (terms, alias) = self.terms()?;
        match terms.first() {
            Some(term) => fault(
                at,
                format!("the term {:?} is not valid here", &*term.name),
                "only name= is allowed between the slashes, unless the event is written as pmu/terms/",
            ),
            None => self.event_end(name, alias),
        }
    }

    /// Parses modifiers, with or without a colon.
    fn event_end(&mut self, name: Name, alias: Option<Arc<str>>) -> Parsed<Event> {
        let behind_slash = self.text[..self.at].ends_with('/');
        let letters = self.peek().is_some_and(is_word);
        let modifiers = if self.take(":") || (behind_slash && letters) { self.modifiers()? } else { "" };
        Ok(Event { name, modifiers: modifiers.into(), alias })
    }

    fn modifiers(&mut self) -> Parsed<&'t str> {
        let start = self.at;
        let letters = self.take_while(is_word);
        if letters.is_empty() {
            return fault(start, "modifiers are missing after the colon", EXPECTED_MODIFIER);
        }
        for (i, c) in letters.char_indices() {
            let at = start + i;
            if let Some(why) = refused(c) {
                return fault(at, format!("the modifier {c:?} is not supported: {why}"), "remove it");
            }
            if !MODIFIERS.contains(c) {
                return fault(at, format!("{c:?} is not a modifier"), EXPECTED_MODIFIER);
            }
            if c != 'p' && letters[..i].contains(c) {
                return fault(at, format!("the modifier {c:?} is given twice"), "write it once");
            }
        }
        if letters.matches('p').count() > 3 {
            return fault(start, TOO_PRECISE.0, TOO_PRECISE.1);
        }
        Ok(letters)
    }

    /// Parses terms between slashes, and extracts `name=`. The first slash is at the cursor.
    fn terms(&mut self) -> Parsed<(Vec<Term>, Option<Arc<str>>)> {
        let open = self.at;
        self.take("/");
        let terms = self.term_list("/")?;
        if !self.take("/") {
            return fault(open, "the slash is not closed", "write pmu/terms/ with a slash at the end");
        }
        Ok(terms)
    }

    /// Parses terms up to `end` or the end of the text, and extracts the value of `name=`.
    fn term_list(&mut self, end: &str) -> Parsed<(Vec<Term>, Option<Arc<str>>)> {
        let (mut terms, mut alias) = (Vec::new(), None);
        self.skip_space();
        let is_closed =
            |parser: &Self| parser.is_at_end() || (!end.is_empty() && parser.rest().starts_with(end));
        while !is_closed(self) {
            if terms.len() == TERM_LIMIT {
                return fault(self.at, format!("more than {TERM_LIMIT} terms"), "remove some of them");
            }
            let at = self.at;
            let term = self.term()?;
            match (&*term.name, term.value) {
                ("name", Some(TermValue::Text(name))) => alias = Some(name),
                ("name", _) => return fault(at, "name= needs a value", "write name=YOUR_NAME"),
                (_, value) => terms.push(Term { name: term.name, value }),
            }
            self.skip_space();
            if !is_closed(self) {
                self.expect(",", "expected a separator after the term", "expected ',' or '/'")?;
            }
            self.skip_space();
        }
        Ok((terms, alias))
    }

    fn term(&mut self) -> Parsed<Term> {
        let at = self.at;
        let name = self.take_while(is_term);
        if name.is_empty() {
            return fault(at, "a term is missing", "write name=value, or an event name of the PMU");
        }
        if !self.take("=") {
            return Ok(Term { name: name.into(), value: None });
        }
        let at = self.at;
        if let Some(quote @ ('\'' | '"')) = self.peek() {
            let mark = quote.to_string();
            self.take(&mark);
            let text = self.take_while(|c| c != quote);
            if !self.take(&mark) {
                return fault(at, "the quote is not closed", format!("expected {quote}"));
            }
            if text.is_empty() {
                let remedy = "write something between the quotes";
                return fault(at, format!("{name:?} has an empty value"), remedy);
            }
            return Ok(Term { name: name.into(), value: Some(TermValue::Text(text.into())) });
        }
        let value = self.take_while(is_term);
        let value = match number(value) {
            _ if value.is_empty() => {
                return fault(at, format!("{name:?} has no value"), format!("write a number after {name}="));
            }
            Some(Some(number)) => TermValue::Number(number),
            Some(None) => return fault(at, TOO_LARGE.0, TOO_LARGE.1),
            None => TermValue::Text(value.into()),
        };
        Ok(Term { name: name.into(), value: Some(value) })
    }

    fn number(&mut self, what: &str) -> Parsed<u64> {
        let at = self.at;
        match number(self.take_while(|c| c.is_ascii_alphanumeric())) {
            Some(Some(number)) => Ok(number),
            Some(None) => fault(at, TOO_LARGE.0, TOO_LARGE.1),
            None => fault(at, format!("{what} is not a number"), "write it in decimal or with 0x"),
        }
    }
}

const EXPECTED_EVENT: &str =
    "expected a name (cycles), pmu/terms/, system:tracepoint, rNNN, mem:ADDRESS or a group in braces";
const EXPECTED_MODIFIER: &str = "expected letters of: u user, k kernel, h hypervisor, I not idle, G guest, \
     H host, p precise, P most precise, S leader sampling, D pinned, W weak group, e exclusive";
const TOO_PRECISE: (&str, &str) = ("p is given more than three times", "write p, pp or ppp");
const TOO_LARGE: (&str, &str) = ("the number does not fit 64 bits", "write at most 0xffffffffffffffff");

/// Returns the reason why a modifier of perf is not supported.
fn refused(letter: char) -> Option<&'static str> {
    match letter {
        'b' => Some("BPF counters need a BPF program, and this program loads none"),
        'R' | 'X' => Some("events are already grouped exactly as they are written"),
        _ => None,
    }
}

/// Adds a group's letters to a member's letters as perf does: letters are merged, each `p` is added, and `D` and `e` apply to the leader
/// only. `None` if that makes more than three `p`.
fn add_modifiers(own: &str, group: &str, leader: bool) -> Option<String> {
    let mut both = own.to_owned();
    for c in group.chars() {
        if c == 'p' || (!both.contains(c) && (leader || !matches!(c, 'D' | 'e'))) {
            both.push(c);
        }
    }
    (both.matches('p').count() <= 3).then_some(both)
}

/// Reports whether the character can be part of the name of an event, PMU, system or tracepoint. Includes pattern characters.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.*?[]!".contains(c)
}

/// Reports whether the character can be part of a term or its value.
fn is_term(c: char) -> bool {
    is_word(c) || matches!(c, ':' | '@' | '+')
}

/// Returns the first word of a text.
fn first_word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

/// Parses a number in decimal or with `0x`. `None` for another word, `Some(None)` for a number that exceeds 64 bits.
fn number(word: &str) -> Option<Option<u64>> {
    hexadecimal(word).map_or_else(|| digits(word, 10), |hex| digits(hex, 16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A regular expression that matches events of every form.
    const EVENT: &str = "(cycles|LLC-loads|mem:0x[0-9]{1,8}(/8)?(:[rwx])?|r1[0-9a-f]{1,14}|[0-9]{1,4}:0x[0-9a-f]{1,8}\
        |[f-q]{2,4}:[f-q_*]{2,6}x|[a-z_*]{2,9}/([a-m]{1,4}(=0x[0-9a-f]{1,16}|='[a-z0-9? ]{1,5}')?(,[o-z]{2,3}=7)?)?/)";

    fn one(text: &str) -> Event {
        let mut groups = parse(text).unwrap();
        assert_eq!((groups.len(), groups[0].events.len()), (1, 1), "{text}");
        groups.remove(0).events.remove(0)
    }

    fn symbol(text: &str) -> Name {
        Name::Symbol(text.into())
    }

    fn message(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_list_is_groups_and_events_that_stand_alone() {
        let groups = parse("cycles, io{cache-references,cache-misses}:u ,r1a8").unwrap();
        let sizes: Vec<_> = groups.iter().map(|group| group.events.len()).collect();
        assert_eq!(sizes, [1, 2, 1]);
        assert_eq!(groups[1].events[1].name, symbol("cache-misses"));
        assert_eq!(&*groups[1].events[1].modifiers, "u");
        assert_eq!(groups[2].events[0].name, Name::Raw(0x1a8));
    }

    #[test]
    fn a_groups_letters_are_added_to_its_members_own() {
        let groups = parse("{cycles:u,instructions:kp,faults}:ukpD").unwrap();
        let letters: Vec<_> = groups[0].events.iter().map(|event| &*event.modifiers).collect();
        assert_eq!(letters, ["ukpD", "kpup", "ukp"]);
        assert!(message("{cycles:ppp}:p").starts_with("p is given more than three times"));
    }

    #[test]
    fn letters_that_only_a_leader_can_have_are_refused_on_others() {
        assert!(message("{cycles,instructions:D}").contains("only the first event of a group"));
        assert_eq!(&*one("{cycles:De}").modifiers, "De");
    }

    #[test]
    fn a_word_behind_a_colon_is_a_tracepoint_unless_it_is_all_modifiers() {
        assert_eq!(one("cycles:ukp"), Event { name: symbol("cycles"), modifiers: "ukp".into(), alias: None });
        let tracepoint =
            |system: &str, event: &str| Name::Tracepoint { system: system.into(), event: event.into() };
        assert_eq!(one("sched:sched_switch").name, tracepoint("sched", "sched_switch"));
        assert_eq!(one("kvm-s390:*").name, tracepoint("kvm-s390", "*"));
        assert_eq!(one("*:*").name, tracepoint("*", "*"));
        let event = one("syscalls:sys_enter_*:u");
        assert_eq!((event.name, &*event.modifiers), (tracepoint("syscalls", "sys_enter_*"), "u"));
    }

    #[test]
    fn a_pmu_event_has_terms_a_name_and_modifiers() {
        let event = one("cpu/event=0x3c,umask=1,inv,call=ab:c,name='my cycles'/kp");
        assert_eq!((event.alias.as_deref(), &*event.modifiers), (Some("my cycles"), "kp"));
        let Name::Pmu { pmu, terms } = event.name else { panic!("{:?}", event.name) };
        let term = |name: &str, value| Term { name: name.into(), value };
        let expected = [
            term("event", Some(TermValue::Number(0x3c))),
            term("umask", Some(TermValue::Number(1))),
            term("inv", None),
            term("call", Some(TermValue::Text("ab:c".into()))),
        ];
        assert_eq!((&*pmu, &terms[..]), ("cpu", &expected[..]));
        assert_eq!(&*one("uncore_imc_*/cas_count_read/").modifiers, "");
        assert_eq!(&*one("cpu/r1a/:u").modifiers, "u");
    }

    #[test]
    fn an_event_of_no_pmu_may_have_a_name_and_no_other_terms_between_slashes() {
        let event = one("L1-dcache-loads/name=l1/u");
        assert_eq!((event.alias.as_deref(), event.name), (Some("l1"), symbol("L1-dcache-loads")));
        assert_eq!(one("r1a/name=mine/").alias.as_deref(), Some("mine"));
        assert!(message("r1a/period=7/").starts_with("the term \"period\" is not valid here"));
    }

    #[test]
    fn breakpoints_have_an_address_a_length_and_an_access() {
        let breakpoint =
            |address, length, access: &str| Name::Breakpoint { address, length, access: access.into() };
        for (text, name, letters) in [
            ("mem:0", breakpoint(0, None, "rw"), ""),
            ("mem:0:u", breakpoint(0, None, "rw"), "u"),
            ("mem:0x10/8:w", breakpoint(16, Some(8), "w"), ""),
            ("mem:0x10:x:kp", breakpoint(16, None, "x"), "kp"),
        ] {
            assert_eq!(one(text), Event { name, modifiers: letters.into(), alias: None }, "{text}");
        }
        assert!(message("mem:0:ww").starts_with("an access letter is given twice"));
        assert!(message("mem:main").starts_with("the address of the breakpoint is not a number"));
    }

    #[test]
    fn numbers_name_a_type_and_a_config() {
        assert_eq!(one("1:0x1f").name, Name::Numeric { kind: 1, config: 31 });
        assert!(message("4294967296:1").starts_with("the type does not fit 32 bits"));
        assert!(message("7").starts_with("a number alone is not an event"));
        assert!(message("r11112222333344445").starts_with("a raw event has at most 16 digits"));
        assert!(message("cpu/config=0x10000000000000000/").starts_with("the number does not fit 64 bits"));
    }

    #[test]
    fn letters_that_need_what_we_have_not_are_refused_with_the_reason() {
        assert!(message("cycles:b").contains("BPF program"));
        assert!(message("{cycles,instructions}:R").contains("already grouped"));
        assert!(message("cycles:ux").starts_with("'x' is not a modifier"));
        assert!(message("cycles:uu").starts_with("the modifier 'u' is given twice"));
    }

    #[test]
    fn what_is_not_closed_or_empty_is_refused() {
        for text in [
            "",
            ",",
            "cycles,",
            "{",
            "{}",
            "{cycles",
            "cpu/",
            "cpu/a",
            "cpu/a,,b/",
            "cpu/name=/",
            "a:",
            "a:b:",
            "{a,{b}}",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        /// A printed event parses to the same value, and every printed text can be parsed.
        #[test]
        fn what_is_printed_reads_back_as_the_same(text in "[a-z0-9:/,={}*' .x-]{0,40}") {
            if let Ok(groups) = parse(&text) {
                let printed: Vec<String> = groups.iter().map(ToString::to_string).collect();
                prop_assert_eq!(parse(&printed.join(",")), Ok(groups));
            }
        }

        #[test]
        fn events_of_every_shape_read_back_as_the_same(text in EVENT, group in "[ukhIGHPSDWe]?", name in "[a-z_ ':]{1,9}") {
            let groups = parse(&text).unwrap();
            prop_assert_eq!(parse(&groups[0].to_string()), Ok(groups.clone()));
            let mut named = groups;
            named[0].events[0].alias = Some(name.into());
            prop_assert_eq!(parse(&named[0].to_string()), Ok(named));
            let grouped = format!("{{{text},faults}}{}{group}", if group.is_empty() { "" } else { ":" });
            if let Ok(groups) = parse(&grouped) {
                prop_assert_eq!(parse(&groups[0].to_string()), Ok(groups));
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,200}") {
            if let Err(error) = parse(&text) {
                let shown = format!("{error}{error:#}");
                prop_assert!(!shown.is_empty());
            }
        }
    }

    #[test]
    fn sizes_are_bounded() {
        assert!(message(&"a,".repeat(600)).starts_with("more than 512 events"));
        assert!(message(&format!("p/{}/", "a,".repeat(65))).starts_with("more than 64 terms"));
        let error = parse(&"é".repeat(20_000)).unwrap_err();
        assert_eq!(&*error.message, "the text is longer than 16 KiB");
        assert!(format!("{error:#}").len() < 1000);
    }
}
