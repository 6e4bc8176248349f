-- wrk against any of Ferry's HTTP protocols, with the body and headers of a file that `make_body.py` wrote.
--
--   python bench/load/make_body.py http://127.0.0.1:8501/v1/models/digits:predict body
--   wrk -t1 -c64 -d10s --latency -s bench/load/predict.lua http://127.0.0.1:8501/v1/models/digits:predict -- body
--
-- Ends with the count of replies that were no success: figures with any are worth nothing.

local made

function init(args)
  local name = args[1] or error("say which body: wrk ... URL -- BODY")
  local headers = {}
  for line in io.lines(name .. ".headers") do
    local key, value = line:match("^([^:]+):%s*(.*)$")
    headers[key] = value
  end
  local file = assert(io.open(name, "rb"))
  made = wrk.format("POST", nil, headers, file:read("*a"))
  file:close()
end

function request()
  return made
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format("failed: %d statuses, %d connections, %d timeouts\n",
    errors.status, errors.connect + errors.read + errors.write, errors.timeout))
end
