//! The resource that identifies this exporter in all pushed data.
//!
//! If a key has several sources, the one with the highest precedence applies. From lowest to highest:
//!
//! 1. detected values: `service.name` (`perf-exporter`), `service.version`, `service.instance.id`, `host.*` and `os.*` below the
//!    host's roots, `telemetry.sdk.*`;
//! 2. `NODE_NAME` or `K8S_NODE_NAME` of the environment, as `k8s.node.name`;
//! 3. `OTEL_RESOURCE_ATTRIBUTES`;
//! 4. `OTEL_SERVICE_NAME`;
//! 5. the configuration.
//!
//! Keys: <https://opentelemetry.io/docs/specs/semconv/resource/>.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::path::Path;

use opentelemetry::Value;

use super::attribute::{Attribute, Resource, Scalar};
use crate::host::{Roots, read_text};

/// Service name of the SDK if none is configured.
const UNKNOWN: &str = "unknown_service";

/// Maximum length of a value from a file or a variable, in bytes.
const LONGEST: usize = 1024;

/// Paths of the machine ID (machine-id(5)), below the root of the host.
const MACHINE_ID: [&str; 2] = ["etc/machine-id", "var/lib/dbus/machine-id"];

/// Paths of the distribution description (os-release(5)).
const OS_RELEASE: [&str; 2] = ["etc/os-release", "usr/lib/os-release"];

/// Detects the resource of this process, from the machine below `roots`, the environment, and the configured attributes `given`. Values
/// that cannot be read are omitted.
pub fn detect(roots: &Roots, given: &BTreeMap<String, String>) -> Resource {
    let detected = opentelemetry_sdk::Resource::builder().build();
    let environment = |name: &str| std::env::var(name).ok();
    describe(roots, &detected, environment, given)
}

/// Returns the name of this node: that of the environment, or the host name.
pub fn node_name(roots: &Roots) -> String {
    let resource = detect(roots, &BTreeMap::new());
    let name = ["k8s.node.name", "host.name"].iter().find_map(|key| resource.text(key));
    name.unwrap_or("unknown").to_owned()
}

/// Does the same for a given environment: `detected` is the SDK's resource from it, `environment` has the other variables.
pub fn describe(
    roots: &Roots,
    detected: &opentelemetry_sdk::Resource,
    environment: impl Fn(&str) -> Option<String>,
    given: &BTreeMap<String, String>,
) -> Resource {
    let set = |name: &str| environment(name).as_deref().and_then(bounded);
    let node = set("NODE_NAME").or_else(|| set("K8S_NODE_NAME"));
    let service = set("OTEL_SERVICE_NAME");
    found(roots)
        .with(node.map(|node| Attribute::text("k8s.node.name", node)))
        .with(detected.iter().filter_map(|(key, value)| of_sdk(key.as_str(), value)))
        .with(service.map(|service| Attribute::text("service.name", service)))
        .with(given.iter().map(|(key, value)| Attribute::text(key.clone(), &**value)))
}

/// Detects attributes of the machine and the program.
fn found(roots: &Roots) -> Resource {
    let kernel = |name: &str| value_of(&roots.proc.join("sys/kernel").join(name));
    let id = first(roots, &MACHINE_ID).and_then(|text| bounded(&text));
    let name = roots.host_name().and_then(|name| bounded(&name));
    let release = first(roots, &OS_RELEASE).unwrap_or_default();
    // Stable on one machine, so that series continue after a restart of the exporter.
    let instance = id.clone().or_else(|| name.clone()).or_else(|| kernel("random/uuid"));
    let described = match (field(&release, "PRETTY_NAME"), kernel("osrelease")) {
        (Some(system), Some(kernel)) => Some(format!("{system} (Linux {kernel})")),
        (system, kernel) => system.or_else(|| kernel.map(|kernel| format!("Linux {kernel}"))),
    };
    let texts = [
        ("host.arch", Some(architecture().to_owned())),
        ("host.id", id),
        ("host.name", name),
        ("os.description", described),
        ("os.name", field(&release, "NAME")),
        ("os.type", Some("linux".to_owned())),
        ("os.version", field(&release, "VERSION_ID")),
        ("service.instance.id", instance),
        ("service.name", Some(env!("CARGO_PKG_NAME").to_owned())),
        ("service.version", Some(env!("CARGO_PKG_VERSION").to_owned())),
    ];
    Resource::new(texts.into_iter().filter_map(|(key, value)| Some(Attribute::text(key, value?))))
}

/// Returns the architecture in the words of the semantic conventions.
fn architecture() -> &'static str {
    match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "arm" => "arm32",
        "powerpc64" => "ppc64",
        "powerpc" => "ppc32",
        other => other,
    }
}

/// Returns the content of the first readable file.
fn first(roots: &Roots, paths: &[&str]) -> Option<String> {
    paths.iter().find_map(|path| read_text(&roots.mounted(path)).ok())
}

/// Returns the content of a one-line file.
fn value_of(path: &Path) -> Option<String> {
    bounded(&read_text(path).ok()?)
}

/// Returns the text without surrounding whitespace; `None` if it is empty or too long.
fn bounded(text: &str) -> Option<String> {
    let text = text.trim();
    (1..=LONGEST).contains(&text.len()).then(|| text.to_owned())
}

/// Returns the value of a variable in os-release(5), which is quoted as in a shell.
fn field(release: &str, name: &str) -> Option<String> {
    let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?.trim();
    let quoted = ['"', '\''].iter().find_map(|&quote| value.strip_prefix(quote)?.strip_suffix(quote));
    bounded(&quoted.unwrap_or(value).replace('\\', ""))
}

