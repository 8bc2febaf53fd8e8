//! Runs each decoder on mutations of valid inputs.

use super::{body, hunt::Hunt, name, reply, row, token};

#[test]
fn nothing_is_a_name_that_is_none() {
    let hunt = Hunt {
        decoder: name,
        seeds: &[
            b"deploy:prod:eu",
            b"..",
            b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        ],
        words: &[
            b".",
            b"/",
            b"{",
            b"%2e",
            "\u{e4}".as_bytes(),
            &[b'a'; 100],
            b"\0",
            b"\x9b",
        ],
    };
    println!("names: {}", hunt.run());
}

#[test]
fn no_body_is_taken_that_is_no_object() {
    let hunt = Hunt {
        decoder: body,
        seeds: &[
            b"",
            br#"{"ttl_ms": 30000, "wait_ms": 0, "max_hold_ms": 60000, "owner": "a", "metadata": {"a": "b"}}"#,
            br#"{"reason": "x", "fencing_token": 1795170000000042}"#,
            br#"{"token": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}"#,
        ],
        words: &[
            b"{", b"}", b"[", b"]", b",", b":", b"\"", b"null", b"true", b"-1", b"1e9", b"0.5",
            b"\\u0000", b"\\ud800", b"\\u009b", b"\"ttl_ms\":", b"\"metadata\":{", b"9007199254740992",
            b"18446744073709551616", b"\xff", b"\x7f", b"\xef\xbb\xbf",
        ],
    };
    println!("bodies: {}", hunt.run());
}

#[test]
fn no_token_is_verified_that_nobody_has_signed() {
    let hunt = Hunt {
        decoder: token,
        seeds: &[
            b"eyJhbGciOiJFUzI1NiIsImtpZCI6ImUifQ.eyJpc3MiOiJpIiwiYXVkIjoiYSIsInN1YiI6InMiLCJpYXQiOjAsImV4cCI6OTl9.AAAA",
            b"eyJhbGciOiJIUzI1NiIsImtpZCI6ImUifQ.eyJpc3MiOiJpIn0.AAAA",
            br#"{"keys": [{"kty": "RSA", "kid": "r", "use": "sig", "n": "AQAB", "e": "AQAB"}]}"#,
            b"{repository}/\n{\"repository\": \"acme/web\"}",
            b"https://a/{b}:{c}\n{\"b\": 1, \"c\": \"..\", \"email_verified\": true}",
        ],
        words: &[
            b".", b"eyJ", b"eyJhbGciOiJub25lIn0", b"e30", b"\"kid\":", b"\"crv\": \"P-256\"", b"{", b"}", b"[", b"..",
            b"/", b":", b"\\u202e", b"\\u0000", b"null", b"1e999", b"\n", "\u{e4}".as_bytes(),
        ],
    };
    println!("tokens: {}", hunt.run());
}

#[test]
fn no_reply_is_taken_for_what_it_cannot_be() {
    let hunt = Hunt {
        decoder: reply,
        seeds: &[
            b"*5\r\n$7\r\ngranted\r\n$1\r\ne\r\n*0\r\n:5\r\n:-1\r\n",
            b"*9\r\n$5\r\nagain\r\n$1\r\ne\r\n:5\r\n:1000\r\n:900\r\n:0\r\n:-1\r\n$0\r\n\r\n$7\r\n{\"a\":1}\r\n",
            b"*4\r\n$4\r\nheld\r\n$1\r\ne\r\n:0\r\n$7\r\nforeign\r\n:5\r\n",
            b"*3\r\n$8\r\nreleased\r\n$1\r\ne\r\n*1\r\n*2\r\n$6\r\npassed\r\n:5\r\n",
            b"*6\r\n$1\r\n5\r\n$4\r\n1000\r\n$1\r\n1\r\n$-1\r\n$1\r\na\r\n$2\r\n{}\r\n",
        ],
        words: &[
            b"*1\r\n", b"*0\r\n", b":1\r\n", b":-1\r\n", b"$1\r\ne\r\n", b"$-1\r\n", b"_\r\n", b"#t\r\n",
            b"-ERR\r\n", b"+OK\r\n", b">1\r\n", b"%1\r\n", b"~1\r\n", b",1\r\n", b"(1\r\n",
            b":9223372036854775807\r\n", b":9007199254740992\r\n", b"$9\r\n", b"*2147483647\r\n",
            b"$4\r\nmore\r\n", b"$6\r\nlapsed\r\n", b"$7\r\npassing\r\n", b"$6\r\nnobody\r\n",
        ],
    };
    println!("replies: {}", hunt.run());
}

#[test]
fn no_row_is_taken_that_would_not_be_written_so() {
    let mut lease = vec![1, 0];
    lease.extend_from_slice(&[5, 0, 0, 0, 0, 0, 0, 0]);
    lease.extend_from_slice(&[7; 32]);
    lease.extend_from_slice(&[0xe8, 3, 0, 0, 0, 0, 0, 0]);
    lease.extend_from_slice(&[0; 16]);
    let mut all = lease.clone();
    all[1] = 0b1111;
    all.extend_from_slice(&[0; 8]);
    all.extend_from_slice(b"\x01\0a\x01\x01\0b\x01\0c");
    all.extend_from_slice(&[9; 80]);
    let meta = [&[1][..], &[0; 32], b"\x02\0ab"].concat();
    let hunt = Hunt {
        decoder: row,
        seeds: &[
            &lease,
            &all,
            &meta,
            b"l\0\0\0\0\0\0\0\x05lock",
            &[b'k'; 33],
            &[b'r'; 40],
        ],
        words: &[
            b"l",
            b"m",
            b"g",
            b"b",
            b"\0",
            b"\xff",
            b"\x01\0",
            &[0; 8],
            &[0xff; 8],
            b"\xc3\xa4",
        ],
    };
    println!("rows: {}", hunt.run());
}
