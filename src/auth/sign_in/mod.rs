//! People sign in to the page at an issuer, by the code flow of OpenID Connect with PKCE.
//!
//! `settings.rs` is `[sign_in]` of the keys file. `attempt.rs` is one attempt, which its browser keeps. `flow.rs` begins an
//! attempt, and exchanges its code for an ID token and that for a session. `code.rs` asks the issuer for the token.

mod attempt;
mod code;
mod flow;
mod settings;

pub use attempt::ATTEMPT_LIVES;
pub use flow::{SignInAnswer, SignInBegin, SignInError};
pub use settings::SignIn;
