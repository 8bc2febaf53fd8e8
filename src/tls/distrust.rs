//! Why the certificate of the other end is not believed, in words.

use std::{error::Error, io, net::IpAddr};

use rustls::CertificateError;

use super::named::is_authority;

/// Why the certificate of the other end is not believed, if that is behind an error. `setting` is what
/// names those who are.
pub fn distrust(error: &(dyn Error + 'static), setting: &str) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref() {
            return of_rustls(error, setting);
        }
        next = match error.downcast_ref::<io::Error>() {
            // It passes over what it was made of.
            Some(error) => error.get_ref().map(|cause| cause as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}

fn of_rustls(error: &rustls::Error, setting: &str) -> Option<String> {
    let rustls::Error::InvalidCertificate(why) = error else {
        return None;
    };
    if is_authority(error) {
        return Some(format!(
            "it is that of an authority, and {setting} does not name it"
        ));
    }
    Some(words(why, setting))
}

fn words(why: &CertificateError, setting: &str) -> String {
    let words = match why {
        CertificateError::BadEncoding => "it is damaged",
        CertificateError::Expired => "it has expired",
        CertificateError::ExpiredContext { time, not_after } => {
            let ago = time.as_secs().saturating_sub(not_after.as_secs());
            return format!("it expired {} ago", spoken(ago));
        }
        CertificateError::NotValidYet => "it is not valid yet, or the clock here is wrong",
        CertificateError::NotValidYetContext { time, not_before } => {
            let left = not_before.as_secs().saturating_sub(time.as_secs());
            return format!(
                "it is not valid for another {}, or the clock here is wrong",
                spoken(left)
            );
        }
        CertificateError::Revoked => "it was revoked",
        CertificateError::UnhandledCriticalExtension => "it demands what is not known here",
        CertificateError::UnknownIssuer => {
            return format!("nobody who is believed vouches for it; {setting} names who is");
        }
        CertificateError::BadSignature => {
            return format!(
                "it is not signed by whom it says, although {setting} may name one of that name"
            );
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it is signed in a way that is not known here"
        }
        CertificateError::NotValidForName => "it is for another name",
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => return wrong_name(&expected.to_str(), presented),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not for a server"
        }
        // What is left has no words of its own that anybody could read.
        _ => "it is not made as that of a server is",
    };
    words.to_owned()
}

/// `DnsName("a")` and `IpAddress(0::1)` are how names are given.
fn wrong_name(expected: &str, presented: &[String]) -> String {
    let names: Vec<_> = presented
        .iter()
        .filter_map(|name| name.split_once('(')?.1.strip_suffix(')'))
        .map(|name| name.trim_matches('"'))
        .map(|name| (name.parse::<IpAddr>()).map_or(name.to_owned(), |address| address.to_string()))
        .collect();
    if names.is_empty() {
        return format!("it is not for {expected}, and for no other name (subjectAltName)");
    }
    format!("it is not for {expected}, but for {}", names.join(", "))
}

/// A time in its largest unit.
fn spoken(seconds: u64) -> String {
    let units = [
        (86_400, "day"),
        (3_600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let (count, unit) = units
        .into_iter()
        .map(|(length, unit)| (seconds / length, unit))
        .find(|(count, _)| *count > 0)
        .unwrap_or((0, "second"));
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{end}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn is_said_in_words_and_never_as_a_dump() {
        let name = |presented: &[&str]| CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("locks.example").unwrap(),
            presented: presented.iter().map(|&name| name.to_owned()).collect(),
        };
        let (time, hour) = (at(1_000_000), 3_600);
        for (why, said) in [
            (
                CertificateError::ExpiredContext {
                    time,
                    not_after: at(1_000_000 - 49 * hour),
                },
                "it expired 2 days ago",
            ),
            (
                CertificateError::NotValidYetContext {
                    time,
                    not_before: at(1_000_000 + hour),
                },
                "it is not valid for another 1 hour, or the clock here is wrong",
            ),
            (
                name(&["DnsName(\"a\")", "IpAddress(0::1)"]),
                "it is not for locks.example, but for a, ::1",
            ),
            (
                name(&[]),
                "it is not for locks.example, and for no other name (subjectAltName)",
            ),
            (
                CertificateError::UnknownIssuer,
                "nobody who is believed vouches for it; --ca-file names who is",
            ),
            (
                CertificateError::Other(rustls::OtherError(std::sync::Arc::new(
                    webpki::Error::EmptyEkuExtension,
                ))),
                "it is not made as that of a server is",
            ),
        ] {
            let error = rustls::Error::InvalidCertificate(why);
            let wrapped = io::Error::other(io::Error::other(error));
            assert_eq!(distrust(&wrapped, "--ca-file").as_deref(), Some(said));
        }
        let other = io::Error::other(rustls::Error::DecryptError);
        assert_eq!(distrust(&other, "--ca-file"), None);
    }
}
