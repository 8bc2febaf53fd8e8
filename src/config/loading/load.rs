//! Loads the configuration. Flags override environment variables, variables override the file, and the file overrides
//! the defaults.

use std::{collections::BTreeMap, ffi::OsString, fmt, path::PathBuf};

use super::{
    super::{
        Config, ConfigError, Invalid, Key, Source, StoreUrl, error::RefusedValue, error::closest,
    },
    file::{self, Setting},
};

/// The sources of settings that override the defaults.
#[derive(Clone, Default)]
pub struct Sources {
    /// All environment variables of the process.
    pub variables: Vec<(OsString, OsString)>,
    /// The configuration file that `--config` names. Without the flag, `LATCHGATE_CONFIG` may name a file.
    pub file: Option<PathBuf>,
    /// The settings that flags make: for each the key, the name of the flag and its text.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

/// A valid configuration, with the source of each setting.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The valid configuration.
    pub config: Config,
    /// Every key that a source sets, with its value (without a password) and its source.
    pub set: Vec<(String, String, Source)>,
}

// === impl Sources ===

impl fmt::Debug for Sources {
    /// Shows the names of variables and flags only, because their values may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables = self.variables.iter().map(|(name, _)| name);
        f.debug_struct("Sources")
            .field("variables", &variables.collect::<Vec<_>>())
            .field("file", &self.file)
            .field(
                "flags",
                &self.flags.iter().map(|(key, ..)| key).collect::<Vec<_>>(),
            )
            .finish()
    }
}

impl Sources {
    /// Reads all sources, merges their settings and validates the configuration.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let keys = Key::all();
        let mut settings = match self.file() {
            Some((path, named_by)) if path.as_os_str().is_empty() => {
                return Err(ConfigError::NoFileName(named_by));
            }
            Some((path, named_by)) => file::read(&path, named_by)?,
            None => Vec::new(),
        };
        settings.extend(read_variables(&self.variables, &keys)?);
        settings.extend(self.flags(&keys));
        for setting in &settings {
            check(setting, &keys)?;
        }
        // Of several settings of one key, the last one counts.
        let settings: BTreeMap<_, _> = settings
            .into_iter()
            .map(|setting| (setting.path.clone(), setting))
            .collect();
        let config = build(&settings)?;
        if let (Some(login), Some(setting)) = (config.store.login(), settings.get("store"))
            && login.password.is_some()
            && let Source::Flag(_) = setting.source
        {
            let allowed = "a URL without a password, because every process of the machine can see \
                           an argument; name a file with the password in redis.password_file, or \
                           set LATCHGATE_STORE";
            return Err(refuse(setting, allowed.to_owned()));
        }
        config
            .validate()
            .map_err(|invalid| refused(invalid, &settings))?;
        let set = |key: &Key| {
            let setting = settings.get(&key.path)?;
            let displayed = match setting.path.as_str() {
                // A valid store URL masks its own password when it is displayed.
                "store" => format!("\"{}\"", config.store),
                _ => setting.displayed(),
            };
            Some((key.path.clone(), displayed, setting.source.clone()))
        };
        let set = keys.iter().filter_map(set).collect();
        let config = config.within_the_store();
        Ok(Loaded { config, set })
    }

    fn file(&self) -> Option<(PathBuf, Source)> {
        if let Some(path) = &self.file {
            return Some((path.clone(), Source::Flag("--config")));
        }
        let named = self
            .variables
            .iter()
            .find(|(name, _)| name == CONFIG_FILE)?;
        let source = Source::Variable(CONFIG_FILE.to_owned());
        Some((PathBuf::from(&named.1), source))
    }

    fn flags(&self, keys: &[Key]) -> Vec<Setting> {
        let setting = |(path, flag, text): &(&'static str, &'static str, String)| {
            let key = keys.iter().find(|key| key.path == *path);
            let key = key.expect("a flag sets a key that exists");
            key.setting(text, Source::Flag(flag))
        };
        self.flags.iter().map(setting).collect()
    }
}

/// Checks that the key of a setting exists, and that the value has the type of the key.
fn check(setting: &Setting, keys: &[Key]) -> Result<(), ConfigError> {
    let table = format!("{}.", setting.path);
    let empty = |value: &toml::Value| value.as_table().is_some_and(toml::Table::is_empty);
    match keys.iter().find(|key| key.path == setting.path) {
        Some(key) if key.kind.takes(&setting.value) => Ok(()),
        Some(key) => Err(refuse(setting, key.kind.allowed())),
        // The setting names a table instead of a key. An empty table (a header without keys) is allowed; any other
        // value is refused.
        None if keys.iter().any(|key| key.path.starts_with(&table)) => {
            if empty(&setting.value) {
                Ok(())
            } else {
                Err(refuse(setting, "a table".to_owned()))
            }
        }
        None => Err(ConfigError::UnknownKey {
            key: setting.path.clone(),
            set_by: setting.source.clone(),
            closest: closest(&setting.path, keys.iter().flat_map(Key::paths)),
        }),
    }
}

