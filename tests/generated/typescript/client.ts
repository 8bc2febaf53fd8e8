// Takes a lock through its life with the types of openapi-typescript, by openapi-fetch: `node client.js URL`.

import createClient from "openapi-fetch";

import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

type ProblemCode = components["schemas"]["ProblemCode"];

function must<T>(value: T | undefined, what: string): T {
    if (value === undefined) throw new Error(what);
    return value;
}

function check(is: boolean, what: unknown): void {
    if (!is) throw new Error(JSON.stringify(what));
}

const client = createClient<paths>({ baseUrl: must(process.argv[2], "no URL") });
const name = "generated/typescript";
const path = { name };
const headers = (token: string) => ({ path, header: { "Lock-Token": token } });

// A body may be left out, and so may each field of it.
const first = await client.POST("/locks/{name}", { params: { path } });
const lease = must(first.data, "not granted");
check(first.response.status === 201 && lease.fencing_token > 0, first.error);

const second = await client.POST("/locks/{name}", { params: { path }, body: { owner: "second" } });
const locked: ProblemCode = "locked";
check(second.response.status === 423 && second.error?.code === locked, second.error);
check(typeof second.error?.holders?.[0]?.expires_in_ms === "number", second.error);

const renewed = await client.PUT("/locks/{name}/renew", {
    params: headers(lease.token),
    body: { ttl_ms: 60000 },
});
check(renewed.data?.ttl_ms === 60000, renewed.error);

const page = await client.GET("/locks", { params: { query: { prefix: "generated/" } } });
check(must(page.data, "no page").locks.some((lock) => lock.name === name), page.data);

const waiting = client.POST("/locks/{name}", { params: { path }, body: { wait_ms: 25000 } });
const deadline = Date.now() + 20000;
for (;;) {
    const shown = await client.GET("/locks/{name}", { params: { path } });
    if (shown.data?.waiter_count === 1) break;
    check(Date.now() < deadline, shown);
}

// The token is in the header, and no body is needed.
const released = await client.POST("/locks/{name}/release", { params: headers(lease.token) });
check(released.response.status === 204, released.error);

const next = must((await waiting).data, "the wait did not end with a lease");
check(next.fencing_token > lease.fencing_token, next);

const lost = await client.PUT("/locks/{name}/renew", { params: headers(lease.token) });
check(lost.response.status === 410 && lost.error?.code === "lease-lost", lost.error);

const ended = await client.DELETE("/locks/{name}", { params: headers(next.token) });
check(ended.response.status === 204, ended.error);

// In place of a name, an object asks for one lock of several in a mode of its own.
const pool = { name: "generated:pool", limit: 2 };
const group = await client.POST("/locks", { body: { names: [name, pool] } });
const leases = must(group.data, "no group").leases;
const [alone, pooled] = [name, pool.name].map((one) => leases.find((lease) => lease.name === one));
check(leases.length === 2 && pooled?.slot === 0 && alone?.mode === "exclusive", leases);
