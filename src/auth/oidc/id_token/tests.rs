//! Every check of an ID token, each with a token that only this check refuses.

use std::time::{Duration, SystemTime};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::KeyPair;
use serde_json::{Value, json};

use super::{Claims, IdToken, RefusalClass, Verification, VerifiedToken};
use crate::auth::oidc::key_set::KeySet;

#[path = "../../../../tests/it/support/signer.rs"]
mod signer;
use signer::Signer;

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "https://locks.example";
/// The time of the tests, in seconds since 1970.
const NOW: u64 = 1_795_176_000;

fn keys(signer: &Signer) -> KeySet {
    KeySet::parse(signer.jwks().to_string().as_bytes()).unwrap()
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "repo:acme/web", "iat": NOW - 10, "exp": NOW + 300})
}

fn with(field: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[field] = value;
    claims
}

fn without(field: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(field);
    claims
}

/// The outcome of a verification: the claims, or the class of the refusal; `None` for an unknown `kid`.
type Outcome = Result<Option<VerifiedToken>, RefusalClass>;

fn verify(signer: &Signer, token: &str) -> Outcome {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    let class = |refusal: super::TokenRefusal| {
        assert!(!refusal.to_string().contains("eyJ"), "{refusal}");
        refusal.class
    };
    let verified = IdToken::parse(token).map_err(class)?;
    match verified
        .verify(&keys(signer), ISSUER, AUDIENCE, now)
        .map_err(class)?
    {
        Verification::Verified(token) => Ok(Some(token)),
        Verification::UnknownKid => Ok(None),
    }
}

fn with_header(header: &Value) -> Outcome {
    let signer = Signer::new("e");
    verify(&signer, &signer.sign(header, &claims().to_string()))
}

fn with_claims(claims: &Value) -> Outcome {
    let signer = Signer::new("e");
    verify(
        &signer,
        &signer.sign(&json!({"alg": "ES256", "kid": "e"}), &claims.to_string()),
    )
}

fn accepts(outcome: Outcome) -> Claims {
    outcome.unwrap().expect("the kid is known").claims
}

fn refused(outcome: Outcome) -> RefusalClass {
    outcome.unwrap_err()
}

#[test]
fn tokens_with_rs256_and_es256_are_verified() {
    for header in [
        json!({"alg": "RS256", "kid": "r", "typ": "JWT"}),
        json!({"alg": "ES256", "kid": "e", "x5t": "AAAA"}),
        json!({"alg": "RS256"}),
        json!({"alg": "ES256"}),
    ] {
        let token = with_header(&header).unwrap().unwrap();
        assert_eq!(token.subject, "repo:acme/web");
        assert_eq!(Value::Object(token.claims), claims());
    }
}

#[test]
fn no_other_algorithm_is_verified() {
    for (alg, class) in [
        ("none", RefusalClass::Malformed),
        ("None", RefusalClass::Malformed),
        ("HS256", RefusalClass::Signature),
        ("RS512", RefusalClass::Signature),
        ("PS256", RefusalClass::Signature),
        ("ES384", RefusalClass::Signature),
        ("EdDSA", RefusalClass::Signature),
    ] {
        assert_eq!(
            refused(with_header(&json!({"alg": alg, "kid": "r"}))),
            class,
            "{alg}"
        );
    }
}

#[test]
fn the_public_key_is_no_secret_of_an_hmac() {
    let signer = Signer::new("e");
    let message = signer.sign(&json!({"alg": "HS256", "kid": "r"}), &claims().to_string());
    let public: ring::rsa::PublicKeyComponents<Vec<u8>> = signer.rsa.public().into();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &public.n);
    let tag = ring::hmac::sign(&key, message.trim_end_matches('.').as_bytes());
    let token = format!("{message}{}", URL_SAFE_NO_PAD.encode(tag));
    assert_eq!(refused(verify(&signer, &token)), RefusalClass::Signature);
}

#[test]
fn the_header_does_not_choose_the_algorithm_of_a_key() {
    for header in [
        json!({"alg": "RS256", "kid": "e"}),
        json!({"alg": "ES256", "kid": "r"}),
    ] {
        assert_eq!(refused(with_header(&header)), RefusalClass::Signature);
    }
}

