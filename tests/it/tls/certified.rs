//! A gateway over TLS.

use crate::support::{
    Authority, Files,
    gateway::{Gateway, Setup},
    spawn,
};

/// A gateway over TLS, and who signed its certificate.
pub(crate) struct Certified {
    pub(crate) authority: Authority,
    pub(crate) files: Files,
    pub(crate) gateway: Gateway,
}

// === impl Certified ===

impl Certified {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| Setup::default())
    }

    /// Starts one with further variables.
    pub(crate) fn start_with(setup: impl FnOnce(&Authority) -> Setup) -> Self {
        let authority = Authority::new();
        let files = authority.of_this_machine();
        let setup = setup(&authority);
        Self::of(authority, files, setup)
    }

    /// Starts one with these files.
    pub(crate) fn of(authority: Authority, files: Files, setup: Setup) -> Self {
        let setup = setup
            .with("LATCHGATE_HTTP_TLS_CERT_FILE", &files.certificate())
            .with("LATCHGATE_HTTP_TLS_KEY_FILE", &files.key());
        Self {
            gateway: Gateway::start_with(setup),
            authority,
            files,
        }
    }

    /// Its address by a name.
    pub(crate) fn named_url(&self) -> String {
        format!("https://localhost:{}", self.gateway.address.port())
    }

    /// What curl makes of a path: its output, and what it says of the answer.
    pub(crate) fn curl(&self, arguments: &[&str], path: &str) -> Curled {
        let output = spawn::command("curl")
            .args(["--silent", "--show-error", "--max-time", "20"])
            .args(["--cacert", &self.authority.file()])
            .args(["--write-out", "\n%{http_code} %{http_version}"])
            .args(arguments)
            .arg(self.gateway.url() + path)
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let (body, end) = out.rsplit_once('\n').unwrap();
        let (status, version) = end.split_once(' ').unwrap();
        Curled {
            code: output.status.code(),
            status: status.parse().unwrap(),
            version: version.to_owned(),
            body: body.to_owned(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// What curl came to.
#[derive(Debug)]
pub(crate) struct Curled {
    pub(crate) code: Option<i32>,
    pub(crate) status: u16,
    pub(crate) version: String,
    pub(crate) body: String,
    pub(crate) err: String,
}

// === impl Curled ===

impl Curled {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
