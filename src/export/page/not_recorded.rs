//! Texts about kinds of profiles that are not recorded, and the lines of the configuration that record them.

/// Message of pages without any kind of profile.
pub(in crate::export) const NO_KINDS: &str = "no profiles are recorded: `profiles` is empty in the configuration, or no entry could be \
                                              opened (see /status)";

/// Kind of profile that the built-in configuration does not record.
pub(in crate::export) const OFF_CPU: &str = "off_cpu";

/// Section of the configuration that records CPU time and waits.
pub(in crate::export) const SECTION: &str = "profiles:
  cpu:     {event: cpu-clock, frequency: 19}
  off_cpu: {threshold: 1ms}
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn the_lines_are_a_configuration_that_records_waits() {
        let (config, warnings) = config::load(SECTION.as_bytes(), "profiles.yaml").unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let names: Vec<_> = config.profiles.iter().map(|entry| entry.name.to_string()).collect();
        assert_eq!(names, ["cpu", OFF_CPU]);
    }
}