#[test]
fn a_token_names_no_key_of_its_own() {
    let signer = Signer::new("e");
    let point = signer.ec.public_key().as_ref();
    let part = |range| URL_SAFE_NO_PAD.encode(&point[range]);
    let own = json!({"kty": "EC", "crv": "P-256", "x": part(1..33), "y": part(33..65)});
    for (field, value) in [
        ("jku", json!("https://evil.example/keys")),
        ("jwk", own),
        ("x5u", json!("https://evil.example/certificate")),
        ("x5c", json!(["AAAA"])),
        ("crit", json!(["exp"])),
        ("zip", json!("DEF")),
        ("enc", json!("A128GCM")),
    ] {
        let mut header = json!({"alg": "ES256", "kid": "e"});
        header[field] = value;
        assert_eq!(
            refused(with_header(&header)),
            RefusalClass::Malformed,
            "{field}"
        );
    }
}

#[test]
fn a_signature_of_another_key_or_of_another_text_is_refused() {
    let [one, other] = [(); 2].map(|()| Signer::new("e"));
    let header = json!({"alg": "ES256", "kid": "e"});
    let token = one.sign(&header, &claims().to_string());
    assert_eq!(refused(verify(&other, &token)), RefusalClass::Signature);
    let (message, signature) = token.rsplit_once('.').unwrap();
    let (head, _) = message.split_once('.').unwrap();
    let evil = URL_SAFE_NO_PAD.encode(with("sub", json!("repo:evil/web")).to_string());
    for token in [
        format!("{head}.{evil}.{signature}"),
        format!("{message}."),
        format!("{message}.AAAA"),
        format!("{message}.{}", &signature[..signature.len() - 2]),
    ] {
        assert_eq!(refused(verify(&one, &token)), RefusalClass::Signature);
    }
}

#[test]
fn a_token_of_another_type_is_no_id_token() {
    for typ in ["at+jwt", "logout+jwt", "JWE", ""] {
        let outcome = with_header(&json!({"alg": "ES256", "kid": "e", "typ": typ}));
        assert_eq!(refused(outcome), RefusalClass::Malformed, "{typ}");
    }
    accepts(with_header(
        &json!({"alg": "ES256", "kid": "e", "typ": "jwt"}),
    ));
}

#[test]
fn without_a_kid_a_failed_signature_may_be_of_a_new_key() {
    let [one, other] = [(); 2].map(|()| Signer::new("e"));
    let token = one.sign(&json!({"alg": "ES256"}), &claims().to_string());
    assert!(verify(&one, &token).unwrap().is_some());
    assert!(verify(&other, &token).unwrap().is_none());
}

#[test]
fn an_unknown_kid_is_told_apart_because_the_issuer_may_have_a_new_key() {
    assert!(
        with_header(&json!({"alg": "ES256", "kid": "new"}))
            .unwrap()
            .is_none()
    );
}

#[test]
fn the_issuer_is_compared_byte_for_byte() {
    assert!(with_claims(&claims()).is_ok());
    for issuer in [
        json!("https://issuer.example/"),
        json!("https://ISSUER.example"),
        json!("issuer.example"),
    ] {
        assert_eq!(
            refused(with_claims(&with("iss", issuer))),
            RefusalClass::NoKeyMatches
        );
    }
    for bad in [with("iss", json!([ISSUER])), without("iss")] {
        assert_eq!(refused(with_claims(&bad)), RefusalClass::Malformed);
    }
}

