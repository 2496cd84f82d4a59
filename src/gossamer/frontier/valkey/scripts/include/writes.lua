-- Writes with many arguments, and writes that are gathered and made once at the end of a script. Must hold: a script
-- whose includes gather writes calls write_all before it returns, or these are lost; writers run in the order in which
-- the includes added them.

-- Each include that gathers writes adds the function that makes them.
local writers = {}

-- Makes all gathered writes. Every script that gathers any calls it before it returns.
local function write_all()
  for _, write in ipairs(writers) do
    write()
  end
end

-- Calls a command with any number of arguments, a thousand at a time: Lua's stack is small. Pairs are not torn apart.
local function call_with_many(command, arguments)
  for first = 1, #arguments, 1000 do
    redis.call(command, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
end

-- The same for a command whose first argument is a key. Returns the last reply.
local function call_on_key(command, key, arguments)
  local reply
  for first = 1, #arguments, 1000 do
    reply = redis.call(command, key, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
  return reply
end
