//! The closed list of problem codes, each with status, title, meaning and what the caller should do.

use http::StatusCode;
use serde::Serialize;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, schema::Type},
};

/// Declares the codes together with their texts, so that no code can be added without an entry in `docs/problems.md`.
macro_rules! problem_codes {
    ($($variant:ident = $slug:literal, $status:ident, $title:literal, $meaning:literal, $action:literal;)+) => {
        /// The kind of a problem, by which clients decide what to do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum ProblemCode {
            $(
                #[doc = $meaning]
                #[serde(rename = $slug)]
                $variant,
            )+
        }

        impl ProblemCode {
            /// All problem codes.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The code in JSON and in the path of its page.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $slug),+ }
            }

            /// The HTTP status of every answer with this code.
            pub fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status),+ }
            }

            /// The title: the problem in one line.
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }

            /// What the problem means, in Markdown.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),+ }
            }

            /// What the caller should do, in Markdown.
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
        "Correct the request. The same request gets the same answer.";
    Unauthorized = "unauthorized", UNAUTHORIZED,
        "There is no valid API key",
        "The request has no API key, or a key that is cut off, mistyped, unknown to this gateway or \
         expired, or the cookie of a session that has ended. Nothing happened. \
         A request that waits for a lock gets this answer if its key is withdrawn.",
        "Send a valid key in `Authorization: Bearer KEY`. The detail says if a character is missing. In the \
         dashboard, sign in again.";
    Forbidden = "forbidden", FORBIDDEN,
        "The API key may not do this",
        "The key is valid, but it has no permission for this operation on this lock. The answer is \
         the same whether the lock exists or not. Nothing happened.",
        "Use a key with the permission, or ask the operator for the permission.";
    LimitExceeded = "limit-exceeded", FORBIDDEN,
        "The API key may not ask for this much",
        "The request asks for a longer TTL than the key allows. Nothing happened. If a request \
         names no TTL, the lease gets no longer TTL than the key allows.",
        "Ask for less: the detail names the limit.";
    UndeclaredLock = "undeclared-lock", FORBIDDEN,
        "The lock is not declared",
        "The operator of this gateway lets callers acquire declared locks only (`undeclared = \"refuse\"` in the locks \
         file), and no declaration has this name or a prefix of it. Nothing happened.",
        "Look for a slip in the name, or ask the operator to declare the lock.";
    StaleFencingToken = "stale-fencing-token", FORBIDDEN,
        "The fencing token is stale",
        "No lease with this fencing token holds the lock: the lease has ended, was never granted, or its \
         grant was not delivered yet. `ended_ms_ago` says how long ago the lease ended, if this gateway \
         remembers it.",
        "Resource or proxy: refuse the request. Its sender: stop the work that the lock protects, \
         and acquire the lock again before going on.";
    EndsTooSoon = "ends-too-soon", FORBIDDEN,
        "The lease ends too soon",
        "A lease with this fencing token holds the lock, but lasts less than `for_ms`. `expires_in_ms` says \
         how much of it is left.",
        "Renew the lease, and send the request again; or ask for less time.";
    OriginRefused = "origin-refused", FORBIDDEN,
        "This web page may not use the gateway",
        "A browser sent the request for a web page of another origin that is not on the list of \
         allowed origins, and the request could have changed something or kept a connection. Nothing \
         happened. Pages of the gateway itself, whose host and port are those in the header `Host`, \
         need no entry in the list. Only these pages may use the cookie of a session: a request of any other \
         page with the cookie is refused, even if the page is listed.",
        "If the page is yours, list its origin in `http.allowed_origins`, and let it send an API key and no \
         cookie. If the page is of this \
         gateway and a proxy stands in front of it, let the proxy pass on `Host` unchanged, with its \
         port.";
    NotFound = "not-found", NOT_FOUND,
        "There is nothing at this path",
        "No route of the gateway has this path. A lock is never missing: a lock without \
         a holder is free.",
        "Check the path. A lock is `/locks/NAME`, where NAME is one path segment that is not \
         empty: write `/` in a name as `%2F`. If the client did so, a proxy in front of the gateway has \
         decoded it. `/openapi.json` lists all routes.";
    MethodNotAllowed = "method-not-allowed", METHOD_NOT_ALLOWED,
        "The path does not take this method",
        "The path exists, but not with this method. The header `Allow` lists the allowed methods.",
        "Use one of the methods in `Allow`.";
    NotAcceptable = "not-acceptable", NOT_ACCEPTABLE,
        "The answer has no form that the request accepts",
        "The header `Accept` excludes every form in which this route answers. Nothing happened.",
        "Leave `Accept` out, or include `application/json`.";
    RequestTimeout = "request-timeout", REQUEST_TIMEOUT,
        "The request took too long to arrive",
        "The client did not send the body of the request in time. Nothing happened.",
        "Send the request again. If this happens often, look at the network between the client \
         and the gateway.";
    IdempotencyMismatch = "idempotency-mismatch", CONFLICT,
        "The idempotency key belongs to a different request",
        "An earlier request with this `Idempotency-Key` had another \
         `ttl_ms`, `max_hold_ms`, `min_hold_ms`, `mode`, `limit`, `supersedes`, `reserve`, `order`, `rollback`, `owner` or \
         `metadata`, or other locks.",
        "Repeat the request exactly as it was first sent, or use a new key for a new request.";
    UnsupportedByStore = "unsupported-by-store", UNPROCESSABLE_ENTITY,
        "The store of this gateway cannot do this",
        "A quorum of Redis servers cannot share a lock, because a majority cannot count its holders, cannot let \
         a lock rest after a release, has no common queue from which a newer waiter takes an older one, has \
         no common clock by which a reservation ends, and remembers no order. Nothing happened.",
        "Ask for the lock without `mode`, `limit`, `min_hold_ms`, `supersedes`, `reserve` and `order`, or use a \
         gateway on another store.";
    IdempotencyExpired = "idempotency-expired", CONFLICT,
        "The lease under this idempotency key has ended",
        "The lease that was granted under this `Idempotency-Key` was released or has expired \
         within the last minute, or the lock rests since. A late repetition must not acquire the lock again. \
         Use a new key for each attempt to acquire a lock.",
        "Regard the work under that lease as over. To acquire the lock again, use a new key.";
    RequestReplaced = "request-replaced", CONFLICT,
        "A newer request with the same key took over",
        "A later request with the same `Idempotency-Key` came before this request was answered. The \
         newest request has the position in the queue, the lease and the answer.",
        "Wait for the answer to the newer request. If that answer does not come either, ask once more \
         with the same key. If you sent only one request, a program between you and the gateway has \
         repeated it.";
    NewerWaiter = "newer-waiter", CONFLICT,
        "A newer waiter took this request out of the queue",
        "A later request with the same `supersedes` waits for the lock now. This request was not granted the \
         lock.",
        "Do not repeat the request: the newer request waits in its place.";
    ReservationOver = "reservation-over", CONFLICT,
        "The reservation is over before it began",
        "The time in `reserve.until` came before this request was granted the lock. The request reserved nothing.",
        "Ask for a later time, if the lock is still needed.";
    OutdatedOrder = "outdated-order", CONFLICT,
        "The lock was granted for newer work",
        "The lock was granted for a higher `order` than that of this request (`granted_order`), so the work of \
         this request would undo newer work. The request was not granted the lock, and does not wait. \
         `order_granted` says when and to whom the lock was granted, if the API key may view the lock.",
        "Do not repeat the request: newer work was begun. To go back on purpose, send `rollback` with the reason. \
         If `granted_order` is a mistake, correct it with `PUT /locks/NAME/granted-order`.";
    OrderChanged = "order-changed", CONFLICT,
        "The lock remembers another order now",
        "The lock does not remember the order in `if_order`. Nothing was changed. `granted_order` is the order that \
         it remembers; it is missing if the lock remembers none.",
        "Look at the lock and decide again.";
    DeclaredDifferently = "declared-differently", CONFLICT,
        "The lock is declared with other terms",
        "The operator has declared terms of this lock, and the request says something else. `errors` has each field \
         with both values. Nothing happened.",
        "Leave these fields out: then the request takes the declared terms. If the declaration is wrong, ask the \
         operator to change it.";
    HolderChanged = "holder-changed", CONFLICT,
        "Another caller holds the lock now",
        "The request names a holder to break, which does not hold the lock; other callers do. Nothing was broken.",
        "Inspect the lock and decide again.";
    NotHeld = "not-held", CONFLICT,
        "Nobody holds the lock",
        "The lock that was to be broken is free.",
        "Nothing is left to do.";
    WrongStore = "wrong-store", CONFLICT,
        "The gateway's store cannot do this",
        "A gateway backs up the embedded store only, and this gateway has another store. Nothing \
         happened.",
        "Back up the store with its own tools.";
    LeaseLost = "lease-lost", GONE,
        "The token does not hold the lock",
        "The lease has expired or was released or broken, or the token was never a token of this \
         lock. `held` says whether another caller holds the lock now, or, of several locks, at \
         least one of them. For several locks, `results` has the outcome of each.",
        "Stop the work that the lock protects: another caller may be doing it. Acquire the \
         lock again before going on. If you repeat a release whose answer was lost, this answer may \
         mean that the first copy ended the lease; then nothing is left to do. To tell this case \
         from a lost lease, acquire with an `Idempotency-Key`: for a minute a \
         repeated release is answered 204 again. Of several locks that are released together this holds \
         for the last name only.";
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
         not answer. Nothing happened. Without API keys a gateway answers for loopback, for the address it \
         listens on and for `http.allowed_hosts` only, so that no web page can reach it \
         through a host name that resolves to its address.",
        "Address the gateway as `localhost` or by its IP address, or list the name in \
         `http.allowed_hosts`.";
    Locked = "locked", LOCKED,
        "The lock is held",
        "Another caller holds the lock, as many share it as the `limit` allows, it rests after a release \
         (`min_hold_ms`), or earlier waiters come first; and the request got no lease while it waited. `holders` says who holds the lock (of several locks the one in `name`), `holder_count` how many hold it, `resting` what rests and for how long, `waiters` how many wait, `retry_after_ms` (and the header \
         `Retry-After`, in seconds) when to ask again.",
        "Ask again after `retry_after_ms`, or give up. To wait in the queue, ask with \
         `wait_ms`. To keep the position from one request to the next, ask with an \
         `Idempotency-Key`, and again within five seconds.";
    RateLimited = "rate-limited", TOO_MANY_REQUESTS,
        "Too many requests",
        "The API key has sent more requests, or has more streams, than it may; or one address has sent \
         too many requests with unknown keys; or the key has checked more fencing tokens than \
         `limits.checks_per_second` allows. Nothing happened. Renew and release \
         are not counted.",
        "Ask again after `Retry-After` seconds.";
    TooManyWaiters = "too-many-waiters", TOO_MANY_REQUESTS,
        "Too many requests wait already",
        "The queue of this lock is full, or this gateway or this API key has as many \
         waiters as it may. \
         Nothing happened: the request was not queued.",
        "Ask again after `Retry-After` seconds. So long a queue usually means a holder that \
         does not release, or callers that wait for the same lock again and again.";
    TooManyLeases = "too-many-leases", TOO_MANY_REQUESTS,
        "The API key holds too many leases",
        "The API key has as many leases from this gateway as it may. Waiters count as well, \
         because each may get a lease. Nothing happened.",
        "Release a lease first, or ask again after `Retry-After` seconds.";
    TooManyOrders = "too-many-orders", TOO_MANY_REQUESTS,
        "Orders of too many locks are remembered",
        "The store remembers the orders of as many locks as it may (`limits.max_orders`), and none of this lock. \
         Nothing happened.",
        "Ask without `order`, or use fewer names: an order is remembered for `limits.order_keep_ms` after its last \
         grant.";
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
        "A key of this lock in the store holds a value that no gateway wrote, or that a \
         newer version wrote. The detail names the key. The value is never overwritten.",
        "Find out which program uses the key. Delete the key if it is not needed, or upgrade the gateway.";
    StoreUnavailable = "store-unavailable", SERVICE_UNAVAILABLE,
        "The store cannot be used now",
        "The store could not be reached, or refused the command. **Nothing happened.**",
        "It is safe to send the request again, after a moment.";
    Draining = "draining", SERVICE_UNAVAILABLE,
        "The gateway is about to stop",
        "The gateway takes no new acquires because it is shutting down. A request that waited for \
         a lock has left the queue; with an `Idempotency-Key` its position is kept for five seconds. \
         Nothing was granted. Renew and release still work.",
        "Send the request again, with the same `Idempotency-Key` if it had one: a load balancer \
         sends it to another gateway.";
    Overloaded = "overloaded", SERVICE_UNAVAILABLE,
        "The gateway has too much to do",
        "The gateway works on as many requests, or has as many connections open, as it may. \
         Nothing happened. Renew and release have a reserve of their own.",
        "It is safe to send the request again, after `Retry-After` seconds.";
    IssuerUnavailable = "issuer-unavailable", SERVICE_UNAVAILABLE,
        "The issuer of the ID token cannot be reached",
        "The gateway has no keys of the issuer, or not the key that has signed the ID token, and cannot fetch them. Nothing \
         happened. API keys, and keys that were exchanged before, go on.",
        "Send the request again, after `Retry-After` seconds. The operator finds the reason in the log.";
    FenceExhausted = "fence-exhausted", SERVICE_UNAVAILABLE,
        "No fencing token is left",
        "The counter of fencing tokens has reached 2^53 - 1, the last number that JSON \
         carries exactly. This happens only if another program wrote the counter, or if a clock was \
         centuries ahead. Nothing happened: holders keep their locks, and no lock is \
         granted.",
        "An operator must start the counter again. The new fencing tokens are smaller than the \
         old ones, so stop every program that writes to the protected resources first, or delete \
         the fencing tokens that the resources remember. If a clock was wrong, correct it. Stop all \
         gateways, because they remember the counter. With Redis, delete the counter: the key that \
         matches `lg:*:fence` and has the value 9007199254740991 (`redis-cli --scan --pattern \
         'lg:*:fence'` lists the candidates); on a quorum delete it and `lg:{}:node` on each of its \
         nodes. With the embedded store, begin with a new data directory: its leases are lost. \
         Then start the gateways.";
    OutcomeUnknown = "outcome-unknown", GATEWAY_TIMEOUT,
        "It is not known what happened",
        "The store did not answer a command in time. **The request may have taken effect.** A lease \
         whose grant was not delivered is released.",
        "Acquire: repeat the request with the same `Idempotency-Key`. Renew and release: \
         repeat the request. Or inspect the lock.";
}

// === impl ProblemCode ===

impl ProblemCode {
    /// Parses a code as JSON has it, such as `lease-lost`.
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
                "The kind of problem, by which clients decide. `/problems/{code}` explains each.",
            ))
            .into()
    }
}

impl ToSchema for ProblemCode {}
