//! Reads the environment variables that configure the gateway.

use std::ffi::OsString;

use super::{
    super::{ConfigError, Key, Source, closest::closest},
    setting::Setting,
};

/// The variable that names the configuration file.
pub(crate) const CONFIG_FILE: &str = "LATCHGATE_CONFIG";

/// Variables with our prefix that speak to the client commands, to the command of `latchgate run` or to a build, and
/// that a gateway therefore finds in its environment whenever both run in one shell.
const OF_OTHERS: [&str; 16] = [
    "LATCHGATE_URL",
    "LATCHGATE_KEY",
    "LATCHGATE_KEY_FILE",
    "LATCHGATE_TOKEN",
    "LATCHGATE_TOKEN_FILE",
    "LATCHGATE_IDEMPOTENCY_KEY",
    "LATCHGATE_IDEMPOTENCY_KEY_FILE",
    "LATCHGATE_NAME",
    "LATCHGATE_FENCING_TOKEN",
    "LATCHGATE_FENCING_TOKENS",
    "LATCHGATE_SLOT",
    "LATCHGATE_SLOTS",
    "LATCHGATE_CA_FILE",
    "LATCHGATE_CLIENT_CERT_FILE",
    "LATCHGATE_CLIENT_KEY_FILE",
    "LATCHGATE_COMMIT",
];

/// Reads what the environment sets. A variable with our prefix that is nobody's is refused: it is
/// most likely misspelt.
pub(crate) fn read(
    variables: &[(OsString, OsString)],
    keys: &[Key],
) -> Result<Vec<Setting>, ConfigError> {
    let mut settings = Vec::new();
    for (name, value) in variables {
        let name = name.to_string_lossy();
        if !name.starts_with("LATCHGATE_") || name == CONFIG_FILE {
            continue;
        }
        let source = Source::Variable(name.clone().into_owned());
        match keys.iter().find(|key| key.variable() == name) {
            Some(key) => {
                let text = value.to_str();
                let text = text.ok_or_else(|| ConfigError::NotUtf8(source.clone()))?;
                let as_text = || toml::Value::String(text.to_owned());
                settings.push(Setting {
                    path: key.path.clone(),
                    // What cannot be read is refused with all other values of a wrong type.
                    value: key.kind.read(text).unwrap_or_else(as_text),
                    source,
                });
            }
            None if OF_OTHERS.contains(&name.as_ref()) => {}
            None if is_from_kubernetes(&name, &value.to_string_lossy()) => {}
            None => {
                let known = keys
                    .iter()
                    .map(Key::variable)
                    .chain([CONFIG_FILE.to_owned()]);
                return Err(ConfigError::UnknownVariable {
                    closest: closest(&name, known),
                    name: name.into_owned(),
                });
            }
        }
    }
    Ok(settings)
}

/// Kubernetes tells every container of every Service in its namespace, in variables that begin with
/// the Service's name. For a Service called `latchgate`, or `latchgate-` and anything, those have
/// our prefix: `.._SERVICE_HOST`, `.._SERVICE_PORT`, `.._SERVICE_PORT_HTTP`, `.._PORT`,
/// `.._PORT_7420_TCP`, `.._PORT_7420_TCP_ADDR`, ..
///
/// The plain `.._PORT` is a URL there; as a number it is somebody who wants to set our port.
fn is_from_kubernetes(name: &str, value: &str) -> bool {
    let parts: Vec<&str> = name.split('_').collect();
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let is_protocol = |text: &str| matches!(text, "TCP" | "UDP" | "SCTP");
    match parts.as_slice() {
        [.., "SERVICE", "HOST" | "PORT"] => true,
        [.., "PORT", number, protocol]
        | [.., "PORT", number, protocol, "PROTO" | "PORT" | "ADDR"] => {
            is_port(number) && is_protocol(protocol)
        }
        [.., "PORT"] => value.contains("://"),
        parts => parts.windows(2).any(|pair| pair == ["SERVICE", "PORT"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(name: &str, value: &str) -> Result<Vec<Setting>, ConfigError> {
        read(&[(name.into(), value.into())], &Key::all())
    }

    #[test]
    fn a_variable_sets_the_key_it_is_named_after() {
        let settings = read_one("LATCHGATE_LIMITS_MIN_TTL_MS", "250").unwrap();
        assert_eq!(settings[0].path, "limits.min_ttl_ms");
        assert_eq!(settings[0].value, toml::Value::Integer(250));
    }

    #[test]
    fn a_misspelt_variable_is_refused_with_a_hint() {
        let error = read_one("LATCHGATE_LISTN", "127.0.0.1:1").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("LATCHGATE_LISTN"), "{text}");
        assert!(text.ends_with("did you mean LATCHGATE_LISTEN?"), "{text}");
    }

    #[test]
    fn what_belongs_to_others_is_left_alone() {
        let kubernetes = [
            ("LATCHGATE_SERVICE_HOST", "10.0.0.1"),
            ("LATCHGATE_SERVICE_PORT", "80"),
            ("LATCHGATE_SERVICE_PORT_HTTP", "80"),
            ("LATCHGATE_PORT", "tcp://10.0.0.1:80"),
            ("LATCHGATE_PORT_80_TCP", "tcp://10.0.0.1:80"),
            ("LATCHGATE_PORT_80_TCP_PROTO", "tcp"),
            ("LATCHGATE_PORT_80_TCP_PORT", "80"),
            ("LATCHGATE_PORT_80_TCP_ADDR", "10.0.0.1"),
            ("LATCHGATE_REDIS_SERVICE_HOST", "10.0.0.2"),
            ("LATCHGATE_REDIS_PORT_6379_TCP", "tcp://10.0.0.2:6379"),
        ];
        let ours = OF_OTHERS.map(|name| (name, "x"));
        for (name, value) in kubernetes.into_iter().chain(ours).chain([("PATH", "/bin")]) {
            assert!(read_one(name, value).unwrap().is_empty(), "{name}");
        }
    }

    #[test]
    fn a_port_number_is_not_mistaken_for_a_service() {
        assert!(read_one("LATCHGATE_PORT", "8080").is_err());
        assert!(read_one("LATCHGATE_PORT_HTTP", "8080").is_err());
    }
}