#[test]
fn a_claim_that_stands_twice_is_refused() {
    let signer = Signer::new("e");
    let twice = claims()
        .to_string()
        .replacen('{', r#"{"iss": "https://issuer.example", "#, 1);
    let token = signer.sign(&json!({"alg": "ES256", "kid": "e"}), &twice);
    assert_eq!(refused(verify(&signer, &token)), RefusalClass::Malformed);
}

#[test]
fn the_audience_has_ours() {
    accepts(with_claims(&with("aud", json!(["other", AUDIENCE]))));
    for audience in [
        json!("https://other.example"),
        json!(format!("{AUDIENCE}/")),
        json!([]),
        json!([[AUDIENCE]]),
        json!({AUDIENCE: true}),
        json!(null),
    ] {
        assert_eq!(
            refused(with_claims(&with("aud", audience))),
            RefusalClass::NoKeyMatches
        );
    }
    assert_eq!(
        refused(with_claims(&without("aud"))),
        RefusalClass::NoKeyMatches
    );
}

#[test]
fn the_times_are_there_and_are_numbers() {
    for name in ["exp", "iat"] {
        assert_eq!(
            refused(with_claims(&without(name))),
            RefusalClass::Malformed,
            "{name}"
        );
    }
    for name in ["exp", "iat", "nbf"] {
        for value in [
            json!(NOW.to_string()),
            json!(-1),
            json!(null),
            json!([NOW]),
            json!(true),
        ] {
            let outcome = with_claims(&with(name, value.clone()));
            assert_eq!(refused(outcome), RefusalClass::Malformed, "{name} {value}");
        }
    }
    accepts(with_claims(&with("exp", json!(NOW as f64 + 0.5))));
}

#[test]
fn clocks_may_differ_by_a_minute() {
    for (name, fits, misfits) in [
        ("exp", NOW - 59, NOW - 60),
        ("iat", NOW + 60, NOW + 61),
        ("nbf", NOW + 60, NOW + 61),
        ("iat", NOW - 24 * 3_600, NOW - 24 * 3_600 - 61),
    ] {
        accepts(with_claims(&with(name, json!(fits))));
        assert_eq!(
            refused(with_claims(&with(name, json!(misfits)))),
            RefusalClass::Time,
            "{name}"
        );
    }
}

#[test]
fn a_clock_that_is_wrong_by_a_day_is_named() {
    let signer = Signer::new("e");
    let token = signer.sign(&json!({"alg": "ES256"}), &claims().to_string());
    for (now, text) in [
        (NOW - 86_400, "its iat is ahead by 86390 s"),
        (NOW + 86_400, "its exp is over by 86100 s"),
    ] {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now);
        let parsed = IdToken::parse(&token).unwrap();
        let Err(refusal) = parsed.verify(&keys(&signer), ISSUER, AUDIENCE, now) else {
            panic!("accepted")
        };
        assert!(refusal.reason.starts_with(text), "{refusal}");
        assert!(
            refusal.reason.contains("by the clock of this gateway"),
            "{refusal}"
        );
    }
}

#[test]
fn the_subject_is_a_text() {
    for subject in [
        json!(""),
        json!(7),
        json!(null),
        json!("x".repeat(513)),
        json!("a\0b"),
    ] {
        assert_eq!(
            refused(with_claims(&with("sub", subject))),
            RefusalClass::Malformed
        );
    }
    assert_eq!(
        refused(with_claims(&without("sub"))),
        RefusalClass::Malformed
    );
}

#[test]
fn size_depth_and_number_of_claims_are_bounded() {
    assert_eq!(
        refused(with_claims(&with("x", json!("x".repeat(13_000))))),
        RefusalClass::Malformed
    );
    accepts(with_claims(&with("x", json!("x".repeat(10_000)))));
    let deep = |depth| (0..depth).fold(json!(1), |value, _| json!([value]));
    accepts(with_claims(&with("x", deep(8))));
    assert_eq!(
        refused(with_claims(&with("x", deep(10)))),
        RefusalClass::Malformed
    );
    assert_eq!(
        refused(with_claims(&with("x", deep(1_000)))),
        RefusalClass::Malformed
    );
    let mut many = claims();
    (0..95).for_each(|number| many[number.to_string()] = json!(1));
    accepts(with_claims(&many));
    many["one more"] = json!(1);
    assert_eq!(refused(with_claims(&many)), RefusalClass::Malformed);
}

#[test]
fn any_other_text_is_malformed() {
    for text in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "eyJ.eyJ.eyJ",
        "lgk_x",
        "e30.e30.",
        "e30.e30.e30.e30",
        "\u{e4}.b.c",
    ] {
        assert_eq!(
            IdToken::parse(text).unwrap_err().class,
            RefusalClass::Malformed,
            "{text}"
        );
    }
}

#[test]
fn a_text_with_a_token_in_it_is_recognized() {
    let signer = Signer::new("e");
    let token = signer.sign(&json!({"alg": "ES256"}), &claims().to_string());
    for text in [
        token.clone(),
        format!("x {token} y"),
        format!("a.b {token}"),
        format!("req:{token}"),
    ] {
        assert!(IdToken::is_in(&text), "{text}");
    }
    for text in ["", "eyJ", "eyJ.a", "acme.web", "a.eyJ", "deploy.eyes.eyJa"] {
        assert!(!IdToken::is_in(text), "{text}");
    }
    assert_eq!(
        format!("{:?}", IdToken::parse(&token).unwrap()),
        "IdToken(..)"
    );
}
