//! The JSON schema of the configuration file, for editors and other programs.

use schemars::generate::SchemaSettings;
use serde_json::Value as Json;

use super::BUILT_IN;
use super::file::File;

/// Returns the schema of the configuration file (JSON Schema, draft 2020-12), with the built-in values as defaults.
pub fn schema() -> Json {
    let mut schema =
        SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<File>().to_value();
    let built_in: Json = serde_yaml::from_str(BUILT_IN).unwrap_or_default();
    let sections = built_in.as_object().into_iter().flatten();
    for (section, value) in sections.filter(|(section, _)| *section != "counters") {
        let definition = match definition(&schema, section) {
            Some(name) => format!("/$defs/{name}/properties"),
            None => {
                set_default(&mut schema, &format!("/properties/{section}"), value);
                continue;
            }
        };
        for (key, value) in value.as_object().into_iter().flatten() {
            set_default(&mut schema, &format!("{definition}/{key}"), value);
        }
    }
    schema
}

fn set_default(schema: &mut Json, pointer: &str, value: &Json) {
    if let Some(property) = schema.pointer_mut(pointer).and_then(Json::as_object_mut) {
        property.insert("default".into(), value.clone());
    }
}

/// Returns the name of the definition that a section refers to, if the section is not a single value.
fn definition(schema: &Json, section: &str) -> Option<String> {
    let reference = schema.pointer(&format!("/properties/{section}/anyOf/0/$ref"))?.as_str()?;
    reference.strip_prefix("#/$defs/").map(str::to_owned)
}
