-- wrk's script: the bodies of a file, each once; wrk's threads take turns with its lines.
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
  return wrk.format("POST", nil, headers, bodies[(at % #bodies) + 1])
end

function done(summary, latency)
  io.write(string.format("RESULT %d %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), summary.errors.status + summary.errors.read
    + summary.errors.write + summary.errors.timeout + summary.errors.connect))
end
