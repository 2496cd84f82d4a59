-- Terms of submissions: the limits that the scripts read, and what only workers read. A crawl numbers its terms on each
-- shard; each entry in a queue carries the number. Fixed, because they are stored (codec.py packs them): the order of
-- the limits. Another one needs another FORMAT in identity.py. Token: 16 characters that stand for a crawl.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include crawls

local terms_by_number = {} -- by token, then number

-- Limits come as msgpack, with an opaque blob right behind them, which only workers read. `expires`: epoch ms, 0 for
-- never. A limit that was not asked for is false; that of assets is missing in terms that an older version has stored.
local function unpack_terms(packed)
  local offset, limits = cmsgpack.unpack_one(packed)
  return { expires = limits[1], domain_max_pages = limits[2], domain_max_pending = limits[3], max_assets = limits[4],
    blob = offset > 0 and string.sub(packed, offset + 1) or "" }
end

-- Returns the terms with this number, in the form of unpack_terms; without limits where the crawl is gone.
local function terms_of(token, number)
  local known = terms_by_number[token] or {}
  terms_by_number[token] = known
  local terms = known[number]
  if not terms then
    local crawl = crawl_of(token)
    local packed = number == 1 and crawl and crawl.first_terms or redis.call("HGET", BASE .. "t:" .. token, number)
    terms = packed and unpack_terms(packed) or { expires = 0, blob = "" }
    known[number] = terms
  end
  return terms
end
