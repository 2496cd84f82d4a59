-- Writes with many arguments, and writes that are gathered and made once at the end of a script. Must hold: a script
-- whose includes gather writes calls write_all before it returns, or these are lost; writers run in the order in which
-- the includes added them. It is called once: what was written may still be noted as changed.

-- Each include that gathers writes adds the function that makes them.
local writers = {}

-- Makes all gathered writes. Every script that gathers any calls it before it returns.
local function write_all()
  for _, write in ipairs(writers) do write() end
end

-- Sets strings, which expire after 2^power ms (0: never). `rows`: key, value, key, value, ..., some thousand at most. One
-- command sets all of them in Valkey 9.1 and Redis 8.4. Older servers do not know it, so they get a command for each.
local function set_strings(power, rows)
  if power == 0 then
    redis.call("MSET", unpack(rows))
    return
  end
  local size = #rows
  rows[size + 1], rows[size + 2] = "PX", 2 ^ power
  local reply = size > 2 and redis.pcall("MSETEX", size / 2, unpack(rows))
  for i = 1, type(reply) == "number" and 0 or size, 2 do
    redis.call("SET", rows[i], rows[i + 1], "PX", 2 ^ power)
  end
end

-- Calls a command on a key with any number of further arguments, a thousand at a time: Lua's stack is small. Pairs are
-- not torn apart. Returns the last reply.
local function call_on_key(command, key, arguments)
  local size, reply = #arguments, nil
  for first = 1, size, 1000 do
    reply = call(command, key, unpack(arguments, first, size < first + 999 and size or first + 999))
  end
  return reply
end
