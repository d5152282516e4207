//! URLs: decoding of queries and encoding of links.

/// Maximum length of a query in bytes, before decoding.
pub(in crate::export) const LENGTH: usize = 4 << 10;

/// Returns a URL with these parameters.
pub(super) fn address(path: &str, parameters: impl Iterator<Item = (String, String)>) -> String {
    let mut address = path.to_owned();
    for (place, (key, value)) in parameters.enumerate() {
        address.push(if place == 0 { '?' } else { '&' });
        address.push_str(&key);
        address.push('=');
        encode(&value, &mut address);
    }
    address
}

/// Decodes the names and values of a query. A query that is too long has one error only.
pub(in crate::export) fn pairs(text: &str) -> impl Iterator<Item = Result<(String, String), String>> {
    let too_long = (text.len() > LENGTH)
        .then(|| Err(format!("the query has {} bytes, the maximum is {LENGTH}", text.len())));
    let text = if too_long.is_some() { "" } else { text };
    let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decode(name)?, decode(value)?))
    });
    too_long.into_iter().chain(pairs)
}

/// Truncates client input for use in a message.
pub(in crate::export) fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Decodes the encoding of browsers and `curl --data-urlencode`: `%2F`, and a plus for a space.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let (byte, behind) = match (first, behind) {
            (b'%', [high, low, behind @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, behind),
                _ => {
                    return Err(format!(
                        "{:?}: a percent sign must be followed by two hexadecimal digits",
                        shown(text)
                    ));
                }
            },
            (b'%', _) => return Err(format!("{:?} ends with an incomplete escape", shown(text))),
            (b'+', _) => (b' ', behind),
            (other, _) => (other, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    let text = String::from_utf8(bytes).map_err(|_| "the query is not UTF-8".to_owned())?;
    // Pages link to names of programs, which can contain line feeds.
    match text.contains(|c: char| c.is_control() && c != '\n') {
        true => Err("the query contains control characters".to_owned()),
        false => Ok(text),
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Appends a percent-encoded value.
pub(in crate::export) fn encode(value: &str, out: &mut String) {
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b'*' => {
                out.push(byte.into());
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
}
