//! `/session`: a key is shown once, and a browser keeps what it got for it where no script reaches it.

mod cookies;
mod routes;

pub(super) use cookies::{CookieNames, SESSION_COOKIE};
pub(super) use routes::{__path_show, __path_sign_in, __path_sign_out, show, sign_in, sign_out};
