-- /etc/haproxy/latchgate.lua: asks the gateway, and leaves the status of its answer in txn.check.
local authorization = "Bearer " .. os.getenv("LATCHGATE_KEY")
local url = "http://127.0.0.1:7420/locks/%s/check?for_ms=10000"

core.register_action("latchgate_check", { "http-req" }, function(txn)
    local answer = core.httpclient():get({
        url = url:format(txn:get_var("txn.lock")),
        headers = {
            ["authorization"] = { authorization },
            ["fencing-token"] = { txn.sf:req_fhdr("fencing-token") },
        },
        timeout = 1000,
    })
    txn:set_var("txn.check", answer.status)
end)