fn build(settings: &BTreeMap<String, Setting>) -> Result<Config, ConfigError> {
    let mut root = toml::Table::new();
    for setting in settings.values() {
        let value = setting.value.clone();
        let (tables, name) = setting.path.rsplit_once('.').unwrap_or(("", &setting.path));
        let mut table = &mut root;
        for inner in tables.split('.').filter(|inner| !inner.is_empty()) {
            let empty = || toml::Value::Table(toml::Table::new());
            let found = table.entry(inner).or_insert_with(empty).as_table_mut();
            table = found.expect("what does not fit a table's name was refused");
        }
        table.insert(name.to_owned(), value);
    }
    serde_path_to_error::deserialize(toml::Value::Table(root)).map_err(|error| {
        // The path of a list element in the error is the path of its list, followed by an index.
        let path = error.path().to_string();
        let setting = settings.get(path.split('[').next().unwrap_or_default());
        let setting = setting.expect("names and types were checked, so a value was refused");
        refuse(setting, expected(setting, error.inner()))
    })
}

/// Describes the allowed values for a setting that the type of its key refused. The text never contains the value: the
/// errors of the types that check a text (store, origins, hosts) do not repeat that text.
fn expected(setting: &Setting, error: &toml::de::Error) -> String {
    match (setting.path.as_str(), &setting.value) {
        ("listen", _) => "IP:PORT, such as 127.0.0.1:7420 or [::1]:7420".to_owned(),
        ("store", _) => format!("{} (this one {})", StoreUrl::FORMS, error.message()),
        _ => error.message().to_owned(),
    }
}

fn refuse(setting: &Setting, allowed: String) -> ConfigError {
    ConfigError::Refused(Box::new(RefusedValue {
        key: setting.path.clone(),
        value: setting.displayed(),
        set_by: setting.source.clone(),
        allowed,
        depends_on: None,
    }))
}

fn refused(invalid: Invalid, settings: &BTreeMap<String, Setting>) -> ConfigError {
    let source = |key: &str| {
        settings
            .get(key)
            .map_or(Source::Default, |found| found.source.clone())
    };
    ConfigError::Refused(Box::new(RefusedValue {
        set_by: source(invalid.key),
        depends_on: invalid.depends_on.map(|key| (key.to_owned(), source(key))),
        key: invalid.key.to_owned(),
        value: invalid.value,
        allowed: invalid.allowed,
    }))
}

// === Environment ===
//
// The environment variables that configure the gateway.

/// The environment variable that names the configuration file.
const CONFIG_FILE: &str = "LATCHGATE_CONFIG";

/// Variables with the prefix `LATCHGATE_` that are no settings of a gateway, but belong to client commands, to the
/// command of `latchgate run` or to a build. A gateway ignores them, because it may be started from the same shell.
const OF_OTHERS: [&str; 18] = [
    "LATCHGATE_URL",
    "LATCHGATE_KEY",
    "LATCHGATE_KEY_FILE",
    "LATCHGATE_ID_TOKEN",
    "LATCHGATE_ID_TOKEN_FILE",
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

/// Reads the settings of environment variables. An unknown variable with the prefix `LATCHGATE_` is refused, because
/// its name is most likely misspelt.
fn read_variables(
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
                settings.push(key.setting(text, source));
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

/// Whether Kubernetes has set the variable, so that it is no setting.
///
/// In every container Kubernetes sets variables for each Service of the namespace, which begin with the name of the
/// Service. If the name is `latchgate` or begins with `latchgate-`, the variables have the prefix of settings:
/// `.._SERVICE_HOST`, `.._SERVICE_PORT`, `.._SERVICE_PORT_HTTP`, `.._PORT`, `.._PORT_7420_TCP`,
/// `.._PORT_7420_TCP_ADDR`, ..
///
/// Kubernetes sets the plain `.._PORT` to a URL. If its value is a number, the variable is a mistaken attempt to set
/// the gateway's port, and is refused.
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
        read_variables(&[(name.into(), value.into())], &Key::all())
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
