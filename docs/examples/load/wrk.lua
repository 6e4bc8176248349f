-- Load by wrk: the same request over and over. Answers other than 200 are "Non-2xx or 3xx responses" in its report.
local file = assert(io.open("docs/examples/load/request.json"))
wrk.method = "POST"
wrk.body = file:read("*a")
wrk.headers["Content-Type"] = "application/json"
file:close()
