-- wrk's script: the requests of a file, each once; wrk's threads take turns with its lines. A line
-- is an idempotency key or nothing, a tab, and a body.
local threads = 0

function setup(thread)
  thread:set("first", threads)
  threads = threads + 1
end

function init(args)
  bodies = {}
  for line in io.lines(args[1]) do bodies[#bodies + 1] = line end
  step = tonumber(args[2])
  at = first
  headers = { ["Content-Type"] = "application/json", ["X-Api-Key"] = args[3] }
end

function request()
  at = at + step
  local name, body = bodies[(at % #bodies) + 1]:match("([^\t]*)\t(.*)")
  headers["Idempotency-Key"] = name ~= "" and name .. "-" .. os.time() .. "-" .. at or nil
  return wrk.format("POST", nil, headers, body)
end

function done(summary, latency)
  io.write(string.format("RESULT %d %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), summary.errors.status + summary.errors.read
    + summary.errors.write + summary.errors.timeout + summary.errors.connect))
end