/// Converts an attribute of the SDK. The name of an unnamed service is dropped.
fn of_sdk(key: &str, value: &Value) -> Option<Attribute> {
    let value = match value {
        Value::Bool(value) => Scalar::Bool(*value),
        Value::I64(value) => Scalar::Integer(*value),
        other => Scalar::Text(bounded(&other.as_str())?.into()),
    };
    let unknown = matches!(&value, Scalar::Text(name) if key == "service.name" && name.starts_with(UNKNOWN));
    (!unknown).then(|| Attribute { key: key.to_owned().into(), value })
}

#[cfg(test)]
mod tests {
    use opentelemetry::KeyValue;

    use super::*;

    /// Creates a host directory with these files.
    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let roots = Roots::under(dir.path());
        (dir, roots)
    }

    fn sdk(attributes: &[(&'static str, &'static str)]) -> opentelemetry_sdk::Resource {
        let attributes = attributes.iter().map(|&(key, value)| KeyValue::new(key, value));
        opentelemetry_sdk::Resource::builder_empty().with_attributes(attributes).build()
    }

    fn text<'r>(resource: &'r Resource, key: &str) -> Option<&'r str> {
        match resource.get(key)? {
            Scalar::Text(text) => Some(text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_machine_is_described_by_its_files() {
        let (_dir, roots) = host(&[
            ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
            ("etc/hostname", "node-17\n"),
            ("proc/sys/kernel/hostname", "exporter-x7\n"),
            ("proc/sys/kernel/osrelease", "6.12.9-amd64\n"),
            ("etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12\"\nNAME='Debian'\nVERSION_ID=12\n"),
        ]);
        let resource = describe(&roots, &sdk(&[]), |_| None, &BTreeMap::new());
        for (key, expected) in [
            ("host.id", "0123456789abcdef0123456789abcdef"),
            ("host.name", "node-17"),
            ("os.type", "linux"),
            ("os.name", "Debian"),
            ("os.version", "12"),
            ("os.description", "Debian GNU/Linux 12 (Linux 6.12.9-amd64)"),
            ("service.name", "perf-exporter"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("service.instance.id", "0123456789abcdef0123456789abcdef"),
        ] {
            assert_eq!(text(&resource, key), Some(expected), "{key}");
        }
        assert_eq!(text(&resource, "k8s.node.name"), None);
    }

    #[test]
    fn what_is_not_known_is_left_out_and_an_instance_is_told_by_what_there_is() {
        let (_dir, roots) = host(&[("proc/sys/kernel/hostname", "x7\n"), ("etc/machine-id", " \n")]);
        let resource = describe(&roots, &sdk(&[]), |_| None, &BTreeMap::new());
        assert_eq!(text(&resource, "service.instance.id"), Some("x7"));
        for absent in ["host.id", "os.name", "os.version", "os.description"] {
            assert_eq!(resource.get(absent), None, "{absent}");
        }
        let (_dir, roots) =
            host(&[("proc/sys/kernel/random/uuid", "6f9619ff-8b86-4011-b42d-00c04fc964ff\n")]);
        let resource = describe(&roots, &sdk(&[]), |_| None, &BTreeMap::new());
        assert_eq!(text(&resource, "service.instance.id"), Some("6f9619ff-8b86-4011-b42d-00c04fc964ff"));
    }

    #[test]
    fn the_configuration_is_stronger_than_the_environment_and_that_than_what_is_found() {
        let (_dir, roots) = host(&[("etc/hostname", "found\n")]);
        let given = BTreeMap::from([("deployment.environment.name".to_owned(), "given".to_owned())]);
        let environment = |name: &str| match name {
            "NODE_NAME" => Some("node".to_owned()),
            "OTEL_SERVICE_NAME" => Some("named".to_owned()),
            _ => None,
        };
        let detected = sdk(&[
            ("service.name", "listed"),
            ("host.name", "listed"),
            ("deployment.environment.name", "listed"),
        ]);
        let resource = describe(&roots, &detected, environment, &given);
        assert_eq!(text(&resource, "service.name"), Some("named"));
        assert_eq!(text(&resource, "host.name"), Some("listed"));
        assert_eq!(text(&resource, "deployment.environment.name"), Some("given"));
        assert_eq!(text(&resource, "k8s.node.name"), Some("node"));
        let listed = sdk(&[("k8s.node.name", "listed"), ("service.name", "listed")]);
        let given = BTreeMap::from([("service.name".to_owned(), "given".to_owned())]);
        let resource = describe(&roots, &listed, environment, &given);
        assert_eq!(text(&resource, "k8s.node.name"), Some("listed"));
        assert_eq!(text(&resource, "service.name"), Some("given"));
    }

    #[test]
    fn a_service_that_the_sdk_does_not_know_keeps_our_name_and_values_keep_their_types() {
        let (_dir, roots) = host(&[]);
        let detected = opentelemetry_sdk::Resource::builder_empty()
            .with_attributes([
                KeyValue::new("service.name", "unknown_service:perf-exporter"),
                KeyValue::new("flag", true),
                KeyValue::new("number", 7),
                KeyValue::new("long", "x".repeat(5_000)),
            ])
            .build();
        let resource = describe(&roots, &detected, |_| None, &BTreeMap::new());
        assert_eq!(text(&resource, "service.name"), Some("perf-exporter"));
        assert_eq!(resource.get("flag"), Some(&Scalar::Bool(true)));
        assert_eq!(resource.get("number"), Some(&Scalar::Integer(7)));
        assert_eq!(resource.get("long"), None);
    }

    #[test]
    fn the_real_detectors_say_what_pushes() {
        let resource = detect(&Roots::default(), &BTreeMap::new());
        assert_eq!(text(&resource, "telemetry.sdk.language"), Some("rust"));
        assert!(text(&resource, "service.instance.id").is_some());
    }
}
