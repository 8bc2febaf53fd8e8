#!/usr/bin/env python3
"""One idea: the same for an object in S3 or what speaks its protocol, which compares nothing but ETags.

    python3 examples/object_store.py BUCKET KEY hello        # needs boto3, and LATCHGATE_URL if not localhost

The object carries the fencing token of its last write. Read it, refuse if it is larger than ours, and replace exactly what was
read (`If-Match`), or nothing (`If-None-Match: *`): whoever comes in between is noticed, and we look again. Without the
condition two writers could both read the old object, and the one with the smaller token could write last.
"""

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request

import boto3
from botocore.exceptions import ClientError

GATEWAY = os.environ.get("LATCHGATE_URL", "http://localhost:7420")


def call(method, path, body=None, token=None):
    """Sends a request to the gateway and answers what it says."""
    request = urllib.request.Request(GATEWAY + path, method=method)
    request.add_header("Content-Type", "application/json")
    if token:
        request.add_header("Lock-Token", token)
    data = json.dumps(body).encode() if body is not None else None
    with urllib.request.urlopen(request, data, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def code(error):
    return error.response["Error"]["Code"]


def write(store, bucket, key, body, fence):
    """Writes unless somebody with a larger fencing token has; false if so."""
    while True:
        try:
            found = store.head_object(Bucket=bucket, Key=key)
            # A large one has no place in a float: it stays a whole number.
            if int(found["Metadata"].get("fence", "0")) > fence:
                return False
            condition = {"IfMatch": found["ETag"]}
        except ClientError as error:
            if code(error) not in ("404", "NoSuchKey"):
                raise
            condition = {"IfNoneMatch": "*"}
        try:
            store.put_object(Bucket=bucket, Key=key, Body=body, Metadata={"fence": str(fence)}, **condition)
            return True
        except ClientError as error:
            if code(error) not in ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"):
                raise


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("bucket")
    arguments.add_argument("key")
    arguments.add_argument("body")
    arguments.add_argument("--sleep", type=float, default=0, help="seconds between the grant and the write")
    asked = arguments.parse_args()

    lease = call("POST", "/locks/object", {"ttl_ms": 1000, "wait_ms": 20000})
    print("granted, fencing token", lease["fencing_token"], flush=True)
    time.sleep(asked.sleep)
    if not write(boto3.client("s3"), asked.bucket, asked.key, asked.body.encode(), lease["fencing_token"]):
        sys.exit("too late: somebody with a larger fencing token has been here")
    print("written", flush=True)
    try:
        call("DELETE", "/locks/object", token=lease["token"])
    except urllib.error.HTTPError as error:
        if error.code != 410:
            raise


if __name__ == "__main__":
    main()
