//! The closed list of problems: what each means and what to do about it.

use http::StatusCode;
use serde::Serialize;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, schema::Type},
};

/// Declares the codes together with their status, title, meaning and action, so that no code can be added
/// without its page.
macro_rules! problem_codes {
    ($($variant:ident = $slug:literal, $status:ident, $title:literal, $meaning:literal, $action:literal;)+) => {
        /// What went wrong: the value to decide by.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum ProblemCode {
            $(
                #[doc = $meaning]
                #[serde(rename = $slug)]
                $variant,
            )+
        }

        impl ProblemCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The code as it is written in JSON and in the path of its page.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $slug),+ }
            }

            /// The HTTP status of every answer with this code.
            pub fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status),+ }
            }

            /// The problem in one line.
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }

            /// What the problem means, in Markdown.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),+ }
            }

            /// What the caller can do about the problem, in Markdown.
            pub fn action(self) -> &'static str {
                match self { $(Self::$variant => $action),+ }
            }
        }
    };
}

problem_codes! {
    InvalidRequest = "invalid-request", BAD_REQUEST,
        "The request is not as specified",
        "The name in the path, a header, the query or the body is not what this call takes. \
         Nothing happened. `errors` names every field that is wrong and says what is \
         expected.",
        "Correct the request. Sending it again unchanged gives the same answer.";
    Unauthorized = "unauthorized", UNAUTHORIZED,
        "An API key is needed",
        "The request carries no API key, one that was cut off or mistyped, or one that this gateway \
         does not know or that has expired; or the cookie of a session that has ended. Nothing happened. \
         A request that waited for a lock is answered so when its key is taken back.",
        "Send a valid key in `Authorization: Bearer KEY`. The detail says if a character is missing. In the \
         dashboard, sign in again.";
    Forbidden = "forbidden", FORBIDDEN,
        "The API key may not do this",
        "The key is valid, but it has no permission for this operation on this lock. The answer is \
         the same whether the lock exists or not. Nothing happened.",
        "Use a key with the permission, or ask the operator for it.";
    LimitExceeded = "limit-exceeded", FORBIDDEN,
        "The API key may not ask for this much",
        "The request asks for a longer TTL than the key allows. Nothing happened. A TTL that is not \
         asked for is as long as the key allows.",
        "Ask for less: the detail names the limit.";
    OriginRefused = "origin-refused", FORBIDDEN,
        "This web page may not use the gateway",
        "A browser sent the request for a web page of another origin, which is not on the list of \
         allowed origins, and the request could have changed something or kept a connection. Nothing \
         happened. Pages of the gateway itself may use it: those whose host and port are the ones in \
         the header `Host`. Only they may use the cookie of a session: with it every request of another \
         page is refused, also of one that is listed.",
        "If the page is yours, list its origin in `http.allowed_origins`, and let it send an API key and no \
         cookie. If the page is of this \
         gateway and a proxy stands in front of it, let the proxy pass on `Host` as it came, with its \
         port.";
    NotFound = "not-found", NOT_FOUND,
        "There is nothing at this path",
        "No route of the gateway has this path. A lock is never missing: one that nobody \
         holds is free.",
        "Check the path. A lock is `/locks/NAME`, where NAME is one path segment that is not \
         empty. `/openapi.json` lists all routes.";
    MethodNotAllowed = "method-not-allowed", METHOD_NOT_ALLOWED,
        "The path does not take this method",
        "The path exists, but not with this method. The header `Allow` lists the methods it \
         takes.",
        "Use one of the methods in `Allow`.";
    NotAcceptable = "not-acceptable", NOT_ACCEPTABLE,
        "The answer has no form that the request accepts",
        "The header `Accept` excludes every form in which this route answers. Nothing \
         happened.",
        "Leave `Accept` out, or include `application/json`.";
    RequestTimeout = "request-timeout", REQUEST_TIMEOUT,
        "The request took too long to arrive",
        "The client did not send the body of the request in time. Nothing \
         happened.",
        "Send the request again. If it happens often, look at the network between the client \
         and the gateway.";
    IdempotencyMismatch = "idempotency-mismatch", CONFLICT,
        "The idempotency key belongs to a different request",
        "A lease, or a place in the queue, was asked for under this `Idempotency-Key` with another \
         `ttl_ms`, `max_hold_ms`, `mode`, `limit`, `owner` or `metadata`, or for other locks.",
        "Repeat the request exactly as it was first sent, or use a new key for a new request.";
    UnsupportedByStore = "unsupported-by-store", UNPROCESSABLE_ENTITY,
        "The store of this gateway cannot do this",
        "A quorum of Redis servers cannot share a lock: a majority of counters does not bound a count. Nothing \
         happened.",
        "Ask for the lock without `mode` and `limit`, or use a gateway on another store.";
    IdempotencyExpired = "idempotency-expired", CONFLICT,
        "The lease under this idempotency key has ended",
        "The lease that was granted under this `Idempotency-Key` was released or has expired \
         within the last minute. A late repetition must not take the lock again.",
        "The work under that lease is over. To take the lock again, use a new key.";
    Superseded = "superseded", CONFLICT,
        "A newer request with the same key took over",
        "A later request with the same `Idempotency-Key` came before this one was answered. The \
         newest one owns the place in the queue and the lease, and has the answer.",
        "Wait for the answer to the newer request, and if that one has none either, ask once more \
         with the same key. If you sent only one, something between you and the gateway has \
         repeated it.";
    HolderChanged = "holder-changed", CONFLICT,
        "Somebody else holds the lock now",
        "The lock was to be broken only if a certain holder had it, and that one does not: others do.",
        "Inspect the lock and decide again.";
    NotHeld = "not-held", CONFLICT,
        "Nobody holds the lock",
        "The lock was to be broken, and it is free.",
        "Nothing is left to do.";
    WrongStore = "wrong-store", CONFLICT,
        "The gateway's store cannot do this",
        "Only the embedded store is backed up through the gateway, and this gateway has another one. Nothing \
         happened.",
        "Back up the store with its own means.";
    LeaseLost = "lease-lost", GONE,
        "The token does not hold the lock",
        "The lease has expired or was released or broken, or the token was never one of this \
         lock. `held` says whether somebody else holds the lock now, of several locks whether somebody else holds one \
         of them; `results` says then what came of each.",
        "Stop the work that the lock protects: somebody else may be doing it. Acquire the \
         lock again before going on. A release that repeats one whose answer was lost may be \
         answered like this because that one ended the lease; nothing is left to do then. To tell \
         that from a lease that was lost before, acquire with an `Idempotency-Key`: for a minute a \
         repeated release is answered 204 again. Of several locks that are released together only the release of \
         the last name is remembered so.";
    TooLarge = "too-large", PAYLOAD_TOO_LARGE,
        "The request body is too large",
        "The body is longer than the gateway accepts. Nothing happened.",
        "Send less: metadata is for small facts about the holder, not for data.";
    UriTooLong = "uri-too-long", URI_TOO_LONG,
        "The request target is too long",
        "Path and query together are longer than the gateway accepts. Nothing happened.",
        "Shorten the path. A lock name has at most 200 characters.";
    UnsupportedMediaType = "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE,
        "The body is not JSON",
        "The request has a body, and its `Content-Type` is not `application/json`, or it has \
         a `Content-Encoding`. Nothing happened.",
        "Send `Content-Type: application/json`. With curl, use `--json` instead of `-d`. A \
         request without a body needs no content type.";
    WrongHost = "wrong-host", MISDIRECTED_REQUEST,
        "The request is for another host",
        "The header `Host`, or the target of the request, names a host for which this gateway does \
         not answer. Nothing happened. Without API keys it answers for loopback, for the address it \
         listens on and for what its configuration lists, so that no web page can reach it \
         through a host name that resolves to its address.",
        "Address the gateway as `localhost` or by its IP address, or list the name in \
         `http.allowed_hosts`.";
    Locked = "locked", LOCKED,
        "The lock is held",
        "Somebody else holds the lock, or as many share it as the `limit` allows, or others wait and come \
         first; and it stayed so while the request waited. `holders` says who holds it, of several locks the one in `name`, `holder_count` how many, `waiters` how many stand in the queue, `retry_after_ms` (and the header \
         `Retry-After`, in seconds) when to ask again.",
        "Ask again after `retry_after_ms`, or give up. To get the lock when it is free, ask with \
         `wait_ms`. To keep the place in the queue from one request to the next, ask with an \
         `Idempotency-Key`, and again within five seconds.";
    RateLimited = "rate-limited", TOO_MANY_REQUESTS,
        "Too many requests",
        "The API key has sent more requests, or has more streams, than it may; or too many requests \
         with keys that are not known came from one address. Nothing happened. Renew and release \
         are not counted.",
        "Ask again after `Retry-After` seconds.";
    TooManyWaiters = "too-many-waiters", TOO_MANY_REQUESTS,
        "Too many requests wait already",
        "The queue of this lock is full, or as many requests wait at this gateway, or with this \
         API key, as may. \
         Nothing happened: the request was not queued.",
        "Ask again after `Retry-After` seconds. So long a queue is mostly a sign of a holder that \
         does not release, or of callers that wait for the same lock again and again.";
    TooManyLeases = "too-many-leases", TOO_MANY_REQUESTS,
        "The API key holds too many leases",
        "The API key has as many leases from this gateway as it may. Requests that wait count too: \
         each may yet get a lease. Nothing happened.",
        "Release a lease first, or ask again after `Retry-After` seconds.";
    HeadersTooLarge = "headers-too-large", REQUEST_HEADER_FIELDS_TOO_LARGE,
        "The request headers are too large",
        "All headers together are larger than the gateway accepts, or there are more than 100 of \
         them. Nothing happened.",
        "Send fewer or shorter headers. Cookies of other services on the same host are a \
         common cause.";
    Internal = "internal", INTERNAL_SERVER_ERROR,
        "The gateway made a mistake",
        "This is a bug in the gateway. The request may or may not have been carried out.",
        "Inspect the lock to learn what happened, and report the bug with the `request_id`.";
    ForeignData = "foreign-data", INTERNAL_SERVER_ERROR,
        "Something else lies where the gateway keeps this lock",
        "A key of this lock in the store holds data that the gateway did not write, or that a \
         newer version wrote. The detail names the key. It is never overwritten.",
        "Find out who uses the key. Remove it if it is not needed, or upgrade the gateway.";
    StoreUnavailable = "store-unavailable", SERVICE_UNAVAILABLE,
        "The store cannot be used now",
        "The store could not be reached, or it refused. **Nothing happened.**",
        "It is safe to send the request again, after a moment.";
    Draining = "draining", SERVICE_UNAVAILABLE,
        "The gateway is about to stop",
        "The gateway takes no new acquires because it is shutting down. A request that waited for \
         a lock has left the queue; with an `Idempotency-Key` its place is kept for five seconds. \
         Nothing was granted. Renew and release still work.",
        "Send the request again, with the same `Idempotency-Key` if it had one: a load balancer \
         takes it to another gateway.";
    Overloaded = "overloaded", SERVICE_UNAVAILABLE,
        "The gateway has too much to do",
        "As many requests are worked on, or as many connections are open, as the gateway takes. \
         Nothing happened. Renew and release have room of their own.",
        "It is safe to send the request again, after `Retry-After` seconds.";
    FenceExhausted = "fence-exhausted", SERVICE_UNAVAILABLE,
        "No fencing token is left",
        "The counter of fencing tokens has reached 2^53 - 1, the last number that JSON \
         carries exactly. That only happens if somebody has written it, or if a clock was \
         centuries ahead. Nothing happened: who holds a lock goes on holding it, and nobody gets \
         a new one.",
        "An operator must start the counter again. The new fencing tokens are smaller than the \
         old ones, so stop everything that writes to the protected resources first, or make them \
         forget the fencing tokens that they remember. Correct the clock if it was one. Stop all \
         gateways: they remember the counter. With Redis, delete the counter: the key that \
         matches `lg:*:fence` and has the value 9007199254740991 (`redis-cli --scan --pattern \
         'lg:*:fence'` lists the candidates); on a quorum delete it and `lg:{}:node` on each of its \
         nodes. With the embedded store, begin with a new data directory: its leases are lost. \
         Then start the gateways.";
    OutcomeUnknown = "outcome-unknown", GATEWAY_TIMEOUT,
        "It is not known what happened",
        "The store was asked and did not answer in time. **It may have happened.** A lease \
         whose grant was never answered is released.",
        "Acquire: repeat the request with the same `Idempotency-Key`. Renew and release: \
         repeat the request. Or inspect the lock.";
}

// === impl ProblemCode ===

impl ProblemCode {
    /// Reads a code as it is written in JSON.
    pub fn from_slug(slug: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == slug)
    }
}

impl PartialSchema for ProblemCode {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(Self::ALL.iter().map(|code| code.as_str())))
            .description(Some(
                "What went wrong: the value to decide by. `/problems/{code}` says what each means.",
            ))
            .into()
    }
}

impl ToSchema for ProblemCode {}
