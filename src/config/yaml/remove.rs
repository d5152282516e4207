//! Removal of the block that contains a syntax error, to check the rest of a file.

/// Beginning of the message about a second document.
pub(super) const SECOND_DOCUMENT: &str = "a second YAML document begins here";

/// Reports whether an error is about the size of the file. Checking the rest would exceed the limit again.
pub(in crate::config) fn is_limit(message: &str) -> bool {
    message.contains("more than ") || message.contains("at most ")
}

/// Reports whether an error is the consequence of a removed block: the block contained the anchor.
pub(in crate::config) fn is_consequence(message: &str) -> bool {
    message.contains("there is no anchor of this name")
}

/// Returns the text with empty lines in place of the block that contains `line`, counted from 1: an entry such as `counters.core`, or a
/// whole section. The other lines keep their numbers. `None` if nothing would remain.
pub(in crate::config) fn without_block(text: &[u8], line: usize, message: &str) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
    let at = line.checked_sub(1).filter(|&at| at < lines.len())?;
    let (first, last) = match message.starts_with(SECOND_DOCUMENT) {
        true => ((0..=at).rev().find(|&line| lines[line].starts_with(b"---"))?, lines.len()),
        false => block(&lines, at),
    };
    let removed = |line: &usize| (first..last).contains(line);
    if !(first..last).any(|line| indent(lines[line]).is_some()) {
        return None;
    }
    let kept = lines.iter().enumerate().map(|(line, text)| if removed(&line) { &[][..] } else { text });
    let kept: Vec<&[u8]> = kept.collect();
    kept.iter().any(|line| indent(line).is_some()).then(|| kept.join(&b'\n'))
}

/// Returns the indentation of a line; `None` for an empty line and a comment.
fn indent(line: &[u8]) -> Option<usize> {
    let indent = line.iter().take_while(|&&byte| byte == b' ').count();
    let first = line.get(indent).filter(|&&byte| !matches!(byte, b'#' | b'\r' | b'\t'));
    // A tab in front of a text is the error itself.
    first
        .map(|_| indent)
        .or_else(|| (line.first() == Some(&b'\t') && !line.trim_ascii().is_empty()).then_some(1))
}

/// Returns the first line of the entry or section that contains `at`, and the line after its last one.
fn block(lines: &[&[u8]], at: usize) -> (usize, usize) {
    // An item of a list may begin at the indentation of its key.
    let begins = |line: usize, depth: usize| {
        indent(lines[line]).is_some_and(|found| found <= depth && lines[line].get(found) != Some(&b'-'))
    };
    let end = |from: usize, depth: usize| {
        (from + 1..lines.len()).find(|&line| begins(line, depth)).unwrap_or(lines.len())
    };
    let top = (0..=at).rev().find(|&line| begins(line, 0)).unwrap_or(0);
    let section = (top, end(top, 0).max(at + 1));
    let Some(depth) = (top + 1..section.1).find_map(|line| indent(lines[line])) else { return section };
    let Some(entry) = (top + 1..=at).rev().find(|&line| depth > 0 && indent(lines[line]) == Some(depth))
    else {
        return section;
    };
    let entry = (entry, end(entry, depth).max(end(at, depth)));
    // A section without entries would be an error of its own.
    let others = (top + 1..section.1).filter(|line| !(entry.0..entry.1).contains(line));
    if others.into_iter().any(|line| indent(lines[line]).is_some()) { entry } else { section }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(text: &str, line: usize) -> Option<String> {
        without_block(text.as_bytes(), line, "").map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn an_entry_is_removed_and_the_others_keep_their_lines() {
        let text = "a:\n  x: [\n    1\n  y: 2\nb: 3\n";
        assert_eq!(without(text, 2).unwrap(), "a:\n\n\n  y: 2\nb: 3\n");
        assert_eq!(without(text, 4).unwrap(), "a:\n  x: [\n    1\n\nb: 3\n");
        assert_eq!(without(text, 1).unwrap(), "\n\n\n\nb: 3\n");
    }

    #[test]
    fn a_section_is_removed_with_its_only_entry_and_a_list_with_its_items() {
        assert_eq!(without("a:\n  x: [\nb: 3\n", 2).unwrap(), "\n\nb: 3\n");
        assert_eq!(without("a:\n- x: [\n- y\nb: 3\n", 2).unwrap(), "\n\n\nb: 3\n");
    }

    #[test]
    fn wrong_indentation_belongs_to_the_entry_above() {
        assert_eq!(without("a:\n  b: 1\n c: 2\nd: 3\n", 3).unwrap(), "\n\n\nd: 3\n");
        assert_eq!(without("a:\n  z: 0\n  b: 1\n\tc: 2\nd: 3\n", 4).unwrap(), "a:\n  z: 0\n\n\nd: 3\n");
    }

    #[test]
    fn nothing_remains_of_a_file_in_one_block() {
        assert_eq!(without("{a: [\n", 1), None);
        assert_eq!(without("# c\n\na: [\n", 3), None);
        assert_eq!(without("", 1), None);
        assert_eq!(without("a: 1\n", 9), None);
    }

    #[test]
    fn the_first_document_remains() {
        let text = without_block(b"a: 1\n---\nb: 2\n", 3, "a second YAML document begins here").unwrap();
        assert_eq!(text, b"a: 1\n\n\n");
    }
}
