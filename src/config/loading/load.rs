//! Puts the configuration together: default, then file, then environment, then flags.

use std::{collections::BTreeMap, ffi::OsString, fmt, path::PathBuf};

use super::{
    super::{
        Config, ConfigError, Invalid, Key, Source, StoreUrl, closest::closest, error::RefusedValue,
    },
    environment, file,
    setting::Setting,
};

/// Who may set something, from the weakest to the strongest.
#[derive(Clone, Default)]
pub struct Sources {
    /// The environment, all of it.
    pub variables: Vec<(OsString, OsString)>,
    /// The file that `--config` names. Without it `LATCHGATE_CONFIG` may name one.
    pub file: Option<PathBuf>,
    /// What flags set: the key, the flag's name and the text given with it.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

/// A valid configuration, and who set what in it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Every key that somebody set, with its value as it may be shown.
    pub set: Vec<(String, String, Source)>,
}

// === impl Sources ===

impl fmt::Debug for Sources {
    /// Names alone: the values may hold passwords.
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
    /// Reads every source and checks the outcome.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let keys = Key::all();
        let mut settings = match self.file() {
            Some((path, named_by)) if path.as_os_str().is_empty() => {
                return Err(ConfigError::NoFileName(named_by));
            }
            Some((path, named_by)) => file::read(&path, named_by)?,
            None => Vec::new(),
        };
        settings.extend(environment::read(&self.variables, &keys)?);
        settings.extend(self.flags(&keys));
        for setting in &settings {
            check(setting, &keys)?;
        }
        // Later settings replace earlier ones of the same key.
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
                // It was read, so password and rest can be told apart.
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
            .find(|(name, _)| name == environment::CONFIG_FILE)?;
        let source = Source::Variable(environment::CONFIG_FILE.to_owned());
        Some((PathBuf::from(&named.1), source))
    }

    fn flags(&self, keys: &[Key]) -> Vec<Setting> {
        let setting = |(path, flag, text): &(&'static str, &'static str, String)| {
            let key = keys.iter().find(|key| key.path == *path);
            let key = key.expect("a flag sets a key that exists");
            Setting {
                path: key.path.clone(),
                value: key
                    .kind
                    .read(text)
                    .unwrap_or_else(|| toml::Value::String(text.clone())),
                source: Source::Flag(flag),
            }
        };
        self.flags.iter().map(setting).collect()
    }
}

/// Whether the key exists and its value has the right type.
fn check(setting: &Setting, keys: &[Key]) -> Result<(), ConfigError> {
    let table = format!("{}.", setting.path);
    let empty = |value: &toml::Value| value.as_table().is_some_and(toml::Table::is_empty);
    match keys.iter().find(|key| key.path == setting.path) {
        Some(key) if key.kind.takes(&setting.value) => Ok(()),
        Some(key) => Err(refuse(setting, key.kind.allowed())),
        // A table's header without a key under it.
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
        // An element of a list is named behind the list.
        let path = error.path().to_string();
        let setting = settings.get(path.split('[').next().unwrap_or_default());
        let setting = setting.expect("names and types were checked, so a value was refused");
        refuse(setting, expected(setting, error.inner()))
    })
}

/// What the type of a value says against it. The error repeats no value of ours: the two types that
/// check more than their type do not.
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
