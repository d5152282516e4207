//! Validator for the subset of JSON Schema that the configuration schema uses. Other keywords fail the test.

use serde_json::Value as Json;

/// Returns the violation of a document, or `None` if it is valid.
pub(super) fn fault(schema: &Json, document: &Json) -> Option<String> {
    check(schema, schema, document, "$").err()
}

/// Keywords without effect on validity, and `propertyNames`, which only contains the pattern of names.
const REMARKS: [&str; 8] =
    ["$schema", "$defs", "title", "description", "default", "examples", "format", "propertyNames"];

fn check(root: &Json, schema: &Json, value: &Json, at: &str) -> Result<(), String> {
    let keywords = schema.as_object().unwrap_or_else(|| panic!("{at}: no schema: {schema}"));
    for (keyword, argument) in keywords {
        let valid = match keyword.as_str() {
            "$ref" => check(root, root.pointer(&argument.as_str().unwrap()[1..]).unwrap(), value, at).is_ok(),
            "anyOf" | "oneOf" => {
                argument.as_array().unwrap().iter().any(|schema| check(root, schema, value, at).is_ok())
            }
            "type" => match argument {
                Json::Array(types) => types.iter().any(|word| is(value, word)),
                word => is(value, word),
            },
            "enum" => argument.as_array().unwrap().contains(value),
            "const" => argument == value,
            "minimum" => value.as_f64().is_none_or(|number| number >= argument.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= argument.as_f64().unwrap()),
            "pattern" => value.as_str().is_none_or(|text| matches_pattern(argument, text)),
            "required" => value.as_object().is_none_or(|map| {
                argument.as_array().unwrap().iter().all(|key| map.contains_key(key.as_str().unwrap()))
            }),
            "items" => {
                let mut items = value.as_array().into_iter().flatten();
                items.try_for_each(|item| check(root, argument, item, at))?;
                true
            }
            "properties" => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    if let Some(schema) = argument.get(key) {
                        check(root, schema, value, &format!("{at}.{key}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = |key: &String| schema["properties"].get(key).is_some();
                let mut others = value.as_object().into_iter().flatten().filter(|(key, _)| !known(key));
                match argument {
                    Json::Bool(false) => others.next().is_none(),
                    schema => others.all(|(_, value)| check(root, schema, value, at).is_ok()),
                }
            }
            other => {
                assert!(REMARKS.contains(&other), "{at}: the test does not know the keyword {other}");
                true
            }
        };
        if !valid {
            return Err(format!("{at}: {value} is not allowed by {keyword} {argument}"));
        }
    }
    Ok(())
}

fn is(value: &Json, word: &Json) -> bool {
    match word.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the test does not know the type {other}"),
    }
}

/// Matches the patterns of the schema without a regex library.
fn matches_pattern(pattern: &Json, text: &str) -> bool {
    match pattern.as_str().unwrap() {
        "^[0-9]+(ms|s|m|h)$" => {
            let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
            unit.len() < text.len() && ["ms", "s", "m", "h"].contains(&unit)
        }
        "^[0-9]+(KiB|MiB|GiB|Ki|Mi|Gi)$" => {
            let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
            unit.len() < text.len() && ["KiB", "MiB", "GiB", "Ki", "Mi", "Gi"].contains(&unit)
        }
        "^[0-9]+(-[0-9]+(:[0-9]+)?)?(,[0-9]+(-[0-9]+(:[0-9]+)?)?)*$" => {
            let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.split(',').all(|part| {
                part.split_once('-').map_or(number(part), |(first, rest)| {
                    let (last, step) = rest.split_once(':').unwrap_or((rest, "1"));
                    number(first) && number(last) && number(step)
                })
            })
        }
        "^([0-9]+(\\.[0-9]+)?%|off)$" => {
            let number = text.strip_suffix('%').is_some_and(|number| number.parse::<f64>().is_ok());
            number || text == "off"
        }
        "^0?[0-7]{1,3}$" => text.len() <= 4 && u32::from_str_radix(text, 8).is_ok_and(|mode| mode <= 0o777),
        "^(auto|off|(unix://)?/.*)$" => {
            ["auto", "off"].contains(&text) || text.strip_prefix("unix://").unwrap_or(text).starts_with('/')
        }
        "^[a-z_][a-z0-9_]*$" => {
            text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
                && !text.is_empty()
                && !text.as_bytes()[0].is_ascii_digit()
        }
        other => panic!("the test does not know the pattern {other}"),
    }
}
