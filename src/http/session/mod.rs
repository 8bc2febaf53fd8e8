//! `/session`: a key is shown once, and a browser keeps what it got for it where no script reaches it.

mod cookies;
mod session_body;
mod show;
mod sign_in;
mod sign_in_body;
mod sign_out;

pub(super) use cookies::{CookieNames, SESSION_COOKIE};
pub(super) use show::{__path_show, show};
pub(super) use sign_in::{__path_sign_in, sign_in};
pub(super) use sign_out::{__path_sign_out, sign_out};
